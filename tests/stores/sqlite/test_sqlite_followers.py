"""What the end of a member costs a group that somebody waits for: the same at its beginning and at its end."""

from __future__ import annotations

import pytest

from rota.model.groups import Mode, OnFailure
from rota.ports.store import NewGroup
from rota.stores.sqlite import SqliteStore
from tests.stores.desk import ANNA, Desk
from tests.support.proof import size
from tests.support.steps import counted

BATCH = 50
STEPS_MAX = 3_000
"""Of SQLite's machine, for each member that ends, with its claim left out."""


@pytest.mark.prove
@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
def test_the_end_of_a_member_does_not_cost_a_look_at_all_the_others(store: SqliteStore, backwards):
    desk, members = Desk(store), size(1_000, prove=10_000)
    then = desk.row("then")
    rows = [desk.row() for _ in range(members)]
    group_id = desk.id()
    store.add_group(
        NewGroup(group_id=group_id, name=None, mode=Mode.PARALLEL, on_failure=OnFailure.CONTINUE, members=list(rows), then=then),
        actor=ANNA,
        now=desk.now,
    )
    jobs = desk.claim(members)
    assert len(jobs) == members
    line = jobs[::-1] if backwards else jobs
    took = []
    for first in range(0, members, BATCH):
        with counted(store) as found:
            desk.done(*line[first : first + BATCH])
        took.append(found.steps / BATCH)
    assert desk.status(then.job_id) == "QUEUED"
    # The last one looks once at how all have ended.
    assert max(took[:-1]) <= max(STEPS_MAX, 3 * took[0])
    assert sum(took) / len(took) <= STEPS_MAX
