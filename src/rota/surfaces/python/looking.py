"""Reading: jobs, chains, runs, the queue, and why a job waits."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from rota.engine.patience import Patience
from rota.errors import NotFound, WaitTimeout
from rota.handle import ended
from rota.model.checks import whole
from rota.model.gate import EVERYTHING, Actor, Operation
from rota.model.lanes import QueueInfo
from rota.model.states import Status
from rota.model.values import Group, Job, JobRef, Run, WorkerInfo, dashed
from rota.surfaces.python.base import Base

if TYPE_CHECKING:
    from rota.engine.explain import Explanation

WAIT_S = (0.002, 0.025)
"""First and longest pause between two looks of `wait`."""
HELD_MAX = 20_000
"""More than one worker can hold: its slots and what it has claimed ahead of them."""


class Looking(Base):
    """The part of Rota that answers questions."""

    def get(self, job_id: JobRef, *, actor: Actor | str | None = None) -> Job:
        """Return the job of this id (or number, as JOB-2026-00042)."""
        job = self._session.open().store.job(self._session.reach(job_id, actor, Operation.READ))
        if job is None:
            raise self._session.no_job(job_id)
        return job

    def chain(self, job_id: JobRef, *, actor: Actor | str | None = None) -> list[Job]:
        """Return every attempt of the chain this id belongs to, first to last."""
        chain = self._session.open().store.chain(self._session.reach(job_id, actor, Operation.READ))
        if not chain:
            raise self._session.no_job(job_id)
        return chain

    def run_of(self, job_id: JobRef, *, actor: Actor | str | None = None) -> Run | None:
        """Return the run of this very job, None while it has none."""
        return self._session.open().store.run(self._session.reach(job_id, actor, Operation.READ))

    def wait(self, job_id: JobRef, timeout: float | None = None, *, actor: Actor | str | None = None) -> Run:
        """Wait for the end of the chain and return its last run: of a chain that completed, or that failed permanently.

        Raises JobCancelled or JobSkipped for a chain that ended so, and WaitTimeout when the time is over.
        A store that goes away meanwhile is waited for: until the timeout, or for `busy_timeout` where there is none.
        """
        end = None if timeout is None else time.monotonic() + timeout
        patience = Patience(outage_s=self.settings.busy_timeout) if end is None else Patience(until=end)
        self._session.open()
        tail = patience.ask(lambda: self._session.reach(job_id, actor, Operation.READ))
        pause, longest = WAIT_S
        while True:
            chain = patience.ask(lambda: self._session.open().store.chain(tail))
            if not chain:
                raise self._session.no_job(job_id)
            if chain[-1].status.ended:
                return ended(chain[-1], patience.ask(partial(self.run_of, chain[-1].id)))
            if end is not None and time.monotonic() >= end:
                raise WaitTimeout(f"{chain[-1].number} is still {chain[-1].status} after {timeout:g} s; it continues, wait again")
            time.sleep(pause)
            pause = min(longest, pause * 1.5)

    async def await_end(
        self,
        job_id: JobRef,
        timeout: float | None = None,  # noqa: ASYNC109 - the same word as in wait()
        *,
        actor: Actor | str | None = None,
    ) -> Run:
        """Wait for the end of the chain without blocking the event loop, or a thread: however many wait, one thread asks for all."""
        watcher = await self._session.watching()
        tail = await watcher.tail(partial(self._session.reach, job_id, actor, Operation.READ), timeout)
        if tail is None:
            raise self._session.no_job(job_id)
        if tail.run is not None and tail.status not in {Status.CANCELLED, Status.SKIPPED}:
            return tail.run
        # The error names what the store has of the job, and reading that would block the loop.
        job = await self._session.calls.call(partial(self.get, dashed(tail.job_id), actor=actor))
        return ended(job, tail.run)

    def explain(self, job_id: JobRef, *, actor: Actor | str | None = None) -> Explanation:
        """Say why the live job of this chain does not run yet, or how the chain ended."""
        from rota.engine.explain import explain  # noqa: PLC0415 - few programs need it

        scope = self._session.scope(actor, Operation.READ)
        found = self._session.job_id(job_id, scope)
        return explain(self._session.open().store, found, self._session.clock.now(), registry=self._session.registry, scope=scope)

    def queue(self, *, limit: int = 100, actor: Actor | str | None = None) -> list[Job]:
        """Return the QUEUED jobs in the order in which they will be claimed."""
        scope = self._session.scope(actor, Operation.READ_STATS)
        return self._session.open().store.queue(limit=whole("limit", limit, least=1), scope=scope)

    def under_way(self, *, limit: int = 100, actor: Actor | str | None = None) -> list[Job]:
        """Return what live workers hold RUNNING, the longest first: by index, so it is cheap however long the history is."""
        scope, store = self._session.scope(actor, Operation.READ), self._session.open().store
        whole("limit", limit, least=1)
        # Where others' jobs are left out, the first of a worker's may all be theirs: look at whatever it can hold.
        look = limit if scope is EVERYTHING else HELD_MAX
        held = [each.job for worker in store.workers() for each in store.held_by(worker.id, limit=look)]
        held = [job for job in held if scope.holds(job.organization_id, job.owner)]
        held.sort(key=lambda job: job.started_at)
        found = (store.job(job.job_id) for job in held[:limit])
        return [job for job in found if job is not None and job.status is Status.RUNNING]

    def pauses(self, *, actor: Actor | str | None = None) -> list[tuple[str, str]]:
        """Return what is paused, as (kind, name): ("all", ""), ("template", …), ("organization", …)."""
        scope = self._session.scope(actor, Operation.READ)
        return [
            (kind, name)
            for kind, name in self._session.open().store.pauses()
            if kind != "organization" or scope.organization in {None, name}
        ]

    def workers(self, *, actor: Actor | str | None = None) -> list[WorkerInfo]:
        """Return the workers that are registered and not ended. They serve all organizations: only a system manager sees them."""
        self._session.scope(actor, Operation.OPERATE)
        return self._session.open().store.workers()

    def queues(self, *, actor: Actor | str | None = None) -> list[QueueInfo]:
        """Return the queues: what waits in each, what runs, and who serves it. Only a system manager sees them."""
        self._session.scope(actor, Operation.OPERATE)
        return self._session.open().store.queues(look=self.settings.metrics_count_max)

    def get_group(self, group_id: str, *, actor: Actor | str | None = None) -> Group:
        """Return a group with its status and members."""
        found = self._session.reach_group(group_id, actor, Operation.READ)
        group = self._session.open().store.group(found)
        if group is None:
            raise NotFound(f"there is no group {dashed(found)} in this store")
        return group

    def groups(self, *, limit: int = 50, actor: Actor | str | None = None) -> list[Group]:
        """Return the newest groups."""
        scope = self._session.scope(actor, Operation.READ)
        return self._session.open().store.groups(limit=whole("limit", limit, least=1), scope=scope)
