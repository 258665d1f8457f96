"""The run of one attempt, as surfaces show it beside its job."""

from __future__ import annotations

from rota.app import Rota
from rota.model.gate import Right
from rota.model.states import Status
from rota.model.values import Job, JobRef, Run
from rota.operation import ask_for

FAILURES = frozenset({Status.FAILED, Status.TIMED_OUT, Status.DEAD_LETTER})
"""Ends that lists explain by the error."""


def error_of(rota: Rota, job: Job) -> str:
    """Return why an attempt failed: its error, else its reason; nothing for one that did not fail."""
    if job.status not in FAILURES:
        return ""
    run = run_of(rota, job.id)
    return (run.error if run else None) or job.reason or ""


def run_of(rota: Rota, job: JobRef) -> Run | None:
    """Return the run of this very attempt; None while it has none."""
    ask = ask_for(rota, Right.READ)  # `rota.jobs.runs` would read the whole chain
    return ask.store.run(ask.job(job))
