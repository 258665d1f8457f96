"""Connections to one PostgreSQL database: how they are opened, cut when the server stays silent, and lent from a pool.

A server that is stopped, or whose disk is stuck, still acknowledges every packet: its kernel does. Keepalives and `tcp_user_timeout` see
nothing wrong, so the silence itself is measured. See decision 0041.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

from rota.errors import RotaError, StoreBusy, StoreError, StoreUnusable
from rota.model.settings import Settings
from rota.stores.postgres.address import Address
from rota.stores.postgres.db import (
    Db,
)
from rota.stores.postgres.errors import ENDED, is_lost, refused, translate

PREPARED_MAX = 1000
OLDEST_SERVER = 130000
SET_UP_S = 10.0
"""Longest silence of the server while a session is set up that may wait without end later."""
REOPEN_S = 0.1
"""Pause before a session that the server has ended is opened again."""

# A plan is made once, and is the one for which the indexes are there: it depends neither on values nor on statistics, which for a
# queue are wrong most of the time. Joins go row by row along an index, as a turn's batches ask for.
PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Turned off by whoever runs a database, as nested loops are for reports, they would leave nothing but what is turned off here.
    "enable_nestloop": "on",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_sort": "on",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
SESSION = PLANS | {
    "default_transaction_isolation": "read committed",
    "client_min_messages": "warning",
    "idle_in_transaction_session_timeout": "0",
    # A machine that is gone without a word does not keep its sessions for hours.
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "15",
    "tcp_keepalives_count": "4",
}
T = TypeVar("T")
ASIDE = 2
"""Connections of each process beside its pool, for what keeps nobody out of anything: beats above all."""
OVERTAKEN_S = 0.5
"""Who has waited so long for a connection is the next to have one."""
_not_ours: list[Db] = []


def beat_silence_s(settings: Settings) -> float:
    """Return how long a beat may go without an answer: the two after it come before the worker has to stop its handlers."""
    return max(1.0, settings.guard_s / 3)


def open_connection(address: Address, settings: Settings, *, silence_s: float | None = None) -> Session:
    """Open a connection with what every one of this store has. A silence of the server ends it; None: no silence does.

    A session that the server ends before it could be used is opened again, for as long as `busy_timeout`.
    """
    end = time.monotonic() + settings.busy_timeout
    while True:
        try:
            return _opened(address, settings, silence_s)
        except _Ended as ended:
            failed = ended.error
        if time.monotonic() + REOPEN_S > end:
            raise failed
        time.sleep(REOPEN_S)


def _opened(address: Address, settings: Settings, silence_s: float | None) -> Session:
    raw = _connect(address)
    try:
        _check_server(raw, address)
        raw.silence_s = SET_UP_S if silence_s is None else silence_s
        wait_ms = max(1, round(settings.busy_timeout * 1000))
        session = SESSION | {"search_path": address.search_path, "lock_timeout": f"{wait_ms}ms"}
        # Said in the session, not at its start: a pooler between us and the server takes nothing else.
        raw.execute("SELECT " + ", ".join(["set_config(%s, %s, false)"] * len(session)), [*chain(*session.items())])
    except psycopg.Error as error:
        failed, lost = translate(error, address), is_lost(error, raw)
        failed.__cause__ = error
        raw.close()
        raise _Ended(failed) if lost else failed from error
    except BaseException:
        raw.close()
        raise
    raw.silence_s = silence_s
    raw.prepare_threshold = 0
    raw.prepared_max = PREPARED_MAX
    return raw


class _Ended(Exception):  # noqa: N818 - a word to the caller, who may try again
    def __init__(self, error: RotaError) -> None:
        self.error = error


def _connect(address: Address) -> Session:
    try:
        raw = Session.connect(address.conninfo(), autocommit=True, options=address.options)
    except psycopg.Error as error:
        ended = ENDED in str(error)
        failed = refused(error, address)
    else:
        address.note_answer(raw.info.host, raw.info.port)
        return raw
    # Not from inside the `except`: the driver's error and its frames hold the password.
    raise _Ended(failed) if ended else failed


def _check_server(raw: psycopg.Connection[Any], address: Address) -> None:
    found = raw.info.server_version
    if found < OLDEST_SERVER:
        raise StoreUnusable(
            f"{address.shown} is PostgreSQL {found // 10000}; Rota needs {OLDEST_SERVER // 10000} or later: upgrade the server"
        )
    encoding = raw.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnusable(
            f"{address.shown} keeps texts as {encoding}, which can't hold every letter: give a database with the encoding UTF8"
        )


class Session(psycopg.Connection[Any]):
    """A connection whose waits end when the server has been silent for `silence_s`; None: they don't."""

    silence_s: float | None = None

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Run one of the driver's exchanges with the server. Everything that the driver waits for goes through here."""
        if self.silence_s is not None:
            gen = self._timed(gen, self.silence_s)
        return super().wait(gen, *args, **options)

    def _timed(self, gen: PQGen[T], silence_s: float) -> Generator[Wait, Ready | int, T]:
        """Pass an exchange on. While nothing moves on the socket the driver asks every 0.1 s, so no watcher and no timer is needed."""
        silent_since: float | None = None
        cut = False
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    silent_since = None
                elif silent_since is None:
                    silent_since = time.monotonic()
                elif cut:
                    self.pgconn.finish()
                elif time.monotonic() - silent_since >= silence_s:
                    # The driver then finds the connection closed, and cleans up as it does after any lost server.
                    self._cut()
                    cut = True
                wanted = gen.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value
        except psycopg.Error as error:
            if not cut:
                raise
            raise psycopg.OperationalError(f"no answer for {silence_s:g} s, so the connection was cut") from error

    def _cut(self) -> None:
        """Close the socket in both directions and keep its descriptor, which is the driver's."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)


@contextmanager
def silence(raw: psycopg.Connection[Any], silence_s: float | None) -> Iterator[None]:
    """Allow the server another silence for a block. A caller's own connection has no limit and gets none."""
    if not isinstance(raw, Session):
        yield
        return
    before, raw.silence_s = raw.silence_s, silence_s
    try:
        yield
    finally:
        raw.silence_s = before


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
    """At most `size` connections of one process: opened when needed, thrown away when broken, not carried over a fork."""

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
