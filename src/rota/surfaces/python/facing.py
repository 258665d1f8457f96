"""Chains in the words of other systems: for programs that were written against those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.engine.submit import job_hash
from rota.model.gate import Actor, Right
from rota.model.values import Job, JobRef, Run, undashed
from rota.surfaces.python.base import Base

if TYPE_CHECKING:
    from rota.faces.background_job import BackgroundJob, ExecutionLogEntry


class Facing(Base):
    """The part of Rota that shows a chain as others know it."""

    def background_job(self, job_id: JobRef, *, actor: Actor | str | None = None) -> BackgroundJob:
        """Return the chain of this job as a Background Job: one record for all its attempts."""
        from rota.faces.background_job import background_job  # noqa: PLC0415 - few programs need it

        chain = self._chain_of(job_id, actor, Right.READ)
        tail = chain[-1]
        return background_job(
            chain,
            run=self._session.open().store.run(_inside(tail.id)),
            failed_run=self._failed_run(chain),
            depends_on=self._first_parent(chain[0]),
            job_hash=job_hash(tail.organization, tail.job_type, tail.params),
        )

    def background_job_log(self, job_id: JobRef, *, actor: Actor | str | None = None) -> list[ExecutionLogEntry]:
        """Return the execution log of that Background Job, over all its attempts."""
        from rota.faces.background_job import execution_log  # noqa: PLC0415 - few programs need it

        chain = self._chain_of(job_id, actor, Right.READ_LOG)
        return execution_log(chain, self._session.open().store.log(_inside(chain[0].id)))

    def monque_document(self, job_id: JobRef, *, actor: Actor | str | None = None) -> dict[str, object]:
        """Return the chain of this job as a document of Monque's collection, in extended JSON."""
        from rota.faces.monque import as_document  # noqa: PLC0415 - few programs need it

        chain = self._chain_of(job_id, actor, Right.READ)
        schedule_id = undashed(chain[-1].schedule_id or "")
        schedule = None if schedule_id is None else self._session.open().store.schedule(schedule_id)
        return as_document(chain, failed_run=self._failed_run(chain), schedule=schedule)

    def _chain_of(self, job_id: JobRef, actor: Actor | str | None, operation: Right) -> list[Job]:
        chain = self._session.open().store.chain(self._session.reach(job_id, actor, operation))
        if not chain:
            raise self._session.no_job(job_id)
        return chain

    def _failed_run(self, chain: Sequence[Job]) -> Run | None:
        from rota.faces.background_job import last_failure  # noqa: PLC0415 - few programs need it

        failed = last_failure(chain)
        return None if failed is None else self._session.open().store.run(_inside(failed.id))

    def _first_parent(self, first: Job) -> str | None:
        """Return the number of the parent that the chain waits for, else of its first: that system knows one."""
        graph = self._session.open().store.graph(_inside(first.id), limit=self.settings.graph_max)
        if graph is None:
            return None
        edges = [edge for edge in graph.edges if edge.child == first.root_id and edge.source == "user" and edge.parent in graph.jobs]
        edges.sort(key=lambda edge: (edge.resolved_at is not None, edge.parent))
        return graph.jobs[edges[0].parent].number.partition(".")[0] if edges else None


def _inside(job_id: str) -> str:
    return undashed(job_id) or job_id
