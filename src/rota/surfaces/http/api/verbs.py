"""Endpoints that no operation of a noun has: the verbs of a Rota itself, logs, the scheduler of this process, and its health."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Protocol, Unpack

import msgspec
from msgspec import Meta
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rota.app import Rota
from rota.compat.faces import background_job
from rota.compat.faces import background_job_log as background_job_log_of
from rota.engine.explain import Explanation
from rota.errors import InvalidOption, Refused, StoreUnavailable
from rota.faces.background_job import BackgroundJob, ExecutionLogEntry
from rota.lab.forecasts import Forecast, SchedulePlan
from rota.model.checks import CENTURY_S, whole
from rota.model.gate import Actor, Right
from rota.model.overview import Overview
from rota.model.schedule_options import ScheduleOptions
from rota.model.shapes import Organization, Shape
from rota.model.values import LogEntry
from rota.operation import Ask
from rota.resources.jobs import Ref
from rota.resources.schedules import ScheduleName, SomeSchedule, Whose
from rota.results import line
from rota.surfaces.http.api.endpoint import Asked, by_hand, route
from rota.surfaces.http.api.requests import refuse_query
from rota.surfaces.http.api.results import Answer, Paused
from rota.surfaces.http.openapi import gives, query, refuses
from rota.surfaces.http.streams import OVER, LogStream

PLAIN = "text/plain"
LAST_MAX = 100_000
NO_WORKER = "this process serves HTTP and has no worker of its own: start one with `rota worker`, or begin with `rota up`"


@by_hand("overview", Right.READ, "GET /overview", tag="Overview")
def overview(asked: Asked, ask: Ask) -> Overview:  # noqa: ARG001 - the gate is asked by making it
    """Return the first screen: whether all is well, what did not run, what is stuck and why, what is running, and what comes next.

    It shows what the caller may see, and is cheap however many jobs there are: large numbers are counted up to a bound, and marked as
    `more`.
    """
    return asked.rota.overview()


@by_hand("explain", Right.READ, "GET /jobs/{job}/explain", tag="Jobs")
def explain(asked: Asked, ask: Ask, job: Ref) -> Explanation:  # noqa: ARG001 - as above
    """Explain why the live job of this chain does not run yet, condition by condition, or how the chain ended."""
    return asked.rota.explain(job)


@by_hand("forecast", Right.READ, "GET /forecast", tag="Schedules")
def forecast(
    asked: Asked,
    ask: Ask,  # noqa: ARG001 - as above
    *,
    hours: Annotated[float | None, Shape("How many hours, from now or from `start`. Default: 24.", 24)] = None,
    start: Annotated[datetime | None, Shape("After this moment. Default: now.")] = None,
    end: Annotated[datetime | None, Shape("Up to and including this moment, instead of `hours`.")] = None,
    schedule: SomeSchedule = None,
    skipped: Annotated[bool, Shape("Include what will not run, with the reason.")] = False,
    organization: Whose = None,
    limit: Annotated[int, Shape("Maximum number of due times.", 1000)] = 1000,
) -> Forecast:
    """Return what is due in the coming hours or between two moments, and when it will probably start. See the guide on schedules."""
    return asked.rota.forecast(hours, start=start, end=end, schedule=schedule, skipped=skipped, organization=organization, limit=limit)


@by_hand("plan", Right.READ, "POST /schedules/{name}/plan", tag="Schedules")
def plan(
    asked: Asked,
    ask: Ask,  # noqa: ARG001 - as above
    name: ScheduleName,
    *,
    days: Annotated[int, Shape("How many days ahead.", 30)] = 90,
    organization: Whose = None,
    **options: Unpack[ScheduleOptions],
) -> SchedulePlan:
    """Return the due times of the coming days that a change would add and remove. Nothing is changed."""
    return asked.rota.plan(name, days=days, organization=organization, **options)


# ---- logs ------------------------------------------------------------------------------------------------------------


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
    return LogStream(asked.request, asked.who, job)


@by_hand("jobs.background_job", Right.READ, "GET /jobs/{job}/background-job", tag="Jobs")
def as_background_job(asked: Asked, ask: Ask, job: Ref) -> BackgroundJob:  # noqa: ARG001 - the Ask is all it needs
    """Return the chain of this job as one Background Job, with the fields and words of that engine."""
    return background_job(ask, str(job))


@by_hand("jobs.background_job_log", Right.READ_LOG, "GET /jobs/{job}/background-job/log", tag="Jobs")
def background_job_log(asked: Asked, ask: Ask, job: Ref) -> list[ExecutionLogEntry]:  # noqa: ARG001 - as above
    """Return the execution log of that Background Job, over all its attempts."""
    return background_job_log_of(ask, str(job))


@by_hand("webhooks.rotate_organization", Right.WEBHOOKS, "POST /webhook-secret", tag="Webhooks", status=201)
def rotate_organization(asked: Asked, ask: Ask, *, organization: Organization = None) -> str:  # noqa: ARG001 - the gate is asked by making it
    """Replace the secret that signs the messages of single jobs, and return it, once. The previous one signs too for a while."""
    return asked.rota.webhooks.rotate(organization=organization)


# ---- the scheduler of this process -----------------------------------------------------------------------------------


class LocalWorker(Protocol):
    """The worker of the process that serves, where it has one: `app.state.worker`. Starting and stopping twice is once."""

    @property
    def running(self) -> bool:
        """Say whether it turns."""

    def start(self, *, actor: Actor) -> None:
        """Begin to take jobs."""

    def stop(self, *, actor: Actor) -> None:
        """Take no more jobs, and let those that run finish meanwhile."""


class SchedulerStatus(msgspec.Struct, kw_only=True, frozen=True):
    """Whether work goes on."""

    paused: bool
    """Everything is."""
    pauses: list[Paused]
    """What is paused, as far as you may see it."""
    workers: int | None
    """How many are registered; null: that is not yours to see."""
    here: bool | None
    """Whether this process's own worker takes jobs; null: it has none."""


