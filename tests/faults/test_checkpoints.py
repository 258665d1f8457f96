"""A state that a handler kept outlives kill -9 of its worker, on every executor."""

from __future__ import annotations

from contextlib import closing

import pytest

from rota import Rota
from tests.support.pace import patient
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired


@pytest.mark.parametrize("executor", ["thread", "async", "process"])
def test_a_state_is_given_to_the_attempt_after_the_worker_was_killed(stage, executor):
    marker = stage.folder / "marker"
    worker = stage.start("keeping_worker")
    worker.says("started")
    with closing(Rota(stage.database)) as rota:
        rota.job(name=executor)(lambda marker: None)
        eventually(rota.workers, what="the worker")
        job = rota.enqueue(executor, {"marker": str(marker)})
        eventually(marker.exists, within=20, what="the handler past its checkpoint")
        eventually(lambda: rota.run_of(job.id).checkpoint, what="the state on disk")
        worker.kill()

        stage.start("keeping_worker")

        assert rota.wait(job.id, timeout=patient(30)).result == {"page": 3}
        first, second = rota.chain(job.id)
        assert (first.status, first.error_type, second.crashes) == ("FAILED", "crash", 1)
