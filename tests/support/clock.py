"""A clock that stands still until it is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rota.model.values import instant


class ManualClock:
    """Implements `rota.ports.clock.Clock`; wall clock and monotonic time move together, or apart with `step`."""

    def __init__(self, start: datetime = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)) -> None:
        self._now = instant(start)
        self._monotonic = 1000.0

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, **duration: float) -> None:
        """Let time pass."""
        delta = timedelta(**duration)
        self._now += round(delta.total_seconds() * 1_000_000)
        self._monotonic += delta.total_seconds()

    def step(self, **duration: float) -> None:
        """Step the wall clock alone, as an administrator or NTP does."""
        self._now += round(timedelta(**duration).total_seconds() * 1_000_000)
