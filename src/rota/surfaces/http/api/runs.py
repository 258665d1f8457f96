"""The log of a job, as JSON, as text and as a stream; and a chain as a Background Job."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import PlainTextResponse, Response

from rota.compat.faces import background_job
from rota.compat.faces import background_job_log as background_job_log_of
from rota.errors import InvalidOption
from rota.faces.background_job import BackgroundJob, ExecutionLogEntry
from rota.model.checks import whole
from rota.model.gate import Right
from rota.model.shapes import Shape
from rota.model.values import LogEntry
from rota.operation import Ask
from rota.resources.jobs import Ref
from rota.results import line
from rota.surfaces.http.api.endpoint import Asked, by_hand
from rota.surfaces.http.streams import OVER, LogStream

PLAIN = "text/plain"
LAST_MAX = 100_000
EVENT_ID_MAX = 40


class LogOut(msgspec.Struct):
    """The log of a job: its moves, and what its handler wrote."""

    items: list[LogEntry]
    cut: Annotated[bool, Meta(description="Earlier entries were left out: ask for more of the last.")]


@by_hand("jobs.log", Right.READ_LOG, "GET /jobs/{job}/log", tag="Jobs")
def log(
    asked: Asked,
    ask: Ask,  # noqa: ARG001 - the gate is asked by making it
    job: Ref,
    *,
    chain: Annotated[bool, Shape("Include every attempt of the chain.")] = False,
    last: Annotated[int, Shape("How many entries, counted from the end.", 1000)] = 1000,
    follow: Annotated[bool, Shape("Send what the handler writes as server-sent events, from the first line on, until it ends.")] = False,
) -> LogOut:
    """Return the log of this attempt, or of the whole chain: state changes and the handler's lines, in the order of time.

    With `Accept: text/plain` it comes as lines of text. With `follow` it comes as server-sent events; a reader that comes back with
    `Last-Event-ID: over` has read all of it, and gets 204.
    """
    whole("last", last, least=1, most=LAST_MAX)
    if follow:
        return _followed(asked, str(job), chain=chain)  # type: ignore[return-value] # an answer of its own
    found = asked.rota.jobs.log(job, chain=chain)
    entries = found[-last:]
    if PLAIN in asked.request.headers.get("accept", ""):
        return PlainTextResponse("".join(line(entry, numbered=chain) + "\n" for entry in entries))  # type: ignore[return-value] # as above
    return LogOut(entries, cut=len(entries) < len(found))


def _followed(asked: Asked, job: str, *, chain: bool) -> Response:
    if chain:
        raise InvalidOption("follow=true is for one attempt: leave chain out")
    if asked.request.headers.get("last-event-id") == OVER:
        return Response(status_code=204)
    request = asked.request
    return LogStream(request, request.app.state.rota, asked.who, job)


@by_hand("jobs.background_job", Right.READ, "GET /jobs/{job}/background-job", tag="Jobs")
def as_background_job(asked: Asked, ask: Ask, job: Ref) -> BackgroundJob:  # noqa: ARG001 - the Ask is all it needs
    """Return the chain of this job as one Background Job, with the fields and words of that engine."""
    return background_job(ask, str(job))


@by_hand("jobs.background_job_log", Right.READ_LOG, "GET /jobs/{job}/background-job/log", tag="Jobs")
def background_job_log(asked: Asked, ask: Ask, job: Ref) -> list[ExecutionLogEntry]:  # noqa: ARG001 - as above
    """Return the execution log of that Background Job, over all its attempts."""
    return background_job_log_of(ask, str(job))
