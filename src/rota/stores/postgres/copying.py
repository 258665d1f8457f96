"""One schema as a whole: read in one snapshot, written by COPY in one transaction, closed by a mark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter

from psycopg import pq

from rota.errors import StoreMoved, StoreUnavailable
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.ports.copying import Kind, Moved, Row, Table
from rota.stores.postgres.address import DOOR, GUESTS, address
from rota.stores.postgres.connection import open_connection
from rota.stores.postgres.db import Db, texts
from rota.stores.postgres.errors import translated
from rota.stores.postgres.store import PostgresStore
from rota.stores.verbs import copying
from rota.stores.verbs.tables import JOBS, META, RUNS, TABLES

FACTS, LIVE, ENDS, NOTES = "job_facts", "job_live", "job_ends", "run_notes"
PARTS = {JOBS.name: (FACTS, LIVE, ENDS), RUNS.name: (NOTES,)}
HERE = tuple(name for table in TABLES for name in PARTS.get(table.name, (table.name,)))
"""The tables as they are kept here: a job stands in two of three, and its run with it."""
COPIED_LIVE, COPIED_ENDS, COPIED_RUNS = "copied_live", "copied_ends", "copied_runs"
"""Where rows wait until both a job and its run have come."""
RUN_OF_JOB = ("job_number", "run_id", "status", "started_at", "finished_at")
MARK = "rota_moved"
"""The name of the triggers that refuse to write to a store which was moved."""
USUAL_SCHEMA = "rota"

# Binary COPY: an id goes over the wire as its bytes, like any others.
WIRE = {Kind.ID: "bytea", Kind.DIGEST: "bytea", Kind.WHOLE: "int8", Kind.REAL: "float8", Kind.TEXT: "text"}


class PostgresDepot:
    """Implements `rota.ports.copying.Depot` on one schema of one database."""

    tables = TABLES
    takes_nul = False

    def __init__(self, url: str, settings: Settings) -> None:
        """Take where it is."""
        self.address = address(url, settings.schema)
        self._url = url
        self._settings = settings
        schema = self.address.schema
        self.url = self.address.shown + ("" if schema == USUAL_SCHEMA else f" (schema {schema})")

    def identity(self) -> str:
        """Return which schema of which server this is."""
        with self._connected() as db:
            return str(db.value("this_store", schema=self.address.schema))

    def exists(self) -> bool:
        """Say whether the schema has our tables."""
        with self._connected() as db:
            return {row[0] for row in db.rows("tables_here", schema=self.address.schema)} >= {META.name, FACTS}

    def prepare(self, *, now: Instant) -> None:
        """Bring the schema up to date, making it if it is not there."""
        store = PostgresStore(self._url, self._settings)
        try:
            store.migrate(now=now)
        except StoreMoved:
            return
        finally:
            store.close()

    def moved(self) -> Moved | None:
        """Return the mark, if there is one."""
        with self._connected() as db:
            return copying.moved_of(db)

    def others(self) -> list[str]:
        """Return tables in our schema that are not Rota's."""
        with self._connected() as db:
            return sorted({row[0] for row in db.rows("columns_here", schema=self.address.schema)} - set(HERE))

    @contextmanager
    def snapshot(self) -> Iterator[Reading]:
        """Read in one transaction."""
        with self._connected() as db:
            db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0")
            yield Reading(db)

    @contextmanager
    def hold(self) -> Iterator[Guard]:
        """Have the door to ourselves."""
        with self._connected() as db:
            self._begin(db)
            yield Guard(db)

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """Write in one transaction, which is on disk before anybody is told so."""
        with self._connected() as db:
            self._begin(db)
            db.execute("SET LOCAL synchronous_commit = on")
            yield Writing(db, self.url, self.address.schema)
            db.execute("COMMIT")

    def reopen(self) -> None:
        """Take the mark off."""
        with self._connected() as db:
            self._begin(db)
            _drop_mark(db)
            db.change("unmark_moved")
            db.execute("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[Db]:
        """Lend a connection of this block's own; what it has not committed is undone."""
        raw = open_connection(self.address, self._settings)
        try:
            with translated(self.address):
                yield Db(raw)
        finally:
            raw.close()

    def _begin(self, db: Db) -> None:
        # Those too who have added jobs in transactions of their own, which nobody sees yet.
        locks = ["SELECT pg_advisory_xact_lock({}, {})".format(*self.address.key(lock)) for lock in (GUESTS, DOOR)]
        db.execute("; ".join(["BEGIN; SET LOCAL statement_timeout = 0", *locks]))


class Reading(copying.Reading):
    """Implements `rota.ports.copying.Reading` on a connection."""

    _db: Db

    def order(self) -> Iterator[Row]:
        """Go through the queue in its order."""
        return self._copied(texts()["queue_order"], [WIRE[Kind.ID]])

    def _count(self, table: Table) -> int:
        name = FACTS if table == JOBS else table.name
        found = self._db.raw.execute(f"SELECT count(*) FROM {name}".encode()).fetchone()  # noqa: S608 - our own names
        return int(found[0]) if found else 0

    def _rows(self, table: Table) -> Iterator[Row]:
        kinds = {column.name: column.kind for column in table.columns}
        columns = ", ".join(f"{name}::bigint" if kind is Kind.WHOLE else name for name, kind in kinds.items())
        key = ", ".join(f'{name} COLLATE "C"' if kinds[name] is Kind.TEXT else name for name in table.key)
        query = f"SELECT {columns} FROM {table.name} ORDER BY {key}"  # noqa: S608 - our own names
        return self._copied(query, [WIRE[kind] for kind in kinds.values()])

    def _copied(self, query: str, types: Sequence[str]) -> Iterator[Row]:
        with self._db.raw.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)".encode()) as copy:
            copy.set_types(types)
            yield from copy.rows()


