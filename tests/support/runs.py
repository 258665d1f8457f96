"""Runs, as tests ask for them."""

from __future__ import annotations

from rota import Rota, Run
from rota.model.values import JobRef


def run_of(rota: Rota, job: JobRef) -> Run | None:
    """Return the run of this very attempt; None if it was not started."""
    found = rota.jobs.get(job)
    return next((run for run in rota.jobs.runs(found) if run.job_id == found.id), None)
