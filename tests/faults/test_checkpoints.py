"""A state that a handler kept outlives kill -9 of its worker, on every executor."""

from __future__ import annotations

from contextlib import closing

import pytest

from rota import Backoff, Rota
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.runs import run_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

ROUNDS = size(5, prove=100)
"""How often one chain's worker is killed."""


@pytest.mark.parametrize("executor", ["thread", "async", "process"])
def test_a_state_is_given_to_the_attempt_after_the_worker_was_killed(stage, executor):
    marker = stage.folder / "marker"
    worker = stage.start("keeping_worker")
    worker.says("started")
    with closing(Rota(stage.database)) as rota:
        rota.job(name=executor)(lambda marker: None)
        eventually(rota.workers.list, what="the worker")
        job = rota.enqueue(executor, {"marker": str(marker)})
        eventually(marker.exists, within=20, what="the handler past its checkpoint")
        eventually(lambda: run_of(rota, job.id).checkpoint, what="the state on disk")
        worker.kill()

        stage.start("keeping_worker")

        assert rota.wait(job.id, timeout=patient(30)).result == {"page": 3}
        first, second = rota.jobs.attempts(job.id)
        assert (first.status, first.error_type, second.crashes) == ("FAILED", "crash", 1)


@pytest.mark.prove
@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_checkpoint_that_has_returned_is_there_after_the_worker_was_killed_in_the_next_instruction(stage, executor):
    with closing(Rota(stage.database)) as rota:
        rota.job(name=f"{executor}-kills", max_crashes=ROUNDS + 1, backoff=Backoff(base=0))(lambda: None)
        job = rota.enqueue(f"{executor}-kills")
        for attempt in range(1, ROUNDS + 1):
            stage.start("keeping_worker").ends(within=30)
            before = None if attempt == 1 else attempt - 1
            assert run_of(rota, rota.jobs.attempts(job.id)[-1].id).checkpoint == {"attempt": attempt, "before": before}