class Writing(Reading):
    """Implements `rota.ports.copying.Writing` on a connection that is inside a transaction and has the door."""

    def __init__(self, db: Db, url: str, schema: str) -> None:
        """Write through this connection."""
        super().__init__(db)
        self._url = url
        self._types: dict[str, dict[str, str]] = {}
        for table, column, kind in db.rows("columns_here", schema=schema):
            self._types.setdefault(table, {})[column] = "bytea" if kind == "uuid" else kind
        self._facts = _Part(FACTS, self._types[FACTS], JOBS)
        self._live = _Part(COPIED_LIVE, self._types[LIVE], JOBS)
        self._ends = _Part(COPIED_ENDS, self._types[ENDS], JOBS)
        self._runs = _Part(COPIED_RUNS, {name: self._types[LIVE].get(name, "int8") for name in RUN_OF_JOB} | {"status": "text"}, RUNS)
        self._notes = _Part(NOTES, self._types[NOTES], RUNS)
        self._finished_at = JOBS.names.index("finished_at")
        self._noted = itemgetter(*(RUNS.names.index(name) for name in self._types[NOTES] if name not in {"job_number", "artifacts"}))
        self._artifacts = RUNS.names.index("artifacts")

    def clear(self) -> None:
        """Empty the tables, and put their triggers out of force."""
        _drop_mark(self._db)
        self._db.execute(f"TRUNCATE {', '.join(name for name in HERE if name != META.name)} RESTART IDENTITY")
        self._db.change("forget_counters")
        self._switch_triggers("DISABLE")
        self._db.execute(texts()["make_copied"])

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows as they are."""
        if table == META:
            self._write_counters(rows)
        elif table == JOBS:
            ended = self._finished_at
            self._copy(self._facts, rows)
            self._copy(self._live, [row for row in rows if row[ended] is None])
            self._copy(self._ends, [row for row in rows if row[ended] is not None])
        elif table == RUNS:
            self._copy(self._runs, rows)
            self._copy(
                self._notes, [row for row in rows if any(value is not None for value in self._noted(row)) or row[self._artifacts] != "[]"]
            )
        else:
            self._copy(_Part(table.name, {name: self._types[table.name][name] for name in table.names}, table), rows)

    def finish(self) -> None:
        """Put jobs and their runs together, let numbers go on, put the triggers back in force, and look at what they would have refused."""
        self._put_together()
        for table, column, following in self._db.rows("next_counted"):
            self._db.execute(f"ALTER TABLE {table} ALTER COLUMN {column} RESTART WITH {following:d}")
        # Whoever has this store open reads its definitions anew.
        self._db.change("advance_definitions")
        self._switch_triggers("ENABLE")
        copying.refuse_broken(self._db, self._url)
        self._db.execute(f"ANALYZE {', '.join(HERE)}")

    def _put_together(self) -> None:
        # Whole tables are joined here, as no statement of the wheel ever does.
        self._db.execute("SET LOCAL enable_hashjoin = on; SET LOCAL enable_seqscan = on")
        copying.refuse_broken(self._db, self._url, "broken_runs")
        for name, copied in ((LIVE, COPIED_LIVE), (ENDS, COPIED_ENDS)):
            columns = ", ".join(column for column in self._types[name] if column != "run_id")
            self._db.execute(
                f"INSERT INTO {name} ({columns}, run_id)"  # noqa: S608 - our own names
                f" SELECT c.{columns.replace(', ', ', c.')}, r.run_id"
                f" FROM {copied} AS c LEFT JOIN {COPIED_RUNS} AS r ON r.job_number = c.number"
            )
        self._db.execute("SET LOCAL enable_hashjoin = off; SET LOCAL enable_seqscan = off")

    def _write_counters(self, rows: Sequence[Row]) -> None:
        for key, value in rows:
            if key == "numbers":
                # Unlike setval this is undone with the transaction.
                self._db.execute(f"ALTER SEQUENCE job_numbers RESTART WITH {value + 1:d}")
            else:
                self._db.change("put_counter", key=key, value=value)

    def _copy(self, part: _Part, rows: Sequence[Row]) -> None:
        if not rows:
            return
        with self._db.raw.cursor() as cursor, cursor.copy(part.statement) as copy:
            copy.set_types(part.types)
            for row in rows:
                copy.write_row(part.pick(row))

    def _switch_triggers(self, word: str) -> None:
        # The keys between tables are watched all the same: they are no triggers of a user's.
        for name in HERE:
            self._db.execute(f"ALTER TABLE {name} {word} TRIGGER USER")


class _Part:
    """What of a row goes into one table, and how."""

    def __init__(self, name: str, types: dict[str, str], table: Table) -> None:
        own = {column: kind for column, kind in types.items() if column in table.names}
        self.statement = f"COPY {name} ({', '.join(own)}) FROM STDIN (FORMAT BINARY)".encode()
        self.types = list(own.values())
        self.pick = itemgetter(*(table.names.index(column) for column in own))


class Guard:
    """Implements `rota.ports.copying.Guard`: the door is shut as long as its transaction lasts."""

    def __init__(self, db: Db) -> None:
        """Guard by this connection's transaction."""
        self._db = db

    def check(self) -> None:
        """See that the transaction is still there, on both sides."""
        self._db.execute("SELECT 1")
        if self._db.raw.info.transaction_status != pq.TransactionStatus.INTRANS:
            raise StoreUnavailable("the source's lock was lost while it was copied: nothing was changed, promote again")

    def close_store(self, moved: Moved) -> None:
        """Mark it, and refuse every write from now on."""
        self._db.change("mark_moved", at=moved.at, place=moved.to)
        words = copying.moved_words(moved)
        for name in HERE:
            changes = " OR ".join(copying.refused_changes(name))
            self._db.execute(f"CREATE TRIGGER {MARK} BEFORE {changes} ON {name} FOR EACH STATEMENT EXECUTE FUNCTION refuse('{words}')")
        self._db.execute("COMMIT")


def _drop_mark(db: Db) -> None:
    for name in HERE:
        db.execute(f"DROP TRIGGER IF EXISTS {MARK} ON {name}")
