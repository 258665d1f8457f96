"""Workers that are killed while a group ends: the job that follows it is there once, and runs once."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import closing

import pytest

from rota import Rota
from rota.model.values import undashed
from tests.support.proof import size

pytestmark = pytest.mark.paired


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(size(1, prove=10)))
def test_a_group_that_ends_under_kills_is_followed_once(stage, seed):
    rng = random.Random(seed)
    members = size(60, prove=300)
    with closing(Rota(stage.database)) as rota:
        jobs = [("flaky", {}) if place % 10 == 0 else ("work", {"ms": rng.choice([1, 20, 60])}) for place in range(members)]
        # The workers declare the templates: a declaration here would replace their backoff of 20 ms with the default of a minute.
        workers = [stage.worker(3), stage.worker(3)]
        group = rota.group(jobs, mode="parallel", then=("work", {"ms": 1}), on_parent_failure="run")
        then = undashed(group.then.root_id)
        kills = 0
        while not rota.jobs.get(group.then.root_id).status.ended:
            time.sleep(rng.random() * 0.3)
            if kills < size(4, prove=40):
                # Both, or the other would end the group while the next worker starts.
                for worker in workers:
                    worker.kill()
                workers = [stage.introduced(each) for each in [stage.start("worker", 3), stage.start("worker", 3)]]
                kills += 2
        assert kills >= 4
        assert rota.groups.get(group.id).status == "COMPLETED"
        chain = rota.jobs.attempts(group.then.root_id)
        assert [str(job.status) for job in chain][-1] == "COMPLETED"
        stage.drained()
    entered = Counter(root for _, root, _ in stage.entries)
    # One attempt, one entry: a second attempt is there only if a worker was killed under the first.
    assert entered[then] <= len(chain)
    assert entered[then] >= 1
    assert len(entered) == members + 1
    stage.check()
