"""Calendars: days on which schedules that name them are not due."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import ConfigDict, Field
from pydantic.json_schema import WithJsonSchema

from rota.errors import NotFound, StillNeeded
from rota.model.schedules import Calendar
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.asking import TEXT
from rota.surfaces.http.api.bodies import Body, Text
from rota.surfaces.http.api.keyset import Cursor, Limit, cut
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives, nothing, page_of, refuses

router = strict_router("Calendars", "/calendars")

CalendarName = Annotated[str, Path(description="The calendar's name.", examples=["holidays"], max_length=255, pattern=TEXT)]
Of = Annotated[str | None, Query(max_length=255, pattern=TEXT, description="Whose calendars are meant; else your own organization's.")]
Day = Annotated[str, Field(max_length=10), WithJsonSchema({"type": "string", "format": "date"})]


class CalendarDays(Body):
    """The days of a calendar: all of them, each time."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"days": ["2026-12-25", "2026-12-26"], "description": "public holidays"}]})

    days: list[Day] = Field(max_length=1_000_000)
    description: Text | None = None


@router.get("", summary="List calendars", responses=gives(page_of(Calendar)))
def find(rota: Served, who: Who, *, organization: Of = None, limit: Limit = 100, cursor: Cursor = None) -> Answer:
    """Return the calendars of an organization, by name."""
    found = sorted(rota.acting_as(who).calendars.list(organization=organization), key=_name)
    shown = cut(found, _name, limit=limit, cursor=cursor)
    return Answer(shown | {"items": [_view(each) for each in shown["items"]]})


@router.get("/{name:path}", summary="Get a calendar", responses=gives(Calendar) | refuses(NotFound))
def get(name: CalendarName, rota: Served, who: Who, *, organization: Of = None) -> Answer:
    """Return one calendar."""
    found = next((each for each in rota.acting_as(who).calendars.list(organization=organization) if each.name == name), None)
    if found is None:
        raise NotFound(f"there is no calendar {name!r}: `rota calendar list` shows them")
    return Answer(_view(found))


@router.put("/{name:path}", summary="Set a calendar", responses=gives(Calendar))
def put(name: CalendarName, body: CalendarDays, rota: Served, who: Who, *, organization: Of = None) -> Answer:
    """Make a calendar, or give it other days. Again: nothing more."""
    return Answer(_view(rota.acting_as(who).calendars.update(name, body.days, description=body.description, organization=organization)))


@router.delete("/{name:path}", summary="Delete a calendar", status_code=204, responses=nothing() | refuses(NotFound, StillNeeded))
def delete(name: CalendarName, rota: Served, who: Who, *, organization: Of = None) -> None:
    """Remove a calendar that no schedule uses."""
    rota.acting_as(who).calendars.delete(name, organization=organization)


def _name(calendar: Calendar) -> tuple[str, ...]:
    return (calendar.name,)


def _view(calendar: Calendar) -> dict[str, Any]:
    """Return a calendar with its days in order: a set has none."""
    return {"name": calendar.name, "days": sorted(calendar.days), "description": calendar.description}
