"""The run of one attempt, as surfaces show it beside its job."""

from __future__ import annotations

from rota.app import Rota
from rota.model.gate import Right
from rota.model.values import JobRef, Run
from rota.operation import ask_for


def run_of(rota: Rota, job: JobRef) -> Run | None:
    """Return the run of this very attempt; None while it has none."""
    ask = ask_for(rota, Right.READ)  # `rota.jobs.runs` would read the whole chain
    return ask.store.run(ask.job(job))
