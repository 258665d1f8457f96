"""Which of the candidates a worker takes: pure policy over an ordered list, applied inside the store's transaction."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.engine.predicates import Predicate, Waiting, World, first_block
from rota.model.values import Claimed
from rota.ports.store import Choice, Reservation


class Slots(msgspec.Struct, kw_only=True):
    """What a worker has room for."""

    free: int
    """Slots in which a handler can start at once."""
    holding: int
    """Jobs it holds already, running or waiting for a slot."""
    quick: int = 1
    """Slots that are free or run something whose measured mean is short: those that work claimed ahead can wait for."""
    ahead_s: float
    """How much work may be claimed beyond the free slots, in seconds."""
    places: frozenset[str]
    """The executors that hold something: work is claimed ahead for one executor only, so that slots are not exceeded."""
    means: Mapping[str, float]
    """Measured mean seconds by job type."""
    alone: bool = False
    """It runs a suspect, which must have the worker for itself."""
    patient: bool = True
    """Pass over suspects while busy; False: a suspect has waited too long, claim nothing more before it."""


class Chosen(msgspec.Struct):
    """What was taken and what the worker should remember of it."""

    choice: Choice
    suspect_waits: bool = False


def choose(candidates: list[Claimed], reservation: Reservation | None, world: World, slots: Slots) -> Chosen:
    """Walk the candidates in their order and take what may start now, plus a bounded prefetch."""
    chosen = Chosen(Choice(take=[], park=[]))
    if slots.alone:
        return chosen
    blocks = _Blocks(msgspec.structs.replace(world, reservation=reservation))
    take, park = chosen.choice.take, chosen.choice.park
    free, quick, ahead_s, places = slots.free, slots.quick, slots.ahead_s, set(slots.places)
    for job in candidates:
        block = blocks.of(job)
        if block is not None:
            if block[0].parks:
                park.append((job.number, block[1]))
            continue
        if job.crashes:
            if not take and not slots.holding:
                take.append(job)
                return chosen
            chosen.suspect_waits = True
            if not slots.patient:
                return chosen
            continue
        cost = slots.means.get(job.job_type)
        if free > 0:
            free -= 1
            quick -= cost is None or cost > slots.ahead_s
        elif cost is None or cost > ahead_s or quick <= 0 or not job.max_retries or not places <= {job.executor}:
            return chosen
        else:
            ahead_s -= cost
        places.add(job.executor)
        take.append(job)
    return chosen


def runnable_types(world: World) -> tuple[str, ...]:
    """Return the types worth asking the store for."""
    return tuple(sorted(name for name in world.types if first_block(Waiting(name), world) is None))


class _Blocks:
    """Asks the predicates once per kind of row; only a reservation makes rows of one kind differ."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[str, str], tuple[Predicate, str] | None] = {}

    def of(self, job: Claimed) -> tuple[Predicate, str] | None:
        key = (job.job_type, job.organization_id)
        if self._world.reservation is not None:
            return first_block(Waiting(job.job_type, job.organization_id, job.number), self._world)
        if key not in self._known:
            self._known[key] = first_block(Waiting(*key), self._world)
        return self._known[key]
