"""Whether the clock may be trusted to delete by age: a clock that is far ahead of where the store last saw one deletes nothing.

The store keeps a mark, the last moment at which the clock was trusted. See decision 0040.
"""

from __future__ import annotations

import logging
import threading

import msgspec

from rota.errors import ClockInDoubt
from rota.model.local_time import written
from rota.model.settings import Settings
from rota.model.values import SECOND, Instant, moment_of
from rota.ports.clock import Clock
from rota.ports.store import Store

log = logging.getLogger("rota.retention")

LEAP_MAX_S = 4 * 86_400.0
"""How far a clock may be past the mark without a doubt: a machine that is off over a long weekend is not suspected."""
WAIT_S = 3600.0
"""How long a clock in doubt must go on, undisputed, before it is trusted."""
STEP_S = 600.0
"""How far the mark may be from now before it is moved: well below the wait, so that a clock that is trusted disputes one in doubt."""


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """A clock that is far past the mark."""

    now: Instant
    mark: Instant
    left_s: float
    """How much longer it must go on before it is trusted."""

    def __str__(self) -> str:
        """Return both moments."""
        days = (self.now - self.mark) / SECOND / 86_400
        return f"the clock shows {_shown(self.now)}, which is {days:,.0f} days past {_shown(self.mark)}, when it was last trusted"


class ClockTrust:
    """Compares the clock with the store's mark. One for each store that a process has open; its methods may be called by any thread."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        """Take note of when this process begins to measure time."""
        self._store = store
        self._clock = clock
        self._wait_s = max(WAIT_S, 2 * settings.retention_interval)
        self._lock = threading.Lock()
        self._mark: Instant | None = None
        """The mark as this process last saw it."""
        self._since = clock.monotonic()
        """Since when it has been so, or since when this process has been looking."""
        self._doubted: float | None = None
        """Since when the clock has been in doubt with the mark where it is."""

    def doubt(self, now: Instant) -> Doubt | None:
        """Say why nothing may be deleted by age at this moment; None: it may. The mark follows a clock that is trusted."""
        with self._lock:
            begins = self._mark is None
            mark = self._look(now)
            doubt = self._judge(now, mark)
            if doubt is not None and doubt.left_s > 0:
                self._note(doubt)
                return doubt
            if self._doubted is not None:
                self._doubted = None
                log.info("the clock is trusted: retention deletes by age again")
            if begins or mark is None or abs(now - mark) > STEP_S * SECOND:
                self._move(now)
            return None

    def look(self, now: Instant) -> Doubt | None:
        """Say the same, and change nothing."""
        with self._lock:
            doubt = self._judge(now, self._look(now))
            return doubt if doubt is not None and doubt.left_s > 0 else None

    def demand(self, now: Instant) -> None:
        """Raise ClockInDoubt if nothing may be deleted by age at this moment."""
        doubt = self.look(now)
        if doubt is not None:
            raise ClockInDoubt(
                f"nothing is deleted: {doubt}. If the clock is wrong, correct it; "
                "if it is right, repeat with `--trust-clock` (Python: trust_clock=True)"
            )

    def trust(self, now: Instant) -> None:
        """Trust the clock as it is: somebody who can see another one says that it is right."""
        with self._lock:
            self._move(now)

    def _look(self, now: Instant) -> Instant | None:
        mark = self._store.retention_clock()
        if self._mark is not None and mark != self._mark:
            monotonic = self._clock.monotonic()
            if mark is not None and self._mark < mark <= now and self._judge(now, self._mark) is None:
                # It has moved on, and this clock with it, as this process has measured: what it measured since the new mark still counts.
                self._since = max(self._since, monotonic - (now - mark) / SECOND)
            else:
                # Another process has moved it, by its own idea of now: the wait starts again.
                self._since = monotonic
                self._doubted = None if self._doubted is None else self._since
        self._mark = mark
        return mark

    def _judge(self, now: Instant, mark: Instant | None) -> Doubt | None:
        if mark is None:
            return None
        monotonic = self._clock.monotonic()
        # What this process has measured itself is no leap, however long nobody looked.
        leap = now - mark - round((monotonic - self._since) * SECOND)
        if leap <= LEAP_MAX_S * SECOND:
            return None
        waited_s = 0.0 if self._doubted is None else monotonic - self._doubted
        return Doubt(now=now, mark=mark, left_s=max(0.0, self._wait_s - waited_s))

    def _note(self, doubt: Doubt) -> None:
        if self._doubted is None:
            self._doubted = self._clock.monotonic()
            # Where there was no mark yet, jobs that come in by a wrong clock must not become it.
            self._store.set_retention_clock(doubt.mark)
            log.warning(
                "%s: nothing is deleted by age until workers have run by it for %.0f min more. "
                "If it is right, `rota purge --trust-clock` ends the wait",
                doubt,
                doubt.left_s / 60,
            )

    def _move(self, now: Instant) -> None:
        self._store.set_retention_clock(now)
        self._mark, self._since, self._doubted = now, self._clock.monotonic(), None


def _shown(at: Instant) -> str:
    return written(moment_of(at))
