"""What goes wrong in a simulation, and when: drawn by chance, so that the same seed brings the same trouble."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from heapq import heappop, heappush
from random import Random

import msgspec

from rota.errors import InvalidOption
from rota.model.values import SECOND, Instant

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND


class Fault(StrEnum):
    """A kind of trouble."""

    CRASH = "crash"
    """A worker vanishes without a word, and starts again after a while."""
    CLOCK_STEP = "clock-step"
    """The wall clock jumps, ahead or back, and is set right later."""
    SLEEP = "sleep"
    """The machine is asleep."""


DOWN = (5 * SECOND, HOUR)
"""How long a worker that vanished stays away."""
STEP = (MINUTE, 5 * 365 * DAY)
"""How far the clock jumps."""
WRONG = (MINUTE, 6 * HOUR)
"""How long it stays wrong."""
ASLEEP = (MINUTE, 3 * DAY)
"""How long the machine sleeps."""


def faults_of(given: str | Iterable[str]) -> tuple[Fault, ...]:
    """Return the faults that are named, in one order and each once; refuse what is none."""
    words = given.split(",") if isinstance(given, str) else list(given)
    named = {str(word).strip().lower() for word in words} - {""}
    if named == {"all"}:
        return tuple(Fault)
    for word in sorted(named - set(Fault)):
        raise InvalidOption(f"faults={word!r} is not one of {', '.join(Fault)}, or all")
    return tuple(fault for fault in Fault if fault in named)


class Trouble(msgspec.Struct, order=True):
    """One thing to come, at a moment of the right time."""

    at: Instant
    number: int
    what: str
    worker: int = 0


class Agenda:
    """What is to come, in order of time."""

    def __init__(self, faults: Iterable[Fault], *, per_day: float, seed: int, start: Instant) -> None:
        """Draw the first of each kind; kinds don't share their chance."""
        self._mean = DAY / per_day if per_day > 0 else 0.0
        self.chances = {fault: Random(f"{seed}:fault:{fault}") for fault in Fault}  # noqa: S311 - a story, no secret
        self._coming: list[Trouble] = []
        self._number = 0
        for fault in faults:
            self.draw(fault, start)

    def draw(self, fault: Fault, after: Instant) -> None:
        """Draw when a fault happens next."""
        if self._mean:
            self.add(after + max(SECOND, round(self.chances[fault].expovariate(1.0) * self._mean)), fault)

    def add(self, at: Instant, what: str, worker: int = 0) -> None:
        """Note something to come."""
        self._number += 1
        heappush(self._coming, Trouble(at, self._number, what, worker))

    @property
    def next_at(self) -> Instant | None:
        """When the next thing comes."""
        return self._coming[0].at if self._coming else None

    def due(self, right: Instant) -> Trouble | None:
        """Take the next thing whose time has come."""
        return heappop(self._coming) if self._coming and self._coming[0].at <= right else None

    def between(self, fault: Fault, span: tuple[Instant, Instant]) -> Instant:
        """Draw a length of time, as likely between one minute and two as between one day and two; in whole seconds."""
        low, high = (math.log(each) for each in span)
        return round(math.exp(self.chances[fault].uniform(low, high)) / SECOND) * SECOND
