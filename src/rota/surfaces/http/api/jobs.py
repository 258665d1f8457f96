"""Jobs: make, find, change, move, cancel, retry."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from rota import errors
from rota.app import Rota
from rota.model.gate import Actor
from rota.model.states import ErrorType, Status
from rota.model.values import Job
from rota.operation import session_of
from rota.submission import submit, submit_each
from rota.surfaces.http.access import Served, Who, bearer, door_of
from rota.surfaces.http.answers import ACTOR, Answer
from rota.surfaces.http.api import concurrency
from rota.surfaces.http.api.asking import (
    ID_MAX,
    STRICT,
    TEXT,
    MomentQuery,
    NameQuery,
    Raw,
    Swift,
    in_body,
    needed,
    only_known,
    raw,
    read,
    takes,
)
from rota.surfaces.http.api.concurrency import REPLAYED, tagged, tags
from rota.surfaces.http.api.paging import Cursor, Limit, Paged
from rota.surfaces.http.api.shapes import BulkJobIn, CancelIn, ChangeIn, DependIn, Done, MoveIn, NewJobIn, ReasonIn
from rota.surfaces.http.api.versions import IfMatch
from rota.surfaces.http.describing import gives, list_of, nothing, page_of, refuses
from rota.surfaces.http.intake import intake_of

router = APIRouter(tags=["Jobs"], dependencies=STRICT)

JobId = Annotated[str, Path(description="The job's id, or its number.", examples=["JOB-2026-00042"], max_length=ID_MAX)]
TEXT_MAX = 4096
SUBMITTING = (
    errors.UnknownTemplate,
    errors.InvalidParams,
    errors.PayloadTooLarge,
    errors.UnknownParent,
    errors.DuplicateJob,
    errors.KeyTaken,
    errors.RateLimited,
    errors.QueueFull,
)
"""What may be wrong with a job that is new."""
ANOTHER: dict[int | str, dict[str, Any]] = {
    200: {"description": "It was there already: found by its unique key, or made by the same request before.", **gives(Job)[200]},
}


# ---- make ----------------------------------------------------------------------------------------------------------


@router.post(
    "/jobs",
    status_code=201,
    summary="Make a job",
    dependencies=[Depends(bearer)],
    responses={**ANOTHER, **gives(Job, status=201, what="It is on disk."), **refuses(*SUBMITTING, errors.InvalidHandler)},
    openapi_extra=takes(NewJobIn) | concurrency.KEYED,
)
async def create(request: Request) -> Response:
    """Accept a job: when the answer comes, it is on disk. One that its unique key finds is returned as it is, with `existing`."""
    await only_known(request)
    body, key = await raw(request), concurrency.key_of(request)
    if key is None:
        answer = await intake_of(request).line(_create_together).do((request, body))
        if answer is not None:
            return answer
    return await intake_of(request).do(partial(_create, request, body, key))


def swift(prefix: str) -> list[Swift]:
    """Return the shorter way to what is asked for most."""
    return [Swift(f"{prefix}/jobs", create, methods=["POST"])]


def _create_together(asked: list[tuple[Request, bytes]]) -> list[Response | Exception | None]:
    """Make the jobs of several requests with one commit. None for one that is not so plain: it goes by itself."""
    rota: Rota = asked[0][0].app.state.rota
    answers: list[Response | Exception | None] = [None] * len(asked)
    known: dict[str, Actor] = {}
    plain: dict[int, tuple[str, Any, Actor]] = {}
    for place, (request, body) in enumerate(asked):
        try:
            token = request.headers.get("authorization", "")
            who = known.get(token) or door_of(request).who(request)
            if token:
                known[token] = request.scope[ACTOR] = who
            new = read(body, NewJobIn)
        except Exception as error:  # noqa: BLE001 - each is told its own
            answers[place] = error
        else:
            if new.name is not None and not options_of(new):
                plain[place] = (new.name, new.params, who)
    jobs = submit_each(session_of(rota), None, list(plain.values())) if plain else []
    for place, job in zip(plain, jobs, strict=True):
        answers[place] = job if isinstance(job, Exception) else Answer(job, status_code=201)
    return answers


def _create(request: Request, body: bytes, key: str | None) -> Response:
    rota: Rota = request.app.state.rota
    who = door_of(request).who(request)
    new = read(body, NewJobIn)
    if key is not None:
        return _create_once(rota, new, who, concurrency.Request(who, "job", key, body))
    with in_body():
        job = submit(session_of(rota), who, new.name, new.params, **options_of(new)).job()
    return Answer(job, status_code=200 if job.existing else 201)


def _create_once(rota: Rota, new: NewJobIn, who: Actor, request: concurrency.Request) -> Response:
    ids = request.ids(rota.now)
    job = concurrency.made(rota, request, ids)
    if job is not None:
        return Answer(job, headers=REPLAYED)
    with in_body():
        job = submit(session_of(rota), who, new.name, new.params, job_id=ids[0], meta=request.meta, **options_of(new)).job()
    if job.id != ids[0]:
        return Answer(job)
    if job.existing:
        request.refuse_other(job)
        return Answer(msgspec.structs.replace(job, existing=False), headers=REPLAYED)
    return Answer(job, status_code=201)


def options_of(new: BulkJobIn | NewJobIn) -> dict[str, Any]:
    """Return what a new job says beyond its name and params."""
    return {name: value for name, value in msgspec.structs.asdict(new).items() if value is not None and name not in {"name", "params"}}


# ---- look ----------------------------------------------------------------------------------------------------------


@router.get("/jobs", summary="Find jobs", responses={**gives(page_of(Job)), **refuses(errors.NotFound)})
def find(
    rota: Served,
    who: Who,
    *,
    status: Annotated[list[Status] | None, Query(description="Any of these.", max_length=len(Status))] = None,
    job_type: NameQuery = None,
    queue: NameQuery = None,
    tag: NameQuery = None,
    organization: NameQuery = None,
    owner: NameQuery = None,
    group: Annotated[str | None, Query(max_length=ID_MAX, description="The id of a group.")] = None,
    chain: Annotated[str | None, Query(max_length=ID_MAX, description="Any job of the chain.")] = None,
    schedule: Annotated[str | None, Query(max_length=255, pattern=TEXT, description="Its name, or its id if it was deleted.")] = None,
    text: Annotated[
        str | None, Query(max_length=TEXT_MAX, pattern=TEXT, description="Looked for in params, type, key, reason and error.")
    ] = None,
    error_type: ErrorType | None = None,
    since: Annotated[MomentQuery | None, Query(description="Made at this moment or later.")] = None,
    until: Annotated[MomentQuery | None, Query(description="Made before this moment.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Answer:
    """Return a page of the jobs that match every filter given, newest first."""
    filters: dict[str, Any] = {
        "status": status,
        "job_type": job_type,
        "queue": queue,
        "tag": tag,
        "organization": organization,
        "owner": owner,
        "group": group,
        "chain": chain,
        "schedule": schedule,
        "text": text,
        "error_type": error_type,
        "since": since,
        "until": until,
    }
    paged = Paged("jobs", **filters)
    return paged.answer(rota.acting_as(who).jobs.list(limit=limit, before=paged.place(cursor), **filters))


@router.get("/queue", summary="See the queue", responses=gives(list_of(Job)))
def queue(rota: Served, who: Who, *, limit: Limit = 100) -> Answer:
    """Return the QUEUED jobs in the order in which they will be claimed."""
    return Answer({"items": rota.acting_as(who).queues.jobs(limit=limit)})


@router.get(
    "/jobs/{job_id}",
    summary="Read a job",
    responses={**gives(Job, etag=True), 304: {"description": "It is as you have seen it."}, **refuses(errors.NotFound)},
)
def get(
    job_id: JobId, rota: Served, who: Who, *, if_none_match: Annotated[str | None, Header(max_length=200, examples=['"3b1f8c0d"'])] = None
) -> Response:
    """Return one job: this very attempt. Its `ETag` changes with anything of it, or with a new attempt of its chain."""
    job = rota.acting_as(who).jobs.get(job_id)
    headers = tagged(rota, job, who)
    if if_none_match is not None and headers["ETag"] in tags(if_none_match):
        return Response(status_code=304, headers=headers)
    return Answer(job, headers=headers)


# ---- change --------------------------------------------------------------------------------------------------------

EDITS = refuses(errors.NotFound, errors.AlreadyEnded, errors.IllegalMove, errors.ChangedMeanwhile)


@router.patch(
    "/jobs/{job_id}",
    summary="Change a job",
    responses={**gives(Job, etag=True), **EDITS},
    openapi_extra=takes(ChangeIn),
)
def change(job_id: JobId, body: Raw, rota: Served, who: Who, *, if_match: IfMatch = None) -> Answer:
    """Change the priority or the params of a job that waits, or the time of one that is PENDING: all that is given, or nothing."""
    new = read(body, ChangeIn)
    job = rota.acting_as(who).jobs.if_match(if_match).update(job_id, priority=new.priority, params=new.params, run_at=new.run_at)
    return Answer(job, headers=tagged(rota, job, who))


@router.post(
    "/jobs/{job_id}/move",
    summary="Move a job in the queue",
    responses={**gives(Job, etag=True), **EDITS},
    openapi_extra=takes(MoveIn),
)
def move(job_id: JobId, body: Raw, rota: Served, who: Who, *, if_match: IfMatch = None) -> Answer:
    """Reorder a QUEUED job among its organization's own of the same priority: to the front, before or after another."""
    new = read(body, MoveIn)
    job = rota.acting_as(who).jobs.if_match(if_match).move(job_id, before=new.before, after=new.after, front=new.front)
    return Answer(job, headers=tagged(rota, job, who))


