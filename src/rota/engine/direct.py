"""Direct execution: reserve the next slot, have one job run in it, wait for its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from rota.engine.worker import Worker
from rota.errors import ResourceBusy, StoreError
from rota.model.gate import EVERYTHING, Scope
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import SECOND, NewRow, Run, dashed
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
        """Run one job ahead of the queue and return its run; raise ResourceBusy if no slot became free in time."""
        end = time.monotonic() + wait_s
        if self.inline_worker is None and not self._any_worker():
            raise ResourceBusy(
                f"resource busy: no worker is running, and this process has no handler for {row.job_type!r}: start one with `rota worker`"
            )
        reservation = self._reserve(row, end)
        self.poke()
        self._await_start(reservation, end)
        return self._await_end(reservation)

    def _reserve(self, row: NewRow, end: float) -> Reservation:
        now = self.clock.now()
        reservation_id = self.ids.take(1, now)[0]
        while True:
            now = self.clock.now()
            row.run_at = now
            mine = self.store.reserve(
                row,
                reservation_id=reservation_id,
                reserved_by=self.owner,
                worker_id=self.owner_id,
                now=now,
                expires_at=now + round(self.settings.reservation_ttl * SECOND),
            )
            if mine is not None:
                return mine
            if time.monotonic() >= end:
                raise ResourceBusy(self._busy_words())
            time.sleep(LOOK_S)

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

    def _turn_until_ended(self, worker: Worker, reservation: Reservation, end: float) -> None:
        while (status := self._status(reservation)) is Status.RUNNING or (status is Status.QUEUED and time.monotonic() < end):
            if status is Status.RUNNING:
                # Its end is all that is left to write: nothing else of the queue may start in the caller's thread.
                worker.begin_stop()
            worker.poke()
            worker.wait(min(LOOK_S, worker.turn()))

    def _await_start(self, reservation: Reservation, end: float) -> None:
        """Wait for a worker to take the job; where there is none, or none any more, run it here."""
        look_at = 0.0
        while self._status(reservation) is Status.QUEUED:
            now = time.monotonic()
            if now >= end:
                if self.store.give_up_waiting(reservation.id, now=self.clock.now()):
                    raise ResourceBusy(self._holders())
                return
            if now >= look_at:
                look_at = now + self.settings.recovery_interval
                if self.inline_worker is not None and not self._any_worker():
                    with self.inline_worker() as worker:
                        self._turn_until_ended(worker, reservation, end)
                    continue
            time.sleep(LOOK_S)

    def _holders(self) -> str:
        if self.scope != EVERYTHING:
            # How much the workers run is the sum of all organizations.
            return "resource busy: no slot became free in time; try again"
        busy = [f"{worker.host}/{worker.id[:8]} ({worker.running} running)" for worker in self.store.workers() if worker.kind == "worker"]
        return f"resource busy: no slot became free in time; held by {', '.join(busy) or 'no worker at all'}"

    def _await_end(self, reservation: Reservation) -> Run:
        """Wait for the end, looking after dead workers meanwhile: ours may have been the only one."""
        sweep_at = time.monotonic() + self.settings.recovery_interval
        while not self._status(reservation).ended:
            time.sleep(LOOK_S)
            if time.monotonic() >= sweep_at:
                sweep_at += self.settings.recovery_interval
                self.sweep()
        run = self.store.run(reservation.job_id)
        if run is None:
            raise ResourceBusy(f"the direct execution {dashed(reservation.job_id)} ended without a run: it was cancelled")
        return run

    def _status(self, reservation: Reservation) -> Status:
        job = self.store.job(reservation.job_id)
        if job is None:
            raise StoreError(f"the direct job {dashed(reservation.job_id)} is gone")
        return job.status
