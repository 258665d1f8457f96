"""Creating a job, the request that is made most (those that come at the same time share a commit), and creating a group of jobs."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rota import errors
from rota.app import Rota
from rota.errors import NotFound
from rota.model.backoff import StrictBackoff
from rota.model.call import NewJob
from rota.model.checks import CENTURY_S
from rota.model.gate import Actor
from rota.model.groups import USUAL_RULE, Group, Mode, OnFailure
from rota.model.values import Job, undashed
from rota.operation import session_of
from rota.submission import submit, submit_each
from rota.surfaces.http.access import ACTOR, Door
from rota.surfaces.http.api.endpoint import route
from rota.surfaces.http.api.requests import (
    JSON,
    KEY,
    PRIORITY,
    REPLAYED,
    TEXT,
    Creation,
    Id,
    Moment,
    Name,
    body_type,
    in_body,
    key_of,
    read,
    refuse_query,
)
from rota.surfaces.http.api.results import Answer
from rota.surfaces.http.intake import Intake
from rota.surfaces.http.openapi import gives, refuses, takes

WAIT_MAX_S = 3600.0

Priority = Annotated[int, Meta(ge=0, le=100)] | Annotated[str, Meta(max_length=64, extra_json_schema=PRIORITY)]
Key = Annotated[str, Meta(min_length=1, max_length=1024, pattern=TEXT)]
Url = Annotated[str, Meta(min_length=1, max_length=2048, pattern=TEXT)]
ParentRule = Literal["wait", "skip", "cancel", "run"]
Retries = Annotated[int, Meta(ge=0, le=1000)]
Seconds = Annotated[float, Meta(ge=0, le=CENTURY_S)]
Params = Annotated[dict[str, Any], Meta(description="What the handler is called with: names and values.")]
NEW_JOB: dict[str, Any] = {"name": "send_email", "params": {"to": "ada@example.com"}}
"""The body of a new job in examples."""
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
"""What may be wrong with a new job."""


class _Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A body: what it does not know is refused."""


class _JobIn(_Body):
    """What can be said of a new job beside what it is."""

    params: Params | None = None
    priority: Priority | None = None
    run_at: Annotated[Moment | None, Meta(description="Not before this moment.")] = None
    unique_key: Annotated[Key, Meta(description="While a live job has it, that one is returned.")] | None = None
    depends_on: Annotated[list[Id], Meta(max_length=1000, description="Jobs whose chains must complete first.")] | None = None
    on_parent_failure: Annotated[ParentRule | None, Meta(description="What becomes of it if one of them ends otherwise.")] = None
    max_retries: Retries | None = None
    backoff: Annotated[StrictBackoff | None, Meta(description="The delays between retries; else those of its template.")] = None
    timeout: Annotated[Seconds | None, Meta(description="How long the handler may take; 0: no limit.")] = None
    queue: Annotated[Name, Meta(description="The queue; else that of its template.")] | None = None
    tags: Annotated[list[str], Meta(description="Short labels, at most 20.")] | None = None
    queue_ttl: Annotated[Seconds | None, Meta(description="How long after `run_at` it may start.")] = None
    webhook: Annotated[Url, Meta(description="An address that is told of its ends.")] | None = None


class BulkJobIn(_JobIn, kw_only=True):
    """A job of many."""

    name: Annotated[Name, Meta(description="The template, or the type of the handler.")]


class NewJobIn(_JobIn, kw_only=True):
    """A job to be made: of a template, or of a handler without one."""

    name: Annotated[Name, Meta(description="The template, or the type of the handler.")] | None = None
    handler: Annotated[Url, Meta(description="A function, module:function, for a job without a template: for system managers.")] | None = (
        None
    )
    job_type: Annotated[Name, Meta(description="The type of a job without a template; else the handler.")] | None = None
    organization: Annotated[Name, Meta(description="Another than your own: for system managers.")] | None = None


class NewGroupIn(_Body):
    """A group to be made: of new jobs, and of jobs that wait already, given by their ids."""

    jobs: Annotated[list[BulkJobIn | Id], Meta(description="In the order of the group; none only if a job follows it.")]
    then: Annotated[BulkJobIn | None, Meta(description="What is queued when all of them have ended for good.")] = None
    mode: Mode = Mode.SEQUENTIAL
    on_failure: Annotated[OnFailure | None, Meta(description="Default: `stop` if sequential, `continue` if parallel.")] = None
    name: Name | None = None
    organization: Name | None = None


class DirectIn(_Body):
    """A job to be run ahead of the queue."""

    name: Name
    params: Params | None = None
    timeout: Annotated[float, Meta(ge=0, le=WAIT_MAX_S, description="Seconds to wait for a slot, at most.")] | None = None
    organization: Name | None = None


class Taken(msgspec.Struct, kw_only=True):
    """What became of a bulk request."""

    accepted: int
    existing: Annotated[int, Meta(description="Jobs that were there already, found by their unique keys.")]
    ids: Annotated[list[str] | None, Meta(description="In the order of the request; null if there are more than 10,000.")]


