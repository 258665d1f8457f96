"""The PostgreSQL store: any number of workers on any number of machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import errors

from rota.errors import StoreBusy, StoreUnavailable, TransactionMisuse
from rota.model.findings import Finding
from rota.model.values import Claimed, Enqueued, Instant, NewRow
from rota.ports.places import Place
from rota.ports.store import DefinitionsChanged
from rota.stores import permissions
from rota.stores.postgres import places
from rota.stores.postgres.base import TRIES, Base, Handle
from rota.stores.postgres.checkup import checkup
from rota.stores.postgres.connection import Db
from rota.stores.postgres.errors import Unanswered, is_lost, translate, translated, unanswered
from rota.stores.postgres.session import silence
from rota.stores.verbs import intake, lanes, queue, recovery, repair
from rota.stores.verbs.base import Hold
from rota.stores.verbs.store import RelationalStore

T = TypeVar("T")
ASK_S = (0.05, 1.0)
"""Shortest and longest pause between two questions whether something was written after all."""


class PostgresStore(Base, RelationalStore):
    """Implements `rota.ports.store.Store` on one schema of one database."""

    beside = True

    def checkup(self, *, now: Instant, machine: Callable[[], Instant], full: bool) -> list[Finding]:
        """Look at the server, and at what is ours in it."""
        with self._reading() as db, silence(db.raw, None):
            return checkup(db, self.address, self._settings, now, machine=machine, full=full)

    def fix(self, *, now: Instant) -> list[Finding]:
        """Repair the rows, and close what workers of this machine keep in files to others."""
        kept = [*places.shared_folder(self.address), *places.kept(self.address, self._settings)]
        return [*self._fix_rows(now=now), *permissions.repair(kept, self._settings)]

    def _fix_rows(self, *, now: Instant) -> list[Finding]:
        """Repair the rows. This reads whole tables, and takes as long as it takes."""

        def work(db: Db) -> list[Finding]:
            with silence(db.raw, None):
                return repair.repair(db, now)

        return self._write(work)

    def enqueue(
        self,
        rows: Sequence[NewRow],
        *,
        now: Instant,
        definitions: int | None = None,
        transaction: Any = None,
        place: Place | None = None,
    ) -> list[Enqueued]:
        """Add jobs, all or none; in the caller's own transaction without keeping others waiting until it ends, where that can be."""
        if transaction is None:
            if len(rows) == 1 and definitions is not None and place is None:
                added = self._add_at_once(rows[0], now, definitions)
                if added is not None:
                    return [added]
            return self._enqueue_surely(rows, now=now, definitions=definitions, place=place)
        handle = self.join(transaction)
        with translated(self.address):
            for left in reversed(range(TRIES)):
                try:
                    return self._enqueue_lent(handle, rows, now=now, definitions=definitions)
                except errors.UniqueViolation:
                    # Another who had the same id or key in hand has committed meanwhile: now it can be seen.
                    if not left:
                        raise
        raise AssertionError

    def _add_at_once(self, row: NewRow, now: Instant, definitions: int) -> Enqueued | None:
        """Write one job, or find the holder of its key, in one round trip. None: nothing was written, and a second look is needed."""
        values = queue.at_once(row, now, definitions)
        if values is None:
            return None
        statement = "insert_job_at_once" if row.unique_key is None else "insert_job_with_key_at_once"
        self._refuse_closed()
        with self._pool.take() as db:
            try:
                return queue.added_at_once(row, db.rows_behind(self._through_the_door, statement, **values))
            except psycopg.Error as error:
                if is_lost(error, db.raw):
                    self._pool.stale()
                    lost = unanswered(error, self.address)
                elif isinstance(error, errors.DeadlockDetected | errors.SerializationFailure | errors.IntegrityError):
                    return None
                else:
                    raise translate(error, self.address) from error
        if not self._is_written(row.job_id, lost, time.monotonic() + self._settings.busy_timeout):
            return None
        with self._reading() as db:
            written = queue.found(db, row)
        return None if written is None else msgspec.structs.replace(written, existing=False)

    def _enqueue_surely(self, rows: Sequence[NewRow], *, now: Instant, definitions: int | None, place: Place | None) -> list[Enqueued]:
        """Add jobs. Where the answer to the commit was lost, see whether they are there, and begin again if they are not."""
        end = time.monotonic() + self._settings.busy_timeout
        while True:
            try:
                return super().enqueue(rows, now=now, definitions=definitions, place=place)
            except Unanswered as lost:
                enqueued: list[Enqueued] = lost.value  # type: ignore[assignment] # what enqueue has returned
                added = next((each.job_id for each in enqueued if not each.existing), None)
                if added is None or self._is_written(added, lost, end):
                    return enqueued

    def pour(self, rows: Sequence[NewRow], *, now: Instant, definitions: int, place: Place) -> bool:
        """Add jobs that stand in line; see whether they are there where the answer to the commit was lost."""
        end = time.monotonic() + self._settings.busy_timeout
        while True:
            try:
                return super().pour(rows, now=now, definitions=definitions, place=place)
            except Unanswered as lost:
                if not lost.value or self._is_written(rows[0].job_id, lost, end):
                    return bool(lost.value)

    def _is_written(self, job_id: str, lost: Unanswered, end: float) -> bool:
        """Say whether the commit of a job was made, as soon as the server can; if it can't in time, say that nobody knows."""
        pause, longest = ASK_S
        while True:
            try:
                # With the store to itself: a commit that is still under way holds the door.
                return self._write(lambda db: _for_certain(db, bool(db.rows("same_id", job_id=job_id))))
            except (StoreBusy, StoreUnavailable):
                if time.monotonic() + pause > end:
                    raise lost from None
            time.sleep(pause)
            pause = min(pause * 2, longest)

    def holding(self, worker_id: str) -> list[Claimed]:
        """Return what a worker holds. A turn of its own whose connection was lost may still be under way: that is waited for."""
        return self._write(lambda db: _for_certain(db, recovery.holding(db, worker_id)), hold=Hold.WHEEL)

    def _enqueue_lent(self, handle: Handle, rows: Sequence[NewRow], *, now: Instant, definitions: int | None) -> list[Enqueued]:
        if all(map(queue.stands_alone, rows)):
            with suppress(intake.MustBeAlone):
                return self._enqueue_held(handle, rows, Hold.DOOR, now=now, definitions=definitions)
        return self._enqueue_held(handle, rows, Hold.ALL, now=now, definitions=definitions)

    def _enqueue_held(self, handle: Handle, rows: Sequence[NewRow], hold: Hold, *, now: Instant, definitions: int | None) -> list[Enqueued]:
        with self._lent(handle, hold) as db:
            if db.isolated and not all(map(queue.is_plain, rows)):
                raise TransactionMisuse(
                    "this transaction sees the moment of its first statement (REPEATABLE READ or SERIALIZABLE), and a job with a key, "
                    "parents or limits must see what others have done since: enqueue it in a READ COMMITTED one, or after the commit"
                )
            try:
                return intake.enqueue(db, rows, now, definitions, alone=hold is Hold.ALL)
            except DefinitionsChanged:
                if db.isolated and definitions is not None and lanes.same_definitions(self.definitions(), definitions):
                    raise StoreBusy(
                        "templates or organizations have changed since this transaction's first statement: begin it again"
                    ) from None
                raise


def _for_certain(db: Db, value: T) -> T:
    """Let this commit wait for the standbys, as the one whose answer was lost may not have: what it wrote can be seen, and yet be lost."""
    db.rows("mark")
    return value
