"""Creating a group of jobs."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from rota import errors
from rota.app import Rota
from rota.errors import NotFound
from rota.model.call import NewJob
from rota.model.groups import USUAL_RULE, Group
from rota.model.values import undashed
from rota.surfaces.http.access import door_of
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api import keys
from rota.surfaces.http.api.hand import route, takes
from rota.surfaces.http.api.jobs import SUBMITTING, options_of
from rota.surfaces.http.api.keys import REPLAYED, Request
from rota.surfaces.http.api.requests import in_body, json_body, read, refuse_query
from rota.surfaces.http.api.shapes import BulkJobIn, NewGroupIn
from rota.surfaces.http.openapi import gives, refuses


@route(
    "groups.create",
    "Groups",
    "POST /groups",
    parameters=[keys.KEY],
    content=takes(NewGroupIn),
    responses={
        **gives(Group, status=201),
        **gives(Group, what="The same request created it before."),
        **refuses(*SUBMITTING, errors.GroupRefused),
    },
)
async def create(request: HttpRequest) -> Response:
    """Create a group of new jobs and of jobs that wait already. All of it is created, or nothing."""
    refuse_query(request)
    return await run_in_threadpool(_create, request, await json_body(request), keys.key_of(request))


def _create(request: HttpRequest, body: bytes, key: str | None) -> Response:
    rota: Rota = request.app.state.rota
    who = door_of(request).who(request)
    new = read(body, NewGroupIn)
    asked = Request(who, "group", key or "", body)
    if key is None:
        return Answer(_make(rota, new, None, asked), status_code=201)
    ids = asked.ids(rota.now)
    for group_id in ids:
        try:
            group = rota.acting_as(asked.reader).groups.get(group_id)
        except NotFound:
            continue
        _refuse_other(rota, new, group, asked)
        return Answer(group, headers=REPLAYED)
    group = _make(rota, new, ids[0], asked)
    # Another request with this key may have been quicker.
    _refuse_other(rota, new, group, asked)
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
