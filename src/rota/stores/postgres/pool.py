"""A few connections, handed out one to a caller: opened when needed, thrown away when broken, not carried over a fork."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import pq

from rota.errors import StoreBusy, StoreError
from rota.stores.postgres.connection import Db

ASIDE = 2
"""Connections of each process beside its pool, for what keeps nobody out of anything: beats above all."""


class Pool:
    """At most `size` connections of one process."""

    def __init__(self, open_one: Callable[[], psycopg.Connection[Any]], *, size: int, wait_s: float) -> None:
        """Take the function that opens one, and how long a caller waits for one to come back."""
        self._open = open_one
        self._size = size
        self._wait_s = wait_s
        self._idle: list[Db] = []
        self._lent = 0
        self._change = threading.Condition()
        self._closed = False
        self._pid = os.getpid()

    @contextmanager
    def take(self) -> Iterator[Db]:
        """Lend a connection for a block."""
        db = self._lend()
        try:
            if db is None:
                db = Db(self._open())
            yield db
        finally:
            self._take_back(db)

    def stale(self) -> None:
        """Throw away what lies idle: one of them was found broken, and the others most likely are too."""
        with self._change:
            self._close_idle()

    def close(self) -> None:
        """Close the idle ones now, those that are lent when they come back."""
        with self._change:
            self._closed = True
            self._close_idle()

    def _lend(self) -> Db | None:
        end = time.monotonic() + self._wait_s
        with self._change:
            self._forget_parents()
            while not self._closed and self._lent >= self._size:
                if not self._change.wait(end - time.monotonic()):
                    busy = f"all {self._size} connections of this process have been busy for {self._wait_s:g} s"
                    raise StoreBusy(f"{busy} (settings pool_size, busy_timeout)")
            if self._closed:
                raise StoreError("the store is closed")
            self._lent += 1
            return self._idle_one()

    def _idle_one(self) -> Db | None:
        """Return the one that was used last and is still there. A server that speaks without being asked says that it hangs up."""
        while self._idle:
            db = self._idle.pop()
            if not is_rung(db):
                return db
            _close(db)
        return None

    def _take_back(self, db: Db | None) -> None:
        with self._change:
            self._lent -= 1
            if db is not None:
                clean = db.raw.info.transaction_status == pq.TransactionStatus.IDLE
                if clean and not self._closed:
                    self._idle.append(db)
                else:
                    _close(db)
            self._change.notify()

    def _forget_parents(self) -> None:
        """Leave alone, in a forked child, what belongs to its parent: closing it would end the parent's session."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            _not_ours.extend(self._idle)
            self._idle, self._lent = [], 0

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


def _close(db: Db) -> None:
    with suppress(psycopg.Error):
        db.raw.close()
