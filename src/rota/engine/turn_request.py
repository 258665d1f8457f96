"""A turn as a worker asks the store for it: which ends to write, how much to claim, and which of the candidates to take."""

from __future__ import annotations

import msgspec

from rota.engine.definitions_cache import DefinitionsCache
from rota.engine.executor_pool import Suspects
from rota.engine.in_flight import InFlight, Slots
from rota.engine.parts import Parts
from rota.engine.predicates import EACH, LIMITS, OPEN, InUse, Limit, Predicate, Suspect, Waiting, World, first_block, in_use, suspect_of
from rota.model.decide import Limits, Released, decide, decide_cancelled
from rota.model.handler import Place
from rota.model.values import SECOND, Claimed
from rota.ports.turns import Choice, Ending, Reservation, Turn, Usage

START_SPARE_S = 0.01
"""What a start is counted later than it may be: for what lies between the executor's last look and the handler, and between clocks."""


class TurnRequests:
    """Puts turns together for one worker. Belongs to its thread."""

    def __init__(self, parts: Parts, jobs: InFlight, definitions: DefinitionsCache, suspects: Suspects) -> None:
        """Take what the requests rest on."""
        self._parts = parts
        self._clock = parts.clock
        self._in_flight = jobs
        self._definitions = definitions
        self._suspects = suspects
        self._limits = Limits(parts.settings.snooze_floor, parts.settings.max_snoozes)
        self._dispatcher: Dispatcher | None = None
        self.sweep = True
        """The next claim looks at everything that is parked."""

    def begin(self, worker_id: str) -> Turn:
        """Return a turn that asks for nothing."""
        # First: what may start until then by this clock may do so by the other one, too.
        start_by = self._clock.monotonic() + self._in_flight.start_s
        return Turn(
            now=self._clock.now(),
            worker_id=worker_id,
            limit=self._parts.settings.batch,
            definitions=self._definitions.version,
            start_by=start_by,
            audit_runs=self._parts.settings.audit_runs,
        )

    def add_endings(self, turn: Turn) -> None:
        """Have every end written that is not plain."""
        ids, rng, now = self._parts.ids, self._parts.rng, turn.now
        for each in self._in_flight.ended.values():
            job, outcome = each.job, each.outcome
            transition = decide(job, outcome, now, rng, self._limits)
            successor_id = ids.take(1, now)[0] if transition.successor else ""
            unstarted = (job.job_type, job.counted_at) if job.counted_at and type(outcome) is Released else None
            ending = Ending(job.number, each.at, transition, decide_cancelled(outcome), successor_id, each.log_path, unstarted)
            turn.endings.append(ending)

    def add_claim(self, turn: Turn, slots: Slots) -> None:
        """Claim what there is room for."""
        definitions, jobs = self._definitions, self._in_flight
        here = jobs.by_type()
        turn.want = jobs.want(slots)
        turn.types, turn.lanes = definitions.wanted(here)
        turn.suspects = jobs.suspect is None
        turn.direct_only = self._parts.direct_only
        world = definitions.world
        if world.concurrency:
            world = msgspec.structs.replace(world, in_use=InUse(here=here))
        if jobs.suspect is not None or self._suspects.met:
            world = self._suspects.seen_by(world, jobs.suspect)
        self._dispatcher = Dispatcher(world, slots, most=turn.want)
        turn.choose = self._dispatcher.choose
        turn.counting = definitions.counting(sweep=self.sweep, within=round((jobs.start_s + START_SPARE_S) * SECOND))
        turn.run_ids = self._parts.ids.take(turn.want + 1, turn.now)

    def note_suspects(self) -> None:
        """Have processes made ready for suspects that the last claim passed over for want of one."""
        dispatcher = self._dispatcher
        if dispatcher is not None and (dispatcher.unready or self._suspects.waiting):
            self._suspects.passed(dispatcher.unready, saw_all=dispatcher.has_room)


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
            self._blocks = _Blocks(self._world, usage)
        blocks, take, park = self._blocks, choice.take, choice.park
        takes, passed_on, types = self._takes, False, self._world.types if blocks.open else ()
        for job in candidates:
            block = None if job.job_type in types and not job.crashes else blocks.of(job)
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


class _Gauge(msgspec.Struct):
    """What is left of one limit."""

    limit: Limit
    word: str
    left: int


class _Kind(msgspec.Struct):
    """Rows of one type and organization: what blocks them all, or the limits that they share."""

    block: tuple[Predicate | Limit, str] | None
    gauges: list[_Gauge]


class _Blocks:
    """Asks the predicates once per kind of row, and counts what is taken against the limits after that."""

    def __init__(self, world: World, usage: Usage) -> None:
        self.open = not (
            world.pauses
            or world.broken
            or world.suspended
            or world.template_limits
            or world.organization_limits
            or world.rates
            or world.concurrency
            or world.fleet
            or world.suspects
        )
        """Every job may start whose type is among those of the worker, unless it is a suspect: nothing is paused or limited."""
        self._world = world if self.open else msgspec.structs.replace(world, in_use=in_use(usage, world.in_use.here))
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._each = bool(world.suspects)
        self.gauges: dict[str, _Gauge] = {}
        self.full_types: frozenset[str] = frozenset()
        """Types that are at a limit of their own, whatever the organization."""

    def of(self, job: Claimed) -> tuple[Predicate | Limit, str] | None:
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
