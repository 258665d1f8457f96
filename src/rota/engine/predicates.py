"""Ready is not yet allowed: what must hold before a QUEUED job may start, each as one object.

The dispatcher asks them when it claims and `explain` asks the same ones, in the same order, so the two can't disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from rota.model.handler import Place
from rota.model.lanes import ParamNames, fits, signature
from rota.model.overview import Why
from rota.model.templates import Rate
from rota.model.values import Claimed, Held, number_text
from rota.ports.turns import Starts, Usage


class Waiting(msgspec.Struct, frozen=True):
    """What the predicates look at of a job. Fields left None are not known yet and block nothing."""

    job_type: str
    organization_id: str | None = None
    crashes: int = 0
    """How often a worker crashed under it. Above 0 the job is a suspect."""
    queue: str | None = None
    names: ParamNames | None = None
    """What it was enqueued for, or else the names of its params."""


class Suspect(msgspec.Struct, frozen=True):
    """A suspect that runs, under the number people see."""

    number: str
    alone: bool
    """No process can import its handler: it runs in the worker, and nothing is started there until it finishes."""


class InUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the limits are measured against."""

    by_type: Mapping[str, int] = {}
    """RUNNING jobs of all workers."""
    by_organization: Mapping[str, int] = {}
    starts: Mapping[str, Starts] = {}
    here: Mapping[str, int] = {}
    """What the worker itself (in explain, every worker that has the handler) holds, by type."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """What one live worker serves."""

    types: frozenset[str]
    queues: frozenset[str] | None = None
    takes: Mapping[str, ParamNames] = {}
    """The parameters of its handlers, where they are known."""

    def serves(self, job: Waiting) -> bool:
        """Say whether it has the job's handler and serves its queue."""
        return job.job_type in self.types and (self.queues is None or job.queue is None or job.queue in self.queues)


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What the answers depend on."""

    types: frozenset[str]
    """Job types that the worker (or, in explain, any live worker) can run."""
    fleet: tuple[Server, ...] = ()
    """What each live worker serves (in explain); empty: not asked."""
    pauses: frozenset[tuple[str, str]] = frozenset()
    broken: frozenset[str] = frozenset()
    """Templates that can't be read: nobody knows what limits their jobs."""
    suspended: frozenset[str] = frozenset()
    """Organizations."""
    template_limits: Mapping[str, int] = {}
    organization_limits: Mapping[str, int] = {}
    rates: Mapping[str, Rate] = {}
    concurrency: Mapping[str, int] = {}
    """How many of a type the worker (in explain, all that have the handler) may hold."""
    in_use: InUse = InUse()
    suspects: Mapping[str, Suspect] = {}
    """By job type: the suspect that runs on the worker (in explain: on all workers that have the handler, and one of theirs)."""
    unready: frozenset[str] = frozenset()
    """Types whose suspects wait for a handler process that is still starting."""
    inside: Mapping[str, str] = {}
    """Types whose suspects run in the worker because no process can import their handler, with the executor of each."""


class Predicate(msgspec.Struct, frozen=True):
    """One condition."""

    name: str
    why: Why
    """The reason under which jobs that it blocks are counted."""
    blocked_by: Callable[[Waiting, World], str | None]
    """Returns who or what blocks a job, or None."""
    parks: bool = False
    """Whether a blocked row leaves the ready index, so that no claim meets it again until this changes."""


class Limit(msgspec.Struct, frozen=True):
    """A condition that is a number: so many, and no more."""

    name: str
    kind: str
    room: Callable[[Waiting, World], int | None]
    """Returns how many more of this kind may start; None: as many as like."""
    parks: bool = True
    of_type: bool = True
    """All rows of a type share it, whatever their organization."""
    why: Why = Why.LIMIT

    def word(self, job: Waiting) -> str:
        """Return what it is that this kind shares."""
        return f"{self.kind}:{job.job_type if self.of_type else job.organization_id}"

    def blocked_by(self, job: Waiting, world: World) -> str | None:
        """Name what is full."""
        room = self.room(job, world)
        return None if room is None or room > 0 else self.word(job)


def _type_without_worker(job: Waiting, world: World) -> str | None:
    """Name the type that nobody runs."""
    return None if job.job_type in world.types else f"type:{job.job_type}"


def _unserved_queue(job: Waiting, world: World) -> str | None:
    """Name the queue that no worker serves that has the handler."""
    if job.queue is None or not world.fleet or any(server.serves(job) for server in world.fleet):
        return None
    return f"queue:{job.queue}"


def _untaken_params(job: Waiting, world: World) -> str | None:
    """Show what the job was enqueued for, and what the handlers of live workers that serve it take."""
    names = job.names
    servers = [server for server in world.fleet if server.serves(job)]
    if names is None or not servers:
        return None
    takes = [server.takes.get(job.job_type) for server in servers]
    if any(each is None or fits(each, names) for each in takes):
        return None
    known = dict.fromkeys(signature(job.job_type, each) for each in takes if each is not None)
    return f"params:{signature(job.job_type, names)}, and live workers have {', '.join(known)}"


