"""The one writer of a process: a lone caller commits for itself, callers that meet share a commit.

Who comes while nobody writes becomes the leader and writes at once. Who comes meanwhile waits; when the leader is
done it hands the lead to the first who waits, and that one writes everything waiting in one transaction, each piece in
a savepoint of its own, so that one caller's violation does not undo another's. One fsync then serves them all.

A signal's handler may raise at any instruction of the main thread, also while it leads. Then `_rescue` undoes what is half done
and hands the lead over: nobody waits for one who has gone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, Generic, TypeVar

import apsw

from rota.errors import StoreBusy, StoreError, StoreFileLost, StoreUnavailable, TransactionMisuse
from rota.stores.sqlite.connection import Identity, Moved, translate
from rota.stores.sqlite.db import Db

T = TypeVar("T")

BUSY_PAUSE_S = {True: 0.001, False: 0.0001}
"""Between two tries for the lock that another process has: a patient piece lets the short writes of callers go first."""
GATHER_S = 0.0001
FAIR_PAUSE_S = 0.001


class _Piece(Generic[T]):
    """One caller's work, and the gate it waits at."""

    __slots__ = ("alone", "error", "finished", "gate", "patient", "thread", "value", "work", "written")

    def __init__(self, work: Callable[[Db], T], *, alone: bool = False, patient: bool = False) -> None:
        self.work = work
        self.alone = alone
        self.patient = patient
        self.gate = threading.Lock()
        self.gate.acquire()
        self.thread = threading.get_ident()
        self.finished = False
        self.written = False
        self.value: T | None = None
        self.error: BaseException | None = None

    def outcome(self) -> T:
        if self.error is not None:
            raise self.error
        if not self.written:
            raise StoreUnavailable("the thread that was writing was interrupted: call again")
        return self.value  # type: ignore[return-value] # set before written


