"""Durations in buckets: small enough to keep for every hour, fine enough for a percentile within a twentieth.

A bucket is an eighth of an octave of a run's microseconds: bucket b holds runs from 2^(b/8) up to 2^((b+1)/8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rota.model.values import SECOND, Instant

PER_OCTAVE = 8
NO_RUN = -1
"""The bucket of an end without a run."""
FIGURES_H = 30 * 24
"""Forecasts and simulations take durations and failures from the last thirty days."""
UNKNOWN_S = 0.999
"""How long a job takes whose type has no completed run: just under a second, so that it is over when one of every second is due again."""
MILLISECOND: Instant = 1000


class TypeStats(msgspec.Struct, kw_only=True, frozen=True):
    """How one job type has fared in the hours that were asked for."""

    job_type: str
    completed: int
    failed: int
    """Attempts that failed, timed out or were dead-lettered."""
    failure_rate: float
    average_s: float | None
    p95_s: float | None


class Stats(msgspec.Struct, kw_only=True, frozen=True):
    """A store at a glance."""

    by_status: dict[str, int]
    by_priority: dict[int, int]
    waiting_by_type: dict[str, int]
    oldest_waiting_s: float | None
    workers: int
    late_results: int
    claimed_ahead: int = 0
    """RUNNING jobs that workers hold beyond their slots: their handlers do not run. 0 in the figures of one organization."""
    hours: int = 24
    by_type: tuple[TypeStats, ...] = ()
    """Over the last `hours`."""
    average_s: float | None = None
    p95_s: float | None = None
    failure_rate: float = 0.0

    @property
    def running(self) -> int:
        """Return how many handlers run."""
        return max(0, self.by_status.get("RUNNING", 0) - self.claimed_ahead)


class Fared(msgspec.Struct, kw_only=True):
    """How some attempts fared: completed runs by bucket, what they took together, and how many attempts failed."""

    buckets: dict[int, int] = msgspec.field(default_factory=dict)
    total_us: int = 0
    failed: int = 0

    def add(self, *, bucket: int, completed: bool, count: int, total_us: int) -> None:
        """Count attempts of one bucket."""
        if not completed:
            self.failed += count
            return
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.total_us += total_us

    @property
    def completed(self) -> int:
        """Return how many attempts completed."""
        return sum(self.buckets.values())

    @property
    def failure_rate(self) -> float:
        """Return which share of the attempts that ran to an end failed."""
        both = self.completed + self.failed
        return self.failed / both if both else 0.0

    @property
    def average_s(self) -> float | None:
        """Return how long a completed run took on average."""
        runs = self.completed - self.buckets.get(NO_RUN, 0)
        return self.total_us / runs / SECOND if runs else None

    @property
    def p50_s(self) -> float | None:
        """Return how long half of the completed runs took at most."""
        return percentile_s(self.buckets, 0.5)

    @property
    def p95_s(self) -> float | None:
        """Return how long all but the slowest twentieth of the completed runs took at most."""
        return percentile_s(self.buckets, 0.95)

    def of(self, job_type: str) -> TypeStats:
        """Return the figures of one job type."""
        return TypeStats(
            job_type=job_type,
            completed=self.completed,
            failed=self.failed,
            failure_rate=self.failure_rate,
            average_s=self.average_s,
            p95_s=self.p95_s,
        )


def together(some: Iterable[Fared]) -> Fared:
    """Return how all of them fared."""
    whole = Fared()
    for each in some:
        whole.failed += each.failed
        whole.total_us += each.total_us
        for bucket, count in each.buckets.items():
            whole.buckets[bucket] = whole.buckets.get(bucket, 0) + count
    return whole


def percentile_s(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the duration that this share of the runs stayed within, in seconds; inside a bucket the runs are taken to spread evenly."""
    runs = sorted((bucket, count) for bucket, count in buckets.items() if bucket != NO_RUN and count > 0)
    wanted = share * sum(count for _, count in runs)
    passed = 0
    for bucket, count in runs:
        if passed + count >= wanted:
            return float(2 ** ((bucket + (wanted - passed) / count) / PER_OCTAVE) / SECOND)
        passed += count
    return None


def usual(known: TypeStats | None) -> Instant:
    """Return how long a job of a type usually takes: its average, to the millisecond, one at least."""
    return in_milliseconds(UNKNOWN_S if known is None else known.average_s or UNKNOWN_S)


def in_milliseconds(seconds: float) -> Instant:
    """Return a duration as an instant in whole milliseconds, one at least."""
    return max(MILLISECOND, round(seconds * SECOND / MILLISECOND) * MILLISECOND)
