"""What happened to a job, and why not: its run, its log, its chain, what it waits for."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse

from rota import errors
from rota.compat.faces import background_job
from rota.compat.faces import background_job_log as background_job_log_of
from rota.engine.explain import Explanation
from rota.errors import NotFound
from rota.faces.background_job import BackgroundJob, ExecutionLogEntry, named_output
from rota.model.gate import Right
from rota.model.values import Graph, Job, Run
from rota.operation import ask_for
from rota.results import Log, line
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.asking import STRICT
from rota.surfaces.http.api.jobs import JobId
from rota.surfaces.http.api.shapes import LogOut
from rota.surfaces.http.describing import gives, list_of, nothing, refuses
from rota.surfaces.http.streams import MEDIA_TYPE as STREAM
from rota.surfaces.http.streams import OVER, LogStream
from rota.surfaces.runs import run_of

router = APIRouter(prefix="/jobs/{job_id}", tags=["Runs"], dependencies=STRICT)

GONE = refuses(errors.NotFound)
PLAIN = "text/plain"
LOG = gives(LogOut)
LOG[200]["content"][PLAIN] = {"schema": {"type": "string"}, "example": "2026-03-01T09:00:00.000Z  QUEUED by ada"}
TOLD = 'event: log\ndata: {"text":"2026-03-01T09:00:00.000000Z INFO sent\\n"}\n\n'
LOG[200]["content"][STREAM] = {"schema": {"type": "string"}, "example": TOLD}
Follow = Annotated[bool, Query(description="Send what the handler writes as server-sent events, from the first line on, until it ends.")]
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", max_length=40, description="As a browser sends it that comes back: `over` if it was told all."),
]
Last = Annotated[int, Query(ge=1, le=100_000, description="How many entries, counted from the end.")]


@router.get("/run", summary="Read the run of a job", responses={**gives(Run), **GONE})
def run(job_id: JobId, rota: Served, who: Who) -> Answer:
    """Return what happened when this very attempt was executed; 404 while it has not started."""
    found = run_of(rota.acting_as(who), job_id)
    if found is None:
        raise NotFound(f"{job_id} has no run: it has not started, or never did")
    return Answer(shown(found))


@router.get("/runs", summary="List the runs of a chain", responses={**gives(list_of(Run)), **GONE})
def runs(job_id: JobId, rota: Served, who: Who) -> Answer:
    """Return the runs of every attempt of the chain, first to last."""
    found = (run_of(rota.acting_as(who), job.id) for job in rota.acting_as(who).jobs.attempts(job_id))
    return Answer({"items": [shown(each) for each in found if each is not None]})


@router.get("/chain", summary="List the attempts of a chain", responses={**gives(list_of(Job)), **GONE})
def chain(job_id: JobId, rota: Served, who: Who) -> Answer:
    """Return every attempt of the chain that this job belongs to, first to last."""
    return Answer({"items": rota.acting_as(who).jobs.attempts(job_id)})


@router.get("/log", summary="Read the log of a job", responses={**LOG, **nothing("You were told all of it before."), **GONE})
def log(
    request: Request,
    job_id: JobId,
    rota: Served,
    who: Who,
    *,
    last: Last = 1000,
    follow: Follow = False,
    last_event_id: LastEventId = None,
) -> Response:
    """Return the log of this very attempt: its moves and what its handler wrote. As lines of text for `Accept: text/plain`."""
    if follow:
        return Response(status_code=204) if last_event_id == OVER else LogStream(request, rota, who, job_id)
    return _log(request, rota.acting_as(who).jobs.log(job_id), last, numbered=False)


@router.get("/timeline", summary="Read the log of a chain", responses={**LOG, **GONE})
def timeline(request: Request, job_id: JobId, rota: Served, who: Who, *, last: Last = 1000) -> Response:
    """Return the log of every attempt of the chain, in the order of time."""
    return _log(request, rota.acting_as(who).jobs.log(job_id, chain=True), last, numbered=True)


def _log(request: Request, found: Log, last: int, *, numbered: bool) -> Response:
    entries = found[-last:]
    if PLAIN in request.headers.get("accept", ""):
        return PlainTextResponse("".join(line(entry, numbered=numbered) + "\n" for entry in entries))
    return Answer(LogOut(entries, cut=len(entries) < len(found)))


@router.get("/explain", summary="Explain why a job waits", responses={**gives(Explanation), **GONE})
def explain(job_id: JobId, rota: Served, who: Who) -> Answer:
    """Say why the live job of this chain does not run yet, condition by condition, or how the chain ended."""
    return Answer(rota.acting_as(who).explain(job_id))


@router.get("/graph", summary="See what waits for what", responses={**gives(Graph), **GONE})
def graph(job_id: JobId, rota: Served, who: Who) -> Answer:
    """Return the chains that this one waits for and those that wait for it, near and far."""
    return Answer(rota.acting_as(who).jobs.graph(job_id))


@router.get("/background-job", summary="Read a chain as a Background Job", responses={**gives(BackgroundJob), **GONE})
def as_background_job(job_id: JobId, rota: Served, who: Who) -> Answer:
    """Return the chain of this job as one Background Job, with that engine's fields and words."""
    return Answer(background_job(ask_for(rota.acting_as(who), Right.READ), job_id))


@router.get("/background-job/log", summary="Read the log of a Background Job", responses={**gives(list_of(ExecutionLogEntry)), **GONE})
def background_job_log(job_id: JobId, rota: Served, who: Who) -> Answer:
    """Return the execution log of that Background Job, over all its attempts."""
    return Answer({"items": background_job_log_of(ask_for(rota.acting_as(who), Right.READ_LOG), job_id)})


def shown(found: Run) -> Run:
    """Return a run as HTTP shows it: with what it refers to, and without the place of its log on this machine."""
    return msgspec.structs.replace(found, log_path=None, output_reference=named_output(found))
