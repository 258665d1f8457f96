"""The watcher: one thread finds out, for every caller of this process that awaits a job, when its chain has finished.

A caller waits on a future of its own event loop, and holds no thread. The watcher asks the store about all awaited jobs together, a batch
to a SELECT, at the pace of `Rota.wait`. It starts with the first caller and ends with the last.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING

from rota.engine.inbox import Inbox
from rota.engine.patience import PAUSE_S as AWAY_S
from rota.errors import StoreBusy, StoreError, StoreUnavailable, WaitTimeout
from rota.ports.store import Store, Tail
from rota.ports.wakeup import Wakeup

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("rota.watcher")

BATCH = 500
"""The most jobs that one SELECT asks about."""
PAUSE_S = (0.002, 0.025)
"""First and longest pause between two looks at all awaited jobs, as in `Rota.wait`; the first again whenever a caller joins."""
HINTED_S = 0.25
"""Longest pause where commits come as hints, which end it: a hint that is lost costs no more than this."""
REST_TIMES = 9
"""How many times as long as a look took the store is left alone after it: looks take a tenth of the time at most."""
REST_MAX_S = 1.0
"""The longest such rest."""
FIRST_LOOK_S = 5.0
"""A caller with a shorter timeout still gets the answer of its first look, if that comes within this time."""


class Waiter:
    """A caller that awaits the end of a chain."""

    def __init__(self, find: Callable[[], str], loop: asyncio.AbstractEventLoop, *, bounded: bool) -> None:
        """Take the function that finds the job's id, and whether the caller has a timeout."""
        self.find = find
        self.loop = loop
        self.bell: asyncio.Future[None] = loop.create_future()
        self.bounded = bounded
        self.since_s = time.monotonic()
        self.last_look = False
        """The caller's time is up before the first look: that look is the last one, whatever it finds."""
        self.job_id: str | None = None
        self.looked = False
        self.over = False
        """There is an answer: `error`, or else `tail`."""
        self.tail: Tail | None = None
        """What the last look found; None: the store has no such job."""
        self.error: Exception | None = None
        """What the last look raised."""


