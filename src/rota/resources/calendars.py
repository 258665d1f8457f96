"""Calendars: days on which the schedules that name them are not due."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from datetime import date
from typing import Annotated

from rota.errors import NotFound
from rota.model.gate import Right
from rota.model.schedule_options import calendar_of
from rota.model.schedules import Calendar
from rota.model.shapes import Organization, Shape
from rota.operation import Ask, Resource, operation

CalendarName = Annotated[str, Shape("The calendar's name.", "holidays", "NAME")]


class Calendars(Resource):
    """The calendars of an organization: the caller's own, unless another is given."""

    __slots__ = ()

    @operation(Right.READ, http="GET /calendars", cli="calendar list")
    def list(self, ask: Ask, *, organization: Organization = None) -> builtins.list[Calendar]:
        """Return the calendars of an organization, by name."""
        who = ask.within(organization)
        return [calendar for _, calendar in ask.store.calendars(organization=who.organization)]

    @operation(Right.READ, http="GET /calendars/{name}", cli="calendar get")
    def get(self, ask: Ask, name: CalendarName, *, organization: Organization = None) -> Calendar:
        """Return one calendar."""
        who = ask.within(organization)
        for _, calendar in ask.store.calendars(organization=who.organization):
            if calendar.name == name:
                return calendar
        raise NotFound(f"there is no calendar {name!r}: `rota calendar list` shows them")

    @operation(Right.SCHEDULE, http="PUT /calendars/{name}", cli="calendar update")
    def update(
        self,
        ask: Ask,
        name: CalendarName,
        days: Annotated[Iterable[date | str], Shape("All of its days.", ["2026-12-25"], "DAY", wire=builtins.list[str])],
        *,
        description: Annotated[str | None, Shape("What the calendar is for.", "public holidays", "TEXT")] = None,
        organization: Organization = None,
    ) -> Calendar:
        """Set the days of a calendar, and create it if it is not there."""
        who, store, now = ask.within(organization), ask.store, ask.now
        given = days if isinstance(days, str) else builtins.list(days)
        calendar = calendar_of(name, given, description, most=ask.settings.calendar_max)
        ask.registry.organization(who.organization, store, now)
        store.put_calendar(calendar, organization=who.organization, actor=who, now=now)
        return calendar

    @operation(
        Right.DELETE_SCHEDULES, http="DELETE /calendars/{name}", cli="calendar delete", status=204, confirm="Delete calendar {name}?"
    )
    def delete(self, ask: Ask, name: CalendarName, *, organization: Organization = None) -> None:
        """Delete a calendar that no schedule uses."""
        who = ask.within(organization)
        ask.store.drop_calendar(name, organization=who.organization, actor=who, now=ask.now)