def _pause(job: Waiting, world: World) -> str | None:
    """Name the pause of everything, of its template or of its queue, or the template that can't be read."""
    if ("all", "") in world.pauses:
        return "all:"
    if job.job_type in world.broken:
        return f"broken:{job.job_type}"
    if ("template", job.job_type) in world.pauses:
        return f"template:{job.job_type}"
    return f"paused-queue:{job.queue}" if ("queue", job.queue) in world.pauses else None


def _closed_organization(job: Waiting, world: World) -> str | None:
    """Name the organization that is paused or suspended."""
    name = job.organization_id
    if name is None:
        return None
    if ("organization", name) in world.pauses:
        return f"{Held.ORGANIZATION}:{name}"
    return f"{Held.SUSPENDED}:{name}" if name in world.suspended else None


def _suspect_in_the_way(job: Waiting, world: World) -> str | None:
    """Name the suspect that runs. One runs at a time on a worker: beside other jobs in a process of its own, or alone in the worker."""
    suspect = world.suspects.get(job.job_type)
    if suspect is not None and (suspect.alone or job.crashes):
        return f"{'alone' if suspect.alone else 'suspect'}:{suspect.number}"
    return "process:" if job.crashes and job.job_type in world.unready else None


def _template_room(job: Waiting, world: World) -> int | None:
    """Return how many more of the template may run, on all workers together."""
    limit = world.template_limits.get(job.job_type)
    return None if limit is None else limit - world.in_use.by_type.get(job.job_type, 0)


def _organization_room(job: Waiting, world: World) -> int | None:
    """Return how many more of the organization may run."""
    name = job.organization_id
    limit = None if name is None else world.organization_limits.get(name)
    return None if limit is None else limit - world.in_use.by_organization.get(str(name), 0)


def _rate_room(job: Waiting, world: World) -> int | None:
    """Return how many more of the template may start now, inside the window of its rate."""
    rate, starts = world.rates.get(job.job_type), world.in_use.starts.get(job.job_type)
    return None if rate is None else rate.count - (starts.count if starts is not None else 0)


def _worker_room(job: Waiting, world: World) -> int | None:
    """Return how many more of the template this worker may take. Another worker may have room: nothing is parked."""
    limit = world.concurrency.get(job.job_type)
    return None if limit is None else limit - world.in_use.here.get(job.job_type, 0)


RUNNABLE_TYPE = Predicate("a worker has its handler", Why.NO_WORKER, _type_without_worker)
NOTHING_PAUSED = Predicate("not paused", Why.PAUSED, _pause)
ORGANIZATION_OPEN = Predicate("organization open", Why.PAUSED, _closed_organization, parks=True)
QUEUE_SERVED = Predicate("a worker serves its queue", Why.NO_WORKER, _unserved_queue)
PARAMS_TAKEN = Predicate("a worker takes its parameters", Why.NO_WORKER, _untaken_params)
TEMPLATE_LIMIT = Limit("template below its limit", Held.TEMPLATE_LIMIT, _template_room)
ORGANIZATION_LIMIT = Limit("organization below its limit", Held.ORGANIZATION_LIMIT, _organization_room, of_type=False)
RATE_LIMIT = Limit("rate limit has room", Held.RATE_LIMIT, _rate_room)
WORKER_LIMIT = Limit("a worker has room for its template", "concurrency", _worker_room, parks=False)
NO_SUSPECT = Predicate("no suspect in its way", Why.SUSPECT, _suspect_in_the_way)

OPEN = (RUNNABLE_TYPE, NOTHING_PAUSED, ORGANIZATION_OPEN, QUEUE_SERVED, PARAMS_TAKEN)
LIMITS = (TEMPLATE_LIMIT, ORGANIZATION_LIMIT, RATE_LIMIT, WORKER_LIMIT)
EACH = (NO_SUSPECT,)
"""Those whose answer depends on the job itself, not only on its type and organization."""
PREDICATES: tuple[Predicate | Limit, ...] = (*OPEN, *LIMITS, *EACH)


def first_block(job: Waiting, world: World, predicates: Sequence[Predicate | Limit] = PREDICATES) -> tuple[Predicate | Limit, str] | None:
    """Return the first predicate that does not hold, and what blocks."""
    for predicate in predicates:
        blocker = predicate.blocked_by(job, world)
        if blocker is not None:
            return predicate, blocker
    return None


def in_use(usage: Usage, here: Mapping[str, int]) -> InUse:
    """Return what a store counted, added up by type and by organization."""
    by_type: dict[str, int] = {}
    by_organization: dict[str, int] = {}
    for (organization, job_type), count in usage.running.items():
        by_type[job_type] = by_type.get(job_type, 0) + count
        by_organization[organization] = by_organization.get(organization, 0) + count
    return InUse(by_type=by_type, by_organization=by_organization, starts=usage.starts, here=here)


def suspect_of(job: Claimed) -> Suspect:
    """Return a suspect that a worker has claimed."""
    return Suspect(number_text(job.root_id, job.root_number, job.attempt), alone=job.executor != Place.PROCESS)
