"""`rota forecast`: what will run when, as bars and lines, in the zone that each due time is meant in."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import msgspec
import typer

from rota.model.local_time import in_zone
from rota.model.schedules import Fate, Kind
from rota.model.zones import zone_of
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption, point_in_time
from rota.surfaces.cli.output import Table, clock_time, coloured, console, counted, escaped, one_line, sentence, show_json, span
from rota.surfaces.cli.session import actor, session
from rota.surfaces.cli.zone import current

if TYPE_CHECKING:
    from rota.lab.forecasts import Forecast, ForecastItem, ZoneChange
    from rota.schedule_views import ScheduleView

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BARS_MAX = 48
"""Hours that have a bar of their own each; beyond that each day is one line, with a mark for each of its hours."""
BAR = 40
WIDE = 100
"""Columns from which on there is room for templates."""
MARKS = "▁▂▃▄▅▆▇█"
OFTEN = 6
"""What is due more often than this in a day is one line with its number."""

Views = Mapping[tuple[str, str], "ScheduleView"]
OfOption = Annotated[str | None, typer.Option("--organization", metavar="NAME", help="Only schedules of this organization.")]


def forecast(
    *,
    hours: Annotated[
        float | None,
        typer.Option("--hours", metavar="N", min=0, help="How far to look, from now or from --start. Else 24.", show_default=False),
    ] = None,
    start: Annotated[
        datetime | None, typer.Option("--start", parser=point_in_time, metavar="TIME", help="From then on. Else from now on.")
    ] = None,
    end: Annotated[datetime | None, typer.Option("--end", parser=point_in_time, metavar="TIME", help="Until then.")] = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", metavar="NAME", help="Only this schedule, each due time on its line.")
    ] = None,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="Also list what will be due and not run: paused, excluded, jumped over, overlapping.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Show at most this many lines.")] = 50,
    organization: OfOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what will run when: a bar for each hour, changes of clocks, days that are excluded, overlaps, and where jobs would wait.

    A schedule that is due more than six times a day is shown as one line with its count. Jobs that would overlap, depend on each other or
    wait for a limit are simulated with the usual durations of their types.
    """
    with session(store, app=app) as rota:
        me = rota.acting_as(actor())
        found = me.forecast(hours, start=start, end=end, schedule=schedule, skipped=skipped, organization=organization)
        if as_json:
            return show_json(
                {
                    "items": list(found),
                    **{name: getattr(found, name) for name in ("start", "end", "cut", "exact_until", "changes", "density")},
                }
            )
        # Asked for separately, so that a paused schedule of every minute does not fill the forecast.
        beside = None
        if not skipped:
            beside = me.forecast(start=found.start, end=found.end, schedule=schedule, skipped=True, organization=organization)
        views = {(each.organization, each.name): each for each in me.schedules.list(organization=organization)}
    return show_timetable(found, beside, views, apart=schedule is not None, limit=limit)


class Line(msgspec.Struct, frozen=True):
    """One line of a timetable."""

    at: datetime
    schedule: str
    template: str = ""
    zone: str = "UTC"
    note: str = ""
    colour: str = "default"


def local_time(at: datetime, timezone: str) -> str:
    """Return a moment as the clocks of a zone show it, with the day of the week and the zone's own word for its offset."""
    there = at.astimezone(zone_of(timezone))
    seconds = f":{there:%S}" if there.second else ""
    return f"{there:%a %Y-%m-%d %H:%M}{seconds} {there:%Z}"


def short_time(at: datetime) -> str:
    """Return a moment in the zone of the command, without seconds where it has none."""
    whole = clock_time(at)
    return whole[:16] + whole[19:] if at.second == 0 else whole


