"""Groups: jobs that belong together."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Response

from rota import errors
from rota.app import Rota
from rota.engine.submit import NewJob
from rota.errors import NotFound
from rota.model.groups import USUAL_RULE
from rota.model.values import Group, undashed
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.asking import ID_MAX, STRICT, Raw, in_body, read, takes
from rota.surfaces.http.api.concurrency import REPLAYED, IdempotencyKey, Request
from rota.surfaces.http.api.jobs import SUBMITTING, options_of
from rota.surfaces.http.api.paging import Limit
from rota.surfaces.http.api.shapes import BulkJobIn, NewGroupIn
from rota.surfaces.http.describing import gives, list_of, refuses

router = APIRouter(prefix="/groups", tags=["Groups"], dependencies=STRICT)

GroupId = Annotated[str, Path(description="The group's id.", max_length=ID_MAX, examples=["019c8a5e-7a00-7002-8000-00000000002a"])]


@router.post(
    "",
    status_code=201,
    summary="Make a group",
    responses={
        **gives(Group, status=201),
        **gives(Group, what="The same request made it before."),
        **refuses(*SUBMITTING, errors.GroupRefused),
    },
    openapi_extra=takes(NewGroupIn),
)
def create(body: Raw, rota: Served, who: Who, *, idempotency_key: IdempotencyKey = None) -> Response:
    """Make a group of new jobs, and of jobs that wait already. All of it is made, or nothing."""
    new = read(body, NewGroupIn)
    if idempotency_key is None:
        return Answer(_make(rota, new, None, Request(who, "group", "", body)), status_code=201)
    request = Request(who, "group", idempotency_key, body)
    ids = request.ids(rota.now)
    for group_id in ids:
        try:
            group = rota.acting_as(request.reader).groups.get(group_id)
        except NotFound:
            continue
        _refuse_other(rota, new, group, request)
        return Answer(group, headers=REPLAYED)
    group = _make(rota, new, ids[0], request)
    # Another request with this key may have been quicker.
    _refuse_other(rota, new, group, request)
    return Answer(group, status_code=201)


def _make(rota: Rota, new: NewGroupIn, group_id: str | None, request: Request) -> Group:
    meta = None if group_id is None else request.meta
    with in_body():
        return rota.acting_as(request.who).group(
            [_member(job, meta) if isinstance(job, BulkJobIn) else _waiting(rota, job, request) for job in new.jobs],
            mode=new.mode,
            on_failure=new.on_failure,
            name=new.name,
            group_id=group_id,
            organization=new.organization,
            then=None if new.then is None else _member(new.then, meta),
        )


def _member(job: BulkJobIn, meta: dict[str, str] | None) -> NewJob:
    return NewJob(name=job.name, params=job.params, meta=meta, **options_of(job))


def _waiting(rota: Rota, job: str, request: Request) -> str:
    """Return the id of a job that is there already: a number would be taken for the name of a template."""
    return job if undashed(job) else rota.acting_as(request.reader).jobs.get(job).id


def _refuse_other(rota: Rota, new: NewGroupIn, group: Group, request: Request) -> None:
    """Refuse a key that was used for another group. What a new job keeps stands for the whole body; without one, members are compared."""
    rule = new.on_failure or USUAL_RULE[new.mode]
    same = (group.name, group.mode, group.on_failure, len(group.members)) == (new.name, new.mode, rule, len(new.jobs))
    same = same and (group.then is None) == (new.then is None)
    fresh = [group.members[place].root_id for place, job in enumerate(new.jobs) if isinstance(job, BulkJobIn)] if same else []
    fresh += [group.then.root_id] if same and group.then is not None else []
    if fresh:
        request.refuse_other(rota.acting_as(request.reader).jobs.get(fresh[0]))
    elif not same or [member.root_id for member in group.members] != [_root(rota, str(job), request) for job in new.jobs]:
        raise HTTPException(422, f"Idempotency-Key {request.key[:100]!r} was used for another request already: give a new one")


def _root(rota: Rota, job: str, request: Request) -> str:
    try:
        return rota.acting_as(request.reader).jobs.get(job).root_id
    except NotFound:
        return job


@router.get("", summary="List groups", responses=gives(list_of(Group)))
def find(rota: Served, who: Who, *, limit: Limit = 50) -> Answer:
    """Return the newest groups, each with its members."""
    return Answer({"items": rota.acting_as(who).groups.list(limit=limit)})


@router.get("/{group_id}", summary="Read a group", responses={**gives(Group), **refuses(errors.NotFound)})
def get(group_id: GroupId, rota: Served, who: Who) -> Answer:
    """Return a group with its status and members."""
    return Answer(rota.acting_as(who).groups.get(group_id))


@router.post("/{group_id}/cancel", summary="Cancel a group", responses={**gives(Group), **refuses(errors.NotFound)})
def cancel(group_id: GroupId, rota: Served, who: Who) -> Answer:
    """Cancel every chain of the group that has not ended."""
    return Answer(rota.acting_as(who).groups.cancel(group_id))
