"""Connections in SQL. A change advances the definitions' version, by which every process learns that what it knows is old."""

from __future__ import annotations

from typing import Any

from rota.errors import ChangedMeanwhile, NotFound, StillNeeded
from rota.model.connections import DEFAULT, Connection
from rota.model.gate import Actor
from rota.model.grants import SHOWN
from rota.model.schedules import JobKind
from rota.model.values import Instant, dashed, moment, undashed
from rota.stores.verbs import grants
from rota.stores.verbs.db import Db, audit


def connections(db: Db) -> list[Connection]:
    """Return every connection."""
    return [_connection(row) for row in db.rows("connections")]


def put_connection(db: Db, connection: Connection, *, actor: Actor, now: Instant, version: int | None = None) -> Connection:
    """Create a connection, or change the one of its name."""
    present = _named(db, connection.organization, connection.name)
    has = 0 if present is None else present.version
    if version is not None and version != has:
        raise ChangedMeanwhile(f"connection {connection.name!r}", has=has, given=version)
    before, after = None if present is None else _said(present), _said(connection)
    if present is not None and before == after:
        return present
    values = {"organization_id": connection.organization, "name": connection.name, **after, "multi": int(connection.multi), "now": now}
    if present is None:
        db.change("add_connection", connection_id=undashed(connection.id), actor=actor.name, **values)
    else:
        db.change("change_connection", **values)
    db.change("advance_definitions")
    word = "create" if present is None else "change"
    _audit(db, connection, f"connection.{word}", actor, now, before=before, after=after)
    written = _named(db, connection.organization, connection.name)
    assert written is not None  # noqa: S101 - written in this transaction
    return written


def drop_connection(db: Db, name: str, *, organization: str, actor: Actor, now: Instant, version: int | None = None) -> None:
    """Remove a connection that no job uses, and the grants on it."""
    present = _named(db, organization, name)
    if present is None:
        raise NotFound(f"there is no connection {name!r} in organization {organization!r}: `rota connection list` shows them")
    if version is not None and version != present.version:
        raise ChangedMeanwhile(f"connection {name!r}", has=present.version, given=version)
    kind = str(JobKind.SQL) if name == DEFAULT else ""
    used = [row[0] for row in db.rows("users_of_connection", organization_id=organization, name=name, kind=kind, limit=SHOWN + 1)]
    if used:
        raise still_needed(f"connection {name!r}", used, "use it: change or drop")
    db.change("drop_connection", organization_id=organization, name=name)
    grants.remove_those_on_connection(db, organization, name, actor, now)
    db.change("advance_definitions")
    _audit(db, present, "connection.delete", actor, now, before=_said(present))


def still_needed(what: str, users: list[str], doing: str) -> StillNeeded:
    """Return the refusal to drop what others use: jobs by their names, templates with that word before it."""
    kinds = {"templates" if user.startswith("template ") else "jobs" for user in users}
    shown = ", ".join(users[:SHOWN]) + (" and others" if len(users) > SHOWN else "")
    return StillNeeded(f"{what} can't be dropped while {' and '.join(sorted(kinds))} {doing} {shown} first")


def _named(db: Db, organization: str, name: str) -> Connection | None:
    row = db.row("connection", organization_id=organization, name=name)
    return None if row is None else _connection(row)


def _audit(db: Db, connection: Connection, action: str, actor: Actor, now: Instant, *, before: Any = None, after: Any = None) -> None:
    audit(db, actor, now, action, ("connection", connection.name), before=before, after=after, organization=connection.organization)


def _said(connection: Connection) -> dict[str, Any]:
    """Return what can be changed of a connection, which is also what the audit trail keeps: it holds no password."""
    return {name: getattr(connection, name) for name in ("url", "login", "secret", "multi")}


def _connection(row: tuple[Any, ...]) -> Connection:
    connection_id, organization, name, url, login, secret, multi, version, created_by, created_at, updated_at = row
    return Connection(
        id=dashed(connection_id),
        organization=organization,
        name=name,
        url=url,
        login=login,
        secret=secret,
        multi=bool(multi),
        version=version,
        created_by=created_by,
        created_at=moment(created_at),
        updated_at=moment(updated_at),
    )
