"""What every part of the PostgreSQL store stands on: its pool, its locks, and its transactions.

Verbs are written as if nobody else wrote meanwhile, and here is what makes that so: advisory locks, taken in the first statement
of a transaction, before anything is read. Plain enqueues share the door; a turn shares the door and has the wheel, or shares that too
if it is a light one; all other verbs have the door to themselves, and so the store. A lock is let go with its transaction, whatever
ends that. See decision 0026.
A caller's own transaction may last: it passes no door unless it must, and is a guest until it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import errors, pq

from rota.errors import StoreError, TransactionMisuse
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.ports.transactions import inside
from rota.stores.postgres import migrate
from rota.stores.postgres.address import CLAIMS, DOOR, GUESTS, WHEEL, Address, address
from rota.stores.postgres.borrowed import Borrowed
from rota.stores.postgres.connection import REOPEN_S, Db, beat_silence_s, open_connection
from rota.stores.postgres.errors import is_lost, translate, translated, unanswered
from rota.stores.postgres.guest import Lent
from rota.stores.postgres.lending import Lending
from rota.stores.postgres.pool import ASIDE, Pool
from rota.stores.postgres.session import silence
from rota.stores.postgres.transaction import Transaction
from rota.stores.verbs import base as relational
from rota.stores.verbs import copying
from rota.stores.verbs.base import Hold

T = TypeVar("T")
Handle: TypeAlias = Transaction | Borrowed
"""The caller's own transaction, here or on a connection of the caller's."""

TRIES = 5
"""How often a piece of work is begun again after the server undid it: a deadlock, or a connection that was dead already."""


ANSWER_S = 5.0
"""A statement that waits for no lock is answered in this time, or the server is taken for lost."""
LONG_S = 60.0
"""The same, at least, for verbs whose work grows with the store."""


class Base(relational.Base):
    """One schema of one database."""

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
                copying.refuse_moved(db, self.address.shown)
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
        Hold.NOTHING: "BEGIN",
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
