"""The agenda of the next hours, as the first screen shows it: due times are counted by the hour, and only the first are listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice

from rota.model.forecast import Foreseen, Hours, Jump, Jumps, Timetable, count_by_hour, look_ahead
from rota.model.local_time import written
from rota.model.overview import Ahead, ClockChange, Coming, Hour
from rota.model.prospects import Outcomes, Prospect, dues
from rota.model.schedules import Fate
from rota.model.values import Instant, moment_of

LISTED_MAX = 100
"""Due times that are listed."""
LISTED_EACH = 3
"""Of one schedule, so that a busy one does not hide the others."""
WORDS = {
    Fate.SKIPPED_PAUSED: "the schedule is paused",
    Fate.SKIPPED_OVERLAP: "the job of an earlier due time is not over",
    Fate.SKIPPED_DEPENDENCY: "what it depends on does not complete in time",
}


def agenda(prospects: Sequence[Prospect], outcomes: Outcomes, *, after: Instant, until: Instant, shown: int, more: bool) -> Ahead:
    """Return what comes next of the first `shown` schedules; the others decide about those that depend on them."""
    mine = prospects[:shown]
    hours = count_by_hour(mine, after, until)
    jumps = Jumps(mine, after, until)
    return Ahead(
        start=moment_of(after),
        end=moment_of(until),
        items=tuple(_listed(mine, hours, outcomes, jumps, after=after, until=until)),
        hours=tuple(Hour(begins_at=moment_of(begins), count=count) for begins, count in zip(hours.begins, hours.counts, strict=True)),
        count=sum(hours.counts),
        more=more,
        changes=tuple(_changes(mine, hours, jumps.inside())),
    )


def _listed(
    prospects: Sequence[Prospect], hours: Hours, outcomes: Outcomes, jumps: Jumps, *, after: Instant, until: Instant
) -> Iterator[Coming]:
    """Go through the first due times of the schedules that are due first; the last of each schedule says how many follow."""
    due = [place for place, count in enumerate(hours.by_schedule) if count]
    first = nsmallest(LISTED_MAX, due, key=lambda place: (next(dues(prospects[place], after, until)).at, place))
    entries = [(each.at, place, each.fate) for place in first for each in islice(dues(prospects[place], after, until), LISTED_EACH)]
    table = Timetable(entries=sorted(entries)[:LISTED_MAX], cut=False)
    left = {(prospects[place].schedule.organization, prospects[place].schedule.name): hours.by_schedule[place] for place in first}
    items = look_ahead(prospects, table, outcomes=outcomes, foresee=lambda *_: None).items
    last = {_name(item): place for place, item in enumerate(items)}
    for place, item in enumerate(items):
        left[_name(item)] -= 1
        yield _coming(item, jumps, more=left[_name(item)] if last[_name(item)] == place else 0)


def _name(item: Foreseen) -> tuple[str, str]:
    return item.prospect.schedule.organization, item.prospect.schedule.name


def _coming(item: Foreseen, jumps: Jumps, *, more: int) -> Coming:
    schedule = item.prospect.schedule
    return Coming(
        schedule=schedule.name,
        organization=schedule.organization,
        template=schedule.template,
        due_at=moment_of(item.due_at),
        note=note_of(item, jumps),
        more=more,
    )


def _changes(prospects: Sequence[Prospect], hours: Hours, jumps: Iterable[Jump]) -> Iterator[ClockChange]:
    """Go through the jumps of clocks that concern what is due, or what is not due because of them."""
    for jump in jumps:
        concerned = {
            each.schedule.name
            for each, count in zip(prospects, hours.by_schedule, strict=True)
            if jump.concerns(each.schedule) and (count or jump.skips(each))
        }
        if concerned:
            yield ClockChange(
                at=moment_of(jump.at), timezone=jump.timezone, before=jump.before, after=jump.after, schedules=tuple(sorted(concerned))
            )


def note_of(item: Foreseen, jumps: Jumps) -> str | None:
    """Return what is worth knowing of a due time: why it does not run, what it waits for, or that its zone's clock changes near it."""
    schedule = item.prospect.schedule
    if item.fate is Fate.SKIPPED_CALENDAR:
        return f"excluded by calendar {schedule.calendar!r}"
    if item.fate is Fate.SKIPPED_DST_GAP:
        return f"the clock of {schedule.timing.timezone} jumps over it"
    if item.fate is Fate.REFUSED:
        return item.prospect.refused or item.reason
    if item.fate is not Fate.FIRED:
        return WORDS.get(item.fate) or item.reason
    waits = None
    if schedule.depends_on and item.starts_at is not None and item.starts_at > item.due_at:
        waits = f"waits for {', '.join(schedule.depends_on)} until {written(moment_of(item.starts_at))}"
    jump = jumps.near(item.prospect, item.due_at)
    return "; ".join(word for word in (waits, None if jump is None else jump.words()) if word) or None
