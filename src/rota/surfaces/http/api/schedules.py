"""Schedules: made, changed, fired by hand, and what a change would change."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from rota.errors import ChangedMeanwhile, NotFound, QueueFull, Refused, ScheduleExists, StillNeeded, TemplateUnavailable
from rota.lab.forecasts import SchedulePlan
from rota.model.values import Job
from rota.schedule_views import ScheduleView
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.asking import TEXT
from rota.surfaces.http.api.keyset import Cursor, Limit, cut
from rota.surfaces.http.api.scheduling import Firing, NewSchedule, PlannedChange, ScheduleChange
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.api.versions import IfMatch, etag, seen
from rota.surfaces.http.describing import gives, nothing, page_of, refuses

router = strict_router("Schedules", "/schedules")

ScheduleName = Annotated[str, Path(description="The schedule's name.", examples=["daily"], max_length=255, pattern=TEXT)]
Of = Annotated[
    str | None,
    Query(max_length=255, pattern=TEXT, description="Whose schedule is meant, where several organizations have one of that name."),
]
ONE = gives(ScheduleView, what="The schedule as it stands.", etag=True)
CHANGED = ONE | refuses(NotFound, ChangedMeanwhile)


@router.post(
    "",
    summary="Create a schedule",
    status_code=201,
    responses=gives(ScheduleView, status=201, what="The schedule, as it was made.", etag=True)
    | refuses(ScheduleExists, TemplateUnavailable),
)
def create(body: NewSchedule, rota: Served, who: Who) -> Answer:
    """Make a schedule that fires from now on; 409 if there is one of that name."""
    made = rota.acting_as(who).schedules.create(
        body.name, body.template, enabled=body.enabled, organization=body.organization, **body.options()
    )
    return Answer(made, status_code=201, headers=etag(made.version))


@router.get("", summary="List schedules", responses=gives(page_of(ScheduleView)))
def find(
    rota: Served,
    who: Who,
    *,
    template: Annotated[str | None, Query(max_length=255, pattern=TEXT, description="Only those of this template.")] = None,
    organization: Annotated[str | None, Query(max_length=255, pattern=TEXT, description="Only those of this organization.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Answer:
    """Return schedules by organization and name."""
    found = rota.acting_as(who).schedules.list(template=template, organization=organization)
    found.sort(key=_place)
    return Answer(cut(found, _place, limit=limit, cursor=cursor))


@router.post("/{name:path}/enable", summary="Enable a schedule", responses=CHANGED | refuses(TemplateUnavailable))
def enable(name: ScheduleName, rota: Served, who: Who, *, organization: Of = None, if_match: IfMatch = None) -> Answer:
    """Let a schedule fire from now on. What was due while it was disabled is not made up for."""
    return _answer(rota.acting_as(who).schedules.if_match(seen(if_match)).enable(name, organization=organization))


@router.post("/{name:path}/disable", summary="Disable a schedule", responses=CHANGED)
def disable(name: ScheduleName, rota: Served, who: Who, *, organization: Of = None, if_match: IfMatch = None) -> Answer:
    """Take a schedule out of use: it has no due times. Its jobs go on."""
    return _answer(rota.acting_as(who).schedules.if_match(seen(if_match)).disable(name, organization=organization))


@router.post("/{name:path}/pause", summary="Pause a schedule", responses=CHANGED)
def pause(name: ScheduleName, rota: Served, who: Who, *, organization: Of = None, if_match: IfMatch = None) -> Answer:
    """Let a schedule skip its due times, each written down as skipped, until it is enabled again."""
    return _answer(rota.acting_as(who).schedules.if_match(seen(if_match)).pause(name, organization=organization))


@router.post(
    "/{name:path}/fire",
    summary="Fire a schedule now",
    status_code=201,
    responses=gives(Job, status=201, what="The job.") | refuses(NotFound, Refused, QueueFull),
)
def fire(name: ScheduleName, rota: Served, who: Who, *, body: Firing | None = None, organization: Of = None) -> Answer:
    """Make a job of a schedule now, whatever its state, beside its due times: none of them is shifted or used up."""
    params = None if body is None else body.params
    return Answer(rota.acting_as(who).schedules.fire(name, params, organization=organization), status_code=201)


@router.post("/{name:path}/plan", summary="See what a change would change", responses=gives(SchedulePlan) | refuses(NotFound))
def plan(name: ScheduleName, body: PlannedChange, rota: Served, who: Who, *, organization: Of = None) -> Answer:
    """Say which due times of the days to come a change would add and remove. Nothing is changed."""
    return Answer(rota.acting_as(who).plan(name, days=body.days, organization=organization, **body.given("days")))


@router.get("/{name:path}", summary="Get a schedule", responses=ONE | refuses(NotFound))
def get(name: ScheduleName, rota: Served, who: Who, *, organization: Of = None) -> Answer:
    """Return one schedule."""
    return _answer(rota.acting_as(who).schedules.get(name, organization=organization))


@router.patch("/{name:path}", summary="Change a schedule", responses=CHANGED | refuses(ScheduleExists, TemplateUnavailable))
def change(
    name: ScheduleName, body: ScheduleChange, rota: Served, who: Who, *, organization: Of = None, if_match: IfMatch = None
) -> Answer:
    """Change some options, or the name. Due times up to now get their fate by what held before; jobs that are there stay as they are."""
    return _answer(rota.acting_as(who).schedules.if_match(seen(if_match)).update(name, organization=organization, **body.changes()))


@router.delete(
    "/{name:path}",
    summary="Delete a schedule",
    status_code=204,
    responses=nothing() | refuses(NotFound, ChangedMeanwhile, StillNeeded),
)
def delete(name: ScheduleName, rota: Served, who: Who, *, organization: Of = None, if_match: IfMatch = None) -> None:
    """Remove a schedule. Its jobs and its ledger stay; code that still declares it makes it anew."""
    rota.acting_as(who).schedules.if_match(seen(if_match)).delete(name, organization=organization)


def _place(schedule: ScheduleView) -> tuple[str, str]:
    return schedule.organization, schedule.name


def _answer(schedule: ScheduleView) -> Answer:
    return Answer(schedule, headers=etag(schedule.version))
