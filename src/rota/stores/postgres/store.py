"""The PostgreSQL store: any number of workers on any number of machines.

Verbs are written as if nobody else wrote meanwhile, and here is what makes that so: advisory locks, taken in the first statement
of a transaction, before anything is read. Plain enqueues share the door; a turn shares the door and has the wheel, or shares that too
if it is a light one; all other verbs have the door to themselves, and so the store. A lock is let go with its transaction, whatever
ends that. See decision 0026.
A caller's own transaction may last: it passes no door unless it must, and is a guest until it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec
import psycopg
from psycopg import errors, pq

from rota.errors import StoreBusy, StoreError, StoreUnavailable, TransactionMisuse
from rota.model.findings import Finding
from rota.model.settings import Settings
from rota.model.values import Claimed, Enqueued, Instant, NewRow
from rota.ports.places import Place
from rota.ports.store import DefinitionsChanged
from rota.ports.transactions import inside
from rota.stores import paths, permissions
from rota.stores.postgres import migrate
from rota.stores.postgres.address import CLAIMS, DOOR, GUESTS, WHEEL, Address, address
from rota.stores.postgres.checkup import checkup
from rota.stores.postgres.connection import ASIDE, REOPEN_S, Pool, beat_silence_s, open_connection, silence
from rota.stores.postgres.db import Db
from rota.stores.postgres.errors import Unanswered, is_lost, translate, translated, unanswered
from rota.stores.postgres.user_connection import Borrowed, Lending, Lent, Transaction
from rota.stores.verbs import definitions as definition_verbs
from rota.stores.verbs import intake, queue, recovery, repair
from rota.stores.verbs.db import refuse_moved
from rota.stores.verbs.store import Hold, VerbStore

T = TypeVar("T")
Handle: TypeAlias = Transaction | Borrowed
"""The caller's own transaction, here or on a connection of the caller's."""

TRIES = 5
"""How often a piece of work is begun again after the server undid it: a deadlock, or a connection that was dead already."""


ANSWER_S = 5.0
"""A statement that waits for no lock is answered in this time, or the server is taken for lost."""
LONG_S = 60.0
"""The same, at least, for verbs whose work grows with the store."""
ASK_S = (0.05, 1.0)
"""Shortest and longest pause between two questions whether something was written after all."""


class PostgresStore(VerbStore):
    """Implements `rota.ports.store.Store` on one schema of one database."""

    beside = True
    _shares = True

    def __init__(self, url: str, settings: Settings) -> None:
        """Take where it is; connections are opened when needed."""
        self.address: Address = address(url, settings.schema)
        self.url = self.address.shown
        self._settings = settings
        # The server's own lock_timeout, which is busy_timeout, comes first and says more.
        self._silence_s = settings.busy_timeout + ANSWER_S
        self._long_s = max(self._silence_s, LONG_S)
        open_one = partial(open_connection, self.address, settings, silence_s=self._silence_s)
        self._pool = Pool(open_one, size=settings.pool_size, wait_s=settings.busy_timeout)
        # Beats wait for nobody: not for a lock, and not for a connection that others of this process wait for a lock on.
        open_beside = partial(open_connection, self.address, settings, silence_s=beat_silence_s(settings))
        self._aside = Pool(open_beside, size=ASIDE, wait_s=settings.busy_timeout)
        self._begin = {hold: _beginning(self.address, hold, silence_s=max(1.0, settings.guard_s)) for hold in Hold}
        # A turn sees itself what it has made ready, and what nobody depends on wakes nobody.
        hint = f"NOTIFY {self.address.schema_quoted}; COMMIT"
        self._commit = dict.fromkeys(Hold, hint) | dict.fromkeys((Hold.NOTHING, Hold.LIGHT, Hold.CLAIM, Hold.WHEEL), "COMMIT")
        # A plain job that is added by one statement: the same lock, and the same hint.
        door = "pg_advisory_xact_lock_shared({}, {})".format(*self.address.key(DOOR))
        self._through_the_door = f"SELECT {door}, pg_notify('{self.address.schema}', '')"
        self._lending = Lending(self.address, wait_s=settings.busy_timeout, place=self._place)
        self._own = threading.local()
        self._seen = ""
        self._closed = False

    # ---- life -------------------------------------------------------------------------------------------------

    def migrate(self, *, now: Instant) -> None:
        """Bring the schema up to date. Two processes may start at once: one migrates, the other finds it done."""
        del now
        end = time.monotonic() + self._settings.busy_timeout
        while not self._migrated(end):
            time.sleep(REOPEN_S)

    def _migrated(self, end: float) -> bool:
        """Bring the schema up to date, unless the server ends the session before it has: there is time for another until `end`."""
        with self._pool.take() as db:
            try:
                migrate.migrate(db, self.address)
                refuse_moved(db, self.address.shown)
            except psycopg.Error as error:
                if is_lost(error, db.raw) and time.monotonic() < end:
                    self._pool.stale()
                    return False
                raise translate(error, self.address) from error
        return True

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._pool.close()
        self._aside.close()

    def changed(self) -> bool:
        """Say whether anybody in this database has committed since the last call."""
        with self._reading() as db:
            snapshot = str(db.value("snapshot_now"))
        if snapshot == self._seen:
            return False
        self._seen = snapshot
        return True

    def time(self) -> Instant:
        """Return what the server's clock shows: the one clock that all who use the store can see."""
        with self._reading() as db:
            return int(db.value("server_clock"))

    def transacting(self) -> bool:
        """Say whether this thread is inside its own transaction."""
        return getattr(self._own, "open", False)

    def crowd(self, *, crowded: bool) -> None:
        """Leave the order of those who wait to the server, which is fair."""

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open the caller's own transaction."""
        if self.transacting():
            raise TransactionMisuse("a transaction is open in this thread already: use it, or close it first")
        with self._pool.take() as db, translated(self.address), inside(self.url):
            db.execute("BEGIN")
            handle = Transaction(self, Lent(db.raw))
            self._own.open = True
            try:
                yield handle
            except BaseException:
                _rollback(db)
                raise
            else:
                self._end(db, self._commit[Hold.ALL])
            finally:
                self._own.open = False
                handle.db = None

    def join(self, transaction: Any) -> Handle:
        """Make a handle on the caller's transaction: one opened here, or any on a connection of the caller's own."""
        if not isinstance(transaction, Transaction | Borrowed):
            return Borrowed(self, transaction, self._lending)
        if transaction.store is not self:
            raise TransactionMisuse("transaction= takes what `with rota.transaction() as tx` gave, of the same Rota")
        return transaction

    def checkup(self, *, now: Instant, machine: Callable[[], Instant], full: bool) -> list[Finding]:
        """Look at the server, and at what is ours in it."""
        with self._reading() as db, silence(db.raw, None):
            return checkup(db, self.address, self._settings, now, machine=machine, full=full)

    def fix(self, *, now: Instant) -> list[Finding]:
        """Repair the rows, and close what workers of this machine keep in files to others."""
        kept = [*paths.shared_folder(self.address.name), *paths.kept(self.address.name, self._settings)]
        return [*self._fix_rows(now=now), *permissions.repair(kept, self._settings)]

    def _fix_rows(self, *, now: Instant) -> list[Finding]:
        """Repair the rows. This reads whole tables, and takes as long as it takes."""

        def work(db: Db) -> list[Finding]:
            with silence(db.raw, None):
                return repair.repair(db, now)

        return self._write(work)

    # ---- the queue --------------------------------------------------------------------------------------------

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
                if db.isolated and definitions is not None and definition_verbs.same_definitions(self.definitions(), definitions):
                    raise StoreBusy(
                        "templates or organizations have changed since this transaction's first statement: begin it again"
                    ) from None
                raise

    # ---- inside -----------------------------------------------------------------------------------------------

    def _write(self, work: Callable[[Db], T], *, hold: Hold = Hold.ALL, patient: bool = False, long: bool = False) -> T:
        del patient
        self._refuse_closed()
        for left in reversed(range(TRIES)):
            try:
                return self._write_once(work, hold, self._long_s if long else None)
            except _Again as again:
                # A worker has chosen for the moment in which its turn was made: its next turn chooses anew.
                if not left or (hold in {Hold.LIGHT, Hold.CLAIM, Hold.WHEEL} and again.begun):
                    raise translate(again.error, self.address) from again.error
        raise AssertionError

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError(f"{self.url} is closed")
        if self.transacting():
            raise TransactionMisuse(
                "this thread is inside `with rota.transaction() as tx`: pass transaction=tx, or do this after the block"
            )

    def _write_once(self, work: Callable[[Db], T], hold: Hold, silence_s: float | None) -> T:
        pool = self._aside if hold is Hold.NOTHING else self._pool
        with pool.take() as db, nullcontext() if silence_s is None else silence(db.raw, silence_s):
            begun = False
            try:
                db.execute(self._begin[hold])
                begun = True
                value = work(db)
            except psycopg.Error as error:
                _rollback(db)
                if is_lost(error, db.raw):
                    pool.stale()
                    raise _Again(error, begun=begun) from error
                # What is there already was in a guest's hand when it was looked for, and can be seen now.
                if isinstance(error, errors.DeadlockDetected | errors.SerializationFailure | errors.UniqueViolation):
                    raise _Again(error, begun=begun) from error
                raise translate(error, self.address) from error
            except BaseException:
                _rollback(db)
                raise
            self._end(db, self._commit[hold], value)
            return value

    def _end(self, db: Db, commit: str, value: object = None) -> None:
        """Commit. Should the answer be lost nobody can say whether it was written: so it is not begun again here."""
        try:
            db.execute(commit)
        except psycopg.Error as error:
            if is_lost(error, db.raw):
                raise unanswered(error, self.address, value) from error
            raise translate(error, self.address) from error

    @contextmanager
    def _reading(self, *, long: bool = False) -> Iterator[Db]:
        with self._pool.take() as db, translated(self.address), silence(db.raw, self._long_s) if long else nullcontext():
            try:
                yield db
            except psycopg.Error as error:
                if is_lost(error, db.raw):
                    self._pool.stale()
                raise

    @contextmanager
    def _of(self, transaction: Any) -> Iterator[Lent]:
        """Lend the connection of the caller's own transaction for reading."""
        with translated(self.address), self._lent(self.join(transaction), Hold.NOTHING) as db:
            yield db

    def _lent(self, handle: Handle, hold: Hold) -> AbstractContextManager[Lent]:
        return handle.lent(_asked_of_guests(self.address, hold), hint=hold is not Hold.NOTHING)

    def _place(self) -> tuple[str, str]:
        with self._reading() as db:
            database, started = db.rows("place")[0]
            return database, started


