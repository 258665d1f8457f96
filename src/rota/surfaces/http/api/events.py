"""Events as they happen: of everything the caller may see, or of one job."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Query, Request, Response

from rota.errors import InvalidOption, NotFound, TooManyListeners
from rota.model.events import EventType, cursor_of
from rota.model.states import Status
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.api.asking import NameQuery
from rota.surfaces.http.api.jobs import JobId
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import nothing, refuses
from rota.surfaces.http.streams import MEDIA_TYPE, OVER, EventStream

router = strict_router("Events")

EXAMPLE = (
    "id: 6605450c1e2d0.2a\nevent: job.ended\n"
    'data: {"type":"job.ended","at":"2026-03-01T09:00:01Z","job":{"id":"01980c5e-7a10-7000-8000-000000000001",'
    '"number":"JOB-2026-00042","root_id":"01980c5e-7a10-7000-8000-000000000001","attempt":1,"job_type":"send_email",'
    '"organization":"default","owner":"ada","status":"COMPLETED","priority":50,"created_at":"2026-03-01T09:00:00Z",'
    '"started_at":"2026-03-01T09:00:00Z","finished_at":"2026-03-01T09:00:01Z"}}\n\n'
)
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events, each with an `id` to go on from, its type as `event`, and itself as JSON in `data`.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "example": EXAMPLE}},
    }
}
AFTER_MAX = 40
After = Annotated[str | None, Query(max_length=AFTER_MAX, description="The id of an event: what came after it is told again first.")]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=AFTER_MAX, description="The same, as a browser sends it that comes back.")
]
Types = Annotated[list[EventType] | None, Query(alias="type", max_length=len(EventType), description="Only these; else all.")]
Statuses = Annotated[list[Status] | None, Query(alias="status", max_length=len(Status), description="Only of jobs that stand so.")]


@router.get(
    "/events",
    summary="Listen to what happens",
    status_code=200,
    response_class=EventStream,
    responses={**STREAM, **refuses(InvalidOption, TooManyListeners)},
)
def listen(
    request: Request,
    rota: Served,
    who: Who,
    *,
    types: Types = None,
    status: Statuses = None,
    job_type: NameQuery = None,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Tell what happens to jobs and definitions that you may see, within a second, until you hang up. At least once; see the guide."""
    cursor = last_event_id or after
    if cursor is not None:
        cursor_of(cursor)
    return EventStream(request, rota, who, types=types, status=status, job_type=job_type, after=cursor)


@router.get(
    "/jobs/{job_id}/events",
    summary="Listen to one job",
    status_code=200,
    response_class=EventStream,
    responses={**STREAM, **nothing("You were told its end before."), **refuses(NotFound, TooManyListeners)},
)
def follow(request: Request, job_id: JobId, rota: Served, who: Who, *, last_event_id: LastEventId = None) -> Response:
    """Tell how the chain of this job stands, then its progress and its attempts as they come; ends, with `over`, when the chain does."""
    if last_event_id == OVER:
        return Response(status_code=204)
    return EventStream(request, rota, who, job=job_id)