def show_timetable(found: Forecast, beside: Forecast | None, views: Views, *, apart: bool, limit: int) -> None:
    """Print a forecast. `beside` has the due times too that are not in it because they will not run: days are marked by them.

    `apart` gives each due time a line of its own, however many there are.
    """
    screen = console()
    fired = [item for item in found if item.fate is Fate.FIRED]
    names = {(item.organization, item.schedule) for item in fired}
    screen.print(
        f"{clock_time(found.start)} to {clock_time(found.end)}: {counted(len(fired), 'job')} of {counted(len(names), 'schedule')}\n",
        soft_wrap=True,
    )
    if fired:
        _show_density(found)
    left_out = [item for item in beside or () if item.fate is not Fate.FIRED]
    marked = [item for item in left_out if item.fate is not Fate.SKIPPED_PAUSED]
    often = 0 if apart else OFTEN * max(1, math.ceil((found.end - found.start) / DAY))
    lines = [*_lines(found, views, often), *_marks(marked, views), *map(_change, found.changes)]
    lines.sort(key=lambda line: (line.at, line.schedule))
    _show_lines(lines[:limit])
    for words in _remarks(found, fired, more=len(lines) - limit):
        screen.print(words, soft_wrap=True)
    for words in _skips(left_out, partly=beside is not None and beside.cut):
        screen.print(words, soft_wrap=True)


# ---- lines ----------------------------------------------------------------------------------------------------------


def _lines(items: Iterable[ForecastItem], views: Views, often: int) -> list[Line]:
    """Return a line for each due time, or one for all of a schedule that are of one fate and more than `often`; 0: never."""
    same: dict[tuple[str, str, Fate], list[ForecastItem]] = defaultdict(list)
    for item in items:
        same[item.organization, item.schedule, item.fate].append(item)
    lines: list[Line] = []
    for (organization, schedule, _), group in same.items():
        view = views.get((organization, schedule))
        if often and len(group) > often:
            lines.append(_joined(group, view))
        else:
            lines += [_line(item, view) for item in group]
    return lines


def _marks(items: Iterable[ForecastItem], views: Views) -> Iterator[Line]:
    """Go through what will not run, one line for each schedule, fate and day, days as they are where the schedule is."""
    same: dict[tuple[str, str, Fate, date], list[ForecastItem]] = defaultdict(list)
    for item in items:
        view = views.get((item.organization, item.schedule))
        same[item.organization, item.schedule, item.fate, item.due_at.astimezone(own_zone(view)).date()].append(item)
    for (organization, schedule, *_), group in same.items():
        more = f"{len(group):,} times, the last {short_time(group[-1].due_at)}" if len(group) > 1 else ""
        yield _line(group[0], views.get((organization, schedule)), more)


def _line(item: ForecastItem, view: ScheduleView | None, more: str = "") -> Line:
    fate = "" if item.fate is Fate.FIRED else f"{item.fate}: " if item.note else str(item.fate)
    waits = f"waits about {span(item.wait_s)}" if item.wait_s >= 1 else ""
    note = "; ".join(words for words in (more, f"{fate}{sentence(item.note or '')}", waits) if words)
    colour = "yellow" if item.fate is not Fate.FIRED or waits else "default"
    return Line(item.due_at, item.schedule, item.template, own_zone(view).key, note, colour)


def _joined(group: Sequence[ForecastItem], view: ScheduleView | None) -> Line:
    words = f": {sentence(view.words)}" if view else ""
    longest = max(group, key=lambda item: item.wait_s)
    first = _line(longest, view, f"{len(group):,} times, the last {short_time(group[-1].due_at)}{words}")
    return msgspec.structs.replace(first, at=group[0].due_at)


def own_zone(view: ScheduleView | None) -> ZoneInfo:
    """Return the zone whose clock a schedule follows; that of the command, if it follows none."""
    return zone_of(view.timezone) if view is not None and view.kind is Kind.CRON else current()


def _change(change: ZoneChange) -> Line:
    note = f"clocks go from {change.before} to {change.after}"
    return Line(change.at, ", ".join(change.schedules), zone=change.timezone, note=f"{change.timezone}: {note}", colour="magenta")


