"""Dead letters: chains that failed for good, one by one or all that match."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rota import errors
from rota.app import Rota
from rota.errors import AlreadyEnded
from rota.model.gate import Actor
from rota.model.states import ErrorType, Status
from rota.model.values import Job
from rota.surfaces.http.access import Served, Who, answered
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.asking import STRICT, TEXT, NameQuery, Raw, needed, read, takes
from rota.surfaces.http.api.jobs import TEXT_MAX, JobId
from rota.surfaces.http.api.paging import Cursor, Limit, Paged
from rota.surfaces.http.api.shapes import DeadIn, Done
from rota.surfaces.http.describing import gives, nothing, page_of, refuses

router = APIRouter(prefix="/dead-letters", tags=["Dead letters"], dependencies=STRICT)

LEFT_MAX = 1000


@router.get("", summary="List dead letters", responses=gives(page_of(Job)))
def find(
    rota: Served,
    who: Who,
    *,
    job_type: NameQuery = None,
    error_type: ErrorType | None = None,
    text: Annotated[str | None, Query(max_length=TEXT_MAX, pattern=TEXT)] = None,
    organization: NameQuery = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Answer:
    """Return a page of the chains that ended DEAD_LETTER, by their last job, newest first. One that was retried is none any more."""
    filters: dict[str, Any] = {"job_type": job_type, "error_type": error_type, "text": text, "organization": organization}
    paged = Paged("dead", **filters)
    return paged.answer(rota.acting_as(who).dead_letters.list(limit=limit, before=paged.place(cursor), **filters))


@router.post("/retry", summary="Retry all that match", responses=gives(Done), openapi_extra=takes(DeadIn))
def retry_all(body: Raw, rota: Served, who: Who) -> Answer:
    """Retry every dead letter that matches, newest first, up to `limit`. Where a key is taken, it stays dead."""
    which = read(needed(body), DeadIn)
    done = len(rota.acting_as(who).dead_letters.retry(**_filters(which), limit=which.limit))
    return Answer(_done(rota, which, done, who))


@router.post("/discard", summary="Discard all that match", responses=gives(Done), openapi_extra=takes(DeadIn))
def discard_all(body: Raw, rota: Served, who: Who) -> Answer:
    """Remove every dead letter that matches, newest first, up to `limit`, for good. Those that others need are kept."""
    which = read(needed(body), DeadIn)
    done = rota.acting_as(who).dead_letters.delete(**_filters(which), limit=which.limit).chains
    return Answer(_done(rota, which, done, who))


@router.post(
    "/{job_id}/retry",
    status_code=201,
    summary="Retry a dead letter",
    responses={**gives(Job, status=201), **refuses(errors.NotFound, errors.StillLive, errors.AlreadyEnded, errors.KeyTaken)},
)
def retry(job_id: JobId, rota: Served, who: Who) -> Answer:
    """Give the chain one more attempt, with a fresh budget. It is the job returned."""
    return Answer(rota.acting_as(who).jobs.retry(job_id), status_code=201)


@router.delete(
    "/{job_id}",
    status_code=204,
    summary="Discard a dead letter",
    responses={**nothing(), **refuses(errors.NotFound, errors.AlreadyEnded, errors.StillLive, errors.StillNeeded)},
)
def discard(job_id: JobId, rota: Served, who: Who) -> Response:
    """Remove the chain with its runs and logs, for good."""
    tail = rota.acting_as(who).jobs.attempts(job_id)[-1]
    if tail.status.ended and tail.status is not Status.DEAD_LETTER:
        raise AlreadyEnded(f"the chain of {job_id} has ended {tail.status}: it is no dead letter")
    rota.acting_as(who).jobs.delete(job_id)
    return Response(status_code=204)


def _filters(which: DeadIn) -> dict[str, Any]:
    return {"job_type": which.job_type, "error_type": which.error_type, "text": which.text, "organization": which.organization}


def _done(rota: Rota, which: DeadIn, done: int, who: Actor) -> Done:
    """Say how many still match; where fewer were done than might have been, nothing is left that could be."""
    if done < which.limit:
        return Done(done=done, left=0)
    left = rota.acting_as(answered(who)).dead_letters.list(**_filters(which), limit=LEFT_MAX)
    return Done(done=done, left=len(left), more=left.next is not None)
