"""Which of the candidates a worker takes: pure policy over an ordered list, applied inside the store's transaction."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.engine.predicates import EACH, LIMITS, OPEN, Limit, Predicate, Suspect, Waiting, World, first_block, in_use
from rota.model.handler import Place
from rota.model.values import Claimed, number_text
from rota.ports.turns import Choice, Reservation, Usage


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
    guess_s: float = 0.0
    """Seconds to expect of a type that is not measured yet."""
    guesses: int = 0
    """How many jobs of such types may be claimed by that guess; the others only into free slots."""
    alone: bool = False
    """It runs a suspect that has the worker to itself."""


class Dispatcher:
    """Chooses for one turn. It may be asked in several rounds: what it took in one counts in the next."""

    def __init__(self, world: World, slots: Slots, *, most: int) -> None:
        """Take what the answers depend on, what there is room for, and how many may be claimed at all."""
        self._world = world
        self._slots = slots
        self._free, self._quick, self._ahead_s = slots.free, slots.quick, slots.ahead_s
        self._guesses = slots.guesses
        self._places = set(slots.places)
        self._most, self._taken = most, 0
        self._blocks: _Blocks | None = None
        self._full = slots.alone
        self.unready: set[str] = set()
        """Types of suspects that were passed over because no handler process is ready for them."""

    @property
    def has_room(self) -> bool:
        """Whether it would have taken more: then it has seen all that is waiting."""
        return not self._full and self._free > 0 and self._taken < self._most

    def choose(self, candidates: list[Claimed], reservation: Reservation | None, usage: Usage) -> Choice:
        """Walk the candidates in their order and take what may start now, plus a bounded prefetch.

        With a `reservation` they are the job of that direct execution alone. It is not claimed ahead: where all slots are taken, nothing
        else is claimed ahead of it either, and the next slot that becomes free is its own.
        """
        choice = Choice(take=[], park=[])
        if self._full:
            return choice
        if self._blocks is None:
            self._blocks = _Blocks(msgspec.structs.replace(self._world, in_use=in_use(usage, self._world.in_use.here)))
        blocks, take, park = self._blocks, choice.take, choice.park
        blocker, takes, passed_on = blocks.of, self._takes, False
        for job in candidates:
            block = blocker(job)
            if block is not None:
                if block[0].parks:
                    park.append((job.number, block[1]))
                    passed_on = passed_on or (job.job_type in usage.waiting and blocks.leaves_a_place(job))
                elif job.crashes:
                    self._pass_over(job, block[1], choice)
            elif passed_on:
                # Somebody who is parked gets a place, and may be before this one: see in the next round.
                break
            elif job.crashes:
                if self._ends_with(job, take, blocks):
                    break
            elif (reservation is None or self._free > 0) and takes(job):
                take.append(job)
                if blocks.gauges:
                    blocks.took(job)
            else:
                self._full = True
                break
        choice.leave = blocks.full_types
        choice.again = not self._full and bool(park or choice.leave or not choice.suspects)
        return choice

    def _takes(self, job: Claimed) -> bool:
        if self._taken >= self._most:
            return False
        cost = self._slots.means.get(job.job_type)
        if cost is None and self._guesses > 0:
            self._guesses -= 1
            cost = self._slots.guess_s
        if self._free > 0:
            self._free -= 1
            self._quick -= cost is None or cost > self._slots.ahead_s
        elif cost is None or cost > self._ahead_s or self._quick <= 0 or not job.max_retries or not self._places <= {job.executor}:
            return False
        elif job.job_type in self._world.rates:
            return False  # what counts is when it starts
        else:
            self._ahead_s -= cost
        self._places.add(job.executor)
        self._taken += 1
        return True

    def _pass_over(self, job: Claimed, blocker: str, choice: Choice) -> None:
        """Leave a suspect where it is, and note it if all it needs is a process."""
        choice.suspects = False
        if blocker == "process:":
            self.unready.add(job.job_type)

    def _ends_with(self, job: Claimed, take: list[Claimed], blocks: _Blocks) -> bool:
        """Take a suspect if a slot is free, and let no other start beside it; say whether nothing more may start at all."""
        inside = self._world.inside.get(job.job_type)
        job.executor = inside or Place.PROCESS
        if self._free > 0 and self._takes(job):
            take.append(job)
            if blocks.gauges:
                blocks.took(job)
            blocks.suspect(suspect_of(job))
            self._full = inside is not None
        else:
            self._full = True
        return self._full


def suspect_of(job: Claimed) -> Suspect:
    """Return a suspect that a worker has claimed."""
    return Suspect(number_text(job.root_id, job.root_number, job.attempt), alone=job.executor != Place.PROCESS)


def runnable_types(world: World) -> tuple[str, ...]:
    """Return the types worth asking the store for."""
    return tuple(sorted(name for name in world.types if first_block(Waiting(name), world) is None))


class _Gauge(msgspec.Struct):
    """What is left of one limit."""

    limit: Limit
    word: str
    left: int


class _Kind(msgspec.Struct):
    """Rows of one type and organization: what blocks them all, or the limits that they share."""

    block: tuple[Predicate, str] | None
    gauges: list[_Gauge]


class _Blocks:
    """Asks the predicates once per kind of row, and counts what is taken against the limits after that."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._each = bool(world.suspects)
        self.gauges: dict[str, _Gauge] = {}
        self.full_types: frozenset[str] = frozenset()
        """Types that are at a limit of their own, whatever the organization."""

    def of(self, job: Claimed) -> tuple[Predicate, str] | None:
        kind = self._kinds.get((job.job_type, job.organization_id)) or self._meet(job)
        if kind.gauges and kind.block is None:
            self._read(kind, job)
        if kind.block is None and (job.crashes or self._each):
            return first_block(Waiting(job.job_type, job.organization_id, job.crashes), self._world, EACH)
        return kind.block

    def suspect(self, suspect: Suspect) -> None:
        """Note that a suspect was taken."""
        self._world = msgspec.structs.replace(self._world, suspects=dict.fromkeys(self._world.types, suspect))

    def took(self, job: Claimed) -> None:
        for gauge in self._kinds[job.job_type, job.organization_id].gauges:
            gauge.left -= 1

    def leaves_a_place(self, job: Claimed) -> bool:
        """Say whether others of its type may start although this one, which is blocked, may not."""
        gauges = self._kinds[job.job_type, job.organization_id].gauges
        return all(gauge.left > 0 for gauge in gauges if gauge.limit.of_type)

    def _meet(self, job: Claimed) -> _Kind:
        waiting = Waiting(job.job_type, job.organization_id)
        kind = self._kinds[job.job_type, job.organization_id] = _Kind(first_block(waiting, self._world, OPEN), [])
        for limit in LIMITS:
            room = limit.room(waiting, self._world)
            if room is not None:
                word = limit.word(waiting)
                kind.gauges.append(self.gauges.setdefault(word, _Gauge(limit, word, room)))
        return kind

    def _read(self, kind: _Kind, job: Claimed) -> None:
        for gauge in kind.gauges:
            if gauge.left <= 0:
                kind.block = (gauge.limit, gauge.word)
                if gauge.limit.of_type:
                    self.full_types |= {job.job_type}
                return
