"""What the workers of this process have done, counted as they do it: for metrics."""

from __future__ import annotations

import threading
from bisect import bisect_left

import msgspec

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets that turns are counted in; longer ones are in the last."""


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """A reading of the meter."""

    buckets: tuple[int, ...]
    """How many turns took so long: one for each bound, and one for those that took longer."""
    total_s: float
    claimed: int

    @property
    def count(self) -> int:
        """Return how many turns there were."""
        return sum(self.buckets)


class Meter:
    """Counts turns and claims of every worker of one Rota. Nothing in it ever goes back."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self._buckets = [0] * (len(BOUNDS_S) + 1)
        self._total_s = 0.0
        self._claimed = 0
        self._lock = threading.Lock()

    def turned(self, seconds: float) -> None:
        """Count one turn."""
        with self._lock:
            self._buckets[bisect_left(BOUNDS_S, seconds)] += 1
            self._total_s += seconds

    def claimed(self, jobs: int) -> None:
        """Count jobs that a worker took up."""
        with self._lock:
            self._claimed += jobs

    def read(self) -> Turns:
        """Return the counts."""
        with self._lock:
            return Turns(buckets=tuple(self._buckets), total_s=self._total_s, claimed=self._claimed)