class Watcher:
    """Finds out when awaited chains finish. One for each open store of a process."""

    def __init__(self, store: Store, wakeup: Callable[[], Wakeup] | None, *, outage_s: float) -> None:
        """Start nothing yet. `outage_s` is how long a caller without a timeout waits for a store that is away."""
        self.store = store
        self._wakeup = wakeup
        self._outage_s = outage_s
        self._lock = threading.Lock()
        self._waiters: dict[Waiter, None] = {}
        self._new: list[Waiter] = []
        self._bell: Inbox | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._away_since_s: float | None = None

    async def tail(self, find: Callable[[], str], timeout: float | None) -> Tail | None:  # noqa: ASYNC109 - exact, by the loop's own timer
        """Return the last job of a chain once the chain has finished; None if the store has no such job.

        `find` returns the job's id. It may read the store: it is called on the watcher's thread. A store that goes away is waited for
        until the timeout, or for `outage_s` without one.
        """
        import asyncio  # noqa: PLC0415 - its import takes 40 ms, which only async programs need

        waiter = Waiter(find, asyncio.get_running_loop(), bounded=timeout is not None)
        try:
            self._join(waiter)
            await asyncio.wait((waiter.bell,), timeout=timeout)
            waiter.last_look = True
            if not waiter.looked and timeout is not None:
                await asyncio.wait((waiter.bell,), timeout=FIRST_LOOK_S - timeout)
        finally:
            self._leave(waiter)
        if waiter.error is not None:
            # A copy for each caller: one exception raised in many tasks would collect the tracebacks of all of them.
            raise copy(waiter.error) if isinstance(waiter.error, StoreError) else waiter.error
        if waiter.over:
            return waiter.tail
        state = f"{waiter.tail.number} is still {waiter.tail.status}" if waiter.tail else f"{self.store.url} has not answered"
        raise WaitTimeout(f"{state} after {timeout:g} s; the job is not affected, wait again")

    def close(self) -> None:
        """End the thread. Callers that still wait get an error."""
        with self._lock:
            self._closed = True
            thread, waiters = self._thread, list(self._waiters)
            if self._bell is not None:
                self._bell.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        closed = StoreError(f"{self.store.url} was closed while this job was awaited; the job is not affected, wait again")
        self._end([waiter for waiter in waiters if not waiter.over], closed)

    # ---- the callers' side ----------------------------------------------------------------------------------------

    def _join(self, waiter: Waiter) -> None:
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.store.url} is closed")
            self._waiters[waiter] = None
            self._new.append(waiter)
            if self._bell is None:
                self._start()
            else:
                self._bell.wake()

    def _start(self) -> None:
        bell = Inbox(self._hints())
        thread = threading.Thread(target=self._run, args=(bell,), name="rota-watcher", daemon=True)
        self._bell, self._thread = bell, thread
        try:
            thread.start()
        except BaseException:
            self._bell = self._thread = None
            bell.close()
            raise

    def _hints(self) -> Wakeup | None:
        """Return hints where they tell of every commit. PostgreSQL's leave out turns, which are what finishes jobs."""
        hints = None if self._wakeup is None else self._wakeup()
        if hints is None or hints.echoes:
            return hints
        hints.close()
        return None

    def _leave(self, waiter: Waiter) -> None:
        with self._lock:
            self._waiters.pop(waiter, None)
            if not self._waiters and self._bell is not None:
                self._bell.wake()

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _run(self, bell: Inbox) -> None:
        try:
            self._watch(bell)
        except Exception as error:
            # Nobody may wait for ever for a thread that is gone. The next caller starts another.
            log.exception("awaiting jobs failed")
            with self._lock:
                self._thread = self._bell = self._away_since_s = None
                waiters = list(self._waiters)
            self._end(waiters, error)
        finally:
            bell.close()

    def _watch(self, bell: Inbox) -> None:
        pause_s, away_s = PAUSE_S[0], AWAY_S[0]
        due_s = free_s = 0.0
        while self._continues():
            # Asked before the look: any commit after it then rings.
            hinted = bell.hinted
            begun_s = time.monotonic()
            waiters, new = self._waiting()
            if new:
                pause_s = PAUSE_S[0]
                due_s = max(free_s, min(due_s, begun_s + pause_s))
            whole = begun_s >= due_s
            answered = self._look(waiters if whole else new)
            now_s = time.monotonic()
            if whole and answered:
                free_s = now_s + min(REST_MAX_S, REST_TIMES * (now_s - begun_s))
                due_s = max(free_s, now_s + (PAUSE_S[0] if hinted else pause_s))
                pause_s, away_s = min(PAUSE_S[1], pause_s * 1.5), AWAY_S[0]
            elif whole:
                with self._lock:
                    next_loss_s = max(now_s, min(map(self._loss_s, self._waiters), default=now_s))
                due_s = free_s = min(now_s + away_s, next_loss_s)
                away_s = min(AWAY_S[1], away_s * 2)
            self._rest(bell, due_s, hinted=hinted and answered)

    def _continues(self) -> bool:
        with self._lock:
            # A loop that was closed before its tasks were done takes no answer any more.
            for waiter in [waiter for waiter in self._waiters if waiter.loop.is_closed()]:
                del self._waiters[waiter]
            if self._waiters and not self._closed:
                return True
            self._thread = self._bell = self._away_since_s = None
            return False

    def _waiting(self) -> tuple[list[Waiter], list[Waiter]]:
        """Return all who wait, and those of them who have come since the last time."""
        with self._lock:
            new, self._new = [waiter for waiter in self._new if waiter in self._waiters], []
            return list(self._waiters), new

    def _rest(self, bell: Inbox, until_s: float, *, hinted: bool) -> None:
        """Sleep until the next look is due or a caller joins; where commits come as hints, also until the next of those."""
        left_s = until_s - time.monotonic()
        if left_s > 0:
            bell.listens = False
            bell.wait(left_s)
        if hinted and time.monotonic() >= until_s:
            bell.listens = True
            bell.wait(HINTED_S)

    def _look(self, waiters: Sequence[Waiter]) -> bool:
        """Look at the chains of these callers and answer what can be answered; say whether the store could be read."""
        begun_s = time.monotonic()
        try:
            for start in range(0, len(waiters), BATCH):
                self._ask([waiter for waiter in waiters[start : start + BATCH] if self._locate(waiter)])
        except (StoreBusy, StoreUnavailable) as error:
            self._bear([waiter for waiter in waiters if not waiter.over], error, begun_s)
            return False
        self._away_since_s = None
        return True

    def _locate(self, waiter: Waiter) -> bool:
        """Find the id of a caller's job, once; say whether it is known."""
        try:
            waiter.job_id = waiter.job_id or waiter.find()
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - it is the caller's, who gets it
            self._end([waiter], error)
        return not waiter.over

    def _ask(self, waiters: Sequence[Waiter]) -> None:
        try:
            tails = self.store.tails([*{str(waiter.job_id): None for waiter in waiters}])
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - it is the callers', who get it
            self._end(waiters, error)
            return
        for waiter in waiters:
            waiter.tail, waiter.error = tails.get(str(waiter.job_id)), None
            waiter.over = waiter.tail is None or waiter.tail.status.ended
            waiter.looked = True
        self._ring([waiter for waiter in waiters if waiter.over or waiter.last_look])

    def _bear(self, waiters: Sequence[Waiter], error: Exception, begun_s: float) -> None:
        """Note that the store is away, and end the waits of those who have waited for it long enough."""
        if self._away_since_s is None:
            self._away_since_s = begun_s
        for waiter in waiters:
            waiter.error, waiter.looked = error, True
        now_s = time.monotonic()
        self._end([waiter for waiter in waiters if waiter.last_look or self._loss_s(waiter) <= now_s], error)

    def _loss_s(self, waiter: Waiter) -> float:
        """Return when the outage is too long for a caller; never for one with a timeout, which its own event loop keeps."""
        if waiter.bounded or self._away_since_s is None:
            return float("inf")
        return max(self._away_since_s, waiter.since_s) + self._outage_s

    def _end(self, waiters: Sequence[Waiter], error: Exception) -> None:
        for waiter in waiters:
            waiter.error, waiter.looked, waiter.over = error, True, True
        self._ring(waiters)

    def _ring(self, waiters: Sequence[Waiter]) -> None:
        """Wake callers in their own event loops, and forget them."""
        with self._lock:
            for waiter in waiters:
                self._waiters.pop(waiter, None)
        for loop in {waiter.loop for waiter in waiters}:
            # A loop that is closed by now has nobody to wake.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_wake, [waiter.bell for waiter in waiters if waiter.loop is loop])


def _wake(bells: Iterable[asyncio.Future[None]]) -> None:
    for bell in bells:
        if not bell.done():
            bell.set_result(None)
