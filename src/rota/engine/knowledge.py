"""What a worker knows of the definitions: which types it may claim, what is limited, and who may not run at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from rota.engine.dispatch import runnable_types
from rota.engine.predicates import InUse, World
from rota.engine.registry import Registry
from rota.model.decide import Failed
from rota.model.definitions import OrganizationState
from rota.model.gate import Actor, may_use
from rota.model.handler import Handler
from rota.model.lanes import SERVES_ALL, JobLane, Serving
from rota.model.values import Claimed, Held, Instant
from rota.ports.store import Store
from rota.ports.turns import Counting

ORGANIZATION_GONE = "Organization not found"


class Knowledge:
    """The definitions as of one version. Belongs to the worker's thread."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        handlers: Mapping[str, Handler],
        inside: Callable[[], Mapping[str, str]] = dict,
        *,
        serving: Serving = SERVES_ALL,
        sort: Callable[[Collection[JobLane]], dict[int, str]] | None = None,
    ) -> None:
        """Know nothing yet; `inside` says which types no handler process can import, and where their handlers run.

        `sort` returns the lanes that the handlers take, of those that are served; without it, all of them.
        """
        self._store = store
        self._registry = registry
        self._handlers = handlers
        self._inside = inside
        self._serving = serving
        self._sort = sort or _all_of
        self._lanes: dict[int, str] = {}
        self.version = -1
        self.world = World(types=frozenset(handlers))
        self._types: tuple[str, ...] = ()
        self._counting = Counting(running=False)
        self.living: frozenset[str] = frozenset()
        """Organizations whose jobs may run."""
        self.guarded: dict[str, str] = {}
        """The permission that a job type requires."""

    def learn(self, now: Instant) -> None:
        """Read the definitions anew; what was known rests on an older version."""
        self._registry.sync(self._store, now)
        self._registry.import_named(self._store, now)
        # First: if others change something while we read, the older version makes the next turn read again.
        version = self._registry.version
        types, inside = frozenset(filter(self._serving.takes, self._handlers)), self._inside()
        world = make_world(self._registry, self._store, types)
        self.world = msgspec.structs.replace(world, unready=types - inside.keys(), inside=inside)
        self._types = runnable_types(self.world)
        self._lanes = self._served(frozenset(self._types))
        self._counting = counting_of(self.world)
        self.living = frozenset(each.name for each in self._registry.organizations.values() if each.state is not OrganizationState.REMOVED)
        known = self._registry.known()
        self.guarded = {each.name: each.force.requires_permission for each in known if each.force.requires_permission is not None}
        self.version = version

    def types(self, here: Mapping[str, int]) -> tuple[str, ...]:
        """Return the types worth asking for: those of which this worker holds as many as it may are left to others."""
        most = self.world.concurrency
        if not most:
            return self._types
        return tuple(name for name in self._types if name not in most or here.get(name, 0) < most[name])

    def lanes(self, here: Mapping[str, int]) -> dict[int, str]:
        """Return the lanes worth asking for, each with its type: those of `types`, in the queues that this worker serves."""
        most = self.world.concurrency
        if not most:
            return self._lanes
        return {lane: name for lane, name in self._lanes.items() if name not in most or here.get(name, 0) < most[name]}

    def _served(self, types: frozenset[str]) -> dict[int, str]:
        paused = {name for kind, name in self.world.pauses if kind == "queue"}
        return self._sort(
            [
                lane
                for lane in self._registry.lanes.values()
                if lane.job_type in types and lane.queue not in paused and self._serving.serves(lane.queue)
            ]
        )

    def world_with(self, here: Mapping[str, int]) -> World:
        """Return what the dispatcher's answers depend on, with what this worker holds."""
        return msgspec.structs.replace(self.world, in_use=InUse(here=here)) if self.world.concurrency else self.world

    def counting(self, *, sweep: bool, within: Instant) -> Counting | None:
        """Return what the next turn must count; None where nothing is limited. `within`: how long after it a start may come."""
        if sweep or self._counting.rates:
            return msgspec.structs.replace(self._counting, sweep=sweep, within=within)
        return self._counting if self._counting.running else None

    def bars(self, job: Claimed) -> Failed | None:
        """Return why a job that was claimed must not run: its organization was removed, or its owner lost the permission."""
        if job.organization_id not in self.living:
            return Failed(ORGANIZATION_GONE, permanent=True)
        permission = self.guarded.get(job.job_type)
        if permission is None or self._may_use(job.owner, permission):
            return None
        return Failed(f"owner {job.owner!r} lacks the permission {permission!r} that template {job.job_type!r} requires", permanent=True)

    def _may_use(self, owner: str, permission: str) -> bool:
        user = self._registry.users.get(owner)
        if user is None:
            # Nobody the store knows: a program that knows its users has vouched for it at submission.
            return True
        return not user.removed and may_use(Actor(user.name, user.organization, user.role, frozenset(user.permissions)), permission)


def _all_of(lanes: Collection[JobLane]) -> dict[int, str]:
    return {lane.id: lane.job_type for lane in lanes}


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
