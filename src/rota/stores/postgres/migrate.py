"""What a schema that is up to date holds, read from the migrations themselves, and bringing one up to date, whole or not at all."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import msgspec
from psycopg import errors, pq

from rota.errors import StoreUnusable
from rota.stores.postgres.address import DOOR, MIGRATION, Address
from rota.stores.postgres.connection import silence
from rota.stores.postgres.db import Db

OURS = {"meta", "job_facts", "job_live", "job_ends"}
_COMMENT = re.compile(r"--.*")
_TABLE = re.compile(r"^CREATE TABLE (\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
_UNIQUE = re.compile(r"^ +(\w+) .*\bUNIQUE\b", re.MULTILINE)
_VIEW = re.compile(r"^CREATE VIEW (\w+)", re.MULTILINE)
_INDEX = re.compile(r"^(CREATE (?:UNIQUE )?INDEX (\w+) ON (\w+).*?);", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"^(ALTER TABLE (\w+) ADD PRIMARY KEY .*?);", re.MULTILINE)
_TRIGGER = re.compile(r"^(CREATE TRIGGER (\w+) .*? ON (\w+).*?);", re.MULTILINE | re.DOTALL)
_DROP = re.compile(r"^DROP (INDEX|TRIGGER|TABLE|VIEW) (\w+)(?: ON (\w+))?", re.MULTILINE)


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


class Expected(msgspec.Struct):
    """Names, each with its table and, where it can be made anew by itself, the statement that does so."""

    tables: set[str] = msgspec.field(default_factory=set)
    views: set[str] = msgspec.field(default_factory=set)
    indexes: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    triggers: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)


def latest() -> int:
    """Return the schema version that this code knows."""
    return max(migrations())


@cache
def migrations() -> dict[int, str]:
    """Return the text of every migration by its number."""
    folder = files(__package__).joinpath("migrations")
    return {int(file.name[:4]): file.read_text() for file in folder.iterdir() if file.name.endswith(".sql")}


def schema() -> str:
    """Return the statements that make a new store: what all migrations would leave, generated from them (`make schema`)."""
    return files(__package__).joinpath("schema.sql").read_text()


def expected() -> Expected:
    """Return what there is after all migrations."""
    return _after(tuple(text for _, text in sorted(migrations().items())))


@cache
def _after(texts: tuple[str, ...]) -> Expected:
    found = Expected()
    for text in texts:
        _follow(_COMMENT.sub("", text), found)
    return found


def _follow(text: str, found: Expected) -> None:
    for kind, name, _ in _DROP.findall(text):
        {"INDEX": found.indexes, "TRIGGER": found.triggers}.get(kind, {}).pop(name, None)
        {"TABLE": found.tables, "VIEW": found.views}.get(kind, set()).discard(name)
    for table, columns in _TABLE.findall(text):
        found.tables.add(table)
        if "PRIMARY KEY" in columns:
            found.indexes[f"{table}_pkey"] = (table, "")
        found.indexes |= {f"{table}_{column}_key": (table, "") for column in _UNIQUE.findall(columns)}
    found.indexes |= {f"{table}_pkey": (table, made) for made, table in _KEY.findall(text)}
    found.views |= set(_VIEW.findall(text))
    found.indexes |= {name: (table, _one_line(made)) for made, name, table in _INDEX.findall(text)}
    found.triggers |= {name: (table, _one_line(made)) for made, name, table in _TRIGGER.findall(text)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
