"""Connections of organizations to databases, and who uses them."""

from __future__ import annotations

import msgspec

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows, setting
from rota.stores.mongodb.schema import LIVING
from rota.stores.mongodb.statements.joining import users_of

CONNECTION = ("_id", "organization_id", "name", "url", "login", "secret", "multi", "version", "created_by", "created_at", "updated_at")


class _Said(msgspec.Struct):
    connection: str | msgspec.UnsetType | None = msgspec.UNSET


_said = msgspec.json.Decoder(_Said).decode


@statement
def connections(db: Db) -> list[Row]:
    """Return every connection."""
    return rows(db.find("connections", {}, CONNECTION, sort=[("organization_id", 1), ("name", 1)]), CONNECTION)


@statement
def connection(db: Db, *, organization_id: str, name: str) -> list[Row]:
    """Return a connection."""
    return rows(db.find("connections", {"organization_id": organization_id, "name": name}, CONNECTION), CONNECTION)


@statement
def add_connection(
    db: Db,
    *,
    connection_id: str,
    organization_id: str,
    name: str,
    url: str,
    login: str | None,
    secret: str | None,
    multi: int,
    actor: str,
    now: int,
) -> int:
    """Keep a new connection."""
    said = {"url": url, "login": login, "secret": secret, "multi": multi}
    made = {"version": 1, "created_by": actor, "created_at": now, "updated_at": now}
    return db.insert("connections", document(_id=ident(connection_id), organization_id=organization_id, name=name, **said, **made))


@statement
def change_connection(
    db: Db, *, organization_id: str, name: str, url: str, login: str | None, secret: str | None, multi: int, now: int
) -> int:
    """Change a connection."""
    change = setting(url=url, login=login, secret=secret, multi=multi, updated_at=now) | {"$inc": {"version": 1}}
    return db.update("connections", {"organization_id": organization_id, "name": name}, change)


@statement
def drop_connection(db: Db, *, organization_id: str, name: str) -> int:
    """Remove a connection."""
    return db.delete("connections", {"organization_id": organization_id, "name": name})


@statement
def connection_is_there(db: Db, *, organization_id: str, name: str) -> list[Row]:
    """Say whether there is a connection of this name."""
    return [(db.has("connections", {"organization_id": organization_id, "name": name}),)]


@statement
def connections_naming_secret(db: Db, *, organization_id: str, name: str, limit: int) -> list[Row]:
    """Return the names of connections that name a secret."""
    where = {"organization_id": organization_id, "secret": name}
    return rows(db.find("connections", where, ("name",), sort=[("name", 1)], limit=limit), ("name",))


@statement
def users_of_connection(db: Db, *, organization_id: str, name: str, kind: str, limit: int) -> list[Row]:
    """Return jobs, and templates that all share, that name a connection; with a `kind`, those of that kind that name none, too."""
    columns = ("name", "kind", "organization_id", "defaults", "overrides")
    templates = [
        template
        for template in db.cursor("templates", LIVING, columns)
        if (named := _connection_of(template)) == name or (named is None and template["kind"] == kind)
    ]
    return users_of(db, templates, organization_id, limit)


def _connection_of(template: Document) -> str | None:
    """Return the connection that a template names. What people say takes precedence over the code, also if they say none."""
    said = _said(template["overrides"]).connection
    if said is msgspec.UNSET:
        said = _said(template["defaults"]).connection
    return None if said is msgspec.UNSET else said
