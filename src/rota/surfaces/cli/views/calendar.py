"""Calendars and their days."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

import typer

from rota.model.schedules import Calendar
from rota.operation import session_of
from rota.surfaces.cli.output import counted, show_pairs
from rota.surfaces.cli.session import actor
from rota.surfaces.cli.views import View, listing

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called


def _next_day(calendar: Calendar) -> str:
    coming = next((day for day in sorted(calendar.days) if day >= _today()), None)
    return "none to come" if coming is None else f"{coming:%a %Y-%m-%d}"


LIST = listing(
    "No calendars: `rota calendar update holidays 2026-12-25` creates one.",
    "name days> next_day what_for=description",
    days=lambda calendar: len(calendar.days),
    next_day=_next_day,
)


def show_one(calendar: Calendar, called: Called) -> None:
    """Print the days of a calendar, and the schedules that are not due on them."""
    ahead = sum(day >= _today() for day in calendar.days)
    show_pairs(
        [
            ("calendar", calendar.name),
            ("what for", calendar.description),
            ("days", f"{len(calendar.days):,}, {ahead:,} of them to come"),
            ("schedules", ", ".join(_used_by(calendar, called)) or "none uses it"),
        ]
    )
    for year, days in groupby(sorted(calendar.days), key=lambda day: day.year):
        typer.echo(f"\n{year}:")
        for line in _in_a_row(days):
            typer.echo(f"  {line}")


def show_updated(calendar: Calendar, _called: Called) -> None:
    """Print how many days a calendar has now."""
    typer.echo(f"calendar {calendar.name} has {counted(len(calendar.days), 'day')}")


def keep_description(called: Called) -> None:
    """Keep the description of a calendar unless another is given."""
    asked = called.asked
    if "description" not in asked:
        present = called.rota.calendars.list(organization=asked.get("organization"))
        asked["description"] = next((each.description for each in present if each.name == asked["name"]), None)


def _used_by(calendar: Calendar, called: Called) -> list[str]:
    who = session_of(called.rota).actor(actor())
    schedules = called.rota.schedules.list(organization=called.asked.get("organization") or who.organization)
    return [schedule.name for schedule in schedules if schedule.calendar == calendar.name]


def _in_a_row(days: Iterable[date]) -> list[str]:
    """Return days as lines, days in a row as one."""
    rows: list[tuple[date, date]] = []
    for day in days:
        if rows and day == rows[-1][1] + timedelta(days=1):
            rows[-1] = (rows[-1][0], day)
        else:
            rows.append((day, day))
    return [f"{first:%a %Y-%m-%d}" if first == last else f"{first:%a %Y-%m-%d} to {last:%a %Y-%m-%d}" for first, last in rows]


def _fields(calendar: Calendar) -> dict[str, Any]:
    return {"name": calendar.name, "days": sorted(calendar.days), "description": calendar.description}


def _today() -> date:
    return datetime.now(UTC).date()


VIEWS: dict[str | type, View] = {
    "calendar list": View(LIST, lambda calendars, _called: map(_fields, calendars)),
    "calendar get": View(show_one, lambda calendar, called: _fields(calendar) | {"schedules": _used_by(calendar, called)}),
    "calendar update": View(show_updated, lambda calendar, _called: _fields(calendar), prepare=keep_description),
}
