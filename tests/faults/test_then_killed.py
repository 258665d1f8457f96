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
    members, wanted = size(60, prove=300), size(4, prove=40)
    chains: dict[str | None, int] = {}
    with closing(Rota(stage.database)) as rota:
        # The workers declare the templates: a declaration here would replace their backoff of 20 ms with the default of a minute.
        workers = [stage.worker(3), stage.worker(3)]
        kills = 0
        # A group may end between two kills where the machine is busy: then there is another one.
        while kills < wanted:
            jobs = [("flaky", {}) if place % 10 == 0 else ("work", {"ms": rng.choice([1, 20, 60])}) for place in range(members)]
            group = rota.group(jobs, mode="parallel", then=("work", {"ms": 1}), on_parent_failure="run")
            while not rota.jobs.get(group.then.root_id).status.ended:
                time.sleep(rng.random() * 0.3)
                if kills < wanted:
                    # Both, or the other would end the group while the next worker starts.
                    for worker in workers:
                        worker.kill()
                    workers = [stage.introduced(each) for each in [stage.start("worker", 3), stage.start("worker", 3)]]
                    kills += 2
            assert rota.groups.get(group.id).status == "COMPLETED"
            chain = rota.jobs.attempts(group.then.root_id)
            assert [str(job.status) for job in chain][-1] == "COMPLETED"
            chains[undashed(group.then.root_id)] = len(chain)
        stage.drained()
    entered = Counter(root for _, root, _ in stage.entries)
    # One attempt, one entry: a second attempt is there only if a worker was killed under the first.
    assert all(1 <= entered[then] <= attempts for then, attempts in chains.items())
    assert len(entered) == (members + 1) * len(chains)
    stage.check()
