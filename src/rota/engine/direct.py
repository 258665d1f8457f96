"""Direct execution: have one job run before all others in the next free slot, and wait for its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import msgspec

from rota.engine.definitions_cache import make_world
from rota.engine.explain import in_words, world_of
from rota.engine.patience import Patience
from rota.engine.predicates import LIMITS, Waiting, first_block
from rota.engine.registry import Registry
from rota.engine.worker import Worker
from rota.errors import AnswerLost, ResourceBusy, RotaError, StoreBusy, StoreError, StoreUnavailable
from rota.model.gate import EVERYTHING, SYSTEM, Scope
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import SECOND, Held, Job, NewRow, Run, WorkerInfo, broken_reason, dashed, undashed
from rota.ports.clock import Clock, Ids
from rota.ports.liveness import Life, Liveness
from rota.ports.store import Store
from rota.ports.turns import Reservation

LOOK_S = 0.01
_REMEDIES = {
    "type": "start a worker that has it with `rota worker`, or enqueue the job",
    "all": "try again after `rota resume`, or enqueue the job",
    "template": "try again after `rota template resume {name}`, or enqueue the job",
    Held.ORGANIZATION: "try again after `rota organization resume {name}`, or enqueue the job",
    Held.SUSPENDED: "a system manager can restore it with `rota organization restore {name}`",
    Held.TEMPLATE_LIMIT: "raise the limit, or enqueue the job",
    Held.ORGANIZATION_LIMIT: "raise the limit, or enqueue the job",
}


class Direct(msgspec.Struct, kw_only=True, frozen=True):
    """What a direct execution needs of its process."""

    store: Store
    registry: Registry
    liveness: Liveness
    clock: Clock
    ids: Ids
    settings: Settings
    owner_id: str
    """The worker or client row whose lock shows that the caller lives."""
    owner: str
    scope: Scope
    """What the caller may read: a refusal names nothing else."""
    idle_id: str | None
    """A worker of this process that only turns when it is told to: it does not count as one."""
    poke: Callable[[], None]
    sweep: Callable[[], object]
    """End what dead workers held."""
    inline_worker: Callable[[], AbstractContextManager[Worker]] | None
    """A worker in this thread, for when there is no other. None: this process has no handler for the job."""

    def run(self, row: NewRow, *, wait_s: float) -> Run:
        """Run one job ahead of the queue and return its run; raise ResourceBusy if nobody can run it, or no slot became free in time.

        A store that goes away meanwhile is waited for: as long as for a slot, and from the reservation on for `busy_timeout` at least,
        since the job is there from then on.
        """
        end = time.monotonic() + wait_s
        reservation = self._reserve(row, end)
        self.poke()
        patience = Patience(until=end, outage_s=self.settings.busy_timeout)
        try:
            self._await_start(row, reservation, end, patience)
            return self._await_end(reservation, patience)
        except (StoreBusy, StoreUnavailable) as error:
            raise AnswerLost(
                f"the direct execution {dashed(reservation.job_id)} is made, and the store was lost while it was waited for: it may have "
                f"run, or run when the store is back. Look at it then, before you do it again. {error}"
            ) from error

    # ---- who could run it -------------------------------------------------------------------------------------

    def _able(self, row: NewRow) -> list[WorkerInfo]:
        """Return the live workers that have the handler and still take jobs."""
        return [
            worker
            for worker in self.store.workers()
            if worker.kind == "worker"
            and worker.ended_at is None
            and worker.stopping_at is None
            and worker.id != self.idle_id
            and row.job_type in worker.job_types
            and self._lives(worker.id)
        ]

    def _lives(self, worker_id: str) -> bool:
        with self.liveness.seize(worker_id) as life:
            return life is not Life.DEAD

    def _obstacle(self, row: NewRow, able: list[WorkerInfo]) -> str | None:
        """Say why nobody can run the job, however many slots become free; None: somebody can."""
        now = self.clock.now()
        self.registry.sync(self.store, now)
        has_handler = bool(able) or self.inline_worker is not None
        # With nothing in use a limit is in the way only if it lets nothing start at all.
        world = make_world(self.registry, self.store, frozenset({row.job_type} if has_handler else ()))
        found = first_block(Waiting(row.job_type, row.organization_id), world)
        if found is None:
            return None
        kind, _, name = found[1].partition(":")
        words = in_words(found[1], world, now, whole=True)
        return f"resource busy: {words}; {_REMEDIES[kind].format(name=name)}"

    # ---- before it starts -------------------------------------------------------------------------------------

    def _reserve(self, row: NewRow, end: float) -> Reservation:
        """Make job and reservation. While another direct execution is under way, wait for its end."""
        reservation_id = self.ids.take(1, self.clock.now())[0]
        # Under one id nothing is made twice, whether an answer was lost or not.
        patience = Patience(until=end)
        look_at = sweep_at = 0.0
        while True:
            now = time.monotonic()
            if now >= look_at:
                look_at = now + self.settings.recovery_interval
                obstacle = patience.ask(lambda: self._obstacle(row, self._able(row)))
                if obstacle is not None:
                    raise ResourceBusy(obstacle)
            # To read costs nobody anything: of many that wait, only those write that have seen the other one's end.
            if patience.ask(self.store.reservation) is None:
                mine = patience.ask(lambda: self._reserve_once(row, reservation_id))
                if mine is not None:
                    return mine
            elif now >= sweep_at:
                # Its caller may have died where no worker is left to notice.
                sweep_at = now + self.settings.recovery_interval
                patience.ask(self.sweep)
            if time.monotonic() >= end:
                raise ResourceBusy(patience.ask(self._busy_words))
            time.sleep(LOOK_S)

    def _reserve_once(self, row: NewRow, reservation_id: str) -> Reservation | None:
        now = self.clock.now()
        row.run_at = now
        return self.store.reserve(
            row,
            reservation_id=reservation_id,
            reserved_by=self.owner,
            worker_id=self.owner_id,
            now=now,
            expires_at=now + round(self.settings.reservation_ttl * SECOND),
        )

    def _busy_words(self) -> str:
        other = self.store.reservation()
        job = None if other is None else self.store.job(other.job_id)
        if other is None or job is None or not self.scope.holds(job.organization, job.owner, job.schedule_id):
            return "resource busy: another direct execution is under way; try again when it has ended"
        return (
            f"resource busy: the direct execution {dashed(other.job_id)} by {other.reserved_by} is under way; try again when it has ended"
        )

    def _run_here(
        self, inline_worker: Callable[[], AbstractContextManager[Worker]], reservation: Reservation, end: float, patience: Patience
    ) -> None:
        """Run the job in this thread. How it stands is looked up after that, also if the worker could not come or go."""
        # No longer at a time: a pause, or a worker that has come in the meantime, is seen by who called this.
        end = min(end, time.monotonic() + self.settings.recovery_interval)
        try:
            with inline_worker() as worker:
                while True:
                    job = patience.ask(lambda: self._job(reservation))
                    if job.status is Status.RUNNING:
                        if worker.holding or job.worker_id != worker.id:
                            # Its end is all that is left to write: nothing else of the queue may start in the caller's thread.
                            worker.begin_stop()
                        # Else the answer to its claim was lost, and the next turn finds it.
                    elif job.status is not Status.QUEUED or time.monotonic() >= end:
                        return
                    worker.poke()
                    worker.wait(min(LOOK_S, worker.turn()))
        except (StoreBusy, StoreUnavailable):
            time.sleep(LOOK_S)

    def _await_start(self, row: NewRow, reservation: Reservation, end: float, patience: Patience) -> None:
        """Wait for a worker to take the job; where none can, or none any more, run it here, or give it up if this process can't either."""
        look_at = 0.0
        while (job := patience.ask(lambda: self._job(reservation))).status is Status.QUEUED:
            broken = broken_reason(job)
            if broken is not None:
                raise ResourceBusy(patience.ask(partial(self._end_broken, job, broken)))
            now = time.monotonic()
            why: str | None = None
            if now >= end:
                why = patience.ask(lambda: self._held_up_by(row))
            elif now >= look_at:
                look_at = now + self.settings.recovery_interval
                able = patience.ask(lambda: self._able(row))
                why = patience.ask(partial(self._obstacle, row, able))
                if why is None and self.inline_worker is not None and not able:
                    self._run_here(self.inline_worker, reservation, end, patience)
                    continue
            # Unless it has started in this very moment.
            if why is not None and patience.ask(lambda: self.store.give_up_waiting(reservation.id, now=self.clock.now())):
                raise ResourceBusy(why)
            time.sleep(LOOK_S)

    def _end_broken(self, job: Job, why: str) -> str:
        """End a job that no worker can start, and say so. Its reservation has ended already; a repair must not start it later."""
        words = f"the direct execution {job.id} can't start: its row is broken: {why}"
        try:
            self.store.cancel(undashed(job.id) or job.id, actor=SYSTEM, now=self.clock.now(), reason=words)
        except (StoreBusy, StoreUnavailable):
            raise
        except RotaError as error:
            return f"{words}. It could not be cancelled either ({error}): see `rota doctor`"
        return f"{words}. It was cancelled: see `rota doctor`"

    def _held_up_by(self, row: NewRow) -> str:
        """Say what the job has waited for in vain: room under a limit, or a slot."""
        now = self.clock.now()
        world = world_of(self.store, self._able(row), now, self.registry)
        limit = first_block(Waiting(row.job_type, row.organization_id), world, LIMITS)
        if limit is not None:
            return f"resource busy: {in_words(limit[1], world, now, whole=self.scope == EVERYTHING)}; try again"
        if self.scope != EVERYTHING:
            # How much the workers run is the sum of all organizations.
            return "resource busy: no slot became free in time; try again"
        busy = [f"{worker.host}/{worker.id[:8]} ({worker.running} running)" for worker in self.store.workers() if worker.kind == "worker"]
        return f"resource busy: no slot became free in time; held by {', '.join(busy) or 'no worker at all'}"

    def _await_end(self, reservation: Reservation, patience: Patience) -> Run:
        """Wait for the end, looking after dead workers meanwhile: ours may have been the only one."""
        sweep_at = time.monotonic() + self.settings.recovery_interval
        while not patience.ask(lambda: self._job(reservation)).status.ended:
            time.sleep(LOOK_S)
            if time.monotonic() >= sweep_at:
                sweep_at += self.settings.recovery_interval
                patience.ask(self.sweep)
        run = patience.ask(lambda: self.store.run(reservation.job_id))
        if run is None:
            raise ResourceBusy(f"the direct execution {dashed(reservation.job_id)} ended without a run: it was cancelled")
        return run

    def _job(self, reservation: Reservation) -> Job:
        job = self.store.job(reservation.job_id)
        if job is None:
            raise StoreError(f"the direct job {dashed(reservation.job_id)} is gone")
        return job
