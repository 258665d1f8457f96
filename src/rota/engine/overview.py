"""What is looked at from above: what waits for which reason, by the dispatcher's own predicates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import attrgetter

from rota.engine.explain import explain, in_words, world_of
from rota.engine.predicates import Waiting, World, first_block
from rota.engine.registry import Registry
from rota.errors import NotFound
from rota.model.gate import Scope
from rota.model.lanes import ParamNames
from rota.model.overview import OTHERS_FIRST, Example, Stuck, Why
from rota.model.values import SECOND, Held, Instant, WorkerInfo, number_text, undashed
from rota.ports.overseeing import Lane, Shown
from rota.ports.store import Store

GROUPS_MAX = 20
EXPLAINED_MAX = 5
"""Groups that wait for others of which one job is asked what it waits for: that takes some reads each."""
NO_WORKER = "no worker is running: start one with `rota up` or `rota worker`"
IN_TURN = "ready: they start as slots get free"
FIRST = "a direct execution: it takes the next free slot of a worker that has its handler"
DUE = "due: the next turn queues them"
LATER = "their time has not come"
_since = attrgetter("since")


class Grouping:
    """Sorts lanes of waiting jobs by why they wait."""

    def __init__(self, store: Store, registry: Registry, alive: Sequence[WorkerInfo], *, now: Instant, scope: Scope) -> None:
        """Take what the answers depend on."""
        self._store = store
        self._registry = registry
        self._now = now
        self._scope = scope
        self._alive = alive

    @cached_property
    def _world(self) -> World:
        """As all live workers together see it. It is read only for jobs that one of them could start."""
        return world_of(self._store, list(self._alive), self._now, self._registry)

    @cached_property
    def _names(self) -> dict[int | None, ParamNames]:
        """The parameter names of each lane."""
        return {lane.id: lane.names for lane in self._registry.lanes.values() if lane.names is not None}

    def stuck(self, lanes: Sequence[Lane]) -> list[Stuck]:
        """Return the groups, in the order of `Why`, the largest of each first."""
        groups: dict[tuple[Why, str, str | None], list[Lane]] = {}
        for lane in lanes:
            why, words = self._why(lane)
            # What all types share is one group.
            shared = why in {Why.PAUSED, Why.LIMIT, Why.SUSPECT, Why.DIRECT, Why.LATER} or words in {NO_WORKER, DUE}
            groups.setdefault((why, words, None if shared else lane.job_type), []).append(lane)
        counts = {key: sum(lane.count for lane in same) for key, same in groups.items()}
        order = list(Why)
        chosen = sorted(groups, key=lambda key: (order.index(key[0]), -counts[key]))[:GROUPS_MAX]
        oldest = {key: min(groups[key], key=_since) for key in chosen}
        shown = self._store.shown([lane.number for lane in oldest.values()])
        explained = 0
        found = []
        for key, first in oldest.items():
            why, words, job_type = key
            example = shown.get(first.number)
            if example is None:
                # It has started and ended while we looked.
                continue
            if why is Why.PARENT and explained < EXPLAINED_MAX:
                explained += 1
                words = self._explained(example) or words
            stuck = Stuck(
                why=why,
                words=words,
                count=counts[key],
                more=any(lane.more for lane in groups[key]),
                oldest_s=max(0.0, (self._now - first.since) / SECOND),
                example=example_of(example),
                job_type=job_type,
            )
            found.append(stuck)
        return found

    def _why(self, lane: Lane) -> tuple[Why, str]:
        if lane.blocked:
            return Why.PARENT, OTHERS_FIRST
        if lane.status == "PENDING":
            if lane.since > self._now:
                return Why.LATER, LATER
            return (Why.TURN, DUE) if self._alive else (Why.NO_WORKER, NO_WORKER)
        if not self._alive:
            return Why.NO_WORKER, NO_WORKER
        waiting = Waiting(
            str(lane.job_type),
            _organization(lane.held) or self._scope.organization,
            int(lane.suspects),
            lane.queue,
            self._names.get(lane.lane),
        )
        found = first_block(waiting, self._world)
        if found is None:
            return (Why.DIRECT, FIRST) if lane.held == Held.DIRECT else (Why.TURN, IN_TURN)
        predicate, blocker = found
        return predicate.why, in_words(blocker, self._world, self._now, whole=self._scope.organization is None)

    def _explained(self, example: Shown) -> str | None:
        """Say what one of those that wait for others waits for."""
        try:
            found = explain(self._store, str(undashed(example.id)), self._now, registry=self._registry, scope=self._scope)
        except NotFound:
            return None
        return next((reason.detail for reason in found.reasons if not reason.met and "ended" in reason.condition), None)


def unserved_queues(lanes: Iterable[Lane], alive: Sequence[WorkerInfo]) -> tuple[str, ...]:
    """Return the queues in which ready jobs wait and that no live worker serves."""
    waiting = {lane.queue for lane in lanes if lane.queue is not None}
    return tuple(sorted(name for name in waiting if not any(worker.queues is None or name in worker.queues for worker in alive)))


def example_of(shown: Shown) -> Example:
    """Return a job as an example of its group."""
    return Example(id=shown.id, number=number_text(shown.root_id, shown.root_number, shown.attempt), job_type=shown.job_type)


def _organization(held: str | None) -> str | None:
    """Return the organization that rows are parked for, where the word names one."""
    kind, _, name = (held or "").partition(":")
    return name if kind in {Held.ORGANIZATION, Held.SUSPENDED, Held.ORGANIZATION_LIMIT} else None