class Writer:
    """Serialises writes of one process on one connection, grouping those that meet."""

    def __init__(self, open_one: Callable[[], apsw.Connection], *, busy_timeout_s: float, path: Path, identity: Identity) -> None:
        """Take how to open the connection, which the first write does, and the identity of the file that it must be to."""
        self._open_one = open_one
        self._identity = identity
        self._db: Db
        self._connected = False
        self._ended = False
        self._busy_timeout_s = busy_timeout_s
        self._path = path
        self._mutex = threading.Lock()
        self._leader: int | None = None
        """The thread that has the lead."""
        self._waiting: list[_Piece[Any]] = []
        self._batch: list[_Piece[Any]] = []
        """Who was taken from the line and has not been told yet."""
        self._last_batch = 1
        self._owner: int | None = None
        self._committed_at = 0.0
        self.crowded = False
        """Other processes are known to write to this file: leave them a gap between two commits."""

    def run(self, work: Callable[[Db], T], *, patient: bool = False) -> T:
        """Do this work in a transaction and return its value once it is on disk."""
        me, piece = threading.get_ident(), None
        if self._owner == me:
            raise TransactionMisuse(
                "this thread is inside `with rota.transaction() as tx`: pass transaction=tx, or do this after the block"
            )
        try:
            if self._take_lead(me):
                return self._alone(work, patient=patient)
            piece = _Piece(work, patient=patient)
            if self._line_up(piece):
                self._lead([piece])
            elif not piece.finished:
                self._lead(self._gather())
            return piece.outcome()
        finally:
            if self._leader == me:
                self._rescue(piece)

    def at_once(self, statement: Callable[[Db], T]) -> T | None:
        """Run one statement that is its own transaction if nobody is writing; return None, doing nothing, if somebody is."""
        me = threading.get_ident()
        try:
            if self._owner == me or not self._take_lead(me):
                return None
            try:
                self._ready(patient=False)
                self._identity.check()
                try:
                    value = statement(self._db)
                except apsw.BusyError:
                    value = self._patiently(lambda: statement(self._db), patient=False)
                if value is not None and self._moved():
                    raise self._identity.lost(committed=True)
                return value
            finally:
                self._last_batch = 1
                self._hand_over()
        except apsw.Error as error:
            raise self._ours(error) from error
        finally:
            if self._leader == me and self._owner != me:
                self._rescue(None)

    @contextmanager
    def transaction(self) -> Iterator[Db]:
        """Hold the connection in a transaction of the caller's own, which shares its commit with nobody."""
        if self.owned:
            raise TransactionMisuse("a transaction is open in this thread already: use it, or close it first")
        place = _Piece(_nothing, alone=True)
        try:
            self._wait_for_lead(place)
            try:
                yield from self._own()
            finally:
                self._hand_over()
        finally:
            if self._leader == threading.get_ident():
                self._rescue(place)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Wait for the lead, and hold it with the connection closed. A thread inside its own transaction can't have it."""
        place = _Piece(_nothing, alone=True)
        try:
            self._wait_for_lead(place)
            try:
                if self._connected:
                    self.close()
                # In a forked child nobody would ever give back what another thread has.
                with self._mutex:
                    here = os.getpid()
                    yield
                    if os.getpid() != here:
                        # Who waits is a thread of the parent's: a lead handed to one of them would never come back.
                        self._waiting.clear()
            finally:
                self._hand_over()
        finally:
            if self._leader == threading.get_ident():
                self._rescue(place)

    @property
    def owned(self) -> bool:
        """Say whether the calling thread holds the connection in a transaction of its own."""
        return self._owner == threading.get_ident()

    def close(self) -> None:
        """Close the connection; the next write opens another."""
        self._connected = False
        self._db.raw.close()

    def end(self) -> None:
        """Close the connection for good, after what is being written. A transaction that stays open is undone after the busy timeout."""
        self._ended = True
        me, deadline = threading.get_ident(), time.monotonic() + self._busy_timeout_s
        while not (self._owner == me or self._take_lead(me)) and time.monotonic() < deadline:
            time.sleep(BUSY_PAUSE_S[True])
        try:
            if self._connected:
                self.close()
        except apsw.Error as error:
            raise translate(error, self._path) from error
        finally:
            if self._leader == me and self._owner != me:
                self._hand_over()

    def _connect(self) -> None:
        connection = self._open_one()
        # We pause and count ourselves, so that short waits stay short and processes take turns.
        connection.set_busy_timeout(0)
        self._moved = Moved(connection)
        self._db = Db(connection)
        self._connected = True

    def _own(self) -> Iterator[Db]:
        try:
            self._begin(patient=False)
            self._owner = threading.get_ident()
            yield self._db
            self._owner = None
            self._commit()
        except BaseException:
            self._owner = None
            self._rollback()
            raise

    def _take_lead(self, me: int) -> bool:
        with self._mutex:
            if self._leader is not None:
                return False
            self._leader = me
            return True

    def _alone(self, work: Callable[[Db], T], *, patient: bool) -> T:
        """Do one piece of work as a lone caller: nobody shares the commit, so no savepoint and no gate are needed."""
        try:
            try:
                self._begin(patient=patient)
                value = work(self._db)
                self._commit()
            except BaseException:
                self._rollback()
                raise
            return value
        except apsw.Error as error:
            raise self._ours(error) from error
        finally:
            self._last_batch = 1
            self._hand_over()

    def _line_up(self, piece: _Piece[Any]) -> bool:
        """Take the lead and return True, or wait in line until a leader has done this piece or hands the lead over."""
        try:
            with self._mutex:
                if self._leader is None:
                    self._leader = piece.thread
                    return True
                self._waiting.append(piece)
            piece.gate.acquire()
        except BaseException:
            # A caller interrupted here leaves the line. The lead, if it had been given it, is passed on by `_rescue`.
            with self._mutex:
                if piece in self._waiting:
                    self._waiting.remove(piece)
            raise
        return False

    def _wait_for_lead(self, place: _Piece[Any]) -> None:
        if not self._line_up(place):
            with self._mutex:
                self._waiting.remove(place)

    def _gather(self) -> list[_Piece[Any]]:
        """Take everybody who waits, up to the first who wants to be alone."""
        if self._last_batch > 1:
            # Those woken by the last commit are about to come back: a moment's wait doubles the group.
            time.sleep(GATHER_S)
        with self._mutex:
            batch = self._batch = list(takewhile(lambda piece: not piece.alone, self._waiting))
            del self._waiting[: len(batch)]
        return batch

    def _lead(self, batch: list[_Piece[Any]]) -> None:
        try:
            self._write(batch)
        except BaseException as error:
            # Whatever befell the transaction befell all of it; every caller hears of it.
            for piece in batch:
                piece.error = self._ours(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._last_batch = len(batch)
            _finish(batch)
            self._hand_over()

    def _hand_over(self) -> None:
        with self._mutex:
            self._batch = []
            if self._waiting:
                self._leader = self._waiting[0].thread
                self._waiting[0].gate.release()
            else:
                self._leader = None

    def _rescue(self, piece: _Piece[Any] | None) -> None:
        """Give up a lead that an interruption left with this thread, with all that hangs on it."""
        self._owner = None
        self._rollback()
        with self._mutex:
            self._waiting = [each for each in self._waiting if each is not piece and each not in self._batch]
        _finish(self._batch)
        self._hand_over()

    def _write(self, batch: list[_Piece[Any]]) -> None:
        try:
            self._begin(patient=all(piece.patient for piece in batch))
            if len(batch) == 1:
                batch[0].value = batch[0].work(self._db)
            else:
                for piece in batch:
                    self._one_of_many(piece)
            self._commit()
        except BaseException:
            self._rollback()
            raise
        for piece in batch:
            piece.written = True

    def _one_of_many(self, piece: _Piece[Any]) -> None:
        raw = self._db.raw
        raw.execute("SAVEPOINT piece")
        try:
            piece.value = piece.work(self._db)
        except Exception as error:
            # What is no Exception is meant for this thread, whosever piece it struck in; and some errors undo the whole transaction.
            if not raw.in_transaction:
                raise
            raw.execute("ROLLBACK TO piece")
            piece.error = self._ours(error)
        raw.execute("RELEASE piece")

    def _begin(self, *, patient: bool) -> None:
        self._ready(patient=patient)
        try:
            self._db.raw.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            self._patiently(lambda: self._db.raw.execute("BEGIN IMMEDIATE"), patient=patient)

    def _ready(self, *, patient: bool) -> None:
        """Have a connection, and leave others their gap."""
        if self._ended:
            raise StoreError(f"{self._path} is closed")
        if not self._connected:
            self._connect()
        if self.crowded and patient:
            gap = self._committed_at + FAIR_PAUSE_S - time.monotonic()
            if gap > 0:
                time.sleep(gap)

    def _patiently(self, attempt: Callable[[], T], *, patient: bool) -> T:
        """Try until another process lets go of the write lock, at most for the busy timeout."""
        deadline = None
        while True:
            try:
                return attempt()
            except apsw.BusyError as error:
                now = time.monotonic()
                deadline = deadline or now + self._busy_timeout_s
                if now >= deadline:
                    raise StoreBusy(
                        f"another process has held the write lock of {self._path} for {self._busy_timeout_s:g} s (setting busy_timeout)"
                    ) from error
                time.sleep(BUSY_PAUSE_S[patient])

    def _commit(self) -> None:
        try:
            self._identity.check()
            self._db.raw.execute("COMMIT")
        except (apsw.Error, StoreFileLost):
            self._rollback()
            raise
        if self._moved():
            raise self._identity.lost(committed=True)
        self._committed_at = time.monotonic()

    def _ours(self, error: BaseException) -> BaseException:
        """Return the driver's error as one of ours; what interrupted the thread that led as what it means for the others."""
        if isinstance(error, apsw.Error):
            try:
                # A file that is lost explains whatever the driver met in it.
                self._identity.check()
                ours: BaseException = translate(error, self._path)
            except StoreFileLost as lost:
                ours = lost
        elif isinstance(error, Exception):
            return error
        else:
            ours = StoreUnavailable(f"the thread that was writing was interrupted by {type(error).__name__}: call again")
        ours.__cause__ = error
        return ours

    def _rollback(self) -> None:
        if self._connected and self._db.raw.in_transaction:
            try:
                self._db.raw.execute("ROLLBACK")
            except apsw.Error:
                # SQLite rolls back by itself on the next open; what matters is that nothing was committed.
                return


def _finish(batch: list[_Piece[Any]]) -> None:
    """Let these callers go on, each once."""
    for piece in batch:
        if not piece.finished:
            piece.finished = True
            piece.gate.release()


def _nothing(_: Db) -> None:
    """Be a place in the line and nothing else."""
