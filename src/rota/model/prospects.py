"""What will become of due times, as far as definitions tell: fates before the fact, dependencies on other schedules included.

Taken for granted: somebody is there at every due time, jobs complete in the moment they start, and nobody changes anything.
Catching up, overlaps and full queues are matters of the day, and not foretold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from rota.model.fates import previous_due, stretches
from rota.model.lattice import Lattice
from rota.model.schedules import Calendar, Fate, Schedule, ScheduleState, lattice_of
from rota.model.values import SECOND, Instant
from rota.model.zones import zone_of


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, and what is known of it at the moment from which on we look."""

    schedule: Schedule
    calendar: Calendar | None = None
    refused: str | None = None
    """Why no job could be made of it as things stand: every due time of it would be REFUSED."""
    already: frozenset[Instant] = frozenset()
    """Due times to come that have fired, when the clock was ahead: they will not fire again."""
    since: Instant = 0
    """What it did up to here is history, of which only `completed_at` is told."""
    completed_at: Instant | None = None
    """When its last chain before `since` completed; None if it did not."""

    @property
    def lattice(self) -> Lattice:
        """Return its due times."""
        return lattice_of(self.schedule.timing)

    def excludes(self, at: Instant) -> bool:
        """Say whether a moment falls on a day of its calendar."""
        if self.calendar is None:
            return False
        return datetime.fromtimestamp(at // SECOND, zone_of(self.schedule.timing.timezone)).date() in self.calendar.days


class Due(msgspec.Struct, frozen=True, gc=False):
    """One due time and its fate, dependencies not yet asked."""

    at: Instant
    fate: Fate


def dues(prospect: Prospect, after: Instant, until: Instant, *, skipped: bool = False) -> Iterator[Due]:
    """Go through what is due in (after, until], in order and without a walk over what is left out; with `skipped` nothing is left out."""
    state = prospect.schedule.state
    usual = Fate.SKIPPED_PAUSED if state is ScheduleState.PAUSED else Fate.FIRED if prospect.refused is None else Fate.REFUSED
    if state is ScheduleState.DISABLED or (usual is not Fate.FIRED and not skipped):
        return
    lattice, already = prospect.lattice, prospect.already
    for low, high, excluded in stretches(prospect.schedule, prospect.calendar, after, until):
        if excluded and not skipped:
            continue
        fate = Fate.SKIPPED_CALENDAR if excluded else usual
        for point in lattice.points(low, high):
            if point.gap:
                if skipped:
                    yield Due(point.at, Fate.SKIPPED_DST_GAP)
            elif point.at not in already:
                yield Due(point.at, fate)


def counts(prospect: Prospect, edges: Sequence[Instant]) -> list[int]:
    """Count what `dues` goes through between each two of some moments, the later one included, without a walk over each."""
    found = [0] * (len(edges) - 1)
    if prospect.schedule.state is not ScheduleState.ENABLED or prospect.refused is not None:
        return found
    for low, high, excluded in stretches(prospect.schedule, prospect.calendar, edges[0], edges[-1]):
        if not excluded:
            part = prospect.lattice.counts([min(max(edge, low), high) for edge in edges])
            found = [one + other for one, other in zip(found, part, strict=True)]
    for at in prospect.already:
        place = bisect_left(edges, at) - 1
        if 0 <= place < len(found) and prospect.lattice.tally(at - 1, at) and not prospect.excludes(at):
            found[place] -= 1
    return found


class TooFar(Exception):  # noqa: N818 - not an error: the bound of a look ahead
    """So many due times of dependencies were looked at that the rest is left untold."""


class Outcomes:
    """Tells when due times that depend on other schedules get what they wait for. It follows `rota.ports.schedules.Awaited`."""

    def __init__(self, prospects: Iterable[Prospect], *, wait: Instant, most: int) -> None:
        """Take every schedule that any of them depends on, how long a last due time waits, and how many due times to look at."""
        self._all = {(each.schedule.organization, each.schedule.name): each for each in prospects}
        self._wait = wait
        self._left = most
        self._known: dict[tuple[str, Instant], Instant | None] = {}

    def ready_at(self, prospect: Prospect, due_at: Instant) -> Instant | None:
        """Return when the job of a due time has all it waits for; None if it is given up. Raise TooFar."""
        if not prospect.schedule.depends_on:
            return due_at
        key = prospect.schedule.id, due_at
        if key not in self._known:
            self._left -= 1
            if self._left < 0:
                raise TooFar
            self._known[key] = self._ready_at(prospect, due_at)
        return self._known[key]

    def _ready_at(self, prospect: Prospect, due_at: Instant) -> Instant | None:
        schedule, ready = prospect.schedule, due_at
        after, give_up = previous_due(schedule, due_at), self._give_up_at(prospect, due_at)
        for name in schedule.depends_on:
            met = self._met_at(self._all.get((schedule.organization, name)), after, due_at, give_up)
            if met is None:
                return None
            ready = max(ready, met)
        return ready

    def _give_up_at(self, prospect: Prospect, due_at: Instant) -> Instant:
        return prospect.lattice.next(due_at) or due_at + self._wait

    def _met_at(self, other: Prospect | None, after: Instant, due_at: Instant, give_up: Instant) -> Instant | None:
        """Return when one dependency of a due time is met, before it is given up."""
        if other is None:
            # Who is not there any more is not waited for.
            return due_at
        latest = self._latest(other, after, due_at)
        if latest is not None and self._fires(other, latest):
            ready = self.ready_at(other, latest)
            if ready is not None:
                return max(due_at, ready) if ready < give_up else None
            gone = self._give_up_at(other, latest)
            if gone > due_at:
                return self._any(other, gone, give_up)
        return due_at if self._completed(other, after, due_at) else self._any(other, due_at, give_up)

    def _latest(self, other: Prospect, after: Instant, until: Instant) -> Instant | None:
        """Return its latest due time in a window, fired or not."""
        if other.schedule.state is ScheduleState.DISABLED or until <= max(after, other.since):
            return None
        run = other.lattice.tally(max(after, other.since), until)
        return None if run is None else run.last

    def _fires(self, other: Prospect, at: Instant) -> bool:
        return other.schedule.state is ScheduleState.ENABLED and other.refused is None and not other.excludes(at)

    def _completed(self, other: Prospect, after: Instant, until: Instant) -> bool:
        """Say whether the latest of its chains that ended in a window completed."""
        # A chain that waits ends at its next due time, if not before: no earlier one than the last before the window can end in it.
        low = max(previous_due(other.schedule, after + 1) - 1, other.since)
        fired = self._latest_fired(other, low, until) if low < until else None
        if fired is None:
            return other.completed_at is not None and after < other.completed_at <= until
        ready = self.ready_at(other, fired)
        return ready is not None and after < ready <= until

    def _latest_fired(self, other: Prospect, after: Instant, until: Instant) -> Instant | None:
        if other.schedule.state is not ScheduleState.ENABLED or other.refused is not None:
            return None
        for low, high, excluded in reversed(list(stretches(other.schedule, other.calendar, after, until))):
            run = None if excluded else other.lattice.tally(low, high)
            if run is not None:
                return run.last
        return None

    def _any(self, other: Prospect, since: Instant, before: Instant) -> Instant | None:
        """Return when any chain of it completes first, in [since, before)."""
        low = max(previous_due(other.schedule, since + 1) - 1, other.since)
        for due in dues(other, low, before - 1):
            ready = self.ready_at(other, due.at)
            self._left -= 1
            if self._left < 0:
                raise TooFar
            if ready is not None and since <= ready < before:
                return ready
        return None
