"""What `rota up` and `rota top` look at, read cheaply: each reading is taken only as often as its own cost allows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from rota.errors import RotaError
from rota.model.figures import Stats
from rota.model.states import TERMINAL, Status
from rota.model.values import Job, Run, WorkerInfo
from rota.surfaces.runs import run_of

if TYPE_CHECKING:
    from rota.app import Rota

T = TypeVar("T")

SHARE = 10
"""A reading that takes a second is taken again after ten: none costs more than a tenth of one core, however large the store."""
LOOK_S = 0.25
WHY_S = 1.0
"""Explanations are sentences: people don't read them four times a second."""
SPARK_SECONDS = 30
RATE_SECONDS = 5
RECENT_MAX = 50
ENDED = tuple(sorted(TERMINAL))


class Current(msgspec.Struct, frozen=True):
    """One job that runs, and how far it says it is."""

    job: Job
    progress: int | None
    message: str


class Waiter(msgspec.Struct, frozen=True):
    """One job that waits, and why."""

    job: Job
    why: str


class Ended(msgspec.Struct, frozen=True):
    """One job that ended, and what it left: its error, its reason or its result."""

    job: Job
    run: Run | None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a frame shows."""

    stats: Stats | None
    workers: list[WorkerInfo]
    pauses: list[tuple[str, str]]
    running: list[Current]
    waiting: list[Waiter]
    ended: list[Ended]
    per_second: list[float]
    rate: float
    trouble: str


class Gauge(Generic[T]):
    """A reading that is kept until it is worth taking again."""

    def __init__(self, read: Callable[[], T], first: T, every_s: float, *, wait_s: float = 0.0) -> None:
        """Take how it is read, what it says before that, how often it may be read at most, and when for the first time."""
        self._read = read
        self._value = first
        self._every_s = every_s
        self._next = time.monotonic() + wait_s
        self.trouble = ""

    @property
    def left_s(self) -> float:
        """How long it is until the next reading."""
        return max(0.0, self._next - time.monotonic())

    def expire(self) -> None:
        """Let the next reading be a new one, whatever it costs."""
        self._next = 0.0

    def value(self) -> T:
        """Return the reading, anew if it is time. A store in trouble leaves the last one."""
        start = time.monotonic()
        if start >= self._next:
            try:
                self._value, self.trouble = self._read(), ""
            except RotaError as error:
                self.trouble = str(error)
            now = time.monotonic()
            self._next = now + max(self._every_s, SHARE * (now - start))
        return self._value


class Watch:
    """Looks at a store through its Rota. Belongs to one thread."""

    def __init__(self, rota: Rota, *, rows: int = 8) -> None:
        """Take the Rota and how many rows of a list are shown at most."""
        self._rota = rota
        self._rows = rows
        self._stats: Gauge[Stats | None] = Gauge(rota.store.stats, None, LOOK_S)
        self._workers: Gauge[list[WorkerInfo]] = Gauge(rota.workers.list, [], WHY_S)
        self._pauses: Gauge[list[tuple[str, str]]] = Gauge(rota.store.pauses, [], WHY_S)
        self._running: Gauge[list[Current]] = Gauge(self._read_running, [], LOOK_S)
        self._waiting: Gauge[list[Waiter]] = Gauge(self._read_waiting, [], WHY_S)
        self._ended: Gauge[list[Ended]] = Gauge(self._read_ended, [], LOOK_S)
        self._gauges: tuple[Gauge[Any], ...] = (self._stats, self._workers, self._pauses, self._running, self._waiting, self._ended)
        self._ran: dict[str, Job] = {}
        self._gone: list[str] = []
        self._recent: dict[str, Job] = {}
        self._runs: dict[str, Run | None] = {}
        self._samples: deque[tuple[float, int]] = deque(maxlen=SPARK_SECONDS + 1)

    def expire(self) -> None:
        """Let the next look be a new one throughout: something changed for good."""
        for gauge in self._gauges:
            gauge.expire()

    def look(self) -> Snapshot:
        """Return what is there now, as far as it was worth reading."""
        stats = self._stats.value()
        if stats is not None:
            self._sample(time.monotonic(), stats.by_status.get(Status.COMPLETED, 0))
        per_second = [max(0.0, (done - before) / (at - since)) for (since, before), (at, done) in pairwise(self._samples)]
        recent = per_second[-RATE_SECONDS:]
        return Snapshot(
            stats=stats,
            workers=[worker for worker in self._workers.value() if worker.kind == "worker"],
            pauses=self._pauses.value(),
            running=self._running.value(),
            waiting=self._waiting.value(),
            ended=self._ended.value(),
            per_second=per_second,
            rate=sum(recent) / len(recent) if recent else 0.0,
            trouble=next((gauge.trouble for gauge in self._gauges if gauge.trouble), ""),
        )

    def _read_running(self) -> list[Current]:
        jobs = self._rota.workers.jobs(limit=200)
        now = {job.id: job for job in jobs}
        self._gone = [*self._gone, *(job_id for job_id in self._ran if job_id not in now)][-RECENT_MAX:]
        self._ran = now
        found = []
        for job in jobs[: 2 * self._rows]:
            run = run_of(self._rota, job.id)
            found.append(Current(job, run.progress if run else None, (run.progress_message if run else None) or ""))
        return found

    def _read_waiting(self) -> list[Waiter]:
        jobs = self._rota.queues.jobs(limit=self._rows)
        stats = self._stats.value()
        if len(jobs) < self._rows and (stats is None or stats.by_status.get(Status.PENDING)):
            pending = self._rota.jobs.list(status=Status.PENDING, limit=RECENT_MAX)
            pending.sort(key=lambda job: (job.blockers > 0, job.run_at or job.created_at, job.sequence_number or 0))
            jobs += pending[: self._rows - len(jobs)]
        explained = [self._rota.explain(job.id) for job in jobs]
        # On a busy store some have started by the time they are explained.
        return [Waiter(each.job, each.summary) for each in explained if each.job.started_at is None and not each.job.status.ended]

    def _read_ended(self) -> list[Ended]:
        """Return what ended last: the newest jobs that ended, and those that were seen running and are not any more."""
        found = self._rota.jobs.list(status=ENDED, limit=RECENT_MAX)
        gone, self._gone = self._gone, []
        found += [self._rota.jobs.get(job_id) for job_id in gone if job_id not in self._recent]
        together = self._recent | {job.id: job for job in found if job.status.ended}
        newest = sorted(together.values(), key=lambda job: job.finished_at or job.created_at, reverse=True)[:RECENT_MAX]
        self._recent = {job.id: job for job in newest}
        self._runs = {
            job.id: self._runs[job.id] if job.id in self._runs else run_of(self._rota, job.id) for job in newest[: 2 * self._rows]
        }
        return [Ended(job, self._runs.get(job.id)) for job in newest]

    def _sample(self, now: float, done: int) -> None:
        if not self._samples or now - self._samples[-1][0] >= 1.0:
            self._samples.append((now, done))
