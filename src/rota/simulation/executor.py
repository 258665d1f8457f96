"""A clock that the simulation holds, and jobs without handlers: each ends after a while, by chance and by what is known of its type."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from random import Random
from types import MappingProxyType

import msgspec

from rota.model.decide import Completed, Failed, Interrupted, Outcome, Stopped, TimedOut
from rota.model.figures import PER_OCTAVE, UNKNOWN_S, TypeStats, in_milliseconds, usual
from rota.model.values import SECOND, Claimed, Instant
from rota.ports.executor import Ended, Equipment, Readiness

NORMAL_95 = 1.6448536269514722
"""So many deviations above the middle of a normal distribution lie all but a twentieth."""
UNKNOWN = TypeStats(job_type="", completed=0, failed=0, failure_rate=0.0, average_s=UNKNOWN_S, p95_s=UNKNOWN_S)
"""How a type is taken to fare of which nothing is known."""
KNOWN_TO = 2 ** (1 / PER_OCTAVE)
"""How exactly the slowest twentieth is known: it is read from buckets of this width. What spreads less is taken not to spread at all."""


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


class Manner(msgspec.Struct):
    """How jobs of one type fare: durations spread log-normally, by the average and the slowest twentieth known."""

    chance: Random
    middle: float
    spread: float
    failure_rate: float

    @classmethod
    def of(cls, known: TypeStats, chance: Random, *, failures: bool) -> Manner:
        """Fit a type's figures."""
        average = usual(known) / SECOND
        spreads = (known.p95_s or average) / average
        ratio = math.log(spreads) if spreads > KNOWN_TO else 0.0
        # The logarithm of the average is middle + spread²/2, that of the slowest twentieth middle + NORMAL_95 × spread.
        spread = NORMAL_95 - math.sqrt(max(0.0, NORMAL_95**2 - 2 * ratio))
        return cls(chance, math.log(average) - spread**2 / 2, spread, known.failure_rate if failures else 0.0)

    def draw(self) -> tuple[Instant, Outcome]:
        """Return how long the next one runs, and how it ends."""
        lasts = in_milliseconds(math.exp(self.chance.gauss(self.middle, self.spread)))
        fails = self.chance.random() < self.failure_rate
        return lasts, Failed("failed, as jobs of this type do now and then") if fails else Completed()


class Manners:
    """How each type fares. Each has its own source of chance: another type more or less changes nothing for it."""

    def __init__(
        self, figures: Iterable[TypeStats], seed: int, *, failures: bool, remaining: Mapping[str, Instant] = MappingProxyType({})
    ) -> None:
        """Take what is known of types, and of single jobs that ran before: how long they still run, by their ids."""
        self._figures = {each.job_type: each for each in figures}
        self._seed = seed
        self._failures = failures
        self._remaining = remaining
        self._known: dict[str, Manner] = {}

    def draw(self, job: Claimed) -> tuple[Instant, Outcome]:
        """Return how long a job runs, and how it ends."""
        remaining = self._remaining.get(job.job_id)
        return self.of(job.job_type).draw() if remaining is None else (remaining, Completed())

    def of(self, job_type: str) -> Manner:
        """Return how one type fares."""
        found = self._known.get(job_type)
        if found is None:
            chance = Random(f"{self._seed}:{job_type}")  # noqa: S311 - a story, no secret
            found = self._known[job_type] = Manner.of(self._figures.get(job_type, UNKNOWN), chance, failures=self._failures)
        return found


class Attempt(msgspec.Struct, order=True):
    """A simulated handler at work: when it ends, in time that passed, and how."""

    ends: Instant
    number: int
    began: Instant
    job: Claimed
    outcome: Outcome


class SimulatedExecutor:
    """Implements `rota.ports.executor.Executor`. What is over is handed in by `deliver`, before the worker turns."""

    def __init__(self, equipment: Equipment, clock: SimulatedClock, manners: Manners) -> None:
        """Take what attempts are drawn from."""
        self._slots = equipment.slots
        self._sink = equipment.sink
        self._clock = clock
        self._manners = manners
        self._running: list[Attempt] = []
        self._waiting: deque[Claimed] = deque()

    def submit(self, jobs: Sequence[Claimed]) -> None:
        """Start these, or keep them waiting for a slot."""
        self._waiting.extend(jobs)
        self._begin()

    def _begin(self) -> None:
        now = self._clock.passed
        while self._waiting and len(self._running) < self._slots:
            job = self._waiting.popleft()
            lasts, outcome = self._manners.draw(job)
            limit = round(job.timeout * SECOND)
            if 0 < limit < lasts:
                lasts, outcome = limit, TimedOut(job.timeout)
            heappush(self._running, Attempt(now + lasts, job.number, now, job, outcome))

    def deliver(self) -> None:
        """Tell of every attempt that is over by now."""
        while self._running and self._running[0].ends <= self._clock.passed:
            self._end(heappop(self._running), None)
        self._begin()

    def _end(self, attempt: Attempt, outcome: Outcome | None) -> None:
        seconds = (self._clock.passed - attempt.began) / SECOND
        self._sink.ended(Ended(attempt.job, outcome or attempt.outcome, self._clock.now(), seconds))

    @property
    def ends(self) -> Instant | None:
        """When the next attempt is over, in time that passed."""
        return self._running[0].ends if self._running else None

    def readiness(self, job_type: str) -> Readiness:  # noqa: ARG002 - every handler alike
        """Say whether a slot is free."""
        return Readiness.NOW if len(self._running) + len(self._waiting) < self._slots else Readiness.LATER

    def occupied(self) -> int:
        """Return the slots in use."""
        return len(self._running)

    def given_up(self) -> int:
        """Have none: what is reported is over."""
        return 0

    def cancel(self, number: int) -> None:
        """Stop one: nobody asks for it in a simulation, but the contract has it."""
        for job in [job for job in self._waiting if job.number == number]:
            self._waiting.remove(job)
            self._sink.ended(Ended(job, Stopped(), self._clock.now(), 0.0))
        for attempt in [attempt for attempt in self._running if attempt.number == number]:
            self._running.remove(attempt)
            heapify(self._running)
            self._end(attempt, Stopped())

    def tick(self, monotonic: float) -> float | None:  # noqa: ARG002 - timeouts are drawn at the start
        """Return when the next attempt is over."""
        return None if self.ends is None else self.ends / SECOND

    def release(self) -> list[Claimed]:
        """Give back what has not started."""
        waiting, self._waiting = list(self._waiting), deque()
        return waiting

    def interrupt(self) -> None:
        """Stop what runs."""
        running, self._running = self._running, []
        for attempt in sorted(running):
            self._end(attempt, Interrupted())

    def renew(self, until: float | None) -> None:
        """Have nothing that outlives its worker."""

    def cut(self, grace_s: float) -> None:
        """Stop what runs: no worker of a simulation is cut off, but the contract has it."""
        del grace_s
        self.interrupt()

    def close(self) -> None:
        """Have nothing to let go of."""
