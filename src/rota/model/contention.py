"""Which schedules' jobs would meet: counted from due times and durations, so that only these have to be simulated.

Jobs that never meet start at their due times, and nothing has to be simulated to know that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

import msgspec

from rota.model.values import Instant

Limited: TypeAlias = tuple[str, str]
"""Something that a limited number of jobs can have at a time, by kind and name: slots of workers, a template, an organization."""
SLOTS: Limited = ("slots", "")


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of one schedule need, and for how long."""

    lasts: Instant
    """From the due time to the usual end of its job."""
    shares: tuple[Limited, ...] = ()
    """The limits its jobs count against."""
    allows: bool = False
    """Its jobs may overlap each other."""
    awaits: tuple[int, ...] = ()
    """The places of the schedules it depends on."""
    certain: bool = False
    """It is to be simulated in any case."""


def contended(due: Iterable[tuple[Instant, int]], demands: Sequence[Demand], rooms: Mapping[Limited, int]) -> frozenset[int]:
    """Return the places of the schedules to simulate: those whose jobs would meet, and all that share a limit or a dependency with them.

    `due` are due times in order, each with the place of its schedule. Where all slots would be taken at a time, these are all schedules.
    """
    met, full = _count(due, demands, rooms)
    if SLOTS in full:
        return frozenset(range(len(demands)))
    groups = _Groups(len(demands))
    first: dict[Limited, int] = {}
    for place, demand in enumerate(demands):
        for other in demand.awaits:
            groups.join(place, other)
        for limit in demand.shares:
            groups.join(place, first.setdefault(limit, place))
        if demand.certain or demand.awaits or not full.isdisjoint(demand.shares):
            met.add(place)
    roots = {groups.root(place) for place in met}
    return frozenset(place for place in range(len(demands)) if groups.root(place) in roots)


def _count(due: Iterable[tuple[Instant, int]], demands: Sequence[Demand], rooms: Mapping[Limited, int]) -> tuple[set[int], set[Limited]]:
    """Return which schedules would overlap themselves, and which limits would be exceeded."""
    met: set[int] = set()
    full: set[Limited] = set()
    ends: dict[Limited, list[Instant]] = {limit: [] for limit in rooms}
    last: list[Instant] = [-1] * len(demands)
    for at, place in due:
        demand = demands[place]
        over = at + demand.lasts
        if at <= last[place] and not demand.allows:
            met.add(place)
        last[place] = max(last[place], over)
        for limit in (*demand.shares, SLOTS):
            running = ends.get(limit)
            if running is None:
                continue
            while running and running[0] < at:
                heappop(running)
            heappush(running, over)
            if len(running) > rooms[limit]:
                full.add(limit)
    return met, full


def fits(runs: Iterable[tuple[Instant, Instant]], slots: int) -> bool:
    """Say whether jobs that run from one moment to another never need more slots than there are."""
    ends: list[Instant] = []
    for begins, over in sorted(runs):
        while ends and ends[0] < begins:
            heappop(ends)
        heappush(ends, over)
        if len(ends) > slots:
            return False
    return True


class _Groups:
    """Places that belong together."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def root(self, place: int) -> int:
        while self._parents[place] != place:
            self._parents[place] = self._parents[self._parents[place]]
            place = self._parents[place]
        return place

    def join(self, one: int, other: int) -> None:
        self._parents[self.root(one)] = self.root(other)
