"""Reading: jobs, chains, runs, logs, the queue, and why a job waits."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rota.engine.explain import Explanation, explain
from rota.engine.registry import whole
from rota.errors import InvalidOption, NotFound, WaitTimeout
from rota.model.states import Status
from rota.model.values import Group, Job, Run, Stats, WorkerInfo
from rota.ports.store import Where
from rota.surfaces.python.base import Base
from rota.surfaces.python.results import Log, log_of

WAIT_S = (0.002, 0.025)
"""First and longest pause between two looks of `wait`."""


class Looking(Base):
    """The part of Rota that answers questions."""

    def get(self, job_id: str) -> Job:
        """Return the job of this id (or number, as JOB-2026-00042)."""
        job = self._open().store.job(self._id(job_id))
        if job is None:
            raise NotFound(f"there is no job {job_id!r} in {self.url}")
        return job

    def chain(self, job_id: str) -> list[Job]:
        """Return every attempt of the chain this id belongs to, first to last."""
        chain = self._open().store.chain(self._id(job_id))
        if not chain:
            raise NotFound(f"there is no job {job_id!r} in {self.url}")
        return chain

    def run_of(self, job_id: str) -> Run | None:
        """Return the run of this very job, None while it has none."""
        return self._open().store.run(self._id(job_id))

    def log(self, job_id: str) -> Log:
        """Return the log of this very job: its moves and its handler's lines."""
        job = self.get(job_id)
        return log_of(job, self.run_of(job.id), self._open().log_dir)

    def wait(self, job_id: str, timeout: float | None = None) -> Run | None:
        """Wait for the end of the chain and return its last run; None if it ended without one."""
        tail = self._id(job_id)
        end = None if timeout is None else time.monotonic() + timeout
        pause, longest = WAIT_S
        while True:
            chain = self._open().store.chain(tail)
            if not chain:
                raise NotFound(f"there is no job {job_id!r} in {self.url}")
            if chain[-1].status.ended:
                return self.run_of(chain[-1].id)
            if end is not None and time.monotonic() >= end:
                raise WaitTimeout(f"{chain[-1].number} is still {chain[-1].status} after {timeout:g} s; it goes on, wait again")
            time.sleep(pause)
            pause = min(longest, pause * 1.5)

    async def await_end(self, job_id: str, timeout: float | None = None) -> Run | None:  # noqa: ASYNC109 - the same word as in wait()
        """Wait for the end of the chain without blocking the event loop."""
        import asyncio  # noqa: PLC0415 - its import takes 40 ms, which only async programs need

        return await asyncio.to_thread(self.wait, job_id, timeout)

    def explain(self, job_id: str) -> Explanation:
        """Say why the live job of this chain does not run yet, or how the chain ended."""
        return explain(self._open().store, self._id(job_id), self._clock.now())

    def find(
        self,
        *,
        status: Status | str | Sequence[str] | None = None,
        job_type: str | None = None,
        group: str | None = None,
        text: str | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return jobs, newest first, that match every filter given."""
        wanted = (status,) if isinstance(status, str) else tuple(status or ())
        for each in wanted:
            if each not in set(Status):
                raise InvalidOption(f"status {each!r} is not one of {', '.join(Status)}")
        where = Where(status=tuple(map(str, wanted)), job_type=job_type, group_id=self._group_id(group) if group else None, text=text)
        return [job for _, job in self._open().store.find(where, limit=whole("limit", limit, least=1))]

    def queue(self, *, limit: int = 100) -> list[Job]:
        """Return the QUEUED jobs in the order in which they will be claimed."""
        return self._open().store.queue(limit=whole("limit", limit, least=1))

    def under_way(self, *, limit: int = 100) -> list[Job]:
        """Return what live workers hold RUNNING, the longest first: by index, so it is cheap however long the history is."""
        store = self._open().store
        held = [each.job for worker in store.workers() for each in store.held_by(worker.id, limit=limit)]
        held.sort(key=lambda job: job.started_at)
        found = (store.job(job.job_id) for job in held[:limit])
        return [job for job in found if job is not None and job.status is Status.RUNNING]

    def pauses(self) -> list[tuple[str, str]]:
        """Return what is paused, as (kind, name): ("all", ""), ("template", …), ("organization", …)."""
        return self._open().store.pauses()

    def stats(self) -> Stats:
        """Return counts by state and priority, and ages."""
        return self._open().store.stats(now=self._clock.now())

    def workers(self) -> list[WorkerInfo]:
        """Return the workers that are registered and not ended."""
        return self._open().store.workers()

    def get_group(self, group_id: str) -> Group:
        """Return a group with its status and members."""
        group = self._open().store.group(self._group_id(group_id))
        if group is None:
            raise NotFound(f"there is no group {group_id!r} in {self.url}")
        return group

    def groups(self, *, limit: int = 50) -> list[Group]:
        """Return the newest groups."""
        return self._open().store.groups(limit=whole("limit", limit, least=1))
