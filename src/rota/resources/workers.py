"""Workers that are registered with the store, and the jobs they run."""

from __future__ import annotations

import builtins

from rota.model.checks import whole
from rota.model.gate import EVERYTHING, Right
from rota.model.shapes import Limit
from rota.model.states import Status
from rota.model.values import Job, WorkerInfo
from rota.operation import Ask, Resource, operation

HELD_MAX = 20_000
"""More than one worker can hold: its slots and the jobs it has claimed ahead of them."""


class Workers(Resource):
    """The workers of the store."""

    __slots__ = ()

    @operation(Right.OPERATE, http="GET /workers", cli="workers")
    def list(self, ask: Ask) -> builtins.list[WorkerInfo]:
        """Return the workers that are registered and have not ended.

        They serve all organizations: only a system manager sees them.
        """
        return ask.store.workers()

    @operation(Right.READ)
    def jobs(self, ask: Ask, *, limit: Limit = 100) -> builtins.list[Job]:
        """Return the RUNNING jobs of live workers, the longest running first. It reads an index, so history does not slow it down."""
        store = ask.store
        whole("limit", limit, least=1)
        # The first jobs of a worker may all be outside the scope: then everything that it can hold is looked at.
        look = limit if ask.scope is EVERYTHING else HELD_MAX
        held = [each.job for worker in store.workers() for each in store.held_by(worker.id, limit=look)]
        held = [row for row in held if ask.scope.holds(row.organization_id, row.owner)]
        held.sort(key=lambda row: row.started_at)
        jobs = (store.job(row.job_id) for row in held[:limit])
        return [job for job in jobs if job is not None and job.status is Status.RUNNING]
