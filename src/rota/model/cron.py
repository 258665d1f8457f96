"""Cron expressions: which days and times of day they name, and when those are in a zone whose clock jumps.

Five fields: minute, hour, day of month, month, day of week; lists, ranges, steps, names, 7 for Sunday, L, LW, MON#2, FRIL, and
@hourly to @yearly. Where both day fields are restricted, either is enough. cronsim reads the fields; when the times are is ours:

- a time that the clock jumps over in spring does not happen, and is told as such;
- a time that comes twice in autumn happens once, at the first;
- `*` in the hour field is a cadence, not a set of times: it keeps its beat through both hours and has nothing to miss.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import lru_cache
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from rota.errors import InvalidSchedule
from rota.model.zones import EPOCH, Span, jumps_between, offset_at, spans

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from cronsim import CronSim

HOUR_S = 3600
DAY_S = 86_400
NEVER_DAYS = 146_097
"""After 400 years the calendar repeats itself: what did not happen by then never will."""
DIGITS_MAX = 9
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Due(msgspec.Struct, frozen=True, gc=False):
    """One due time, in seconds since 1970 UTC. `gap`: the clock jumped over it; `at` is when it would have been."""

    at: int
    gap: bool = False


class Cron(msgspec.Struct, frozen=True):
    """A cron expression, read: its times of day in seconds, in order, and what it says of days."""

    text: str
    plain: str
    """Its five fields, in capitals, a macro written out."""
    times: tuple[int, ...]
    cadence: bool
    """The hour field is `*`."""
    fields: CronSim

    def on(self, day: date) -> bool:
        """Say whether the expression names this day."""
        return day.month in self.fields.months and self.fields.match_day(day)


@lru_cache(maxsize=10_000)
def read_cron(text: str) -> Cron:
    """Read an expression, or refuse it saying which field and why."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - a program without schedules has no use for it

    if not text.strip():
        raise InvalidSchedule(f"{text!r} is not a cron expression: give five fields, such as '0 9 * * MON-FRI'")
    plain = MACROS.get(text.strip().lower(), text.strip().upper())
    if plain.startswith("@"):
        raise InvalidSchedule(f"{text!r} is not one of {', '.join(MACROS)}")
    parts = _LAST_DAY.sub(lambda found: f"{_DAYS.index(found[1])}L", plain).split()
    if len(parts) != 5:
        raise InvalidSchedule(f"{text!r} has {len(parts)} fields: give five: minute, hour, day of month, month, day of week")
    parts = [field.read(part, text) for field, part in zip(FIELDS, parts, strict=True)]
    try:
        fields = CronSim(" ".join(parts), EPOCH.replace(tzinfo=None))
    except CronSimError as error:
        raise InvalidSchedule(f"{text!r}: day of month: none of its months has such a day") from error
    times = tuple(sorted(hour * 3600 + minute * 60 for hour in fields.hours for minute in fields.minutes))
    cron = Cron(text.strip(), " ".join(parts), times, parts[1] in {"*", "*/1"}, fields)
    if _first_day(cron, date(2000, 1, 1), days=NEVER_DAYS) is None:
        raise InvalidSchedule(f"{text!r} never happens: no day of the calendar is what it asks for")
    return cron


def due_times(cron: Cron, zone: ZoneInfo, after: int, until: int) -> Iterator[Due]:
    """Go through the due times in (after, until], in order: seconds since 1970 UTC."""
    before: Span | None = None
    # The span before `after` decides what of the first one is a repetition or a gap: begin a day earlier and leave that out.
    for span in spans(zone, after - DAY_S, until + 1):
        jump = 0 if before is None or cron.cadence else span.offset - before.offset
        real = _within(cron, span, max(after + 1, span.start + max(0, -jump)))
        if before is not None and jump > 0:
            missed = [due for due in _gap(cron, before, span) if after < due.at <= until]
            yield from merge(missed, real, key=_at)
        else:
            yield from real
        before = span


