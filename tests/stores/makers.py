"""How each store is opened for the contract suite, and the hands that do to it what its port forbids.

A maker of another store has the same names: `open`, `close`, and the damage that recovery must mend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import apsw
import msgspec
import psycopg
import pytest

from rota.model.settings import Settings
from rota.stores.mongodb import MongoStore
from rota.stores.mongodb.db import Db as MongoDb
from rota.stores.postgres import PostgresStore
from rota.stores.postgres.connection import is_rung
from rota.stores.postgres.db import Db as PostgresDb
from rota.stores.sqlite import SqliteStore
from rota.stores.sqlite.db import Db as SqliteDb
from tests.support.mongodb import shared_set
from tests.support.mongodb_hand import mongodb_hand
from tests.support.postgres import Server, shared_server
from tests.support.prepared import prepare


class SqliteMaker:
    """One file, opened as often as asked."""

    name = "sqlite"
    db: type = SqliteDb
    """What the verbs say their statements to."""
    refusal = "not on my watch"
    """What is said when `refuse` has a rule refuse something."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rota.db"
        self._opened: list[SqliteStore] = []

    @property
    def url(self) -> str:
        """Where the store is, for programs that open it on their own."""
        return str(prepare(self.path))

    def open(self) -> SqliteStore:
        store = SqliteStore(prepare(self.path), Settings(synchronous="NORMAL"))
        store.migrate(now=0)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def audit(self) -> list[dict[str, Any]]:
        """Return what was audited, oldest first."""
        names = ("at", "actor", "action", "subject", "subject_id", "before", "after")
        rows = self._sql(f"SELECT {', '.join(names)} FROM audit ORDER BY audit_id")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        for entry in found:
            for side in ("before", "after"):
                entry[side] = None if entry[side] is None else msgspec.json.decode(entry[side])
        return found

    def totals(self) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
        """Return how many ended jobs there are by organization, type and status: as counted on the way, and as they stand there."""
        kept = self._sql("SELECT organization_id, job_type, status, count FROM stats_total")
        real = self._sql("SELECT organization_id, job_type, status, count(*) FROM jobs WHERE finished_at IS NOT NULL GROUP BY 1, 2, 3")
        return set(kept), set(real)

    def limit_queue(self, organization: str, count: int) -> None:
        """Set an organization's max_queued."""
        self._sql("UPDATE organizations SET max_queued = ? WHERE organization_id = ?", (count, organization))

    def template_columns(self, name: str) -> dict[str, Any]:
        """Return what stands of a template for those who read with SQL."""
        names = ("display_name", "description", "requires_permission", "max_running", "concurrency", "rate_limit", "rate_window")
        names += ("submit_limit", "submit_window", "queue_ttl", "payload_max", "dedup_window", "default_params")
        (row,) = self._sql(f"SELECT {', '.join(names)} FROM templates WHERE name = ? AND dropped_at IS NULL", (name,))
        return dict(zip(names, row, strict=True))

    def schedule(self, template_id: str, schedule_id: str) -> None:
        """Make a schedule of a template."""
        self._sql(
            "INSERT INTO schedules (schedule_id, organization_id, template_id, name, kind, cursor_at, created_by, created_at, updated_at)"
            " VALUES (unhex(?), 'default', unhex(?), 'nightly', 'CRON', 0, 'anna', 0, 0)",
            (schedule_id, template_id),
        )

    def reservation_status(self, reservation_id: str) -> str:
        ((status,),) = self._sql("SELECT status FROM direct_reservations WHERE reservation_id = unhex(?)", (reservation_id,))
        return str(status)

    def leftovers(self) -> dict[str, int]:
        """Return how many rows there are of what is forgotten by and by."""
        return {
            table: self._sql(f"SELECT count(*) FROM {table}")[0][0] for table in ("dedup", "workers", "direct_reservations", "rate_log")
        }

    def promise_webhook(self, job_id: str) -> None:
        """Leave a message about a job that is still to be delivered."""
        columns = "event, job_id, target, payload, next_attempt_at, created_at"
        self._sql(f"INSERT INTO outbox ({columns}) VALUES ('x', unhex(?), 'x', '{{}}', 0, 0)", (job_id,))

    def deliver_webhooks(self, at: int) -> None:
        self._sql("UPDATE outbox SET delivered_at = ?", (at,))

    def webhooks(self) -> int:
        return int(self._sql("SELECT count(*) FROM outbox")[0][0])

    def reactivate(self, reservation_id: str) -> None:
        """Leave a reservation ACTIVE although its job has ended."""
        given = f"x'{reservation_id}'" if self.name == "sqlite" else f"'{reservation_id}'"
        self.damage(f"UPDATE direct_reservations SET status = 'ACTIVE', released_at = NULL WHERE reservation_id = {given}")

    # ---- damage: states that nothing of ours can make -------------------------------------------------------------

    def lose_run(self, number: int) -> None:
        """Leave a RUNNING job without its run."""
        self._without(["runs_kept"], ("DELETE FROM job_runs WHERE job_number = ?", (number,)))

    def end_run_only(self, number: int, status: str, at: int, error: str | None = None) -> None:
        """End a run and leave its job RUNNING."""
        self._sql("UPDATE job_runs SET status = ?, finished_at = ?, error = ? WHERE job_number = ?", (status, at, error, number))

    def end_without_successor(self, number: int, status: str, at: int) -> None:
        """End an attempt FAILED or TIMED_OUT and forget its successor."""
        self._sql("UPDATE job_runs SET status = 'FAILED', finished_at = ?, error = 'torn' WHERE job_number = ?", (at, number))
        self._sql("UPDATE jobs SET status = ?, finished_at = ? WHERE number = ?", (status, at, number))

    def damage(self, *statements: str) -> None:
        """Write what no rule of the store lets anybody write: triggers, foreign keys and checks are off meanwhile."""
        raw = apsw.Connection(str(self.path))
        try:
            raw.set_busy_timeout(5000)
            raw.pragma("foreign_keys", 0)
            raw.pragma("ignore_check_constraints", 1)
            with raw:
                triggers = list(raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
                for name, _ in triggers:
                    raw.execute(f"DROP TRIGGER {name}")
                for statement in statements:
                    raw.execute(statement)
                for _, text in triggers:
                    raw.execute(text)
        finally:
            raw.close()

    def refuse(self, number: int, status: str, column: str = "status") -> Callable[[], None]:
        """Have a trigger of somebody else's refuse one job a status; return what takes the trigger away."""
        self._sql(
            f"CREATE TRIGGER theirs BEFORE UPDATE OF {column} ON jobs WHEN NEW.number = {number} AND NEW.status = '{status}'"
            " BEGIN SELECT RAISE(ABORT, 'not on my watch'); END"
        )
        return lambda: self._sql("DROP TRIGGER theirs") and None

    def refuse_end(self, number: int, status: str) -> Callable[[], None]:
        """Have a trigger of somebody else's refuse one job an end."""
        return self.refuse(number, status)

    def _without(self, triggers: list[str], *statements: tuple[str, tuple[Any, ...]]) -> None:
        raw = apsw.Connection(str(self.path))
        try:
            raw.set_busy_timeout(5000)
            kept = [next(iter(raw.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,))))[0] for name in triggers]
            for name in triggers:
                raw.execute(f"DROP TRIGGER {name}")
            for statement, values in statements:
                raw.execute(statement, values)
            for text in kept:
                raw.execute(text)
        finally:
            raw.close()

    def _sql(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        raw = apsw.Connection(str(self.path))
        try:
            raw.set_busy_timeout(5000)
            return list(raw.execute(statement, values))
        finally:
            raw.close()


_spare: dict[tuple[str, str], list[psycopg.Connection[Any]]] = {}


@cache
def _hand(server: Server, schema: str) -> psycopg.Connection[Any]:
    """Return the connection that brings back and damages what tests of this process share."""
    return server.connect(options=f"-c search_path={schema}")


class PostgresMaker(SqliteMaker):
    """One schema of a server that the test process shares, emptied for each test, opened as often as asked."""

    name = "postgres"
    db = PostgresDb
    schema = "rota"

    def __init__(self, folder: Path) -> None:
        self.server = shared_server()
        self.path = folder
        self._opened: list[PostgresStore] = []
        self._raw = _hand(self.server, self.schema)
        self._empty()

    @property
    def url(self) -> str:
        return self.server.url()

    def open(self) -> PostgresStore:
        store = PostgresStore(self.server.socket_url(), Settings(schema=self.schema))
        store._pool._open = partial(self._connection, store._pool._open)
        store.migrate(now=0)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            idle, store._pool._idle = store._pool._idle, []
            self._spare().extend(db.raw for db in idle)
        super().close()

    def _connection(self, make: Callable[[], psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
        """Return a connection of an earlier test, if there is one: making it, and its plans, takes longer than most tests."""
        spare = self._spare()
        while spare:
            raw = spare.pop()
            if not is_rung(PostgresDb(raw)):
                return raw
            raw.close()
        return make()

    def _spare(self) -> list[psycopg.Connection[Any]]:
        return _spare.setdefault((self.server.url(), self.schema), [])

    def _empty(self) -> None:
        """Bring the schema back to what a fresh one is. Deleting a test's few rows is ten times faster than making it anew."""
        tables = [row[0] for row in self._raw.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (self.schema,))]
        if not tables:
            return
        with self._raw.transaction():
            self._raw.execute("SET LOCAL session_replication_role = replica")
            self._raw.execute("; ".join(f"DELETE FROM {table}" for table in tables if table not in {"meta", "organizations"}))
            self._raw.execute("DELETE FROM organizations WHERE organization_id <> 'default'")
            as_new = "display_name = 'Default', state = 'ACTIVE', max_running = NULL, max_queued = NULL, max_priority = NULL, signs = 0"
            self._raw.execute(f"UPDATE organizations SET {as_new}")
            self._raw.execute("UPDATE meta SET value = CASE key WHEN 'definitions_version' THEN 1 ELSE 0 END WHERE key <> 'schema'")
            # Not ALTER SEQUENCE: every plan that uses it would have to be made again.
            self._raw.execute(
                "SELECT setval('job_numbers', 1, false), setval('audit_audit_id_seq', 1, false), setval('outbox_outbox_id_seq', 1, false)"
            )

    def damage(self, *statements: str) -> None:
        with self._raw.transaction():
            self._raw.execute("SET LOCAL session_replication_role = replica")
            for statement in statements:
                self._raw.execute(statement)

    def refuse(self, number: int, status: str, column: str = "status") -> Callable[[], None]:
        self._raw.execute(
            "CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not on my watch'; END $$;"
            f"CREATE TRIGGER theirs BEFORE UPDATE OF {column} ON job_live FOR EACH ROW"
            f" WHEN (NEW.number = {number} AND NEW.status = '{status}')"
            " EXECUTE FUNCTION theirs()"
        )
        return lambda: self._raw.execute("DROP TRIGGER theirs ON job_live; DROP FUNCTION theirs()") and None

    def refuse_end(self, number: int, status: str) -> Callable[[], None]:
        self._raw.execute(
            "CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not on my watch'; END $$;"
            "CREATE TRIGGER theirs BEFORE INSERT ON job_ends FOR EACH ROW"
            f" WHEN (NEW.number = {number} AND NEW.status = '{status}') EXECUTE FUNCTION theirs()"
        )
        return lambda: self._raw.execute("DROP TRIGGER theirs ON job_ends; DROP FUNCTION theirs()") and None

    def end_without_successor(self, number: int, status: str, at: int) -> None:
        self._sql("INSERT INTO run_notes (job_number, error) VALUES (?, 'torn')", (number,))
        self._sql(
            "WITH gone AS (DELETE FROM job_live WHERE number = ? RETURNING *) INSERT INTO job_ends"
            " (number, job_type, status, created_at, finished_at, priority, position, run_at, queued_at, started_at, worker_id, run_id)"
            " SELECT number, job_type, ?, created_at, ?, priority, position, run_at, queued_at, started_at, worker_id, run_id FROM gone",
            (number, status, at),
        )

    def _sql(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        text = statement.replace("%", "%%").replace("unhex(?)", "%s::text::uuid").replace("?", "%s")
        done = self._raw.execute(text, values)
        return done.fetchall() if done.description else []


class MongoMaker(SqliteMaker):
    """One database of a replica set that the test process shares, emptied for each test, opened as often as asked."""

    name = "mongodb"
    db = MongoDb
    refusal = "Document failed validation"
    database = "rota"

    def __init__(self, folder: Path) -> None:
        self.servers = shared_set()
        self.path = folder
        self.hand = mongodb_hand(self.database)
        self._opened: list[MongoStore] = []
        self.hand.empty()

    @property
    def url(self) -> str:
        return self.servers.url(self.database)

    def open(self) -> MongoStore:
        store = MongoStore(self.servers.url(self.database), Settings())
        self.hand.lend_client(store)
        store.migrate(now=0)
        self._opened.append(store)
        return store

    def audit(self) -> list[dict[str, Any]]:
        names = ("at", "actor", "action", "subject", "subject_id", "before", "after")
        entries = [{name: entry.get(name) for name in names} for entry in self.hand.find("audit")]
        for entry in entries:
            for side in ("before", "after"):
                entry[side] = None if entry[side] is None else msgspec.json.decode(entry[side])
        return entries

    def totals(self) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
        columns = ("organization_id", "job_type", "status", "count")
        kept = {tuple(total[column] for column in columns) for total in self.hand.find("figures", kind="total")}
        organizations = {fact["_id"]: fact["organization_id"] for fact in self.hand.find("job_facts")}
        real = Counter((organizations[end["_id"]], end["job_type"], end["status"]) for end in self.hand.find("job_ends"))
        return kept, {(*key, count) for key, count in real.items()}

    def limit_queue(self, organization: str, count: int) -> None:
        self.hand.update("organizations", {"_id": organization}, max_queued=count)

    def template_columns(self, name: str) -> dict[str, Any]:
        names = ("display_name", "description", "requires_permission", "max_running", "concurrency", "rate_limit", "rate_window")
        names += ("submit_limit", "submit_window", "queue_ttl", "payload_max", "dedup_window", "default_params")
        (template,) = self.hand.find("templates", name=name, dropped_at=None)
        return {column: template.get(column) for column in names}

    def schedule(self, template_id: str, schedule_id: str) -> None:
        self.hand.insert(
            "schedules",
            {"_id": schedule_id, "row_id": 1, "organization_id": "default", "template_id": template_id, "name": "nightly", "kind": "CRON"}
            | {"cursor_at": 0, "created_by": "anna", "created_at": 0, "updated_at": 0, "state": "ENABLED", "version": 1},
        )

    def reservation_status(self, reservation_id: str) -> str:
        ((reservation),) = self.hand.find("direct_reservations", _id=reservation_id)
        return str(reservation["status"])

    def leftovers(self) -> dict[str, int]:
        return {name: len(self.hand.find(name)) for name in ("dedup", "workers", "direct_reservations", "rate_log")}

    def promise_webhook(self, job_id: str) -> None:
        message = {"event": "x", "job_id": job_id, "target": "x", "payload": "{}", "next_attempt_at": 0, "created_at": 0, "attempts": 0}
        self.hand.insert("outbox", {"_id": 1_000_000 + len(self.hand.find("outbox")), "over_at": 0} | message)

    def deliver_webhooks(self, at: int) -> None:
        self.hand.update("outbox", {}, delivered_at=at, over_at=at)

    def webhooks(self) -> int:
        return len(self.hand.find("outbox"))

    # ---- damage: states that nothing of ours can make -------------------------------------------------------------

    def end_without_successor(self, number: int, status: str, at: int) -> None:
        (live,) = self.hand.find("job_live", _id=number)
        self.hand.delete("job_live", _id=number)
        kept = ("_id", "job_type", "created_at", "priority", "position", "run_at", "queued_at", "started_at", "worker_id", "run_id")
        self.hand.insert("job_ends", {name: live[name] for name in kept} | {"status": status, "finished_at": at})
        self.hand.insert("run_notes", {"_id": number, "error": "torn"})

    def damage(self, *statements: str) -> None:
        """Write what no rule of the store lets anybody write: there is none that knows what was before."""
        for statement in statements:
            self.hand.run(statement)

    def refuse(self, number: int, status: str, column: str = "status") -> Callable[[], None]:
        """Have a rule of somebody else's refuse one job a status; return what takes the rule away."""
        del column
        return self.hand.refuse("job_live", {"_id": number, "status": status})

    def refuse_end(self, number: int, status: str) -> Callable[[], None]:
        """Have a rule of somebody else's refuse one job an end."""
        return self.hand.refuse("job_ends", {"_id": number, "status": status})

    def _sql(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        raise AssertionError(f"MongoDB has no SQL: {statement} {values}")


MAKERS = [SqliteMaker, PostgresMaker, MongoMaker]
torn_runs = pytest.mark.parametrize("maker", [SqliteMaker], indirect=True, ids=["sqlite"])
"""Of a run that is lost, or ended without its job: on PostgreSQL a run is a part of its job's row, and can't be either."""
in_sql = savepoints = pytest.mark.parametrize("maker", [SqliteMaker, PostgresMaker], indirect=True, ids=["sqlite", "postgres"])
"""Of a part of the caller's transaction that is undone alone, of triggers, and of tables that are dropped: MongoDB has none."""
