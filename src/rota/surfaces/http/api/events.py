"""Events as they happen: of everything the caller may see, or of one job."""

from __future__ import annotations

from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rota.errors import InvalidOption, NotFound, TooManyListeners
from rota.model.events import EventType, cursor_of
from rota.model.gate import Actor
from rota.model.states import Status
from rota.surfaces.http.api.endpoint import route
from rota.surfaces.http.api.requests import NAME_MAX, refuse_query
from rota.surfaces.http.openapi import header, nothing, query, refuses
from rota.surfaces.http.streams import MEDIA_TYPE, OVER, EventStream

W = TypeVar("W", EventType, Status)

EXAMPLE = (
    "id: 6605450c1e2d0.2a\nevent: job.ended\n"
    'data: {"type":"job.ended","at":"2026-03-01T09:00:01Z","job":{"id":"01980c5e-7a10-7000-8000-000000000001",'
    '"number":"JOB-2026-00042","root_id":"01980c5e-7a10-7000-8000-000000000001","attempt":1,"job_type":"send_email",'
    '"organization":"default","owner":"ada","status":"COMPLETED","priority":50,"created_at":"2026-03-01T09:00:00Z",'
    '"started_at":"2026-03-01T09:00:00Z","finished_at":"2026-03-01T09:00:01Z"}}\n\n'
)
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events, each with an `id` to continue from, its type as `event`, and itself as JSON in `data`.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "example": EXAMPLE}},
    }
}
AFTER_MAX = 40
LAST_EVENT_ID = header("Last-Event-ID", "The same as `after`, as a browser sends it that comes back.", maxLength=AFTER_MAX)


JOB = {
    "name": "job",
    "in": "path",
    "required": True,
    "description": "The job's id, or its number.",
    "schema": {"type": "string"},
    "example": "JOB-2026-00042",
}


def _words(kind: type[W]) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "enum": [str(each) for each in kind]}}


@route(
    "events.list",
    "Events",
    "GET /events",
    parameters=[
        query("type", _words(EventType), "Only these; else all."),
        query("status", _words(Status), "Only of jobs in these states."),
        query("job_type", {"type": "string", "maxLength": NAME_MAX}, "Only of jobs of this type."),
        query("after", {"type": "string", "maxLength": AFTER_MAX}, "The id of an event: what came after it is sent again first."),
        LAST_EVENT_ID,
    ],
    responses={**STREAM, **refuses(InvalidOption, TooManyListeners)},
)
async def listen(request: Request) -> Response:
    """Send what happens to jobs and definitions that the caller may see, within a second, until the client hangs up.

    Each event is sent at least once; see the guide.
    """
    who: Actor = await run_in_threadpool(request.app.state.door.who, request)
    refuse_query(request, "type", "status", "job_type", "after")
    asked = request.query_params
    cursor = _last_event(request) or asked.get("after")
    if cursor is not None:
        cursor_of(cursor[: AFTER_MAX + 1])
    job_type = asked.get("job_type")
    if job_type is not None and (len(job_type) > NAME_MAX or "\0" in job_type):
        raise HTTPException(422, f"query.job_type: {job_type[:40]!r} is not a valid job type")
    return EventStream(
        request,
        who,
        types=_some(EventType, "type", asked.getlist("type")),
        status=_some(Status, "status", asked.getlist("status")),
        job_type=job_type,
        after=cursor,
    )


@route(
    "jobs.events",
    "Events",
    "GET /jobs/{job}/events",
    parameters=[JOB, LAST_EVENT_ID],
    responses={**STREAM, **nothing("Its end was sent before."), **refuses(NotFound, TooManyListeners)},
)
async def follow(request: Request) -> Response:
    """Send the state of this job's chain, then its progress and its attempts as they come, until the chain has ended (`over`)."""
    who: Actor = await run_in_threadpool(request.app.state.door.who, request)
    refuse_query(request)
    if _last_event(request) == OVER:
        return Response(status_code=204)
    return EventStream(request, who, job=request.path_params["job"])


def _last_event(request: Request) -> str | None:
    last = request.headers.get("last-event-id")
    if last is not None and len(last) > AFTER_MAX:
        raise HTTPException(422, f"header.Last-Event-ID: it has {len(last)} characters: give at most {AFTER_MAX}")
    return last


def _some(kind: type[W], name: str, given: list[str]) -> list[W] | None:
    unknown = next((each for each in given if each not in set(kind)), None)
    if unknown is not None:
        raise HTTPException(422, f"query.{name}: {unknown[:40]!r} is not one of {', '.join(kind)}")
    return [kind(each) for each in given] or None
