"""The guard: stops a worker's handlers when it can't show others that it lives, before they take over.

It has a thread of its own, because the worker's may be waiting for an answer that never comes. What can't be stopped, a thread
that heeds no request, ends with the whole process.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence

from rota.engine.crew import Crew
from rota.engine.lease import Renewal
from rota.ports.clock import Clock
from rota.ports.executor import Executor

log = logging.getLogger("rota.guard")

EXIT_CUT_OFF = 75
"""What a worker's process ends with when handlers did not stop in time. Whoever keeps it running should start it again."""
LOOK_S = 0.02
"""How often handlers that were told to stop are looked at."""
LATE_S = 1.0
"""What handlers still get when the guard itself comes too late: the whole process had been stopped."""


class Guard:
    """Watches one worker's lease. `trip` may be called from any thread."""

    def __init__(self, renewal: Renewal, crew: Crew, clock: Clock, *, leave: Callable[[int], object] = os._exit) -> None:
        """Take what it watches, what it stops, and how a process is left at once."""
        self._renewal = renewal
        self._crew = crew
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
            self._leaving.append((self._crew.cut((end - now) / 2), end))
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