class RetentionStatus(msgspec.Struct, kw_only=True, frozen=True):
    """What retention would remove now."""

    retention_s: float
    """How long ended chains are kept; 0: for ever."""
    chains: int
    jobs: int
    kept: int
    """Chains that are old enough, and that others still need."""


@by_hand("scheduler.get", Right.READ, "GET /scheduler", tag="Scheduler")
def status(asked: Asked, ask: Ask) -> SchedulerStatus:
    """Return what is paused, how many workers there are, and whether this process runs one."""
    pauses = [Paused(kind, name) for kind, name in asked.rota.store.pauses()]
    workers = None if ask.may(Right.OPERATE) is None else len(asked.rota.workers.list())
    local: LocalWorker | None = getattr(asked.request.app.state, "worker", None)
    here = None if local is None or workers is None else local.running
    return SchedulerStatus(paused=any(each.kind == "all" for each in pauses), pauses=pauses, workers=workers, here=here)


@by_hand("scheduler.start", Right.OPERATE, "POST /scheduler/start", tag="Scheduler")
def start(asked: Asked, ask: Ask) -> SchedulerStatus:
    """Let the worker of the process that serves take jobs again; 409 if it has none. Once more changes nothing."""
    _here(asked).start(actor=asked.who)
    return status(asked, ask)


@by_hand("scheduler.stop", Right.OPERATE, "POST /scheduler/stop", tag="Scheduler")
def stop(asked: Asked, ask: Ask) -> SchedulerStatus:
    """Let the worker of the process that serves take no more jobs; those that run may finish. HTTP stays. Once more changes nothing."""
    _here(asked).stop(actor=asked.who)
    return status(asked, ask)


@by_hand("scheduler.retention", Right.OPERATE, "GET /scheduler/retention", tag="Scheduler")
def retention(
    asked: Asked,
    ask: Ask,
    *,
    older_than: Annotated[
        timedelta | float | None, Shape("Time since the end of a chain. Default: the setting `retention`.", "7d", wire=float | str)
    ] = None,
    trust_clock: Annotated[bool, Shape("Count also if the clock is in doubt.")] = False,
) -> RetentionStatus:
    """Count what is older than it is kept. Nothing is removed: workers do that on their own, a little at a time.

    409 (`clock_in_doubt`) if the clock is far past the last moment at which it was trusted: workers delete nothing by age then.
    """
    kept_s = ask.settings.retention
    # Where everything is kept for ever, nothing is old enough.
    age = (kept_s or CENTURY_S) if older_than is None else older_than
    found = asked.rota.store.purge(older_than=age, dry_run=True, trust_clock=trust_clock)
    return RetentionStatus(retention_s=kept_s, chains=found.chains, jobs=found.jobs, kept=found.kept)


def _here(asked: Asked) -> LocalWorker:
    found: LocalWorker | None = getattr(asked.request.app.state, "worker", None)
    if found is None:
        raise Refused(NO_WORKER)
    return found


# ---- health: the two questions of a load balancer --------------------------------------------------------------------


class ProcessHealth(msgspec.Struct, frozen=True):
    """The answer of a process that is well."""

    status: str = "ok"


class StoreHealth(msgspec.Struct, frozen=True):
    """The answer of a process that can read its store."""

    status: str
    """`ok`; `overdue` if that was asked about and due times are."""
    overdue: int
    """Due times of schedules that should have run and have no recorded outcome for longer than `lease_ttl`."""


@route("health.get", "Health", "GET /health", responses=gives(ProcessHealth, what="It does.") | refuses(InvalidOption), is_open=True)
async def health(_request: Request) -> Response:
    """Say that the process lives. Nothing is looked at."""
    return Answer(ProcessHealth())


NOT_READY = refuses(StoreUnavailable)[503]
NOT_READY["content"] |= gives(StoreHealth)[200]["content"]


@route(
    "health.ready",
    "Health",
    "GET /ready",
    parameters=[query("schedules", {"type": "boolean"}, "Answer 503 also if due times of schedules are overdue.")],
    responses=gives(StoreHealth, what="It can.") | refuses(HTTPStatus.UNPROCESSABLE_ENTITY) | {503: NOT_READY},
    is_open=True,
)
async def ready(request: Request) -> Response:
    """Say that the store can be read, 503 otherwise, and how many due times are overdue.

    Those should have run, and no worker has recorded an outcome for longer than `lease_ttl`.
    """
    refuse_query(request, "schedules")
    given = request.query_params.get("schedules", "false")
    if given.lower() not in {"true", "false", "1", "0"}:
        raise HTTPException(422, f"query.schedules: {given[:40]!r} is neither true nor false")
    return await run_in_threadpool(_ready, request.app.state.rota, given.lower() in {"true", "1"})


def _ready(rota: Rota, schedules: bool) -> Response:  # noqa: FBT001 - of this module alone
    rota.store.pauses()
    overdue = sum(each.expected for each in rota.schedules.overdue())
    late = schedules and overdue > 0
    return Answer(StoreHealth(status="overdue" if late else "ok", overdue=overdue), status_code=503 if late else 200)
