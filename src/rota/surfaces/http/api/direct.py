"""Direct execution: one job ahead of the queue, and its run as the answer."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from rota import errors
from rota.app import Rota
from rota.errors import DuplicateId, JobCancelled, JobSkipped, ResourceBusy, WaitTimeout
from rota.model.gate import Actor
from rota.model.values import Run
from rota.surfaces.http.api.endpoint import route
from rota.surfaces.http.api.jobs import DirectIn
from rota.surfaces.http.api.requests import JSON, KEY, REPLAYED, Creation, body_type, key_of, read, refuse_query
from rota.surfaces.http.api.results import Answer, shown
from rota.surfaces.http.intake import Intake
from rota.surfaces.http.openapi import gives, refuses, takes
from rota.surfaces.http.problems import problem

T = TypeVar("T")


@route(
    "jobs.direct",
    "Jobs",
    "POST /direct",
    parameters=[KEY],
    content=takes(DirectIn),
    responses={
        **gives(Run),
        **refuses(errors.UnknownTemplate, errors.InvalidParams, errors.ResourceBusy, errors.WaitTimeout),
    },
)
async def run(request: Request) -> Response:
    """Run a job ahead of the queue and return its run, however it ended. `timeout` limits the wait for a slot.

    If nobody can run it now (no worker has the handler, or it is paused), it is refused at once with 409.
    If it takes longer than the setting `http_direct_wait`, the answer is 504 with the `job_id` under which it continues.
    """
    refuse_query(request)
    body_type(request, JSON)
    body, key = await request.body(), key_of(request)
    state = request.app.state
    intake: Intake[Any, Any] = state.intake
    rota: Rota = state.rota
    who, new = await intake.do(lambda: (state.door.who(request), read(body, DirectIn)))
    # Without a key it has one that nobody will guess: its id is told before it is made.
    asked = Creation(who, "direct", key or secrets.token_hex(16), body)
    ids = asked.ids(rota.now)
    before = await intake.do(lambda: asked.made(rota, ids)) if key else None
    if before is not None:
        return await _waited(request, who, before.id, lambda: _again(rota, asked, before.id), replayed=True)
    meta = asked.meta if key else None
    return await _waited(request, who, ids[0], lambda: _run(rota, new, asked, ids[0], meta))


def _run(rota: Rota, new: DirectIn, asked: Creation, job_id: str, meta: dict[str, str] | None) -> Run:
    try:
        return rota.acting_as(asked.who).jobs.direct(
            new.name, new.params, timeout=new.timeout, job_id=job_id, meta=meta, organization=new.organization
        )
    except DuplicateId:
        return _again(rota, asked, job_id)


def _again(rota: Rota, asked: Creation, job_id: str) -> Run:
    """Return what became of the same request that came before."""
    asked.refuse_other(rota.acting_as(asked.reader).jobs.get(job_id))
    try:
        return rota.acting_as(asked.reader).wait(job_id, rota.settings.http_direct_wait)
    except (JobCancelled, JobSkipped) as error:
        if error.run is None:
            raise ResourceBusy(
                f"the direct execution {job_id} ended without a run: no slot became free in time, or it was cancelled"
            ) from None
        run: Run = error.run
        return run


async def _waited(request: Request, who: Actor, job_id: str, work: Callable[[], Run], *, replayed: bool = False) -> Response:
    """Wait for a run, for a bounded time and while the caller's key is open; the job continues without us."""
    settings = request.app.state.rota.settings
    wait_s, room = settings.http_direct_wait, request.app.state.intake.room
    if not room.acquire(blocking=False):
        raise ResourceBusy(f"{settings.http_direct_max} direct executions are waited for already (setting http_direct_max): try again")
    done = start(work, room)
    with request.app.state.streams.holding(request, who, asyncio.Event()) as held:
        lost = asyncio.create_task(held.lost.wait())
        ends: list[asyncio.Future[Any]] = [done, lost]
        await asyncio.wait(ends, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
    if held.refused is not None:
        raise held.refused
    if not done.done() or isinstance(done.exception(), TimeoutError):
        detail = f"{job_id} has not ended within {wait_s:g} s; it goes on: look at its run later"
        return problem(504, WaitTimeout.code, detail, job_id=job_id)
    return Answer(shown(done.result()), headers=REPLAYED if replayed else None)


def start(work: Callable[[], T], room: threading.Semaphore) -> asyncio.Future[T]:
    """Begin work on a thread of its own, which may outlive the request: nobody waits for it when the process ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    done.add_done_callback(lambda each: each.cancelled() or each.exception())

    def run() -> None:
        try:
            found = work()
        except BaseException as error:  # noqa: BLE001 - the request raises it
            tell(partial(done.set_exception, error))
        else:
            tell(partial(done.set_result, found))
        finally:
            room.release()

    def tell(news: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the server has stopped meanwhile
            loop.call_soon_threadsafe(lambda: None if done.done() else news())

    threading.Thread(target=run, name="rota-direct", daemon=True).start()
    return done