# ---- jobs ------------------------------------------------------------------------------------------------------------


@route(
    "jobs.create",
    "Jobs",
    "POST /jobs",
    parameters=[KEY],
    content=takes(NewJobIn),
    responses={
        **gives(Job, what="It existed already: found by its unique key, or created by the same request before."),
        **gives(Job, status=201, what="It is on disk."),
        **refuses(*SUBMITTING, errors.InvalidHandler),
    },
)
async def create(request: Request) -> Response:
    """Create a job. It is on disk when the answer comes. A job that its unique key finds is returned as it is, with `existing`."""
    refuse_query(request)
    body_type(request, JSON)
    body, key = await request.body(), key_of(request)
    intake: Intake[Any, Response | None] = request.app.state.intake
    if key is None:
        answer = await intake.do_together((request, body))
        if answer is not None:
            return answer
    return await intake.do(partial(_create, request, body, key))


def create_together(asked: list[tuple[Request, bytes]]) -> list[Response | Exception | None]:
    """Make the jobs of several requests with one commit. None for one that is not so plain: it goes by itself."""
    state = asked[0][0].app.state
    rota: Rota = state.rota
    door: Door = state.door
    answers: list[Response | Exception | None] = [None] * len(asked)
    known: dict[str, Actor] = {}
    plain: dict[int, tuple[str, Any, Actor]] = {}
    for place, (request, body) in enumerate(asked):
        try:
            token = request.headers.get("authorization", "")
            who = known.get(token) or door.who(request)
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
    who: Actor = request.app.state.door.who(request)
    new = read(body, NewJobIn)
    if key is not None:
        return _create_once(rota, new, Creation(who, "job", key, body))
    with in_body():
        job = submit(session_of(rota), who, new.name, new.params, **options_of(new)).job()
    return Answer(job, status_code=200 if job.existing else 201)


def _create_once(rota: Rota, new: NewJobIn, request: Creation) -> Response:
    ids = request.ids(rota.now)
    job = request.made(rota, ids)
    if job is not None:
        return Answer(job, headers=REPLAYED)
    with in_body():
        job = submit(session_of(rota), request.who, new.name, new.params, job_id=ids[0], meta=request.meta, **options_of(new)).job()
    if job.id != ids[0]:
        return Answer(job)
    if job.existing:
        request.refuse_other(job)
        return Answer(msgspec.structs.replace(job, existing=False), headers=REPLAYED)
    return Answer(job, status_code=201)


def options_of(new: BulkJobIn | NewJobIn) -> dict[str, Any]:
    """Return what a new job says beyond its name and params."""
    return {name: value for name, value in msgspec.structs.asdict(new).items() if value is not None and name not in {"name", "params"}}


# ---- groups ----------------------------------------------------------------------------------------------------------


@route(
    "groups.create",
    "Groups",
    "POST /groups",
    parameters=[KEY],
    content=takes(NewGroupIn),
    responses={
        **gives(Group, status=201),
        **gives(Group, what="The same request created it before."),
        **refuses(*SUBMITTING, errors.GroupRefused),
    },
)
async def create_group(request: Request) -> Response:
    """Create a group of new jobs and of jobs that wait already. All of it is created, or nothing."""
    refuse_query(request)
    body_type(request, JSON)
    return await run_in_threadpool(_create_group, request, await request.body(), key_of(request))


def _create_group(request: Request, body: bytes, key: str | None) -> Response:
    rota: Rota = request.app.state.rota
    who: Actor = request.app.state.door.who(request)
    new = read(body, NewGroupIn)
    asked = Creation(who, "group", key or "", body)
    if key is None:
        return Answer(_make_group(rota, new, None, asked), status_code=201)
    ids = asked.ids(rota.now)
    for group_id in ids:
        try:
            group = rota.acting_as(asked.reader).groups.get(group_id)
        except NotFound:
            continue
        _refuse_other_group(rota, new, group, asked)
        return Answer(group, headers=REPLAYED)
    group = _make_group(rota, new, ids[0], asked)
    # Another request with this key may have been quicker.
    _refuse_other_group(rota, new, group, asked)
    return Answer(group, status_code=201)


def _make_group(rota: Rota, new: NewGroupIn, group_id: str | None, request: Creation) -> Group:
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


def _waiting(rota: Rota, job: str, request: Creation) -> str:
    """Return the id of a job that is there already: a number would be taken for the name of a template."""
    return job if undashed(job) else rota.acting_as(request.reader).jobs.get(job).id


def _refuse_other_group(rota: Rota, new: NewGroupIn, group: Group, request: Creation) -> None:
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


def _root(rota: Rota, job: str, request: Creation) -> str:
    try:
        return rota.acting_as(request.reader).jobs.get(job).root_id
    except NotFound:
        return job
