"""Bringing a schema up to date, whole or not at all."""

from __future__ import annotations

import msgspec
from psycopg import errors, pq

from rota.errors import StoreUnusable
from rota.stores.postgres.address import DOOR, MIGRATION, Address
from rota.stores.postgres.connection import Db
from rota.stores.postgres.expected import expected, latest, migrations, schema
from rota.stores.postgres.session import silence

OURS = {"meta", "job_facts", "job_live", "job_ends"}


class Rights(msgspec.Struct, frozen=True, array_like=True):
    """What this role may do with the schema, and whose it is."""

    role: str
    schema_exists: bool
    may_look: bool | None
    may_create: bool
    owner: str | None
    owns: bool | None
    """The tables are this role's, or those of a role that it belongs to."""


def migrate(db: Db, where: Address) -> None:
    """Bring the schema up to date in one transaction: a new store by the schema file, an earlier one by the migrations it lacks.

    Processes that come second wait, and find nothing missing. The door is shut for as long as it lasts: no turn and no verb of another
    process is in the middle of anything.
    """
    rights = Rights(*db.rows("schema_rights", schema=where.schema)[0])
    current = version_of(db, where, rights)
    if current == latest():
        return
    _refuse_without_rights(where, rights, current)
    # A migration of a large store takes as long as it takes.
    with silence(db.raw, None):
        _migrate(db, where)


def _migrate(db: Db, where: Address) -> None:
    try:
        db.execute("BEGIN; SELECT pg_advisory_xact_lock({}, {})".format(*where.key(MIGRATION)))
        db.execute("SELECT pg_advisory_xact_lock({}, {})".format(*where.key(DOOR)))
        # Not IF NOT EXISTS: that asks for the right to make one also where it is there.
        rights = Rights(*db.rows("schema_rights", schema=where.schema)[0])
        if not rights.schema_exists:
            db.execute(f"CREATE SCHEMA {where.schema_quoted}")
        _apply_missing(db, where, rights)
        db.execute("COMMIT")
    except BaseException as error:
        if db.raw.info.transaction_status != pq.TransactionStatus.UNKNOWN:
            db.execute("ROLLBACK")
        if isinstance(error, errors.DuplicateTable | errors.DuplicateFunction | errors.DuplicateObject):
            raise _strange(where, str(error.diag.message_primary)) from error
        raise


def version_of(db: Db, where: Address, rights: Rights) -> int:
    """Return the schema's version, 0 if it holds nothing of ours yet; refuse a stranger's tables, and what a newer Rota made."""
    if not rights.schema_exists:
        return 0
    tables = {row[0] for row in db.rows("tables_here", schema=where.schema)}
    taken = tables & (expected().tables | expected().views)
    if not taken:
        return 0
    if not rights.may_look:
        raise StoreUnusable(
            f"role {rights.role!r} may not look into schema {where.schema!r} of {where.shown}: `rota grants` prints what it needs"
        )
    found = db.value("schema_version") if tables >= OURS else None
    if found is None:
        raise _strange(where, f"{min(taken)!r} is there")
    if found > latest():
        raise StoreUnusable(
            f"schema {where.schema!r} of {where.shown} was made by a newer Rota (schema {found}; this one knows {latest()}): "
            "upgrade Rota, or give another; nothing was changed"
        )
    return int(found)


def _apply_missing(db: Db, where: Address, rights: Rights) -> None:
    current = version_of(db, where, rights)
    if not current:
        db.execute(schema())
        current = db.value("schema_version")
    for number, text in sorted(migrations().items()):
        if number > current:
            db.execute(text)
            db.change("set_schema_version", version=number)


def _refuse_without_rights(where: Address, rights: Rights, current: int) -> None:
    if current and not rights.owns:
        raise StoreUnusable(
            f"schema {where.schema!r} of {where.shown} is at version {current} and this Rota needs {latest()}, but role {rights.role!r} "
            f"does not own it: run `rota stats` once as {rights.owner!r}, then start this again; nothing was changed"
        )
    if rights.may_create:
        return
    if rights.schema_exists:
        raise StoreUnusable(
            f"role {rights.role!r} may not make tables in schema {where.schema!r} of {where.shown}: "
            f"run `rota stats` once as {rights.owner!r}, or let that one say GRANT CREATE ON SCHEMA {where.schema} TO {rights.role}"
        )
    raise StoreUnusable(
        f"there is no schema {where.schema!r} in {where.shown}, and role {rights.role!r} may not make it: "
        f"let the database's owner say CREATE SCHEMA {where.schema} AUTHORIZATION {rights.role}"
    )


def _strange(where: Address, what: str) -> StoreUnusable:
    return StoreUnusable(
        f"schema {where.schema!r} of {where.shown} has something that Rota did not make and needs the name of ({what}): "
        "give another schema (setting schema); nothing was changed"
    )
