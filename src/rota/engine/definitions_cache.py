"""What a worker knows of the definitions: which types and lanes it may claim, what is limited, and which jobs may not run at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from rota.engine.parts import Parts
from rota.engine.predicates import Server, Waiting, World, first_block
from rota.engine.registry import Registry
from rota.errors import InvalidParams
from rota.model.codec import digest_of
from rota.model.decide import Failed, Released
from rota.model.definitions import OrganizationState
from rota.model.gate import Actor, may_use
from rota.model.lanes import JobLane, ParamNames, Takes, fits, signature
from rota.model.params import EMPTY, decode_params
from rota.model.values import SECOND, Claimed, Held, Instant, Origin, WorkerInfo
from rota.ports.store import Store
from rota.ports.turns import Counting

ORGANIZATION_GONE = "Organization not found"
LOOKS = 20
"""How often in `misfit_patience` lanes are looked at that this worker does not take."""
LANES_MAX = 200
"""Lanes of one type, at most, that given back jobs add to: what strangers make up has an end."""
RIPE_MAX = 100
"""Jobs that are taken out of such lanes at once."""


class DefinitionsCache:
    """The definitions as of one version. Belongs to the worker's thread."""

    def __init__(self, parts: Parts, misfits: Misfits, inside: Callable[[], Mapping[str, str]]) -> None:
        """Know nothing yet; `inside` says which types no handler process can import, and where their handlers run."""
        self._parts = parts
        self._misfits = misfits
        self._inside = inside
        self._lanes: dict[int, str] = {}
        self.version = -1
        self.world = World(types=frozenset(parts.handlers))
        self._types: tuple[str, ...] = ()
        self._counting = Counting(running=False)
        self.living: frozenset[str] = frozenset()
        """Organizations whose jobs may run."""
        self.guarded: dict[str, str] = {}
        """The permission that a job type requires."""

    def learn(self, now: Instant) -> None:
        """Read the definitions anew; what was known rests on an older version."""
        store, registry, serving = self._parts.store, self._parts.registry, self._parts.serving
        registry.sync(store, now)
        registry.import_named(store, now)
        # First: if others change something while we read, the older version makes the next turn read again.
        version = registry.version
        types, inside = frozenset(filter(serving.takes, self._parts.handlers)), self._inside()
        world = make_world(registry, store, types)
        self.world = world = msgspec.structs.replace(world, unready=types - inside.keys(), inside=inside)
        # The types worth asking the store for, and their lanes in the queues that this worker serves.
        self._types = runnable_types(world)
        paused = {name for kind, name in world.pauses if kind == "queue"}
        asked = frozenset(self._types)
        self._lanes = self._misfits.sort(
            [lane for lane in registry.lanes.values() if lane.job_type in asked and lane.queue not in paused and serving.serves(lane.queue)]
        )
        self._counting = counting_of(world)
        self.living = frozenset(each.name for each in registry.organizations.values() if each.state is not OrganizationState.REMOVED)
        known = registry.known()
        self.guarded = {each.name: each.force.requires_permission for each in known if each.force.requires_permission is not None}
        self.version = version

    def wanted(self, here: Mapping[str, int]) -> tuple[tuple[str, ...], dict[int, str]]:
        """Return the types worth asking for, and the lanes, each with its type: those of which as many are held as may be are left out."""
        most = self.world.concurrency
        if not most:
            return self._types, self._lanes
        full = {name for name, limit in most.items() if here.get(name, 0) >= limit}
        return (
            tuple(name for name in self._types if name not in full),
            {lane: name for lane, name in self._lanes.items() if name not in full},
        )

    def counting(self, *, sweep: bool, within: Instant) -> Counting | None:
        """Return what the next turn must count; None where nothing is limited. `within`: how long after it a start may come."""
        if sweep or self._counting.rates:
            return msgspec.structs.replace(self._counting, sweep=sweep, within=within)
        return self._counting if self._counting.running else None

    def bars(self, job: Claimed) -> Failed | None:
        """Return why a job that was claimed must not run: its organization was removed, or its owner lost the permission."""
        if job.organization_id not in self.living:
            return Failed(ORGANIZATION_GONE, permanent=True)
        permission, user = self.guarded.get(job.job_type), self._parts.registry.users.get(job.owner)
        # An owner that the store does not know: a program that knows its users has vouched for it at submission.
        if permission is None or user is None:
            return None
        if not user.removed and may_use(Actor(user.name, user.organization, user.role, frozenset(user.permissions)), permission):
            return None
        return Failed(f"owner {job.owner!r} lacks the permission {permission!r} that template {job.job_type!r} requires", permanent=True)


