"""How a worker shows the others of its store that it lives: its registration, its heartbeats, its lease, and the guard over them.

        sent                guard            end             lease_ttl
    ──────●──────────────────┼────────────────┼─────────────────┼────►   on this worker's monotonic clock
          │  runs handlers   │  stops them    │  has ended,     │  others, who saw the beat at `sent` or later,
          │                  │                │  if need be     │  take over

Nobody's clock is compared with anybody else's: an observer counts `lease_ttl` from when it first saw the beat, which can't
have been before it was sent.

Where a driver turns the worker, beats have a thread of their own, and the guard has one. Without a driver beats are sent between
two turns, where no handler runs that would have to be stopped.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from rota.engine.background import Ticker
from rota.engine.executor_pool import ExecutorPool
from rota.engine.parts import Parts
from rota.model.settings import Settings
from rota.model.values import WorkerProcess
from rota.ports.clock import Clock
from rota.ports.executor import Executor

log = logging.getLogger("rota.guard")

EXIT_CUT_OFF = 75
"""What a worker's process ends with when handlers did not stop in time. Whoever keeps it running should start it again."""
LOOK_S = 0.02
"""How often handlers that were told to stop are looked at."""
LATE_S = 1.0
"""What handlers still get when the guard itself comes too late: the whole process had been stopped."""
# Not by an import: the package names the application, which the engine knows nothing of.
VERSION: str = sys.modules["rota"].__version__
STATM = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def memory_in_use() -> int | None:
    """Return the resident memory of this process in bytes; None where the system does not tell."""
    try:
        pages = STATM.read_bytes().split()[1]
    except OSError:
        return None
    return int(pages) * PAGE_BYTES


class Heartbeat:
    """One worker's id, lease and guard. Belongs to the worker's thread, but for what its beats do."""

    def __init__(self, parts: Parts, pool: ExecutorPool, poke: Callable[[], None]) -> None:
        """Prepare; nobody knows of this worker before `begin`."""
        self._parts = parts
        self._pool = pool
        self._poke = poke
        self.id = parts.ids.take(1, parts.clock.now())[0]
        self.renewal = Renewal(parts.clock, parts.settings)
        self.guard = Guard(self.renewal, pool, parts.clock)
        self._beats = Ticker(self.beat, every_s=self.renewal.every_s, name="beats")
        self.due_s = parts.clock.monotonic() + self.renewal.every_s
        """When to beat between two turns (monotonic); never where a thread does."""
        self._threaded = self._noticed = self._resting = False
        self._announced: dict[str, str] | None = None
        """The digests that the store has acknowledged: the others are sent with the next beat."""

    # ---- life -------------------------------------------------------------------------------------------------

    def begin(self, worker_id: str) -> None:
        """Show a sign of life, and register."""
        parts = self._parts
        self._pool.lease = parts.liveness.take(worker_id)
        sent = parts.clock.monotonic()
        try:
            parts.store.register(
                worker_id,
                host=socket.gethostname(),
                kind="worker",
                job_types=self._types(),
                queues=parts.serving.queues,
                digests=self._digests(),
                now=parts.clock.now(),
                slots=self._pool.at_once,
                process=WorkerProcess(os.getpid(), VERSION, memory_in_use()),
            )
        except BaseException:
            self.let_go(clean=True)
            raise
        self.id = worker_id
        self._beat_next(sent)
        self.renewal.begin(sent)
        self._pass_on()

    def halt(self) -> None:
        """Stop every handler: others have taken over what they do."""
        if self.renewal.watched:
            # They are seen off, too, whatever becomes of the executors.
            self.guard.trip()
        self._pool.interrupt()

    def begin_anew(self) -> None:
        """Go on under another id, after this one was given up: with another sign of life, too."""
        # Built anew when needed: handler processes inherit the lock of the worker that they belong to.
        self._pool.close()
        self.let_go(clean=True)
        self.begin(self._parts.ids.take(1, self._parts.clock.now())[0])
        self.guard.mended()

    def let_go(self, *, clean: bool) -> None:
        """Take back the sign of life."""
        lease, self._pool.lease = self._pool.lease, None
        if lease is not None:
            lease.release(clean=clean)

    def withdraw(self) -> None:
        """Be gone without a word, unless it is already: whoever looks sees a dead worker, and ends what it held."""
        if self._pool.lease is not None:
            self._pool.close()
            self.rest()
            self.let_go(clean=False)

    def watch(self, *, guarded: bool = True) -> None:
        """Send beats and watch the lease on threads of their own, from now on."""
        if not self._threaded:
            self._threaded, self.due_s = True, math.inf
            self._beats.start()
            if guarded:
                self.guard.start()
            self.notice()

    def rest(self) -> None:
        """End these threads: the worker is on its way out."""
        self._resting = True
        self.guard.stop()
        self._beats.stop()

    # ---- beats ------------------------------------------------------------------------------------------------

    def notice(self) -> None:
        """Heed it if others are there now that can only see our beat: handler processes are given their time, too."""
        if self.renewal.watched and not self._noticed:
            self._noticed = True
            self.beat_soon()
            self.guard.look()

    def beat_soon(self) -> None:
        """Show what has changed, and do not wait for the next beat."""
        self._beat_next(-math.inf)
        self._beats.soon()

    def _beat_next(self, last_s: float) -> None:
        if not self._threaded:
            self.due_s = last_s + self.renewal.every_s

    def _types(self) -> list[str]:
        return sorted(name for name in self._parts.handlers if self._parts.serving.takes(name))

    def _digests(self) -> dict[str, str]:
        handlers = self._parts.handlers
        return {name: handlers[name].codec.digest for name in self._types()}

    def beat(self) -> None:
        """Send one beat, and take note of the answer."""
        parts, worker_id = self._parts, self.id
        sent = parts.clock.monotonic()
        self._beat_next(sent)
        digests = self._digests()
        news = None if digests == self._announced else digests
        lives = parts.store.beat(worker_id, job_types=self._types(), digests=news, memory=memory_in_use())
        if worker_id != self.id or self._resting:
            return
        if lives:
            self._announced = digests
            self.renewal.acknowledged(sent)
            self._pass_on()
        else:
            self.renewal.lost = True
            self._poke()
        if parts.check_clock is not None:
            parts.check_clock()

    def _pass_on(self) -> None:
        """Give handler processes the lease, where there is one to be kept."""
        self._pool.renew(self.renewal.end_at if self.renewal.watched else None)


