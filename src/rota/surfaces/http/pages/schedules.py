"""Schedules: the list, and a month of due times."""

from __future__ import annotations

import calendar
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from rota.errors import InvalidOption
from rota.lab.forecasts import ForecastItem
from rota.model.definitions import TemplateState
from rota.model.gate import Right
from rota.model.schedules import Fate
from rota.surfaces.http.pages.jobs import moment
from rota.surfaces.http.pages.params_input import params_of
from rota.surfaces.http.pages.rendering import link
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit

router = page_router()

DAY_MAX = 6
"""Lines of one day of the calendar; the rest are counted."""
LEDGER_MAX = 5000
"""Rows of the ledger that one month looks at."""
GIVEN = ("cron", "every", "timezone", "catch_up", "overlap", "description", "priority", "calendar")


class Line:
    """Due times of one schedule on one day that became, or will become, the same."""

    def __init__(self, organization: str, schedule: str, fate: str, *, count: int, ahead: bool) -> None:
        """Take how many they are."""
        self.organization = organization
        self.schedule = schedule
        self.fate = fate
        self.count = count
        self.ahead = ahead


class Day:
    """One day of the calendar."""

    def __init__(self, at: date, lines: list[Line], *, inside: bool, today: bool) -> None:
        """Take what is on it."""
        self.at = at
        self.lines = lines[:DAY_MAX]
        self.left = sum(each.count for each in lines[DAY_MAX:])
        self.inside = inside
        self.today = today


@router.get("/schedules")
def show(visit: Visit) -> Response:
    """Show all schedules."""
    templates = visit.rota.acting_as(visit.actor).templates.list() if visit.may(Right.SCHEDULE) else []
    names = [each.name for each in templates if each.state is TemplateState.ENABLED]
    return visit.page("schedules.html", schedules=visit.rota.acting_as(visit.actor).schedules.list(), templates=names)


@router.post("/schedules")
def create(visit: Visit) -> Response:
    """Make a schedule."""
    form = visit.form
    options: dict[str, Any] = {name: form.text(name) for name in GIVEN if form.text(name)}
    if form.text("at"):
        options["at"] = moment(form.need("at"))
    if form.text("params"):
        options["params"] = params_of(form.text("params"))
    made = visit.rota.acting_as(visit.actor).schedules.create(
        form.need("name"), form.need("template"), organization=form.text("organization"), **options
    )
    to = link("/schedules/one", name=made.name, organization=made.organization)
    return visit.done(f"Schedule {made.name} is made: {made.words}.", to)


@router.get("/schedules/month")
def month(
    visit: Visit,
    month: Annotated[str, Meta(max_length=10)] = "",
    name: Annotated[str, Meta(max_length=255)] | None = None,
    organization: Annotated[str, Meta(max_length=255)] | None = None,
) -> Response:
    """Show a month of due times: what became of those that have passed, and those to come. Days are UTC."""
    now = datetime.now(UTC)
    first = _first_of(month, now.date())
    weeks = calendar.Calendar().monthdatescalendar(first.year, first.month)
    start, end = _midnight(weeks[0][0]), _midnight(weeks[-1][-1] + timedelta(days=1))
    which: dict[str, Any] = {"schedule": name or None, "organization": organization or None}
    ahead = visit.rota.acting_as(visit.actor).forecast(start=max(start, now), end=end, skipped=True, **which) if end > now else None
    lines = _lines(visit, start, end, now=now, ahead=ahead or (), which=which)
    days = [[Day(each, lines.get(each, []), inside=each.month == first.month, today=each == now.date()) for each in week] for week in weeks]
    near: dict[str, Any] = {"before": first - timedelta(days=1), "after": first + timedelta(days=31)}
    exact_until = None if ahead is None else ahead.exact_until
    return visit.page("month.html", weeks=days, first=first, name=name, organization=organization, exact_until=exact_until, **near)


def _lines(
    visit: Visit, start: datetime, end: datetime, *, now: datetime, ahead: Iterable[ForecastItem], which: dict[str, Any]
) -> dict[date, list[Line]]:
    counts: Counter[tuple[date, str, str, str, bool]] = Counter()
    if start < now:
        for each in visit.rota.acting_as(visit.actor).schedules.occurrences(since=start, until=min(end, now), limit=LEDGER_MAX, **which):
            counts[each.due_at.date(), each.organization, each.schedule, _became(each.fate, ran=each.ran), False] += each.count
    for item in ahead:
        counts[item.due_at.date(), item.organization, item.schedule, str(item.fate), True] += 1
    lines: dict[date, list[Line]] = {}
    for (day, owner, schedule, fate, is_ahead), count in counts.items():
        lines.setdefault(day, []).append(Line(owner, schedule, fate, count=count, ahead=is_ahead))
    for some in lines.values():
        # What did not run comes first, then what is rare: the nightly run matters more than the minute's.
        some.sort(key=lambda line: (line.fate in {Fate.FIRED, "COMPLETED"}, line.count, line.schedule))
    return lines


def _became(fate: Fate, *, ran: bool | None) -> str:
    if fate is not Fate.FIRED:
        return str(fate)
    return "FIRED" if ran is None else "COMPLETED" if ran else "FAILED"


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


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
