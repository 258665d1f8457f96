"""Counters from a store whose own figures may go back: what has grown since this process first looked.

A store forgets figures of old hours and due times of old days, and counts what is removed no longer. So each look is compared with
the one before, and only what has grown is added: a counter begins at nothing when the process does, and never goes back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rota.model.values import SECOND, Instant
from rota.ports.overseeing import Figure, Unfired

HOUR_US: Instant = 3600 * SECOND
LATE_US: Instant = 2 * HOUR_US
"""An end is counted in the hour it happened in: of hours so long ago nothing new is expected."""


class Growth:
    """Adds up, over looks, what ended and what did not fire. Belongs to whoever holds its lock."""

    def __init__(self) -> None:
        """Nothing was seen yet: what is there at the first look is where counting begins."""
        self.ends: defaultdict[tuple[str, str, str, int], int] = defaultdict(int)
        """By organization, job type, status and bucket."""
        self.spent_us: defaultdict[tuple[str, str], int] = defaultdict(int)
        """What completed runs took together, by organization and job type."""
        self.unfired: defaultdict[str, int] = defaultdict(int)
        """By fate."""
        self._figures: dict[tuple[Instant, str, str, str, int], Figure] = {}
        self._rows: dict[tuple[str, Instant, str], int] = {}
        self._since: Instant | None = None

    @property
    def since(self) -> Instant | None:
        """Return from when on figures are wanted at the next look: hours before the last look may still have grown. None: any."""
        return None if self._since is None else self._since - LATE_US

    def add(self, figures: Iterable[Figure], unfired: Iterable[Unfired], now: Instant) -> None:
        """Take in a look."""
        first, self._since = self._since is None, now
        latest = {(each.hour, each.organization, each.job_type, each.status, each.bucket): each for each in figures}
        rows = {(each.schedule_id, each.due_at, str(each.fate)): each.count for each in unfired}
        if first:
            self._begin(latest, rows)
        else:
            self._add_ends(latest)
            for key, count in rows.items():
                self.unfired[key[2]] += max(0, count - self._rows.get(key, 0))
        self._figures, self._rows = latest, rows

    def _begin(self, latest: Mapping[tuple[Instant, str, str, str, int], Figure], rows: Iterable[tuple[str, Instant, str]]) -> None:
        # Series that are there from the beginning: what grows from nothing is then seen as growth.
        for _, organization, job_type, status, bucket in latest:
            self.ends[organization, job_type, status, bucket] += 0
        for row in rows:
            self.unfired[row[2]] += 0

    def _add_ends(self, latest: Mapping[tuple[Instant, str, str, str, int], Figure]) -> None:
        for key, figure in latest.items():
            before = self._figures.get(key)
            grown = figure.count - (0 if before is None else before.count)
            if grown > 0:
                self.ends[figure.organization, figure.job_type, figure.status, figure.bucket] += grown
                spent = figure.total_us - (0 if before is None else before.total_us)
                self.spent_us[figure.organization, figure.job_type] += max(0, spent) if figure.status == "COMPLETED" else 0
