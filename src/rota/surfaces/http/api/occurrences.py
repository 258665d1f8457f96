"""Due times: what became of those that have passed, and what will become of those to come."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import Query

from rota.errors import InvalidOption, NotFound
from rota.lab.forecasts import ForecastItem, Verified, ZoneChange
from rota.model.schedules import Fate
from rota.model.values import LATEST, undashed
from rota.ports.schedules import LedgerCursor
from rota.schedule_views import OccurrenceView
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer, page
from rota.surfaces.http.api.asking import TEXT, MomentQuery
from rota.surfaces.http.api.keyset import Cursor, Limit, seal, unseal
from rota.surfaces.http.api.schedules import Of
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives, page_of, refuses

router = strict_router("Schedules")

Some = Annotated[str | None, Query(max_length=255, pattern=TEXT, description="Only those of this schedule.", examples=["daily"])]
Since = Annotated[MomentQuery | None, Query(description="Due at or after this moment.")]
Until = Annotated[MomentQuery | None, Query(description="Due before this moment.")]

Occurrence = msgspec.defstruct(
    "Occurrence",
    [(field.name, field.type) for field in msgspec.structs.fields(OccurrenceView) if field.name != "cursor"],
    namespace={"__doc__": "What became of a due time, or of several in a row."},
    kw_only=True,
)
"""A row of the ledger without its place, which only the cursor of a page tells."""


class HourDensity(msgspec.Struct, frozen=True):
    """How many will run in one hour."""

    hour: datetime
    count: int


class ForecastAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """What is due in a window, in order of time."""

    items: list[ForecastItem]
    start: datetime
    end: datetime
    cut: bool
    """There is more than was asked for: what is here is complete up to the last of it."""
    exact_until: datetime | None
    """Overlaps, dependencies and waits are worked out up to here; null: all of them are."""
    changes: tuple[ZoneChange, ...]
    density: list[HourDensity]


@router.get("/occurrences", summary="List the outcomes of due times", responses=gives(page_of(Occurrence)) | refuses(NotFound))
def occurrences(
    rota: Served,
    who: Who,
    *,
    schedule: Some = None,
    fate: Annotated[list[Fate] | None, Query(max_length=20, description="Only these fates.")] = None,
    not_ran: Annotated[bool, Query(description="Only what did not run: fates but FIRED, and FIRED whose job did not complete.")] = False,
    since: Since = None,
    until: Until = None,
    organization: Of = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Answer:
    """Return rows of the ledger, latest due time first.

    Due times that have no recorded outcome are OVERDUE, one row for each schedule; such a row is worked out, and has no `recorded_at`.
    """
    before = None if cursor is None else place_of(cursor)
    found = rota.acting_as(who).schedules.occurrences(
        schedule,
        fate=fate,
        not_ran=not_ran,
        since=since,
        until=until,
        limit=limit + 1,
        before=before,
        organization=organization,
    )
    shown = found[:limit]
    return Answer(page(map(_row, shown), seal(shown[-1].cursor) if len(found) > limit else None))


@router.get("/occurrences/verify", summary="Verify that nothing was missed", responses=gives(Verified) | refuses(NotFound))
def verify(rota: Served, who: Who, *, schedule: Some = None, since: Since = None, until: Until = None, organization: Of = None) -> Answer:
    """Say whether every due time has one fate, and each that fired a job of its own; `overdue` are those without an outcome."""
    return Answer(rota.acting_as(who).schedules.verify(schedule, since=since, until=until, organization=organization))


@router.get("/forecast", summary="Say what will run", responses=gives(ForecastAnswer) | refuses(NotFound))
def forecast(
    rota: Served,
    who: Who,
    *,
    hours: Annotated[float | None, Query(gt=0, le=36_525 * 24, description="How far to look, from now or from `start`. Else 24.")] = None,
    start: Annotated[MomentQuery | None, Query(description="After this moment. Else from now on.")] = None,
    end: Annotated[MomentQuery | None, Query(description="Up to and with this moment, in place of `hours`.")] = None,
    schedule: Some = None,
    skipped: Annotated[bool, Query(description="Also what will not run, with the reason.")] = False,
    organization: Of = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Due times in the answer, at most.")] = 1000,
) -> Answer:
    """Return what is due in the hours to come or between two moments, and when it will probably start. See the guide on schedules."""
    found = rota.acting_as(who).forecast(hours, start=start, end=end, schedule=schedule, skipped=skipped, organization=organization)
    return Answer(
        ForecastAnswer(
            items=found[:limit],
            start=found.start,
            end=found.end,
            cut=found.cut or len(found) > limit,
            exact_until=found.exact_until,
            changes=found.changes,
            density=[HourDensity(hour, count) for hour, count in found.density],
        )
    )


def _row(view: OccurrenceView) -> dict[str, object]:
    return {name: getattr(view, name) for name in Occurrence.__struct_fields__}


def place_of(cursor: str) -> LedgerCursor:
    """Return the place in a ledger that a cursor means, or refuse it."""
    place: LedgerCursor
    due_at, schedule_id, fate = place = unseal(cursor, LedgerCursor)
    if not 0 <= due_at <= LATEST or undashed(schedule_id) != schedule_id or fate not in set(Fate):
        raise InvalidOption("this cursor is none of ours: give `next` of the page before, or leave it out")
    return place