@router.post(
    "/jobs/{job_id}/cancel",
    summary="Cancel a job",
    responses={**gives(Job, etag=True), **EDITS},
    openapi_extra=takes(ReasonIn, required=False),
)
def cancel(job_id: JobId, body: Raw, rota: Served, who: Who, *, if_match: IfMatch = None) -> Answer:
    """Cancel the chain of a job: at once while it waits, by request while it runs. It is never retried by itself."""
    new = read(body, ReasonIn)
    job = rota.acting_as(who).jobs.if_match(if_match).cancel(job_id, reason=new.reason)
    return Answer(job, headers=tagged(rota, job, who))


@router.post(
    "/jobs/cancel", summary="Cancel all that match", responses={**gives(Done), **refuses(errors.NotFound)}, openapi_extra=takes(CancelIn)
)
def cancel_all(body: Raw, rota: Served, who: Who) -> Answer:
    """Cancel every live job that matches, newest first, up to `limit`; the answer says how many still match."""
    new = msgspec.structs.asdict(read(needed(body), CancelIn))
    return Answer(rota.acting_as(who).jobs.cancel_all(**new))


@router.post(
    "/jobs/{job_id}/retry",
    status_code=201,
    summary="Retry an ended chain",
    responses={**gives(Job, status=201), **refuses(errors.NotFound, errors.StillLive, errors.AlreadyEnded, errors.KeyTaken)},
)
def retry(job_id: JobId, rota: Served, who: Who) -> Answer:
    """Give a chain that ended DEAD_LETTER, CANCELLED or SKIPPED one more attempt, with a fresh budget. It is the job returned."""
    return Answer(rota.acting_as(who).jobs.retry(job_id), status_code=201)


@router.post(
    "/jobs/{job_id}/depends",
    summary="Let a job wait for others",
    responses={**gives(Job, etag=True), **EDITS, **refuses(errors.UnknownParent, errors.DependencyCycle)},
    openapi_extra=takes(DependIn),
)
def depend(job_id: JobId, body: Raw, rota: Served, who: Who) -> Answer:
    """Let a PENDING job wait for more jobs: their chains must complete before it is queued."""
    new = read(body, DependIn)
    job = rota.acting_as(who).jobs.depend(job_id, new.on, on_failure=new.on_failure)
    return Answer(job, headers=tagged(rota, job, who))


@router.delete(
    "/jobs/{job_id}",
    status_code=204,
    summary="Discard an ended chain",
    responses={**nothing(), **refuses(errors.NotFound, errors.StillLive, errors.StillNeeded)},
)
def discard(job_id: JobId, rota: Served, who: Who) -> Response:
    """Remove a chain that has ended, with its runs and logs, for good."""
    rota.acting_as(who).jobs.delete(job_id)
    return Response(status_code=204)
