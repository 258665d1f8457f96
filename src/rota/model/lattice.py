"""When a schedule is due: the points of a CRON, AT or EVERY on the line of time, walked, counted and looked up.

Instants are microseconds since 1970 UTC. Nothing here knows of pauses, calendars or catching up: see `rota.model.fates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import msgspec

from rota.model.cron import Cron, counts, day_runs, due_times, gaps, next_due
from rota.model.values import LATEST, SECOND, Instant

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


class Point(msgspec.Struct, frozen=True, gc=False):
    """One due time. `gap`: the zone's clock jumped over it."""

    at: Instant
    gap: bool = False


class Run(msgspec.Struct, frozen=True):
    """Due times in a row, by their first, last and number."""

    first: Instant
    last: Instant
    count: int


class Lattice(Protocol):
    """The due times of one schedule."""

    def points(self, after: Instant, until: Instant) -> Iterator[Point]:
        """Go through those in (after, until], in order, those that a clock jumped over among them."""

    def next(self, after: Instant) -> Instant | None:
        """Return the first real one after a moment, None if there is none."""

    def tally(self, after: Instant, until: Instant) -> Run | None:
        """Return the real ones in (after, until] as one run, without a walk over each."""

    def counts(self, edges: Sequence[Instant]) -> list[int]:
        """Count the real ones between each two of some moments, which are in order, the later one included, without a walk over each."""

    def gaps(self, after: Instant, until: Instant) -> Iterator[Instant]:
        """Go through those in (after, until] that the zone's clock jumped over."""


class Bounds(msgspec.Struct, frozen=True):
    """From when to when a schedule is in force, both included."""

    starts_at: Instant | None = None
    ends_at: Instant | None = None

    def clip(self, after: Instant, until: Instant) -> tuple[Instant, Instant]:
        """Return the part of (after, until] that lies inside."""
        low = after if self.starts_at is None else max(after, self.starts_at - 1)
        high = until if self.ends_at is None else min(until, self.ends_at)
        return low, high


class OnCron(msgspec.Struct, frozen=True):
    """A cron expression in a zone."""

    cron: Cron
    zone: ZoneInfo
    bounds: Bounds = Bounds()

    def points(self, after: Instant, until: Instant) -> Iterator[Point]:
        """Walk them."""
        low, high = self.bounds.clip(after, until)
        for due in due_times(self.cron, self.zone, low // SECOND, high // SECOND):
            yield Point(due.at * SECOND, due.gap)

    def next(self, after: Instant) -> Instant | None:
        """Look ahead."""
        low, high = self.bounds.clip(after, LATEST)
        found = next_due(self.cron, self.zone, low // SECOND)
        return None if found is None or found * SECOND > high else found * SECOND

    def tally(self, after: Instant, until: Instant) -> Run | None:
        """Count by days: only the first and last one of each stretch are worked out."""
        low, high = self.bounds.clip(after, until)
        first = last = None
        count = 0
        for part in day_runs(self.cron, self.zone, low // SECOND, high // SECOND):
            first = part.first if first is None else first
            last = part.last
            count += part.count
        return None if first is None or last is None else Run(first * SECOND, last * SECOND, count)

    def counts(self, edges: Sequence[Instant]) -> list[int]:
        """Count by days."""
        low, high = self.bounds.clip(edges[0], edges[-1])
        if low >= high:
            return [0] * (len(edges) - 1)
        return counts(self.cron, self.zone, [min(max(edge, low), high) // SECOND for edge in edges])

    def gaps(self, after: Instant, until: Instant) -> Iterator[Instant]:
        """Walk what the clock jumped over."""
        low, high = self.bounds.clip(after, until)
        for at in gaps(self.cron, self.zone, low // SECOND, high // SECOND):
            yield at * SECOND


class Once(msgspec.Struct, frozen=True):
    """One moment."""

    at: Instant

    def points(self, after: Instant, until: Instant) -> Iterator[Point]:
        """Walk them."""
        if after < self.at <= until:
            yield Point(self.at)

    def next(self, after: Instant) -> Instant | None:
        """Look ahead."""
        return self.at if after < self.at else None

    def tally(self, after: Instant, until: Instant) -> Run | None:
        """Count them."""
        return Run(self.at, self.at, 1) if after < self.at <= until else None

    def counts(self, edges: Sequence[Instant]) -> list[int]:
        """Count them."""
        return [int(after < self.at <= until) for after, until in pairwise(edges)]

    def gaps(self, after: Instant, until: Instant) -> Iterator[Instant]:
        """Walk nothing: no clock jumps here."""
        del after, until
        return iter(())


class Every(msgspec.Struct, frozen=True):
    """An interval from an anchor on: no drift, whatever runs late."""

    anchor: Instant
    interval: Instant
    ends_at: Instant | None = None

    def points(self, after: Instant, until: Instant) -> Iterator[Point]:
        """Walk them."""
        run = self.tally(after, until)
        if run is not None:
            for at in range(run.first, run.last + 1, self.interval):
                yield Point(at)

    def next(self, after: Instant) -> Instant | None:
        """Look ahead."""
        at = self.anchor if after < self.anchor else self.anchor + ((after - self.anchor) // self.interval + 1) * self.interval
        return None if at > LATEST or (self.ends_at is not None and at > self.ends_at) else at

    def tally(self, after: Instant, until: Instant) -> Run | None:
        """Count them."""
        until = until if self.ends_at is None else min(until, self.ends_at)
        first = self.next(after)
        if first is None or first > until:
            return None
        last = self.anchor + (until - self.anchor) // self.interval * self.interval
        return Run(first, last, (last - first) // self.interval + 1)

    def counts(self, edges: Sequence[Instant]) -> list[int]:
        """Count them."""
        anchor, interval, ends_at = self.anchor, self.interval, LATEST if self.ends_at is None else self.ends_at
        upto = [(min(edge, ends_at) - anchor) // interval + 1 if edge >= anchor else 0 for edge in edges]
        return [later - earlier for earlier, later in pairwise(upto)]

    def gaps(self, after: Instant, until: Instant) -> Iterator[Instant]:
        """Walk nothing: no clock jumps here."""
        del after, until
        return iter(())