class _Again(Exception):  # noqa: N818 - a word to the caller, not an error of anybody
    def __init__(self, error: psycopg.Error, *, begun: bool) -> None:
        self.error = error
        self.begun = begun
        """The work had begun: what it was told may be true no longer."""


def _beginning(where: Address, hold: Hold, *, silence_s: float) -> str:
    # Whoever is stopped or cut off inside a transaction keeps everybody else out: the server ends one that says nothing for so long.
    begin = f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = {round(silence_s * 1000)}"
    shared = "SELECT pg_advisory_xact_lock_shared({}, {})".format(*where.key(DOOR))
    alone = "SELECT pg_advisory_xact_lock({}, {})".format(*where.key(DOOR))
    wheel = "SELECT pg_advisory_xact_lock({}, {})".format(*where.key(WHEEL))
    beside = "SELECT pg_advisory_xact_lock_shared({}, {})".format(*where.key(WHEEL))
    claims = "SELECT pg_advisory_xact_lock({}, {})".format(*where.key(CLAIMS))
    guests = "SELECT pg_advisory_xact_lock({}, {})".format(*where.key(GUESTS))
    return {
        Hold.NOTHING: begin,
        Hold.DOOR: f"{begin}; {shared}",
        Hold.LIGHT: f"{begin}; {shared}; {beside}",
        Hold.CLAIM: f"{begin}; {shared}; {beside}; {claims}",
        Hold.WHEEL: f"{begin}; {shared}; {wheel}",
        Hold.ALL: f"{begin}; {alone}",
        Hold.STILL: f"{begin}; {guests}; {alone}",
    }[hold]


def _asked_of_guests(where: Address, hold: Hold) -> str:
    """Return what a verb in the caller's own transaction locks, until that ends. Its jobs come at some later moment: turns don't mind."""
    guest = "SELECT pg_advisory_xact_lock_shared({}, {})".format(*where.key(GUESTS))
    alone = "SELECT pg_advisory_xact_lock({}, {})".format(*where.key(DOOR))
    return {Hold.NOTHING: "", Hold.DOOR: guest, Hold.ALL: f"{guest}; {alone}"}[hold]


def _rollback(db: Db) -> None:
    if db.raw.info.transaction_status in {pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR, pq.TransactionStatus.ACTIVE}:
        try:
            db.execute("ROLLBACK")
        except psycopg.Error:
            # The server rolls back by itself what it has lost sight of; the pool throws the connection away.
            return


def _for_certain(db: Db, value: T) -> T:
    """Let this commit wait for the standbys, as the one whose answer was lost may not have: what it wrote can be seen, and yet be lost."""
    db.rows("mark")
    return value
