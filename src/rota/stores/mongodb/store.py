"""The MongoDB store: any number of workers on any number of machines, on a replica set.

Verbs are written as if nobody else wrote meanwhile; `transaction` says what makes that so. A caller's own transaction may last: it writes
one of the guests' documents, and no other of `locks` unless it must.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from pymongo import MongoClient, timeout
from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError

from rota.errors import StoreBusy, StoreError, StoreMoved, StoreUnavailable, TransactionMisuse
from rota.model.findings import Finding
from rota.model.settings import Settings
from rota.model.values import Claimed, Enqueued, Instant, NewRow
from rota.ports.places import Place
from rota.ports.store import DefinitionsChanged
from rota.ports.transactions import inside
from rota.stores import paths, permissions
from rota.stores.mongodb import statements
from rota.stores.mongodb.address import Address, address
from rota.stores.mongodb.checkup import checkup
from rota.stores.mongodb.connection import Connections, beat_silence_s, members, refuse_unfit
from rota.stores.mongodb.db import Db
from rota.stores.mongodb.errors import Unanswered, translate, translated, translated_for_caller
from rota.stores.mongodb.guest import Guest
from rota.stores.mongodb.marks import is_free
from rota.stores.mongodb.migrate import migrate
from rota.stores.mongodb.transaction import Idle, Transactions, server_time
from rota.stores.verbs import intake, queue, recovery, run_logs
from rota.stores.verbs.db import refuse_moved
from rota.stores.verbs.definitions import find_lane, same_definitions
from rota.stores.verbs.store import Hold, VerbStore, write

T = TypeVar("T")
ASK_S = (0.05, 1.0)
"""Shortest and longest pause between two questions whether something was written after all."""

statements.load()


class MongoStore(VerbStore):
    """Implements `rota.ports.store.Store` on one database of a replica set."""

    beside = True
    _shares = True

    def __init__(self, url: str, settings: Settings) -> None:
        """Take where it is; connections are opened when needed."""
        self.address: Address = address(url)
        self.url = self.address.shown
        self._settings = settings
        self._connections = Connections(self.address, settings)
        self._idle = Idle()
        self._own = threading.local()
        self._seen: object = None
        self._known: WeakSet[MongoClient[Any]] = WeakSet()
        """Clients of callers that are connected to the same replica set."""
        self._closed = False

    # ---- life -------------------------------------------------------------------------------------------------

    def migrate(self, *, now: Instant) -> None:
        """Create what is missing."""
        del now
        with translated(self.address):
            client = self._connections.client
            refuse_unfit(client, self.address)
            migrate(client[self.address.database], self.address)
        with self._reading() as db:
            refuse_moved(db, self.address.shown)

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._connections.close()

    def changed(self) -> bool:
        """Say whether anybody has committed something to this replica set since the last call."""
        self._refuse_closed()
        with translated(self.address):
            seen = self._connections.client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"]
        if seen == self._seen:
            return False
        self._seen = seen
        return True

    def time(self) -> Instant:
        """Return what the primary's clock shows: the one clock that all who use the store can see."""
        with translated(self.address):
            return round(server_time(self._connections.client).timestamp() * 1_000_000)

    def transacting(self) -> bool:
        """Say whether this thread is inside its own transaction."""
        return getattr(self._own, "open", False)

    def crowd(self, *, crowded: bool) -> None:
        """Leave the order of those who wait to the server."""

    @contextmanager
    def transaction(self) -> Iterator[Guest]:
        """Open the caller's own transaction."""
        if self.transacting():
            raise TransactionMisuse("a transaction is open in this thread already: use it, or close it first")
        self._refuse_closed()
        client = self._connections.client
        with inside(self.url), translated(self.address), client.start_session(causal_consistency=False) as session:
            wait_s, wait = self._settings.busy_timeout, self._transactions().wait_for_others
            guest = Guest.open(self, session, client[self.address.database], wait_s=wait_s, wait=wait)
            self._own.open = True
            try:
                yield guest
            except BaseException:
                guest.abort()
                raise
            else:
                guest.commit()
            finally:
                self._own.open = False
                guest.end()

    def join(self, transaction: Any) -> Guest:
        """Make a handle on the caller's transaction: one opened here, or a pymongo session of the caller's."""
        if isinstance(transaction, Guest):
            if transaction.store is not self:
                raise TransactionMisuse("transaction= takes what `with rota.transaction() as tx` gave, of the same Rota")
            return transaction
        if not isinstance(transaction, ClientSession):
            raise TransactionMisuse(
                f"transaction= got a {type(transaction).__name__}: pass what `with rota.transaction() as tx` returned, "
                "or a pymongo ClientSession (not an asynchronous one) that is inside a transaction"
            )
        self._refuse_stranger(transaction.client)
        return Guest.of(self, transaction, self.address.database)

    def _refuse_stranger(self, client: MongoClient[Any]) -> None:
        """Refuse a client of another replica set: its commit would not be that of the jobs."""
        if client in self._known:
            return
        with translated(self.address):
            own, theirs = members(self._connections.client), members(client)
        if own != theirs:
            raise TransactionMisuse(
                f"this session belongs to another replica set ({', '.join(theirs)}) than the store ({', '.join(own)}): "
                "use a client of the store's replica set, or leave transaction= out"
            )
        self._known.add(client)

    def checkup(self, *, now: Instant, machine: Callable[[], Instant], full: bool) -> list[Finding]:
        """Look at the servers, and at what is ours on them."""
        with self._reading() as db:
            return checkup(db, self._connections.client, self.address, self._settings, now=now, machine=machine, full=full)

    def fix(self, *, now: Instant) -> list[Finding]:
        """Repair the rows, and close what workers of this machine keep in files to others."""
        kept = [*paths.shared_folder(self.address.name), *paths.kept(self.address.name, self._settings)]
        return [*self._fix_rows(now=now), *permissions.repair(kept, self._settings)]

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
        """Add jobs, all or none. Where the answer to the commit was lost, see whether they are there."""
        if transaction is not None:
            guest = self.join(transaction)
            with translated_for_caller(self.address):
                try:
                    return self._enqueue_lent(guest, rows, now=now, definitions=definitions)
                except DefinitionsChanged:
                    # The transaction sees the moment of its first statement, and these rows may be made from what was defined since.
                    if definitions is None or not same_definitions(self.definitions(), definitions):
                        raise
                return self._enqueue_lent(guest, rows, now=now, definitions=None)
        end = time.monotonic() + self._settings.busy_timeout
        while True:
            try:
                return super().enqueue(rows, now=now, definitions=definitions, place=place)
            except Unanswered as lost:
                enqueued: list[Enqueued] = lost.value  # type: ignore[assignment] # what enqueue has returned
                added = next((each.job_id for each in enqueued if not each.existing), None)
                if added is None or self._is_written(added, lost, end):
                    return enqueued

    def _enqueue_lent(self, guest: Guest, rows: Sequence[NewRow], *, now: Instant, definitions: int | None) -> list[Enqueued]:
        if not all(row.lane for row in rows) and not guest.is_alone:
            self._give_lanes(rows)
        if all(map(queue.stands_alone, rows)):
            with suppress(intake.MustBeAlone), guest.lending(Hold.DOOR) as db:
                return intake.enqueue(db, rows, now, definitions, alone=False)
        with guest.lending(Hold.ALL) as db:
            return intake.enqueue(db, rows, now, definitions)

    def _give_lanes(self, rows: Sequence[NewRow]) -> None:
        """Add the lanes of new types at once: in the caller's transaction they would keep others from adding any until it ends."""
        keys = {(row.job_type, row.queue, row.digest) for row in rows if not row.lane}
        lanes = self._run(lambda db: {key: find_lane(db, *key) for key in keys}, Hold.DOOR)
        for row in rows:
            row.lane = row.lane or lanes[row.job_type, row.queue, row.digest]

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
                # With the store to itself: from then on the other commit is made, or never will be.
                return self._write(lambda db: bool(db.rows("same_id", job_id=job_id)))
            except (StoreBusy, StoreUnavailable):
                if time.monotonic() + pause > end:
                    raise lost from None
            time.sleep(pause)
            pause = min(pause * 2, longest)

    def holding(self, worker_id: str) -> list[Claimed]:
        """Return what a worker holds. A turn of its own whose answer was lost may still be under way: that is waited for."""
        return self._write(lambda db: recovery.holding(db, worker_id), hold=Hold.WHEEL)

    def beat(
        self, worker_id: str, *, job_types: Sequence[str], digests: Mapping[str, str] | None = None, memory: int | None = None
    ) -> bool:
        """Advance a worker's beat, in one write: a transaction whose server was lost would keep the next beats waiting for a minute."""
        self._refuse_closed()
        beat = partial(recovery.beat, worker_id=worker_id, job_types=job_types, digests=digests, memory=memory)
        with translated(self.address), timeout(beat_silence_s(self._settings)):
            database = self._connections.client[self.address.database]
            if is_free(database):
                return beat(Db(database, None))
        return self._write(beat, hold=Hold.NOTHING)

    def end_worker(self, worker_id: str, *, now: Instant) -> None:
        """Record the end of a worker. In a store that was moved, nobody asks for it any more."""
        with suppress(StoreMoved):
            super().end_worker(worker_id, now=now)

    # A log belongs to a run that others end: it shares the door, and leaves the wheel to turns.
    append_logs = write(run_logs.append_logs, hold=Hold.DOOR, patient=True)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _write(self, work: Callable[[Db], T], *, hold: Hold = Hold.ALL, patient: bool = False, long: bool = False) -> T:
        del patient, long
        self._refuse_closed()
        if self.transacting():
            raise TransactionMisuse(
                "this thread is inside `with rota.transaction() as tx`: pass transaction=tx, or do this after the block"
            )
        value = self._run(work, hold)
        if hold not in QUIET:
            self._ring()
        return value

    def _run(self, work: Callable[[Db], T], hold: Hold) -> T:
        return self._transactions().run(work, hold)

    def _transactions(self) -> Transactions:
        return Transactions(self._connections.client, self.address, self._settings, self._idle)

    def _ring(self) -> None:
        """Tell those who listen that there may be something to do. One that is lost costs a poll."""
        with suppress(PyMongoError):
            statements.ring(self._connections.client[self.address.database])

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError(f"{self.url} is closed")

    @contextmanager
    def _reading(self, *, long: bool = False) -> Iterator[Db]:
        del long
        self._refuse_closed()
        client = self._connections.client
        try:
            # All reads of such a session see one moment.
            with client.start_session(snapshot=True) as session:
                yield Db(client[self.address.database], session)
        except PyMongoError as error:
            raise translate(error, self.address) from error

    @contextmanager
    def _of(self, transaction: Any) -> Iterator[Db]:
        """Lend the caller's own transaction for reading."""
        with translated_for_caller(self.address):
            yield self.join(transaction).lent(Hold.NOTHING)


QUIET = frozenset({Hold.NOTHING, Hold.LIGHT, Hold.CLAIM, Hold.WHEEL})
"""Work that makes nothing ready for others: a turn sees itself what it has made ready."""
