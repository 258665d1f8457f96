"""A rate bounds starts as the handlers see them, over several workers, and is made use of."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise

import pytest

from rota import Rota
from tests.support.proof import size
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

PROVED_S = 60
JOBS = size(20, prove=5 * PROVED_S + 100)
PROVES = size(0, prove=1)


@pytest.mark.prove
@pytest.mark.parametrize("executor", ["thread", "process"])
def test_never_more_handlers_start_in_a_second_than_the_rate_says(stage, executor):
    workers = [stage.start("rated"), stage.start("rated")]
    for worker in workers:
        worker.says("started")
    with closing(Rota(stage.database)) as rota:
        rota.job(name=executor, rate_limit="5/1s")(lambda: None)
        eventually(lambda: len(rota.workers.list()) == 2, within=30, what="both workers")
        rota.enqueue_many([(executor, {})] * JOBS)

        def enough():
            at = starts(stage)
            return len(at) == JOBS or (PROVES and at and at[-1] - at[0] > PROVED_S)

        eventually(enough, within=50 if not PROVES else 3 * PROVED_S, what="the jobs started")
        if not PROVES:
            eventually(lambda: rota.store.stats().by_status["COMPLETED"] == JOBS, within=30, what="all jobs completed, each once")
    at = starts(stage)
    close = [six[-1] - six[0] for six in zip(*(at[offset:] for offset in range(6)), strict=False)]
    assert min(close) >= 1.0
    if PROVES:
        assert sum(each - at[0] <= PROVED_S for each in at) >= 270


def test_a_rate_of_one_keeps_starts_apart_over_two_workers(stage):
    workers = [stage.start("rated", "1/200ms"), stage.start("rated", "1/200ms")]
    for worker in workers:
        worker.says("started")
    with closing(Rota(stage.database)) as rota:
        rota.job(name="thread", rate_limit="1/200ms")(lambda: None)
        eventually(lambda: len(rota.workers.list()) == 2, within=30, what="both workers")
        rota.enqueue_many([("thread", {})] * 12)
        eventually(lambda: rota.store.stats().by_status["COMPLETED"] == 12, within=50, what="all jobs completed")
    at = starts(stage)
    assert len(at) == 12
    assert min(later - earlier for earlier, later in pairwise(at)) >= 0.2


def starts(stage) -> list[float]:
    """Return the moments at which handlers started, in their order."""
    text = stage.executed_file.read_text() if stage.executed_file.exists() else ""
    return sorted(float(line) for line in text.split("\n")[:-1])
