"""What will run, and when: due times to come in one line of time, and the jumps of their zones' clocks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import TypeAlias

import msgspec

from rota.model.local_time import written
from rota.model.prospects import Outcomes, Prospect, TooFar, counts, dues
from rota.model.schedules import Fate, Kind, Schedule, ScheduleState, Timing
from rota.model.values import SECOND, Instant, moment_of
from rota.model.zones import offset_at, spans, zone_of

HOUR = 3600 * SECOND
NEAR = 86_400 * SECOND
"""A due time so close to a jump of its zone's clock is told of it."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation says becomes of one due time."""

    fate: Fate
    reason: str | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None


Foresee: TypeAlias = Callable[[str, Instant], Seen | None]
"""From a schedule's id and a due time to what a simulation says of it; None if it says nothing."""


class Foreseen(msgspec.Struct, frozen=True, kw_only=True):
    """One due time to come."""

    prospect: Prospect
    due_at: Instant
    fate: Fate
    starts_at: Instant | None = None
    """When its job starts: later than its due time where it waits; None if it does not run, or is not seen to start."""
    reason: str | None = None
    """Why it does not run, where a simulation says so."""


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """What there is in a window."""

    items: list[Foreseen]
    cut: bool
    """There is more: the bound was met."""


class Timetable(msgspec.Struct, frozen=True, kw_only=True):
    """Due times in order, with the places of their schedules and their fates as far as each schedule alone decides."""

    entries: list[tuple[Instant, int, Fate]]
    cut: bool
    """There is more: the bound was met."""

    def end(self, until: Instant) -> Instant:
        """Return up to when it is complete: the end of the window, or its last due time."""
        return self.entries[-1][0] if self.cut and self.entries else until


def list_due(prospects: Sequence[Prospect], after: Instant, until: Instant, *, most: int, skipped: bool = False) -> Timetable:
    """Return what is due in (after, until] and fires, in order of time, at most `most`; with `skipped` also what does not fire.

    Due times are met one by one and no more than `most` of them are ever made: a thousand minute schedules are no trouble.
    """
    stream = _in_line(prospects, after, until, skipped=skipped)
    return Timetable(entries=list(islice(stream, most)), cut=next(stream, None) is not None)


def look_ahead(prospects: Sequence[Prospect], table: Timetable, *, outcomes: Outcomes, foresee: Foresee, skipped: bool = False) -> Ahead:
    """Return what runs, and when it starts: as a simulation says or, where it says nothing, by the definitions."""
    items: list[Foreseen] = []
    try:
        for due_at, place, fate in table.entries:
            prospect = prospects[place]
            item = Foreseen(prospect=prospect, due_at=due_at, fate=fate)
            if fate is Fate.FIRED:
                item = _foreseen(item, foresee(prospect.schedule.id, due_at), outcomes)
            if skipped or item.fate is Fate.FIRED:
                items.append(item)
    except TooFar:
        return Ahead(items=items, cut=True)
    return Ahead(items=items, cut=table.cut)


def _foreseen(item: Foreseen, seen: Seen | None, outcomes: Outcomes) -> Foreseen:
    """Say what becomes of a due time that fires if nothing is in its way."""
    if seen is not None:
        return msgspec.structs.replace(item, fate=seen.fate, starts_at=seen.starts_at, reason=seen.reason)
    ready = outcomes.ready_at(item.prospect, item.due_at)
    fate = Fate.SKIPPED_DEPENDENCY if ready is None else Fate.FIRED
    return msgspec.structs.replace(item, fate=fate, starts_at=ready)


def _in_line(prospects: Sequence[Prospect], after: Instant, until: Instant, *, skipped: bool) -> Iterator[tuple[Instant, int, Fate]]:
    """Merge the due times of many schedules; those of one moment in the order given."""

    def one(place: int, prospect: Prospect) -> Iterator[tuple[Instant, int, Fate]]:
        return ((due.at, place, due.fate) for due in dues(prospect, after, until, skipped=skipped))

    return merge(*(one(place, prospect) for place, prospect in enumerate(prospects)))


# ---- clocks that jump ----------------------------------------------------------------------------------------------


class Jump(msgspec.Struct, frozen=True):
    """A zone's clock jumps."""

    at: Instant
    timezone: str
    before: str
    after: str
    """Offsets, as in UTC+5:30."""

    def concerns(self, schedule: Schedule) -> bool:
        """Say whether a schedule follows this clock."""
        return schedule.timing.kind is Kind.CRON and schedule.timing.timezone == self.timezone

    def skips(self, prospect: Prospect) -> bool:
        """Say whether the clock jumps over a due time of a schedule that follows it."""
        return prospect.schedule.state is not ScheduleState.DISABLED and any(prospect.lattice.gaps(self.at - NEAR, self.at + NEAR))

    def words(self) -> str:
        """Say it."""
        return f"the clock of {self.timezone} goes from {self.before} to {self.after} at {written(moment_of(self.at))}"


