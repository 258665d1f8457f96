"""Schedules: the list, a month of due times, and one schedule with what became of its due times and what can be done to it."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rota import wire
from rota.errors import InvalidOption
from rota.lab.forecast import forecast
from rota.lab.forecasts import Forecast, ForecastItem
from rota.model.gate import Right
from rota.model.local_time import in_zone, start_of
from rota.model.schedules import Fate, ScheduleState
from rota.operation import ask_for
from rota.ports.schedules import LedgerCursor
from rota.surfaces.http.pages.context import Visit
from rota.surfaces.http.pages.params_input import params_of
from rota.surfaces.http.pages.routes import Act, Name, Verb, chosen, page
from rota.surfaces.http.pages.schedule_form import page_of
from rota.surfaces.http.pages.selection import SCHEDULE_ACTS
from rota.surfaces.outcomes import MARKED_MAX, became, last_outcomes

PAGE = 50
NEXT = 10
YEAR_H = 24 * 366
"""How far the next due times are looked for."""
PAGE_SIMULATED_MAX = 200
"""Due times that the page of one schedule simulates, at most: a page does not wait for as many as a forecast may take."""
DAY_MAX = 6
"""Lines of one day of the calendar; the rest are counted."""
LEDGER_MAX = 5000
"""Rows of the ledger that one month looks at."""


class Line(msgspec.Struct):
    """Due times of one schedule on one day that became, or will become, the same."""

    organization: str
    schedule: str
    fate: str
    first_at: datetime
    last_at: datetime
    count: int = 1
    ahead: bool = False


class Day(msgspec.Struct):
    """One day of the calendar."""

    at: date
    lines: list[Line]
    left: int
    """Due times beyond those lines."""
    inside: bool
    today: bool


@page("GET /schedules")
def show(visit: Visit) -> Response:
    """Show all schedules."""
    found = visit.rota.schedules.list()
    outcomes = {each.id: last_outcomes(visit.rota, each) for each in found[:MARKED_MAX]}
    return visit.page("schedules.html", acts=SCHEDULE_ACTS, schedules=found, outcomes=outcomes)


@page("GET /schedules/month")
def month(
    visit: Visit,
    month: Annotated[str, Meta(max_length=10)] = "",
    name: Name | None = None,
    organization: Name | None = None,
    exact: Annotated[str, Meta(max_length=10)] = "",
) -> Response:
    """Show a month of due times: what became of those that have passed, and those to come. Days are those of the page's zone.

    `exact` works out which jobs would overlap or wait for each other. That takes long where much is due.
    """
    now = datetime.now(UTC)
    today = in_zone(now, visit.zone).date()
    first = _first_of(month, today)
    weeks = calendar.Calendar().monthdatescalendar(first.year, first.month)
    start, end = start_of(weeks[0][0], visit.zone), start_of(weeks[-1][-1] + timedelta(days=1), visit.zone)
    which: dict[str, Any] = {"schedule": name or None, "organization": organization or None}
    ahead = _ahead(visit, max(start, now), end, which, exact=bool(exact)) if end > now else None
    lines = _lines(visit, start, end, now=now, ahead=ahead or (), which=which)
    days = [[_day(each, lines.get(each, []), first, today) for each in week] for week in weeks]
    near: dict[str, Any] = {"before": first - timedelta(days=1), "after": first + timedelta(days=31)}
    return visit.page("month.html", weeks=days, first=first, name=name, organization=organization, ahead=ahead, exact=exact, **near)


def _ahead(visit: Visit, start: datetime, end: datetime, which: dict[str, Any], *, exact: bool) -> Forecast:
    if exact:
        return visit.rota.forecast(start=start, end=end, skipped=True, **which)
    return forecast(ask_for(visit.rota, Right.READ), start=start, end=end, skipped=True, simulated=0, **which)


def _lines(
    visit: Visit, start: datetime, end: datetime, *, now: datetime, ahead: Iterable[ForecastItem], which: dict[str, Any]
) -> dict[date, list[Line]]:
    found: dict[tuple[date, str, str, str, bool], Line] = {}
    if start < now:
        for each in visit.rota.schedules.occurrences(since=start, until=min(end, now), limit=LEDGER_MAX, **which):
            fate = became(each.fate, ran=each.ran)
            _count(found, Line(each.organization, each.schedule, fate, each.due_at, each.last_due_at, count=each.count), visit.zone)
    for item in ahead:
        _count(found, Line(item.organization, item.schedule, str(item.fate), item.due_at, item.due_at, ahead=True), visit.zone)
    lines: dict[date, list[Line]] = {}
    for (day, *_), line in found.items():
        lines.setdefault(day, []).append(line)
    for some in lines.values():
        # What did not run comes first, then what is rare: the nightly run matters more than the minute's.
        some.sort(key=lambda line: (line.fate in {Fate.FIRED, "COMPLETED"}, line.count, line.first_at, line.schedule))
    return lines


def _count(lines: dict[tuple[date, str, str, str, bool], Line], due: Line, zone: tzinfo) -> None:
    """Add due times to those of the same schedule, day and outcome."""
    day = in_zone(due.first_at, zone).date()
    line = lines.setdefault((day, due.organization, due.schedule, due.fate, due.ahead), due)
    if line is not due:
        line.count += due.count
        line.first_at, line.last_at = min(line.first_at, due.first_at), max(line.last_at, due.last_at)


def _day(at: date, lines: list[Line], first: date, today: date) -> Day:
    left = sum(each.count for each in lines[DAY_MAX:])
    return Day(at, lines[:DAY_MAX], left, inside=at.month == first.month, today=at == today)


def _first_of(text: str, today: date) -> date:
    if not text:
        return today.replace(day=1)
    try:
        found = datetime.strptime(text[:7], "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        raise InvalidOption(f"month={text!r} is not a month: give 2026-11") from None
    if not 1970 < found.year < 2200:
        raise InvalidOption(f"month={text!r} is out of sight: give a month from 1971 to 2199")
    return found


# ---- one schedule ----------------------------------------------------------------------------------------------------


@page("GET /schedules/one")
def show_one(
    visit: Visit,
    name: Name,
    organization: Name | None = None,
    *,
    fate: Annotated[str, Meta(max_length=40)] = "",
    before: Annotated[str, Meta(max_length=4096)] | None = None,
) -> Response:
    """Show one schedule."""
    found = visit.rota.schedules.get(name, organization=organization)
    rows = visit.rota.schedules.occurrences(
        name,
        fate=fate if fate and fate != "not_ran" else None,
        not_ran=fate == "not_ran",
        limit=PAGE,
        before=None if not before else wire.unseal(before, LedgerCursor),
        organization=found.organization,
    )
    coming: Forecast | None = None
    if found.state is not ScheduleState.DISABLED:
        ask = ask_for(visit.rota, Right.READ)
        coming = forecast(
            ask, YEAR_H, schedule=name, organization=found.organization, skipped=True, limit=NEXT, simulated=PAGE_SIMULATED_MAX
        )
    return visit.page(
        "schedule.html",
        it=found,
        coming=coming,
        rows=rows,
        next=None if rows.next is None else wire.seal(rows.next),
        first=bool(before),
        fates=list(Fate),
        fate=fate,
    )


@page("POST /schedules/one/{verb}")
def act(visit: Visit, verb: Verb) -> Response:
    """Fire, pause, enable, disable or remove a schedule."""
    do = chosen(ACTS, verb, "a schedule")
    name, organization = visit.form.need("name"), visit.form.text("organization")
    if isinstance(do, Act):
        said = do(visit, name, organization=organization)
        return visit.done(said, "/schedules" if verb == "delete" else page_of(name, organization))
    return visit.done(*do(visit, name, organization))


def _fire(visit: Visit, name: str, organization: str | None) -> tuple[str, str]:
    params = params_of(visit.form.text("params")) if visit.form.text("params") else None
    job = visit.rota.schedules.fire(name, params, organization=organization)
    return f"{name} is fired: {job.number}.", f"/jobs/{job.id}"


ACTS: dict[str, Act | Callable[[Visit, str, str | None], tuple[str, str]]] = {
    "fire": _fire,
    "pause": Act("schedules", "pause", "{name} is paused: its due times are skipped, and written down so."),
    "enable": Act("schedules", "enable", "{name} is enabled."),
    "disable": Act(
        "schedules",
        "disable",
        "{name} is disabled.",
        "Disable {name}? It has no due times from now on, and what is missed is not made up for.",
        "Disable it",
        Right.SCHEDULE,
    ),
    "delete": Act(
        "schedules",
        "delete",
        "{name} is removed.",
        "Remove the schedule {name}? Its jobs and its history stay. Code that declares it makes it anew.",
        "Remove it",
        Right.DELETE_SCHEDULES,
    ),
}
