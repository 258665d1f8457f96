"""What becomes of due times: one pure function from a schedule and the clock to fates, and nothing else decides.

`plan(schedule, now, ...)` gives every due time in (cursor, now] exactly one fate, in rows that may cover many. The live
trigger, edits that close the ledger, forecasts and simulations all ask it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from rota.model.lattice import Lattice, Run
from rota.model.schedules import Calendar, CatchUp, Fate, Kind, Schedule, ScheduleState, lattice_of, next_due, next_look
from rota.model.values import SECOND, Instant
from rota.model.zones import zone_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

DAY_US = 86_400 * SECOND


class Fated(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the ledger: due times of one fate, from the first to the last of them."""

    due_at: Instant
    last_due_at: Instant
    count: int
    fate: Fate
    reason: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written for one schedule: its new rows, up to where they reach, and when it is due next."""

    rows: tuple[Fated, ...]
    cursor_at: Instant
    next_at: Instant | None

    @property
    def fired(self) -> tuple[Instant, ...]:
        """Return the due times that become jobs."""
        return tuple(row.due_at for row in self.rows if row.fate is Fate.FIRED)


def plan(
    schedule: Schedule,
    now: Instant,
    *,
    calendar: Calendar | None = None,
    grace: Instant = 60 * SECOND,
    count_max: int = 100,
    already: frozenset[Instant] = frozenset(),
) -> Plan:
    """Give each due time in (cursor, now] its fate. `already` are those that fired before, when the clock was ahead."""
    timing, after = schedule.timing, schedule.cursor_at
    if schedule.state is ScheduleState.DISABLED or now <= after:
        next_at = None if schedule.state is ScheduleState.DISABLED else next_look(timing, now)
        return Plan(rows=(), cursor_at=max(now, after), next_at=next_at)
    first = next_due(timing, after)
    second = None if first is None else next_due(timing, first)
    if first is not None and first <= now and (second is None or second > now) and calendar is None and not already:
        # One due time, as nearly always: there is nothing to count.
        return _plan_one(schedule, first, now, grace)
    lattice = lattice_of(timing)
    next_at = next_look(timing, now)
    rows: list[Fated] = list(_gaps(schedule, lattice, after, now))
    runs: list[Run] = []
    for low, high, excluded in stretches(schedule, calendar, after, now):
        run = lattice.tally(low, high)
        if run is None:
            continue
        if excluded:
            left = _without([run], lattice, already)
            rows += [_row(_joined(left), Fate.SKIPPED_CALENDAR, f"excluded by calendar {schedule.calendar!r}")] if left else []
        else:
            runs.append(run)
    rows += _caught_up(schedule, lattice, _without(runs, lattice, already), now, grace=grace, count_max=count_max)
    rows.sort(key=lambda row: (row.due_at, row.fate))
    return Plan(rows=tuple(rows), cursor_at=now, next_at=next_at)


def _plan_one(schedule: Schedule, due_at: Instant, now: Instant, grace: Instant) -> Plan:
    """Give one due time its fate."""
    lattice, after = lattice_of(schedule.timing), schedule.cursor_at
    rows = _caught_up(schedule, lattice, [Run(due_at, due_at, 1)], now, grace=grace, count_max=1)
    missing = tuple(_gaps(schedule, lattice, after, now))
    if missing:
        rows = sorted((*rows, *missing), key=lambda row: (row.due_at, row.fate))
    return Plan(rows=tuple(rows), cursor_at=now, next_at=next_look(schedule.timing, now))


def previous_due(schedule: Schedule, due_at: Instant) -> Instant:
    """Return the due time before one, or, for the first, from when on the schedule is in force (the beginning of time if that is open)."""
    lattice = lattice_of(schedule.timing)
    reach = DAY_US
    while reach < due_at:
        run = lattice.tally(due_at - reach, due_at - 1)
        if run is not None:
            return run.last
        reach *= 8
    return schedule.timing.starts_at or 0


def _gaps(schedule: Schedule, lattice: Lattice, after: Instant, now: Instant) -> Iterator[Fated]:
    """Go through the times that the zone's clock jumped over: none but near a jump of a CRON's zone."""
    if schedule.timing.kind is not Kind.CRON or schedule.timing.timezone == "UTC":
        return
    for at in lattice.gaps(after, now):
        word = f"the clock of {schedule.timing.timezone} jumped over it"
        yield Fated(due_at=at, last_due_at=at, count=1, fate=Fate.SKIPPED_DST_GAP, reason=word)


def stretches(schedule: Schedule, calendar: Calendar | None, after: Instant, now: Instant) -> Iterator[tuple[Instant, Instant, bool]]:
    """Cut (after, now] at the excluded days of the calendar; each piece says whether it is excluded."""
    if calendar is None or not calendar.days:
        yield after, now, False
        return
    zone = zone_of(schedule.timing.timezone)
    low = after
    for begins, ends in _days_off(calendar, zone, after, now):
        if begins - 1 > low:
            yield low, begins - 1, False
        yield max(low, begins - 1), min(ends - 1, now), True
        low = min(ends - 1, now)
    if low < now:
        yield low, now, False


def _days_off(calendar: Calendar, zone: ZoneInfo, after: Instant, now: Instant) -> Iterator[tuple[Instant, Instant]]:
    """Go through the excluded days that meet (after, now] as [begin, end), days in a row as one."""
    first, last = _day_of(after, zone), _day_of(now, zone)
    days = sorted(day for day in calendar.days if first <= day <= last)
    while days:
        begin = end = days.pop(0)
        while days and days[0] == end + timedelta(days=1):
            end = days.pop(0)
        yield _start_of(begin, zone), _start_of(end + timedelta(days=1), zone)


def _caught_up(schedule: Schedule, lattice: Lattice, runs: list[Run], now: Instant, *, grace: Instant, count_max: int) -> list[Fated]:
    """Apply pause and catch-up to what is left."""
    if not runs:
        return []
    if schedule.state is ScheduleState.PAUSED:
        return [_row(_joined(runs), Fate.SKIPPED_PAUSED, "the schedule was paused")]
    last = runs[-1].last
    late = now - last
    bound = schedule.catch_up_lateness
    if schedule.catch_up is CatchUp.NONE and late > grace:
        return [_row(_joined(runs), Fate.MISSED, "nothing was there to fire it, and catch_up is none")]
    if bound is not None and late > bound:
        return [_row(_joined(runs), Fate.MISSED, f"more than {bound / SECOND:g} s late")]
    if schedule.catch_up is CatchUp.ALL:
        return _all(schedule, lattice, runs, now, count_max)
    rows = [_fired(last)]
    rest = _but_last(lattice, runs)
    if rest is not None:
        fate, why = (
            (Fate.MISSED, "nothing was there to fire it, and catch_up is none")
            if schedule.catch_up is CatchUp.NONE
            else (Fate.COALESCED, "a later due time stands for it")
        )
        rows.append(_row(rest, fate, why))
    return rows


def _all(schedule: Schedule, lattice: Lattice, runs: list[Run], now: Instant, count_max: int) -> list[Fated]:
    """Fire every one, up to a number and a lateness; what is beyond them was missed."""
    most = schedule.catch_up_count or count_max
    kept: list[Instant] = []
    dropped: list[Run] = []
    for run in reversed(runs):
        points = _newest(lattice, run, most - len(kept))
        if schedule.catch_up_lateness is not None:
            points = [at for at in points if now - at <= schedule.catch_up_lateness]
        kept = points + kept
        rest = run if not points else lattice.tally(run.first - 1, points[0] - 1)
        if rest is not None:
            dropped.insert(0, rest)
    rows = [_fired(at) for at in kept]
    if dropped:
        rows.append(_row(_joined(dropped), Fate.MISSED, f"beyond what is caught up (at most {most})"))
    return rows


def _newest(lattice: Lattice, run: Run, most: int) -> list[Instant]:
    """Return the last due times of a run, at most so many, without a walk over all of it."""
    if most <= 0:
        return []
    if run.count <= most:
        return [point.at for point in lattice.points(run.first - 1, run.last) if not point.gap]
    low, high = run.first, run.last
    while low < high:
        # The latest moment from which on there are still enough.
        middle = (low + high + 1) // 2
        there = lattice.tally(middle - 1, run.last)
        if there is not None and there.count >= most:
            low = middle
        else:
            high = middle - 1
    return [point.at for point in lattice.points(low - 1, run.last) if not point.gap][-most:]


def _without(runs: list[Run], lattice: Lattice, already: frozenset[Instant]) -> list[Run]:
    """Return the runs without the due times that have fired before."""
    for at in sorted(already):
        cut: list[Run] = []
        for run in runs:
            if not run.first <= at <= run.last:
                cut.append(run)
                continue
            cut += [part for part in (lattice.tally(run.first - 1, at - 1), lattice.tally(at, run.last)) if part is not None]
        runs = cut
    return runs


def _but_last(lattice: Lattice, runs: list[Run]) -> Run | None:
    """Return all but the very last due time, as one run."""
    final = runs[-1]
    head = lattice.tally(final.first - 1, final.last - 1) if final.count > 1 else None
    rest = runs[:-1] + ([head] if head is not None else [])
    return _joined(rest) if rest else None


def _joined(runs: list[Run]) -> Run:
    return Run(runs[0].first, runs[-1].last, sum(run.count for run in runs))


def _row(run: Run, fate: Fate, reason: str) -> Fated:
    return Fated(due_at=run.first, last_due_at=run.last, count=run.count, fate=fate, reason=reason)


def _fired(at: Instant) -> Fated:
    return Fated(due_at=at, last_due_at=at, count=1, fate=Fate.FIRED)


def _day_of(at: Instant, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(at // SECOND, zone).date()


def _start_of(day: date, zone: ZoneInfo) -> Instant:
    """Return the first moment of a day in a zone, also where midnight is jumped over or comes twice."""
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * SECOND