def next_due(cron: Cron, zone: ZoneInfo, after: int) -> int | None:
    """Return the first real due time after a moment; None if there is none before the year 9999."""
    if after >= LAST:
        return None
    near = _later_that_day(cron, zone, after)
    if near is not None:
        return near
    start = after
    for reach_days in (2, 32, 370, 3_660, NEVER_DAYS):
        until = min(after + reach_days * DAY_S, LAST)
        for run in day_runs(cron, zone, start, until):
            return run.first
        start = until
    return None


def _later_that_day(cron: Cron, zone: ZoneInfo, after: int) -> int | None:
    """Return the next due time if it is on the same day and the zone's clock does not jump near it: the usual case."""
    if cron.times[-1] - cron.times[0] < HOUR_S:
        return None
    offset = offset_at(zone, after)
    day, time = divmod(after + 1 + offset, DAY_S)
    place = bisect_left(cron.times, time)
    if place == len(cron.times) or not cron.on(_date(day)) or jumps_between(zone, after - DAY_S, after + DAY_S):
        return None
    return day * DAY_S + cron.times[place] - offset


def gaps(cron: Cron, zone: ZoneInfo, after: int, until: int) -> Iterator[int]:
    """Go through the times in (after, until] that the clock jumped over."""
    before: Span | None = None
    for span in spans(zone, after - DAY_S, until + 1) if not cron.cadence else ():
        if before is not None and span.offset > before.offset:
            for due in _gap(cron, before, span):
                if after < due.at <= until:
                    yield due.at
        before = span


LAST = 253_402_200_000
"""Before the last day of the year 9999, in every zone: later days can't be reckoned with."""
_at = attrgetter("at")


class DayRun(msgspec.Struct, frozen=True):
    """The due times of a stretch of one day, by their first, last and number."""

    first: int
    last: int
    count: int


def day_runs(cron: Cron, zone: ZoneInfo, after: int, until: int) -> Iterator[DayRun]:
    """Go through the real due times in (after, until] day by day, without a walk over each."""
    for base, low, high in _stretches(cron, zone, after, until):
        yield DayRun(base + cron.times[low], base + cron.times[high - 1], high - low)


def counts(cron: Cron, zone: ZoneInfo, edges: Sequence[int]) -> list[int]:
    """Count the real due times between each two of some moments, the later one included, without a walk over each."""
    found = [0] * (len(edges) - 1)
    for base, first, beyond in _stretches(cron, zone, edges[0], edges[-1]):
        low = first
        while low < beyond:
            place = bisect_left(edges, base + cron.times[low]) - 1
            high = bisect_right(cron.times, edges[place + 1] - base, low, beyond)
            found[place] += high - low
            low = high
    return found


def _stretches(cron: Cron, zone: ZoneInfo, after: int, until: int) -> Iterator[tuple[int, int, int]]:
    """Go through the days of (after, until]: the second at which each begins, and which of the times of day are due in it."""
    before: Span | None = None
    for span in spans(zone, after - DAY_S, until + 1):
        jump = 0 if before is None or cron.cadence else span.offset - before.offset
        start = max(after + 1, span.start + max(0, -jump))
        for base in _days(cron, span, start):
            low, high = bisect_left(cron.times, start - base), bisect_left(cron.times, span.end - base)
            if low < high:
                yield base, low, high
        before = span


def _within(cron: Cron, span: Span, start: int) -> Iterator[Due]:
    """Go through the due times of one span from `start` on: here the clock runs evenly."""
    for base in _days(cron, span, start):
        low, high = bisect_left(cron.times, start - base), bisect_left(cron.times, span.end - base)
        for time in cron.times[low:high]:
            yield Due(base + time)


def _days(cron: Cron, span: Span, start: int) -> Iterator[int]:
    """Go through the days of a span that the expression names, from `start` on, each as the second UTC at which it begins."""
    if start >= span.end:
        return
    day = (start + span.offset) // DAY_S
    last = (span.end - 1 + span.offset) // DAY_S
    while day <= last:
        found = _first_day(cron, _date(day), days=last - day + 1)
        if found is None:
            return
        day = _number(found)
        yield day * DAY_S - span.offset
        day += 1


