"""Finding workers that are gone and ending what they held. Twice has the effect of once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import msgspec

from rota.engine.outcome_log import HookCalls, log_expired, log_recovered
from rota.errors import StoreBusy, StoreUnavailable
from rota.model.decide import Crashed, Failed, Interrupted, Limits, Outcome, TimedOut, decide, decide_cancelled
from rota.model.settings import Settings
from rota.model.states import ErrorType, Status
from rota.model.values import Claimed, Instant, WorkerInfo, undashed
from rota.ports.clock import Clock, Ids
from rota.ports.liveness import Life, Liveness
from rota.ports.store import Held, Store
from rota.ports.turns import Ending

if TYPE_CHECKING:
    from rota.engine.heartbeat import Renewal
    from rota.engine.log_shipper import LogShipper

log = logging.getLogger("rota.recovery")

REPAIR_SLACK_US: Instant = 3_600_000_000
NOBODY = "0" * 32
"""Stands for the worker of jobs that name none."""
EXCUSES_MAX = 10
"""Crashes that a chain was not charged with, after which it is charged with every one: also a job that kills its worker from a process of
its own is dead-lettered in the end."""


class Recovered(msgspec.Struct):
    """What a recovery did."""

    workers: int = 0
    jobs: int = 0
    successors: int = 0
    reservations: int = 0

    def __bool__(self) -> bool:
        """Say whether anything was done."""
        return bool(self.workers or self.jobs or self.successors or self.reservations)


class Recovery:
    """Watches other workers of a store. Clocks of different machines are never compared: only beats, on our own clock."""

    def __init__(
        self,
        store: Store,
        liveness: Liveness,
        *,
        clock: Clock,
        ids: Ids,
        rng: Random,
        settings: Settings,
        renewal: Renewal | None = None,
        tell_dead: Callable[[Sequence[str]], object] | None = None,
        calls: HookCalls,
        logs: LogShipper | None = None,
    ) -> None:
        """Take what it watches with; `tell_dead` hears of jobs that ended for good, and `calls` of every attempt.

        Without a lease of its own (`renewal`) it leaves alone whom only a beat can judge. `logs`, where the store keeps logs: brings in
        what dead workers of this machine had not shipped.
        """
        self._store = store
        self._liveness = liveness
        self._clock = clock
        self._ids = ids
        self._rng = rng
        self._settings = settings
        self._renewal = renewal
        self._tell_dead = tell_dead
        self._calls = calls
        self._logs = logs
        self._beats: dict[str, tuple[int, float]] = {}

    def sweep(self, own_id: str | None) -> Recovered:
        """End what dead workers held, and reservations whose owner is gone or whose time is over."""
        done = Recovered()
        # Workers before callers: a direct job is ended as what it is, a crash, before its reservation is.
        workers = sorted(self._store.workers(), key=lambda worker: worker.kind != "worker")
        for worker in workers:
            if worker.id != own_id:
                self._look_alone(worker, done)
        self._end_unregistered(own_id, done)
        # Others that live will want the write lock too.
        self._store.crowd(crowded=len(workers) - done.workers - (own_id is not None) > 0)
        self._expire_reservation(done)
        strays = self._store.place_strays()
        if strays:
            log.warning("%d jobs were written by a program of an earlier version of Rota; they are queued now. Update that program", strays)
        return done

    def repair(self) -> Recovered:
        """Look for attempts that failed without getting their successor: not possible by our own hand, still looked for."""
        now = self._clock.now()
        since = self._store.recovered(now=now) - REPAIR_SLACK_US
        torn = self._store.repair(since=since)
        endings = [self._ending(each.job, _as_outcome(each), now) for each in torn]
        return Recovered(successors=self._store.add_successors(endings, now=now) if endings else 0)

    def _look_alone(self, worker: WorkerInfo, done: Recovered) -> None:
        """Look at one worker: what goes wrong with it keeps nobody from looking at the others."""
        try:
            self._look(worker, done)
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception:
            log.exception("worker %s could not be recovered from; retrying", worker.id)

    def _end_unregistered(self, own_id: str | None, done: Recovered) -> None:
        """End jobs that run under a worker that is not on record, or under none. A worker registers before it claims."""
        for worker_id, count in self._store.unregistered():
            if worker_id == own_id:
                continue
            with self._liveness.seize(worker_id or NOBODY) as life:
                if life is Life.ALIVE:
                    continue
                jobs = len(self._end_all(worker_id, Crashed()))
                if worker_id:
                    self._orphan(worker_id, done)
            done.jobs += jobs
            named = f"under worker {worker_id}, which is not registered" if worker_id else "without a worker"
            log.warning("%d jobs were RUNNING %s; recovered %d of them", count, named, jobs)

    def _look(self, worker: WorkerInfo, done: Recovered) -> None:
        with self._liveness.seize(worker.id) as life:
            if worker.ended_at is None and not self._is_gone(worker, life):
                return
            outcome: Outcome = Interrupted() if worker.stopping_at is not None else Crashed()
            reservation = self._store.reservation()
            ended = self._end_all(worker.id, outcome)
            if reservation is not None and reservation.job_number in ended:
                done.reservations += 1
            self._orphan(worker.id, done)
            self._store.end_worker(worker.id, now=self._clock.now())
            self._liveness.forget(worker.id)
        self._beats.pop(worker.id, None)
        done.workers += 1
        done.jobs += len(ended)
        log.warning("worker %s on %s is gone; recovered %d of its jobs", worker.id, worker.host, len(ended))

    def _is_gone(self, worker: WorkerInfo, life: Life) -> bool:
        if life is not Life.UNKNOWN:
            return life is Life.DEAD
        if self._renewal is not None and worker.kind == "worker":
            # It sees no lock of ours either.
            self._renewal.watched = True
        # The record comes first here: one that wakes up in this moment claims nothing, or has beaten before and is left alone.
        return self._stood_still(worker) and self._store.give_up_worker(worker.id, beat=worker.beat, now=self._clock.now())

    def _stood_still(self, worker: WorkerInfo) -> bool:
        """Say whether we have seen the same beat for the whole lease, while our own was renewed: it is not we who are cut off."""
        now = self._clock.monotonic()
        beat, since = self._beats.get(worker.id, (None, now))
        if beat != worker.beat:
            self._beats[worker.id] = (worker.beat, now)
            return False
        ttl = self._settings.lease_ttl
        return now - since >= ttl and self._renewal is not None and self._renewal.steady_s >= ttl

    def _end_all(self, worker_id: str, outcome: Outcome) -> set[int]:
        """End what a worker held, and the reservation of a direct execution with its job; return the numbers of the jobs."""
        ended: set[int] = set()
        fresh = False
        while held := self._store.held_by(worker_id, limit=self._settings.batch):
            now = self._clock.now()
            fresh = fresh or any(not each.job.crashes for each in held)
            endings = [self._ending(each.job, self._blamed(each.job, outcome, fresh=fresh), now) for each in held]
            if self._logs is not None and self._logs.ships:
                self._logs.rescue([each.job for each in held])
            changed = self._store.recover(endings, held, now=now, audit_runs=self._settings.audit_runs)
            ended |= changed.keys()
            if self._logs is not None:
                self._logs.written()
            for ending, each in zip(endings, held, strict=True):
                if ending.number in changed:
                    log_recovered(ending, each.job, changed[ending.number], worker_id, self._calls)
            if self._tell_dead is not None:
                pairs = zip(endings, held, strict=True)
                self._tell_dead([each.job.job_id for ending, each in pairs if ending.transition.status is Status.DEAD_LETTER])
            if not changed:
                break
        return ended

    def _blamed(self, job: Claimed, outcome: Outcome, *, fresh: bool) -> Outcome:
        """Return how a job of a dead worker ends. `fresh`: jobs that no worker had crashed under before were held beside it.

        Those are suspects from now on, one at a time; a suspect that was held beside them ran in a process of its own, or was there alone
        once they had finished. So the crash is not charged to it.
        """
        if not (fresh and job.crashes and isinstance(outcome, Crashed)):
            return outcome
        uncharged = job.attempt - 1 - job.failures - job.crashes - job.snoozes
        # Some of these may have been interrupted or given back: only where they are many is the chain worth reading.
        return Crashed(counts=uncharged >= EXCUSES_MAX and self._excuses(job) >= EXCUSES_MAX)

    def _excuses(self, job: Claimed) -> int:
        """Return how many crashes the chain was not charged with, since somebody last retried it by hand."""
        excuses = 0
        for later, earlier in pairwise(reversed(self._store.chain(job.job_id))):
            if later.crashes < earlier.crashes:
                break  # it was retried by hand, with a fresh budget
            run = self._store.run(str(undashed(earlier.id))) if 0 < later.crashes == earlier.crashes else None
            excuses += run is not None and run.error_type == ErrorType.CRASH
        return excuses

    def _ending(self, job: Claimed, outcome: Outcome, now: Instant) -> Ending:
        limits = Limits(self._settings.snooze_floor, self._settings.max_snoozes)
        return Ending(job.number, now, decide(job, outcome, now, self._rng, limits), decide_cancelled(outcome), self._ids.take(1, now)[0])

    def _orphan(self, worker_id: str, done: Recovered) -> None:
        reservation = self._store.reservation()
        if reservation is not None and reservation.worker_id == worker_id:
            self._store.give_up(reservation.id, now=self._clock.now(), stop_running=False)
            done.reservations += 1

    def _expire_reservation(self, done: Recovered) -> None:
        reservation = self._store.reservation()
        now = self._clock.now()
        if reservation is not None and reservation.expires_at <= now:
            started = self._store.give_up(reservation.id, now=now, stop_running=True)
            done.reservations += 1
            if started and (job := self._store.job(reservation.job_id)) is not None:
                log_expired(job, self._calls)


def _as_outcome(torn: Held) -> Outcome:
    if torn.run_ended == Status.TIMED_OUT:
        return TimedOut(torn.job.timeout)
    return Failed("failed, and its successor was missing")
