"""A clock that the simulation holds: time that passes, time that is slept through, and a wall clock that may be wrong."""

from __future__ import annotations

from rota.model.values import SECOND, Instant


class SimulatedClock:
    """Implements `rota.ports.clock.Clock`. Whole microseconds inside: no rounding can change the order of events."""

    def __init__(self, start: Instant) -> None:
        """Begin at a moment."""
        self._start = start
        self._passed: Instant = 0
        self._slept: Instant = 0
        self.error: Instant = 0
        """How far the wall clock is ahead of the right time; behind, if negative."""

    def now(self) -> Instant:
        """Return what the wall clock shows."""
        return self.right + self.error

    def monotonic(self) -> float:
        """Return the seconds that passed while the machine was awake."""
        return self._passed / SECOND

    @property
    def passed(self) -> Instant:
        """The same, exactly."""
        return self._passed

    @property
    def right(self) -> Instant:
        """What a right clock would show."""
        return self._start + self._passed + self._slept

    def advance(self, duration: Instant) -> None:
        """Let time pass."""
        self._passed += duration

    def sleep(self, duration: Instant) -> None:
        """Let the machine sleep: the wall clock goes on, all else stands still."""
        self._slept += duration