class Misfits:
    """The lanes that this worker's handlers do not take: left to workers that do, for as long as one may come.

    During a rolling deploy two versions of the code enqueue and run side by side. A job carries the digest of the parameters that it
    was enqueued for, and waits in a lane of its own. A worker claims from the lanes that its handlers take. A job without a digest is
    compared with the handler when it is claimed; one that does not fit is given back, and from then on waits for its parameters too.
    Belongs to the worker's thread.
    """

    def __init__(self, parts: Parts) -> None:
        """Know of none yet."""
        self._parts = parts
        self._lanes: dict[int, JobLane] = {}
        self._undigested: frozenset[int] = frozenset()
        self.watched: frozenset[int] = frozenset()
        """Lanes whose jobs are compared with their handlers before they start."""
        self._counts: dict[str, int] = {}
        self._alone_since: dict[int, float] = {}
        self._looked = parts.clock.monotonic()
        self.ripe: tuple[int, ...] = ()
        """Jobs for which no fitting worker has come for `misfit_patience`: this worker is to take them, and to see."""

    def sort(self, lanes: Collection[JobLane]) -> dict[int, str]:
        """Take in the lanes that this worker serves; return those that its handlers take, each with its type."""
        taken: dict[int, str] = {}
        self._lanes, self._counts = {}, {}
        for lane in lanes:
            self._counts[lane.job_type] = self._counts.get(lane.job_type, 0) + 1
            handler = self._parts.handlers[lane.job_type]
            if lane.names is None or fits(handler.codec.names, lane.names):
                taken[lane.id] = lane.job_type
            else:
                self._lanes[lane.id] = lane
        self._undigested = frozenset(lane.id for lane in lanes if not lane.digest)
        self.watched = self._undigested.union(self._lanes)
        self._alone_since = {lane: since for lane, since in self._alone_since.items() if lane in self._lanes}
        return taken

    def look(self, monotonic: float) -> bool:
        """Look, now and then, whether somebody takes what this worker does not; say whether there are jobs to see to."""
        patience = self._parts.settings.misfit_patience
        if not self._lanes or monotonic - self._looked < patience / LOOKS:
            return False
        self._looked = monotonic
        workers = [each for each in self._parts.store.workers() if each.kind == "worker"]
        fleet = fleet_of([each for each in workers if each.ended_at is None and each.stopping_at is None], self._parts.registry)
        alone = [lane for lane in self._lanes.values() if not any(_takes(server, lane) for server in fleet)]
        self._alone_since = {lane.id: self._alone_since.get(lane.id, monotonic) for lane in alone}
        over = [lane for lane, since in self._alone_since.items() if monotonic - since >= patience]
        if over:
            before = self._parts.clock.now() - round(patience * SECOND)
            self.ripe = tuple(self._parts.store.old_in_lanes(over, before=before, limit=RIPE_MAX))
        return bool(self.ripe)

    def refuse(self, job: Claimed) -> Failed | Released | None:
        """Return how a job ends that its handler can't be called with: given back once, or dead if nobody has come for it."""
        handler = self._parts.handlers.get(job.job_type)
        if handler is None or job.origin == Origin.DIRECT or (job.params == EMPTY and not handler.required):
            return None
        try:
            handler.check(decode_params(job.params))
        except InvalidParams as error:
            why = str(error)
        except ValueError:
            return None  # its row is broken: the executor says so
        else:
            return None
        if job.lane in self._undigested:
            return self._give_back(job, why)
        lane, patience_s = self._lanes.get(job.lane), self._parts.settings.misfit_patience
        asked = "other parameters" if lane is None or lane.names is None else signature(job.job_type, lane.names)
        return _dead(f"it was enqueued for {asked}, and no worker that takes this came in {patience_s:g} s: {why}")

    def _give_back(self, job: Claimed, why: str) -> Failed | Released:
        own = frozenset(decode_params(job.params))
        names = ParamNames(own, own)
        digest = digest_of(names)
        if not any(lane.digest == digest and lane.job_type == job.job_type for lane in self._lanes.values()):
            if self._counts.get(job.job_type, 0) >= LANES_MAX:
                return _dead(why)
            self._counts[job.job_type] += 1
        return Released(f"given back: {why}", Takes(digest, names))


def _dead(error: str) -> Failed:
    return Failed(error, permanent=True, error_code="params_mismatch")


def _takes(server: Server, lane: JobLane) -> bool:
    takes = server.takes.get(lane.job_type)
    return (
        server.serves(Waiting(lane.job_type, queue=lane.queue)) and takes is not None and lane.names is not None and fits(takes, lane.names)
    )


def make_world(registry: Registry, store: Store, types: frozenset[str]) -> World:
    """Return what the definitions say, with nothing in use."""
    organizations, known = registry.organizations.values(), registry.known()
    removed = {each.name for each in organizations if each.state is OrganizationState.REMOVED}
    return World(
        types=types,
        # A removed organization's jobs don't wait for anything: they are claimed, and fail.
        pauses=frozenset(pause for pause in store.pauses() if pause[0] != "organization" or pause[1] not in removed),
        broken=frozenset(each.name for each in known if each.broken is not None),
        suspended=frozenset(each.name for each in organizations if each.state is OrganizationState.SUSPENDED),
        organization_limits={
            each.name: each.max_running for each in organizations if each.max_running is not None and each.name not in removed
        },
        template_limits={each.name: each.force.max_running for each in known if each.force.max_running is not None},
        rates={each.name: each.force.rate_limit for each in known if each.force.rate_limit is not None},
        concurrency={each.name: each.force.concurrency for each in known if each.force.concurrency is not None},
    )


def runnable_types(world: World) -> tuple[str, ...]:
    """Return the types worth asking the store for."""
    return tuple(sorted(name for name in world.types if first_block(Waiting(name), world) is None))


def counting_of(world: World) -> Counting:
    """Return what has to be counted for the answers of a world."""
    limits = {f"{Held.TEMPLATE_LIMIT}:{name}": limit for name, limit in world.template_limits.items()}
    limits |= {f"{Held.ORGANIZATION_LIMIT}:{name}": limit for name, limit in world.organization_limits.items()}
    paused = {f"{Held.ORGANIZATION}:{name}" for kind, name in world.pauses if kind == "organization"}
    return Counting(
        running=bool(limits),
        limits=limits,
        rates=dict(world.rates),
        closed=frozenset(paused | {f"{Held.SUSPENDED}:{name}" for name in world.suspended}),
    )


def fleet_of(workers: Iterable[WorkerInfo], registry: Registry) -> tuple[Server, ...]:
    """Return what each worker serves."""
    names = registry.param_names()
    return tuple(
        Server(
            types=frozenset(worker.job_types),
            queues=None if worker.queues is None else frozenset(worker.queues),
            takes={name: names[name, digest] for name, digest in worker.digests.items() if (name, digest) in names},
        )
        for worker in workers
    )
