"""Creating a job: the request that is made most. Those that come at the same time share a commit."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rota import errors
from rota.app import Rota
from rota.model.gate import Actor
from rota.model.values import Job
from rota.operation import session_of
from rota.submission import submit, submit_each
from rota.surfaces.http.access import door_of
from rota.surfaces.http.answers import ACTOR, Answer
from rota.surfaces.http.api import keys
from rota.surfaces.http.api.hand import route, takes
from rota.surfaces.http.api.keys import REPLAYED
from rota.surfaces.http.api.requests import in_body, json_body, read, refuse_query
from rota.surfaces.http.api.shapes import BulkJobIn, NewJobIn
from rota.surfaces.http.intake import intake_of
from rota.surfaces.http.openapi import gives, refuses

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


@route(
    "jobs.create",
    "Jobs",
    "POST /jobs",
    parameters=[keys.KEY],
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
    body, key = await json_body(request), keys.key_of(request)
    if key is None:
        answer = await intake_of(request).line(_create_together).do((request, body))
        if answer is not None:
            return answer
    return await intake_of(request).do(partial(_create, request, body, key))


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
        return _create_once(rota, new, who, keys.Request(who, "job", key, body))
    with in_body():
        job = submit(session_of(rota), who, new.name, new.params, **options_of(new)).job()
    return Answer(job, status_code=200 if job.existing else 201)


def _create_once(rota: Rota, new: NewJobIn, who: Actor, request: keys.Request) -> Response:
    ids = request.ids(rota.now)
    job = keys.made(rota, request, ids)
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
