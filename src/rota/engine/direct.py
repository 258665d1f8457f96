"""Direct execution: reserve the next slot, have one job run in it, wait for its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from rota.engine.patience import Patience
from rota.engine.worker import Worker
from rota.errors import AnswerLost, ResourceBusy, StoreBusy, StoreError, StoreUnavailable
from rota.model.gate import EVERYTHING, Scope
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import SECOND, Job, NewRow, Run, dashed
from rota.ports.clock import Clock, Ids
from rota.ports.liveness import Life, Liveness
from rota.ports.store import Store
from rota.ports.turns import Reservation

LOOK_S = 0.01


class Direct(msgspec.Struct, kw_only=True, frozen=True):
    """What a direct execution needs of its process."""

    store: Store
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
        """Run one job ahead of the queue and return its run; raise ResourceBusy if no slot became free in time.

        A store that goes away meanwhile is waited for: as long as for a slot, and from the reservation on for `busy_timeout` at least,
        since the job is there from then on.
        """
        end = time.monotonic() + wait_s
        if self.inline_worker is None and not self._any_worker():
            raise ResourceBusy(
                f"resource busy: no worker is running, and this process has no handler for {row.job_type!r}: start one with `rota worker`"
            )
        reservation = self._reserve(row, end)
        self.poke()
        patience = Patience(until=end, outage_s=self.settings.busy_timeout)
        try:
            self._await_start(reservation, end, patience)
            return self._await_end(reservation, patience)
        except (StoreBusy, StoreUnavailable) as error:
            raise AnswerLost(
                f"the direct execution {dashed(reservation.job_id)} is made, and the store was lost while it was waited for: it may have "
                f"run, or run when the store is back. Look at it then, before you do it again. {error}"
            ) from error

    def _reserve(self, row: NewRow, end: float) -> Reservation:
        reservation_id = self.ids.take(1, self.clock.now())[0]
        # Under one id nothing is made twice, whether an answer was lost or not.
        patience = Patience(until=end)
        while True:
            mine = patience.ask(lambda: self._reserve_once(row, reservation_id))
            if mine is not None:
                return mine
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
        if other is None or job is None or not self.scope.holds(job.organization, job.owner):
            return "resource busy: another direct execution held the next slot; try again"
        return f"resource busy: {other.reserved_by} holds the next slot for job {dashed(other.job_id)}; try again when it has ended"

    def _any_worker(self) -> bool:
        found = (worker for worker in self.store.workers() if worker.kind == "worker" and worker.ended_at is None)
        return any(worker.id != self.idle_id and self._lives(worker.id) for worker in found)

    def _lives(self, worker_id: str) -> bool:
        with self.liveness.seize(worker_id) as life:
            return life is not Life.DEAD

    def _run_here(
        self, inline_worker: Callable[[], AbstractContextManager[Worker]], reservation: Reservation, end: float, patience: Patience
    ) -> None:
        """Run the job in this thread. How it stands is looked up after that, also if the worker could not come or go."""
        try:
            with inline_worker() as worker:
                self._turn_until_ended(worker, reservation, end, patience)
        except (StoreBusy, StoreUnavailable):
            time.sleep(LOOK_S)

    def _turn_until_ended(self, worker: Worker, reservation: Reservation, end: float, patience: Patience) -> None:
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

    def _await_start(self, reservation: Reservation, end: float, patience: Patience) -> None:
        """Wait for a worker to take the job; where there is none, or none any more, run it here."""
        look_at = 0.0
        while patience.ask(lambda: self._job(reservation)).status is Status.QUEUED:
            now = time.monotonic()
            if now >= end:
                if patience.ask(lambda: self.store.give_up_waiting(reservation.id, now=self.clock.now())):
                    raise ResourceBusy(patience.ask(self._holders))
                return
            if now >= look_at:
                if self.inline_worker is not None and not patience.ask(self._any_worker):
                    self._run_here(self.inline_worker, reservation, end, patience)
                    continue
                look_at = now + self.settings.recovery_interval
            time.sleep(LOOK_S)

    def _holders(self) -> str:
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