def _gap(cron: Cron, before: Span, after: Span) -> Iterator[Due]:
    """Go through the times that the clock jumped over between two spans, told by the clock as it ran before."""
    low, high = before.end + before.offset, before.end + after.offset
    for day in range(low // DAY_S, (high - 1) // DAY_S + 1):
        if cron.on(_date(day)):
            for time in cron.times:
                if low <= day * DAY_S + time < high:
                    yield Due(day * DAY_S + time - before.offset, gap=True)


def _first_day(cron: Cron, day: date, *, days: int) -> date | None:
    """Return the first day from `day` on that the expression names, within so many days."""
    months, match_day = cron.fields.months, cron.fields.match_day
    end = min(day.toordinal() + days, date.max.toordinal())
    while day.toordinal() < end:
        if day.month not in months:
            if (day.year, day.month) == (date.max.year, date.max.month):
                return None
            # Straight to the first of the next month.
            day = (day.replace(day=28) + timedelta(days=4)).replace(day=1)
        elif match_day(day):
            return day
        else:
            day += timedelta(days=1)
    return None


def _date(number: int) -> date:
    return date.fromordinal(number + _EPOCH_DAY)


def _number(day: date) -> int:
    return day.toordinal() - _EPOCH_DAY


_EPOCH_DAY = date(1970, 1, 1).toordinal()


class CronField(msgspec.Struct, frozen=True):
    """What one field may hold, to say what is wrong with it: reading it is cronsim's."""

    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()
    specials: str = ""

    def read(self, part: str, whole: str) -> str:
        """Return a field as cronsim reads it rightly, or refuse it, naming the piece that can't be."""
        terms = part.split(",")
        for term in terms:
            reason = self._why_not(term)
            if reason is not None:
                raise InvalidSchedule(f"{whole!r}: {self.name} {reason}")
        return ",".join(map(self._plain, terms))

    def _plain(self, term: str) -> str:
        """Write a range of one as that one: with a step, cronsim would take it for one that has no end."""
        low, dash, high = term.partition("/")[0].partition("-")
        return low if dash and self.number(low) == self.number(high) else term

    def _why_not(self, term: str) -> str | None:
        base, slash, step = term.partition("/")
        if slash and (not _is_number(step) or int(step) == 0):
            return f"{term!r} has a step of {step!r}: give a whole number, 1 or more"
        if base == "*":
            return None
        if self.specials and re.fullmatch(self.specials, base):
            return f"{term!r} has a step, which {base!r} can't have" if slash and base not in {"L", "LW"} else None
        low, dash, high = base.partition("-")
        for bound in (low, high) if dash else (low,):
            reason = self._bad_value(bound, term)
            if reason is not None:
                return reason
        if dash and self.number(low) > self.number(high):
            return f"{term!r} runs backwards: write it as two, or as a list"
        return None

    def _bad_value(self, value: str, term: str) -> str | None:
        if value in self.words:
            return None
        if not _is_number(value):
            names = f", or {self.words[0]} to {self.words[-1]}" if self.words else ""
            return f"{term!r} is not understood: give {self.low}-{self.high}{names}, '*', lists, ranges or steps"
        if not self.low <= int(value) <= self.high:
            return f"{int(value)} is out of range {self.low}-{self.high}"
        return None

    def number(self, value: str) -> int:
        """Return a value of the field, which may be a name."""
        return int(value) if value.isdecimal() else self.words.index(value) + self.low


def _is_number(value: str) -> bool:
    """Say whether this is a number as fields have them: in the digits of ASCII, and not thousands of them."""
    return value.isascii() and value.isdecimal() and len(value) <= DIGITS_MAX


_LAST_DAY = re.compile(r"\b(SUN|MON|TUE|WED|THU|FRI|SAT)L\b")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
FIELDS = (
    CronField("minute", 0, 59),
    CronField("hour", 0, 23),
    CronField("day of month", 1, 31, (), "LW?"),
    CronField("month", 1, 12, _MONTHS),
    CronField("day of week", 0, 7, _DAYS, r"(?:[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)#[1-5]|[0-7]L"),
)
