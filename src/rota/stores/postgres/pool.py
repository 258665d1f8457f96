"""A few connections, handed out one to a caller: opened when needed, thrown away when broken, not carried over a fork."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import psycopg
from psycopg import pq

from rota.errors import StoreBusy, StoreError
from rota.stores.postgres.connection import Db

ASIDE = 2
"""Connections of each process beside its pool, for what keeps nobody out of anything: beats above all."""


OVERTAKEN_S = 0.5
"""Who has waited so long for a connection is the next to have one."""


class Loan:
    """A place among the connections that are lent, and the connection, as soon as there is one."""

    __slots__ = ("bell", "db", "since")

    def __init__(self) -> None:
        """Begin without one."""
        self.db: Db | None = None
        self.since = time.monotonic()
        self.bell = threading.Lock()
        """Locked while one waits, and released when there is room."""

    def ring(self) -> None:
        """Tell one who waits that there is room; again: nothing."""
        if self.bell.locked():
            self.bell.release()


class Pool:
    """At most `size` connections of one process."""

    def __init__(self, open_one: Callable[[], psycopg.Connection[Any]], *, size: int, wait_s: float) -> None:
        """Take the function that opens one, and how long a caller waits for one to come back."""
        self._open = open_one
        self._size = size
        self._wait_s = wait_s
        self._idle: list[Db] = []
        self._loans: set[Loan] = set()
        # No condition: whoever is interrupted between two lines of that keeps its lock for ever, or has it no more and believes so.
        self._lock = threading.Lock()
        self._waiting: deque[Loan] = deque()
        self._overtaken_s = min(OVERTAKEN_S, wait_s / 4)
        self._closed = False
        self._pid = os.getpid()

    @contextmanager
    def take(self) -> Iterator[Db]:
        """Lend a connection for a block. Whoever is interrupted, at whatever moment, keeps none of the places."""
        loan = Loan()
        try:
            self._lend(loan)
            if loan.db is None:
                loan.db = Db(self._open())
            yield loan.db
        finally:
            try:
                self._take_back(loan)
            except BaseException:
                self._take_back(loan)
                raise

    def stale(self) -> None:
        """Throw away what lies idle: one of them was found broken, and the others most likely are too."""
        with self._lock:
            self._close_idle()

    def close(self) -> None:
        """Close the idle ones now, those that are lent when they come back."""
        with self._lock:
            self._closed = True
            self._close_idle()

    def _lend(self, loan: Loan) -> None:
        end = loan.since + self._wait_s
        while not self._lend_now(loan):
            left = end - time.monotonic()
            if left <= 0:
                busy = f"all {self._size} connections of this process have been busy for {self._wait_s:g} s"
                raise StoreBusy(f"{busy} (settings pool_size, busy_timeout)")
            loan.bell.acquire(timeout=left)

    def _lend_now(self, loan: Loan) -> bool:
        """Give a loan its place, and a connection that lies idle; or note that it waits for one."""
        with self._lock:
            self._forget_parents()
            if self._closed:
                raise StoreError("the store is closed")
            if not self._may_come(loan):
                if loan not in self._waiting:
                    self._waiting.append(loan)
                # It may have been rung before, when its time was over, and heard nothing.
                loan.bell.acquire(blocking=False)
                return False
            if loan in self._waiting:
                self._waiting.remove(loan)
            self._loans.add(loan)
            self._take_idle(loan)
            return True

    def _may_come(self, loan: Loan) -> bool:
        """Say whether there is room for one: who comes may overtake those who wait, which saves a change of threads, but not for long."""
        room = self._size - len(self._loans)
        if room <= 0 or not self._waiting:
            return room > 0
        return loan.since - self._waiting[0].since < self._overtaken_s or loan in self._first(room)

    def _first(self, room: int) -> list[Loan]:
        return list(islice(self._waiting, room))

    def _take_idle(self, loan: Loan) -> None:
        """Take the one that was used last and is still there. A server that speaks without being asked says that it hangs up."""
        while self._idle:
            loan.db = self._idle.pop()
            if not is_rung(loan.db):
                return
            _close(loan.db)
            loan.db = None

    def _take_back(self, loan: Loan) -> None:
        """Take one back, or throw it away; a second time: what the first has left to do."""
        with self._lock:
            self._loans.discard(loan)
            if loan in self._waiting:
                self._waiting.remove(loan)
            db, loan.db = loan.db, None
            if db is not None:
                if _is_clean(db) and not self._closed:
                    self._idle.append(db)
                else:
                    _close(db)
            # Also by one who was told and did not come: the next may.
            for each in self._first(self._size - len(self._loans)):
                each.ring()

    def _forget_parents(self) -> None:
        """Leave alone, in a forked child, what belongs to its parent: closing it would end the parent's session."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            _not_ours.extend(self._idle)
            self._idle, self._loans, self._waiting = [], set(), deque()

    def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for db in idle:
            _close(db)


_not_ours: list[Db] = []


def is_rung(db: Db) -> bool:
    """Say whether the server has something to say that nobody asked for."""
    poll = select.poll()
    poll.register(db.raw.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _is_clean(db: Db) -> bool:
    """Say whether nothing is under way on a connection, so that the next one can begin anew."""
    info = db.raw.info
    return info.transaction_status == pq.TransactionStatus.IDLE and info.pipeline_status == pq.PipelineStatus.OFF


def _close(db: Db) -> None:
    with suppress(psycopg.Error):
        db.raw.close()
