"""A desk to work at a store from, through the port alone: it moves the clock, makes ids, claims and ends as a worker does."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from rota.model.backoff import Backoff
from rota.model.decide import Limits, Outcome, decide, decide_cancelled
from rota.model.gate import Actor, Role
from rota.model.groups import Group, Mode, OnFailure
from rota.model.values import SECOND, Claimed, Enqueued, Job, NewRow, Policy, dashed, undashed
from rota.ports.clock import UuidV7
from rota.ports.store import Held, NewGroup, Store, Where
from rota.ports.turns import Choice, Ending, Reservation, Turn, Turned, Usage

START = 1_772_366_400 * SECOND
EXACT = msgspec.json.encode(Backoff(base=60, factor=2, cap=86_400, jitter=0)).decode()
ANNA = Actor("anna", role=Role.MANAGER)
POLICY = Policy(priority=50, max_retries=3, max_crashes=3, backoff=EXACT, timeout=300.0, executor="thread")


def take_all(candidates: list[Claimed], _reservation: Reservation | None, _usage: Usage) -> Choice:
    """Be a chooser that takes what it is offered."""
    return Choice(take=list(candidates), park=[])


class Desk:
    """One caller and one worker (or several, by id) at a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = START
        self.rng = Random(5)
        self.ids = UuidV7(Random(6))
        self.worker = self.id()
        self._lanes: dict[tuple[str, str, str], int] = {}
        self._no_lanes: set[tuple[str, str, str]] = set()
        """Those that the store did not have, and will not have before something is written: ten thousand rows ask for them once."""

    def id(self) -> str:
        return self.ids.take(1, self.now)[0]

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    # ---- in -------------------------------------------------------------------------------------------------

    def row(self, job_type: str = "t", **fields) -> NewRow:
        policy = {name: fields.pop(name) for name in Policy.__struct_fields__ if name in fields}
        delay = fields.pop("delay", 0.0)
        values = {"job_id": self.id(), "params": "{}", "run_at": self.now + round(delay * SECOND)}
        row = NewRow(job_type=job_type, policy=msgspec.structs.replace(POLICY, **policy), **(values | fields))
        row.lane = row.lane or self.lane(row.job_type, row.queue, row.digest)
        return row

    def meet(self, job_type: str = "t", **fields) -> None:
        """Have the store know the lane of a type, as it does after the first job of it."""
        self.add(job_type, **fields)
        self.done(*self.claim(1, types=(job_type,)))

    def lane(self, job_type: str = "t", queue: str = "default", digest: str = "") -> int:
        """Return a lane as a caller knows it: 0 if the store did not have it when this was last looked at."""
        key = (job_type, queue, digest)
        if key not in self._lanes and key not in self._no_lanes:
            self._lanes = {(lane.job_type, lane.queue, lane.digest): lane.id for lane in self.store.lanes()}
            if key not in self._lanes:
                self._no_lanes.add(key)
        return self._lanes.get(key, 0)

    def put(self, *rows: NewRow) -> list[Enqueued]:
        self._no_lanes.clear()
        return self.store.enqueue(rows, now=self.now)

    def put_at_once(self, row: NewRow) -> Enqueued:
        """Enqueue one job as one whose caller knows the definitions: by a shorter way, if it can be."""
        self._no_lanes.clear()
        return self.store.enqueue([row], now=self.now, definitions=self.store.definitions())[0]

    def add(self, job_type: str = "t", **fields) -> str:
        """Enqueue one job and return its id."""
        return self.put(self.row(job_type, **fields))[0].job_id

    def several(self, count: int, job_type: str = "t", **fields) -> list[str]:
        return [each.job_id for each in self.put(*(self.row(job_type, **fields) for _ in range(count)))]

    def grouped(self, members: Sequence[NewRow | str], mode: str = "sequential", on_failure: str = "stop", **fields) -> Group:
        new = NewGroup(
            group_id=fields.pop("group_id", None) or self.id(),
            name=fields.pop("name", None),
            mode=Mode(mode),
            on_failure=OnFailure(on_failure),
            members=list(members),
            **fields,
        )
        self._no_lanes.clear()
        return self.store.add_group(new, actor=ANNA, now=self.now)

    # ---- the wheel ------------------------------------------------------------------------------------------

    def request(self, want: int = 0, *, types: Sequence[str] = ("t",), worker: str | None = None, choose=take_all, **fields) -> Turn:
        return Turn(
            now=self.now,
            worker_id=worker or self.worker,
            want=want,
            types=tuple(types),
            choose=choose,
            run_ids=self.ids.take(want + 1, self.now),
            definitions=fields.pop("definitions", self.store.definitions()),
            **fields,
        )

    def turn(self, want: int = 0, **fields) -> Turned:
        self._no_lanes.clear()
        return self.store.turn(self.request(want, **fields))

    def claim(self, want: int = 1, **fields) -> list[Claimed]:
        return self.turn(want, **fields).claimed

    def claim_one(self, **fields) -> Claimed:
        (job,) = self.claim(1, **fields)
        return job

    def ending(self, job: Claimed, outcome: Outcome, *, log_path: str | None = None) -> Ending:
        transition = decide(job, outcome, self.now, self.rng, Limits())
        return Ending(job.number, self.now, transition, decide_cancelled(outcome), self.id(), log_path)

    def end(self, job: Claimed, outcome: Outcome, **fields) -> Turned:
        return self.turn(endings=[self.ending(job, outcome)], **fields)

    def done(self, *jobs: Claimed, **fields) -> Turned:
        return self.turn(done=[(job.number, self.now) for job in jobs], **fields)

    def run_to(self, outcome: Outcome, **fields) -> Claimed:
        """Claim the next job and end it so."""
        job = self.claim_one(**fields)
        self.end(job, outcome)
        return job

    # ---- looking --------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        job = self.store.job(job_id)
        assert job is not None
        return job

    def status(self, job_id: str) -> str:
        return str(self.job(job_id).status)

    def tail(self, job_id: str) -> Job:
        return self.store.chain(job_id)[-1]

    def tail_id(self, job_id: str) -> str:
        return inside(self.tail(job_id).id)

    def order(self) -> list[str]:
        return [inside(job.id) for job in self.store.queue(limit=10_000)]

    def positions(self) -> list[int]:
        return [job.position for job in self.store.queue(limit=10_000)]

    def late(self) -> int:
        return self.store.stats(now=self.now).late_results

    def snapshot(self) -> object:
        """Everything the port can show, to be compared before and after."""
        jobs = [job for _, job in self.store.find(Where(), limit=10_000)]
        runs = {job.id: self.store.run(inside(job.id)) for job in jobs}
        return jobs, runs, self.store.groups(limit=1000), self.store.reservation(), self.store.stats(now=self.now)

    # ---- as recovery does -----------------------------------------------------------------------------------

    def recover(self, worker: str, outcome: Outcome) -> int:
        held = self.store.held_by(worker, limit=1000)
        return len(self.store.recover([self.ending(each.job, outcome) for each in held], held, now=self.now))

    def held(self, worker: str | None = None) -> list[Held]:
        return self.store.held_by(worker or self.worker, limit=1000)

    def reserve(self, job_type: str = "t", *, ttl: float = 600.0, **fields) -> Reservation | None:
        row = self.row(job_type, origin="direct", max_retries=0, **fields)
        self._no_lanes.clear()
        return self.store.reserve(
            row,
            reservation_id=self.id(),
            reserved_by="anna@here",
            worker_id=self.worker,
            now=self.now,
            expires_at=self.now + round(ttl * SECOND),
        )


def inside(given: str) -> str:
    """Return an id as the store's verbs take it."""
    found = undashed(given)
    assert found is not None
    return found


def outside(hex_id: str) -> str:
    """Return an id as values show it."""
    return dashed(hex_id)