def _show_lines(lines: Sequence[Line]) -> None:
    here = current().key
    local = any(line.zone != here for line in lines)
    wide = console().width >= WIDE
    made = Table(f"due ({here})", *(("there",) if local else ()), "schedule", *(("template",) if wide else ()), "", soft=("", "schedule"))
    for line in lines:
        there = (f"{line.at.astimezone(zone_of(line.zone)):%a %H:%M %Z}" if line.zone != here else "",) if local else ()
        texts = (short_time(line.at), *there, line.schedule, *((line.template,) if wide else ()), one_line(line.note))
        made.add_row(*texts, style=line.colour)
    made.show("Nothing is due.")


def _remarks(found: Forecast, fired: Sequence[ForecastItem], *, more: int) -> Iterator[str]:
    """Say what the lines do not show."""
    if more > 0:
        yield f"and {counted(more, 'line')} more: see --limit"
    if found.cut:
        yield "There is more than a forecast holds (setting forecast_max): look at fewer hours, or at one --schedule."
    if found.exact_until is not None:
        yield (
            f"Overlaps, dependencies and waits are worked out up to {clock_time(found.exact_until)} (setting forecast_simulated_max): "
            "later due times are listed as if their jobs did not meet."
        )
    waiting = [item for item in fired if item.wait_s >= 1]
    if waiting:
        longest = max(waiting, key=lambda item: item.wait_s)
        most = f"{span(longest.wait_s)} at most (schedule {escaped(longest.schedule)}, {clock_time(longest.due_at)})"
        yield f"Before they start, {counted(len(waiting), 'job')} would wait for a limit or for what they depend on, {most}."


def _skips(left_out: Sequence[ForecastItem], *, partly: bool) -> Iterator[str]:
    """Say what is paused; how often is a lower bound where a forecast does not hold it all."""
    least = "at least " if partly else ""
    skips = Counter(item.schedule for item in left_out if item.fate is Fate.SKIPPED_PAUSED)
    if skips:
        names = ", ".join(f"{escaped(name)} ({least}{counted(count, 'due time')})" for name, count in sorted(skips.items()))
        yield f"Paused, and skipped: {names}."


# ---- bars -----------------------------------------------------------------------------------------------------------


def _show_density(found: Forecast) -> None:
    """Print how many jobs each hour has: a bar each or, for many hours, a mark each and a line for each day."""
    counts = {at.astimezone(UTC): count for at, count in found.density}
    # Hours are counted from one full hour of UTC to the next: in some zones they begin at half past.
    first = min([*counts, found.start.astimezone(UTC).replace(minute=0, second=0, microsecond=0)])
    hours = [first + HOUR * step for step in range(math.ceil((found.end - first) / HOUR))]
    peak = max(counts.values(), default=0) or 1
    (_by_hour(hours, counts, peak) if len(hours) <= BARS_MAX else _by_day(hours, counts, peak)).show()
    console().print()


def _by_hour(hours: Sequence[datetime], counts: Mapping[datetime, int], peak: int) -> Table:
    made = Table(f"hour ({current().key})", "jobs", "", right=("jobs",))
    for at in hours:
        count = counts.get(at, 0)
        bar = "█" * max(1 if count else 0, round(count / peak * BAR))
        made.add_row(_hour(at), f"{count:,}" if count else "", coloured(bar, "cyan"))
    return made


def _hour(at: datetime) -> str:
    local = in_zone(at, current())
    return f"{local:%a %Y-%m-%d %H}h" if local.minute == 0 else f"{local:%a %Y-%m-%d %H:%M}"


def _by_day(hours: Sequence[datetime], counts: Mapping[datetime, int], peak: int) -> Table:
    made = Table(f"day ({current().key})", "jobs", "0h    6h    12h   18h", right=("jobs",))
    by_day: dict[date, list[int]] = {}
    for at in hours:
        local = in_zone(at, current())
        # Both hours of a clock that is set back are one mark.
        by_day.setdefault(local.date(), [0] * 24)[local.hour] += counts.get(at, 0)
    for day, own in by_day.items():
        marks = "".join(MARKS[math.ceil(count / peak * len(MARKS)) - 1] if count else " " for count in own)
        made.add_row(f"{day:%a %Y-%m-%d}", f"{sum(own):,}" if any(own) else "", coloured(marks, "cyan"))
    return made