class Guard:
    """Stops a worker's handlers when it can't show others that it lives, before they take over.

    It has a thread of its own, because the worker's may be waiting for an answer that never comes. What can't be stopped, a thread
    that heeds no request, ends with the whole process. `trip` may be called from any thread.
    """

    def __init__(self, renewal: Renewal, pool: ExecutorPool, clock: Clock, *, leave: Callable[[int], object] = os._exit) -> None:
        """Take what it watches, what it stops, and how a process is left at once."""
        self._renewal = renewal
        self._pool = pool
        self._clock = clock
        self._leave = leave
        self.tripped = False
        """Handlers were stopped, and nothing may start until the worker says that all is well again."""
        self._leaving: list[tuple[Sequence[Executor], float]] = []
        """Executors whose handlers were told to stop, and when these must be gone."""
        self._bell = threading.Event()
        self._tripping = threading.Lock()
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, name="rota-guard", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._ended.set()
        self._bell.set()

    def look(self) -> None:
        """Look again at what has changed."""
        self._bell.set()

    def trip(self) -> None:
        """Stop every handler now, and see to it that none is left when others take over."""
        with self._tripping:
            if self.tripped:
                return
            self.tripped = True
            now = self._clock.monotonic()
            # Processes are killed half-way: what is left of the time is for the rest to notice.
            end = max(self._renewal.end_at, now + min(LATE_S, self._renewal.end_s - self._renewal.guard_s))
            self._leaving.append((self._pool.cut((end - now) / 2), end))
        self._bell.set()

    def mended(self) -> None:
        """Let handlers start again: the lease is renewed, or there is a new one."""
        self.tripped = False
        self._bell.set()

    # ---- its thread -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            self._bell.wait(self._patience())
            self._bell.clear()
            if self._ended.is_set():
                return
            if self._renewal.watched and not self.tripped and self._renewal.left_s <= 0:
                log.error("the store has acknowledged no heartbeat for %.1f s; stopping all handlers", self._renewal.guard_s)
                self.trip()
            self._see_off()

    def _patience(self) -> float | None:
        """Return how long there is nothing to see; None: until somebody rings."""
        if self._leaving:
            return LOOK_S
        if not self._renewal.watched or self.tripped:
            return None
        return max(0.001, self._renewal.left_s)

    def _see_off(self) -> None:
        """End the process if handlers are left that were to be gone by now."""
        now = self._clock.monotonic()
        for executors, end in tuple(self._leaving):
            left = sum(executor.occupied() for executor in executors)
            if not left:
                self._leaving.remove((executors, end))
            elif now >= end:
                log.critical("%d handlers did not stop and other workers are about to take over their jobs; exiting", left)
                self._leave(EXIT_CUT_OFF)


class Renewal:
    """The lease of one worker, as far as it knows: when the store last acknowledged a beat, counted from when that beat was sent.

    Written by whoever sends beats, read by any thread.
    """

    def __init__(self, clock: Clock, settings: Settings) -> None:
        """Take the measures; the lease begins with the first `begin`."""
        self._clock = clock
        self.guard_s = settings.guard_s
        self.end_s = (settings.guard_s + settings.lease_ttl) / 2
        """When at the latest every handler is gone, this process with it if need be: as far from the guard as from the others' turn."""
        self.every_s = min(settings.beat, settings.guard_s / 3)
        """How often to beat: two may be lost before it is serious."""
        self.watched = False
        """There are, or were, workers that can tell only by our beat whether we live: those of other machines."""
        self.lost = False
        """Others have given us up."""
        self._sent = self._since = clock.monotonic()

    def begin(self, sent: float) -> None:
        """Begin a lease: the worker was registered, by what was sent then."""
        self._sent = self._since = sent
        self.lost = False

    def acknowledged(self, sent: float) -> None:
        """Take the store's word for a beat that was sent then."""
        if sent - self._sent > self.guard_s:
            self._since = sent
        self._sent = max(self._sent, sent)

    @property
    def left_s(self) -> float:
        """Return how long handlers may still run; 0 or less: no longer."""
        return self._sent + self.guard_s - self._clock.monotonic()

    @property
    def end_at(self) -> float:
        """Return the monotonic moment at which every handler has to be gone."""
        return self._sent + self.end_s

    @property
    def steady_s(self) -> float:
        """Return for how long our own beats have been acknowledged in time: who is cut off itself can't judge others."""
        return self._clock.monotonic() - self._since if self.left_s > 0 else 0.0
