"""The scheduler: whether work goes on, pauses, this process's own worker, recovery and retention."""

from __future__ import annotations

from typing import Annotated, Protocol

import msgspec
from fastapi import Query, Request
from pydantic import ConfigDict

from rota.app import Rota
from rota.engine.recovery import Recovered
from rota.errors import NotFound, PermissionDenied, Refused
from rota.model.checks import CENTURY_S
from rota.model.gate import Actor
from rota.surfaces.http.access import Served, Who, answered
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.bodies import Body, Name
from rota.surfaces.http.api.missing import named_in_path
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives, refuses
from rota.surfaces.pauses import set_pause

router = strict_router("Scheduler", "/scheduler")

NO_WORKER = "this process serves HTTP and has no worker of its own: start one with `rota worker`, or begin with `rota up`"


class LocalWorker(Protocol):
    """The worker of the process that serves, where it has one: `app.state.worker`. Starting and stopping twice is once."""

    @property
    def running(self) -> bool:
        """Say whether it turns."""

    def start(self, *, actor: Actor) -> None:
        """Begin to take jobs."""

    def stop(self, *, actor: Actor) -> None:
        """Take no more jobs, and let those that run finish meanwhile."""


class Paused(msgspec.Struct, frozen=True):
    """Something that is paused."""

    kind: str
    """`all`, `template`, `organization` or `queue`."""
    name: str


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


class PauseOf(Body):
    """What is meant: a template, an organization, a queue or, none given, everything."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"template": "send_email"}, {"organization": "acme"}, {"queue": "mail"}, {}]})

    template: Name | None = None
    organization: Name | None = None
    queue: Name | None = None


STATUS = gives(SchedulerStatus, what="How things stand.")


@router.get("", summary="Get the scheduler's status", responses=STATUS)
def status(request: Request, rota: Served, who: Who) -> Answer:
    """Say whether work goes on: what is paused, how many workers there are, and whether this process has one."""
    return Answer(_status(request, rota, who))


@router.post("/pause", summary="Pause", responses=STATUS | refuses(NotFound))
def pause(request: Request, rota: Served, who: Who, *, body: PauseOf | None = None) -> Answer:
    """Let nothing of a template, of an organization or at all start until it is resumed. What runs goes on. Again: nothing more."""
    with named_in_path():
        set_pause(rota.acting_as(who), paused=True, **(body.given() if body else {}))
    return Answer(_status(request, rota, who, seen_by=answered(who)))


@router.post("/resume", summary="Resume", responses=STATUS | refuses(NotFound))
def resume(request: Request, rota: Served, who: Who, *, body: PauseOf | None = None) -> Answer:
    """End a pause. Again: nothing more."""
    with named_in_path():
        set_pause(rota.acting_as(who), paused=False, **(body.given() if body else {}))
    return Answer(_status(request, rota, who, seen_by=answered(who)))


@router.post("/start", summary="Start this process's worker", responses=STATUS | refuses(Refused))
def start(request: Request, rota: Served, who: Who) -> Answer:
    """Let the worker of the process that serves take jobs again; 409 if it has none. Again: nothing more."""
    _here(request, rota, who).start(actor=who)
    return Answer(_status(request, rota, who))


@router.post("/stop", summary="Stop this process's worker", responses=STATUS | refuses(Refused))
def stop(request: Request, rota: Served, who: Who) -> Answer:
    """Let the worker of the process that serves take no more jobs; those that run may finish. HTTP stays. Again: nothing more."""
    _here(request, rota, who).stop(actor=who)
    return Answer(_status(request, rota, who))


@router.post("/recover", summary="Recover now", responses=gives(Recovered, what="What was done."))
def recover(rota: Served, who: Who) -> Answer:
    """End what dead workers left behind, now. Workers do this by themselves. Again: nothing more."""
    return Answer(rota.acting_as(who).store.recover())


@router.get("/retention", summary="See what retention would remove", responses=gives(RetentionStatus) | refuses(Refused))
def retention(
    rota: Served,
    who: Who,
    *,
    older_than: Annotated[
        float | None, Query(ge=0, le=CENTURY_S, description="Seconds since the end of a chain; else the setting `retention`.")
    ] = None,
    trust_clock: Annotated[bool, Query(description="Count also if the clock is in doubt.")] = False,
) -> Answer:
    """Count what is older than it is kept. Nothing is removed: workers do that on their own, a little at a time.

    409 (`clock_in_doubt`) if the clock is far past the last moment at which it was trusted: workers delete nothing by age then.
    """
    kept_s = rota.settings.retention
    # Where everything is kept for ever, nothing is old enough.
    age_s = (kept_s or CENTURY_S) if older_than is None else older_than
    found = rota.acting_as(who).store.purge(older_than=age_s, dry_run=True, trust_clock=trust_clock)
    return Answer(RetentionStatus(retention_s=kept_s, chains=found.chains, jobs=found.jobs, kept=found.kept))


def _status(request: Request, rota: Rota, who: Actor, *, seen_by: Actor | None = None) -> SchedulerStatus:
    pauses = [Paused(kind, name) for kind, name in rota.acting_as(seen_by or who).store.pauses()]
    try:
        workers: int | None = len(rota.acting_as(who).workers.list())
    except PermissionDenied:
        workers = None
    local: LocalWorker | None = getattr(request.app.state, "worker", None)
    here = None if local is None or workers is None else local.running
    return SchedulerStatus(paused=any(each.kind == "all" for each in pauses), pauses=pauses, workers=workers, here=here)


def _here(request: Request, rota: Rota, who: Actor) -> LocalWorker:
    rota.acting_as(who).workers.list()  # who may not see workers learns nothing of this one either
    found: LocalWorker | None = getattr(request.app.state, "worker", None)
    if found is None:
        raise Refused(NO_WORKER)
    return found