class Jumps:
    """The jumps of zones in and near a window."""

    def __init__(self, prospects: Iterable[Prospect], after: Instant, until: Instant) -> None:
        """Find those of the zones that these schedules follow."""
        timings = {each.schedule.timing for each in prospects}
        zones = sorted({timing.timezone for timing in timings if timing.kind is Kind.CRON and timing.timezone != "UTC"})
        self._by_zone = {zone: list(_jumps(zone, after - NEAR, until + NEAR)) for zone in zones}
        self._inside = (after, until)

    def inside(self) -> list[Jump]:
        """Return those in the window, in order."""
        after, until = self._inside
        return sorted((jump for jumps in self._by_zone.values() for jump in jumps if after < jump.at <= until), key=_when)

    def near(self, prospect: Prospect, at: Instant) -> Jump | None:
        """Return a jump of the schedule's own zone within a day of a moment."""
        timing = prospect.schedule.timing
        jumps = self._by_zone.get(timing.timezone, ()) if timing.kind is Kind.CRON else ()
        return next((jump for jump in jumps if abs(jump.at - at) <= NEAR), None) if jumps else None


def _jumps(name: str, after: Instant, until: Instant) -> Iterator[Jump]:
    zone = zone_of(name)
    before: int | None = None
    for span in spans(zone, after // SECOND, until // SECOND + 1):
        if before is not None:
            yield Jump(span.start * SECOND, name, _offset(before), _offset(offset_at(zone, span.start)))
        before = span.offset


def _when(jump: Jump) -> tuple[Instant, str]:
    return jump.at, jump.timezone


def _offset(seconds: int) -> str:
    if not seconds:
        return "UTC"
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"UTC{'-' if seconds < 0 else '+'}{hours}" + (f":{minutes:02d}" if minutes else "")


# ---- by the hour ----------------------------------------------------------------------------------------------------


def per_hour(moments: Sequence[Instant]) -> list[tuple[Instant, int]]:
    """Count moments, given in order, by the hour: one entry for each hour that has any."""
    found: list[tuple[Instant, int]] = []
    low = 0
    while low < len(moments):
        begins = moments[low] // HOUR * HOUR
        high = bisect_left(moments, begins + HOUR, low)
        found.append((begins, high - low))
        low = high
    return found


class Hours(msgspec.Struct, frozen=True, kw_only=True):
    """How many due times the hours of a window have, and how many each schedule has."""

    begins: tuple[Instant, ...]
    """The hours that the window touches."""
    counts: tuple[int, ...]
    by_schedule: tuple[int, ...]
    """In the order of the schedules."""


def count_by_hour(prospects: Sequence[Prospect], after: Instant, until: Instant) -> Hours:
    """Count what fires in (after, until] by the hour, without listing it: the work grows with schedules and hours, not with due times."""
    first = after // HOUR * HOUR
    begins = tuple(range(first, until + 1, HOUR))
    edges = [after, *(begin - 1 for begin in begins[1:]), until]
    totals = [0] * len(begins)
    by_schedule: list[int] = []
    known: dict[Timing, list[int]] = {}
    for prospect in prospects:
        plain = prospect.calendar is None and not prospect.already and prospect.refused is None
        key = prospect.schedule.timing if plain and prospect.schedule.state is ScheduleState.ENABLED else None
        # Many schedules are due at the same times.
        found = known.get(key) if key is not None else None
        if found is None:
            found = counts(prospect, edges)
            if key is not None:
                known[key] = found
        by_schedule.append(sum(found))
        if by_schedule[-1]:
            totals = [one + other for one, other in zip(totals, found, strict=True)]
    return Hours(begins=begins, counts=tuple(totals), by_schedule=tuple(by_schedule))


# ---- what a change would do ----------------------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """How the due times of two definitions differ up to a moment."""

    added: list[Instant]
    removed: list[Instant]
    kept: int
    until: Instant
    """Nearer than asked if the bound was met."""


def compare(before: Prospect, after: Prospect, start: Instant, end: Instant, *, most: int) -> Change:
    """Return which due times in (start, end] come and go from one definition to another, among the first `most` of each."""
    old, new = _first(before, start, end, most), _first(after, start, end, most)
    for found in (old, new):
        end = min(end, found[most] - 1) if len(found) > most else end
    was, will = set(old[: bisect_right(old, end)]), set(new[: bisect_right(new, end)])
    return Change(added=sorted(will - was), removed=sorted(was - will), kept=len(was & will), until=end)


def _first(prospect: Prospect, start: Instant, end: Instant, most: int) -> list[Instant]:
    return [due.at for due in islice(dues(prospect, start, end), most + 1)]
