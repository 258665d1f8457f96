"""Chains as other systems show them: for programs that were written for those."""

from __future__ import annotations

from collections.abc import Sequence

from rota.engine.submit import job_hash
from rota.faces.background_job import BackgroundJob, ExecutionLogEntry, execution_log, last_failure
from rota.faces.background_job import background_job as face_of
from rota.faces.monque import as_document, schedule_document
from rota.model.values import Job, JobRef, Run, undashed
from rota.operation import Ask
from rota.schedule_views import named


def background_job(ask: Ask, job: JobRef) -> BackgroundJob:
    """Return the chain of this job as a Background Job: one record for all its attempts. For Right.READ."""
    chain = _chain(ask, job)
    tail = chain[-1]
    return face_of(
        chain,
        run=ask.store.run(_inside(tail.id)),
        failed_run=_failed_run(ask, chain),
        depends_on=_first_parent(ask, chain[0]),
        job_hash=job_hash(tail.organization, tail.job_type, tail.params),
    )


def background_job_log(ask: Ask, job: JobRef) -> list[ExecutionLogEntry]:
    """Return the execution log of that Background Job, over all its attempts. For Right.READ_LOG."""
    chain = _chain(ask, job)
    return execution_log(chain, ask.store.log(_inside(chain[0].id)))


def monque_document(ask: Ask, job: JobRef) -> dict[str, object]:
    """Return the chain of this job as a document of Monque's collection, in extended JSON. For Right.READ."""
    chain = _chain(ask, job)
    schedule_id = undashed(chain[-1].schedule_id or "")
    schedule = None if schedule_id is None else ask.store.schedule(schedule_id)
    return as_document(chain, failed_run=_failed_run(ask, chain), schedule=schedule)


def monque_schedule(ask: Ask, name: str, organization: str | None = None) -> dict[str, object]:
    """Return a schedule as a document of Monque's collection: pending until its next due time. For Right.READ."""
    return schedule_document(named(ask, name, organization), now=ask.now)


def _chain(ask: Ask, job: JobRef) -> list[Job]:
    chain = ask.store.chain(ask.job(job))
    if not chain:
        raise ask.session.no_job(job)
    return chain


def _failed_run(ask: Ask, chain: Sequence[Job]) -> Run | None:
    failed = last_failure(chain)
    return None if failed is None else ask.store.run(_inside(failed.id))


def _first_parent(ask: Ask, first: Job) -> str | None:
    """Return the number of the parent that the chain waits for, else of its first: a Background Job has only one."""
    graph = ask.store.graph(_inside(first.id), limit=ask.settings.graph_max)
    if graph is None:
        return None
    edges = [edge for edge in graph.edges if edge.child == first.root_id and edge.source == "user" and edge.parent in graph.jobs]
    edges.sort(key=lambda edge: (edge.resolved_at is not None, edge.parent))
    return graph.jobs[edges[0].parent].number.partition(".")[0] if edges else None


def _inside(job_id: str) -> str:
    return undashed(job_id) or job_id
