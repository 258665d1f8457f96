"""Two versions of a program run at once: each job runs on a worker whose handler takes its parameters, and none is lost to the other."""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import closing

import pytest

from rota import Rota
from tests.support.proof import size
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

EACH = size(20, prove=170)
"""Jobs of each of the three templates, for each version: 1,020 in all."""
BY_NAME = {"added": {"a": 1}, "removed": {"a": 1, "b": 1}, "renamed": {"c": 1}}
"""Jobs of a producer without the code: the first two fit the old version, the last the new one."""


@pytest.mark.prove
def test_while_a_worker_that_fits_lives_no_job_of_either_version_is_dead(stage):
    workers = [stage.start("deployed", version, EACH) for version in ("old", "new")]
    for worker in workers:
        worker.says("started", within=30)
    with closing(Rota(stage.database)) as rota:
        eventually(lambda: len(rota.templates.list()) == 3, what="the templates")
        strangers = [rota.enqueue(name, params) for name, params in BY_NAME.items() for _ in range(5)]
        for worker in workers:
            worker.says("enqueued", within=50)
        total = 6 * EACH + len(strangers)
        eventually(lambda: rota.store.stats().by_status["COMPLETED"] == total, within=50, what="all jobs completed")
        stats = rota.store.stats().by_status
        results = Counter((job.job_type, str(run.result).split()[0]) for job in each_job(rota) for run in rota.jobs.runs(job.id)[-1:])
        assert stats["DEAD_LETTER"] == stats["FAILED"] == 0
        assert [str(job.status()) for job in strangers] == ["COMPLETED"] * len(strangers)
    assert results == {
        ("added", "old"): EACH + 5,
        ("added", "new"): EACH,
        ("removed", "old"): EACH + 5,
        ("removed", "new"): EACH,
        ("renamed", "old"): EACH,
        ("renamed", "new"): EACH + 5,
    }
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [worker.ends() for worker in workers] == [0, 0]
    stage.check()


def each_job(rota):
    """Go through the chains' last attempts."""
    before = None
    while page := rota.jobs.list(status="COMPLETED", limit=500, before=before):
        yield from page
        before = page.next
        if before is None:
            return
