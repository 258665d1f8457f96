"""A look at a store past Rota, which has no say here: one moment of it, in the SQL that both dialects understand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import apsw
import psycopg
from pymongo.errors import OperationFailure

from rota.model.settings import Settings
from rota.stores.mongodb.address import address as mongodb_address
from rota.stores.paths import workers_folder
from rota.stores.postgres.address import DOOR, Address, address
from tests.faults.documents import as_tables, held, misplaced

Database: TypeAlias = Path | str
"""A SQLite file, or the URL of a PostgreSQL or MongoDB database."""
BUSY = (apsw.BusyError, psycopg.errors.LockNotAvailable, OperationFailure)
"""What is raised where others keep us from locking a store."""


class Look(Protocol):
    """What a moment can be asked: `?` stands for a value, `lower(hex(id))` is an id as text."""

    def execute(self, statement: str, values: tuple[Any, ...] = (), /) -> Iterable[tuple[Any, ...]]: ...


class ServerLook:
    """One snapshot of a PostgreSQL database."""

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._raw = raw

    def execute(self, statement: str, values: tuple[Any, ...] = (), /) -> Iterable[tuple[Any, ...]]:
        return self._raw.execute(statement.replace("?", "%s").encode(), values)


@contextmanager
def reading(database: Database) -> Iterator[Look]:
    """One moment of a store, on a connection of our own that can't write."""
    if isinstance(database, Path):
        connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(10_000)
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()
    elif database.startswith("mongodb://"):
        tables = as_tables(database)
        try:
            yield tables
        finally:
            tables.close()
    else:
        with psycopg.connect(database, options="-c search_path=rota") as raw:
            raw.isolation_level, raw.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
            yield ServerLook(raw)


def damage(database: Database, look: Look) -> list[str]:
    """What is wrong with the store itself: the file, or the tables that PostgreSQL keeps a job in."""
    if isinstance(database, Path):
        wrong = [f"integrity_check: {row[0]}" for row in look.execute("PRAGMA integrity_check") if row[0] != "ok"]
        return wrong + [f"foreign_key_check: {row}" for row in look.execute("PRAGMA foreign_key_check")]
    if database.startswith("mongodb://"):
        return misplaced(database)
    places = (
        "SELECT coalesce(f.number, l.number, e.number), f.number IS NOT NULL, l.number IS NOT NULL, e.number IS NOT NULL"
        " FROM job_facts AS f FULL JOIN job_live AS l ON l.number = f.number"
        " FULL JOIN job_ends AS e ON e.number = coalesce(f.number, l.number)"
        " WHERE f.number IS NULL OR (l.number IS NULL) = (e.number IS NULL)"
    )
    of_facts, of_live = (", ".join(f"{table}.{name}" for name in COPIED) for table in "fl")
    copies = f"SELECT number FROM job_facts AS f JOIN job_live AS l USING (number) WHERE ({of_facts}) IS DISTINCT FROM ({of_live})"
    stray = "SELECT job_number FROM run_notes WHERE job_number NOT IN (SELECT job_number FROM job_runs)"
    wrong = [f"job number {row[0]}: facts {row[1]}, live {row[2]}, ended {row[3]}" for row in look.execute(places)]
    wrong += [f"job number {row[0]} is not the same in job_live and in job_facts" for row in look.execute(copies)]
    return wrong + [f"job number {row[0]} has left something behind without a run" for row in look.execute(stray)]


COPIED = ("job_id", "root_id", "attempt", "organization_id", "job_type", "created_at", "schedule_id", "unique_key")
"""What job_live has of job_facts, so that claims and lists need not look there."""


def locks_folder(database: Database) -> Path:
    """Where workers on this machine keep their lock files."""
    return database.with_name(f"{database.name}.workers") if isinstance(database, Path) else workers_folder(named(database))


def named(url: str) -> str:
    """The name of a store on servers."""
    return mongodb_address(url).name if url.startswith("mongodb://") else where(url).name


@contextmanager
def locked(database: Database, *, wait_s: float) -> Iterator[None]:
    """Keep everybody else from writing; see BUSY."""
    if isinstance(database, Path):
        connection = apsw.Connection(str(database))
        try:
            connection.set_busy_timeout(round(wait_s * 1000))
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("COMMIT")
        finally:
            connection.close()
    elif database.startswith("mongodb://"):
        with held(database, wait_s=wait_s):
            yield
    else:
        with psycopg.connect(database, options=f"-c lock_timeout={max(1, round(wait_s * 1000))}") as raw:
            raw.execute("SELECT pg_advisory_xact_lock(%s, %s)", where(database).key(DOOR))
            yield


def where(url: str) -> Address:
    return address(url, Settings().schema)
