"""How each store is opened for the contract suite, and the hands that do to it what its port forbids.

A maker of another store has the same names: `open`, `close`, and the damage that recovery must mend.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import msgspec

from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore


class SqliteMaker:
    """One file, opened as often as asked."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rota.db"
        self._opened: list[SqliteStore] = []

    def open(self) -> SqliteStore:
        store = SqliteStore(self.path, Settings(synchronous="NORMAL"))
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
        self._sql("UPDATE direct_reservations SET status = 'ACTIVE', released_at = NULL WHERE reservation_id = unhex(?)", (reservation_id,))

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


MAKERS = [SqliteMaker]
