"""The scheduler as this server sees it: pauses, its own worker, and what retention would remove."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Protocol

import msgspec

from rota.errors import PermissionDenied, Refused
from rota.model.checks import CENTURY_S
from rota.model.gate import Actor, Right
from rota.model.shapes import Shape
from rota.operation import Ask
from rota.surfaces.http.api.endpoint import Asked, by_hand
from rota.surfaces.http.api.results import Paused

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
def status(asked: Asked, ask: Ask) -> SchedulerStatus:  # noqa: ARG001 - the gate is asked by making it
    """Return what is paused, how many workers there are, and whether this process runs one."""
    pauses = [Paused(kind, name) for kind, name in asked.rota.store.pauses()]
    try:
        workers: int | None = len(asked.rota.workers.list())
    except PermissionDenied:
        workers = None
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
