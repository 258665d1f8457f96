"""Many jobs that SQL has created make a claim no dearer: their runs wait in the lane of the handler that they call."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rota import Rota, Settings
from rota.engine.trigger import Trigger
from tests.support.clock import ManualClock
from tests.support.prepared import prepare
from tests.support.proof import size
from tests.support.steps import counted

JOBS = size(400, prove=10_000)
TYPES = 10


def fire(rota: Rota) -> None:
    """Have all that is due become jobs, and start none."""
    session = rota._session
    store = session.open().store
    session.registry.sync(store, session.clock.now())
    trigger = Trigger(store, session.registry, clock=session.clock, ids=session.ids, rng=session.rng, settings=session.settings)
    while trigger.tick():
        pass


def steps_of_claims(path: Path, *, sql: bool) -> tuple[int, int]:
    """Return the steps of SQLite's machine that it takes to claim, run and end one job of each of many schedules, and their lanes."""
    clock = ManualClock()
    rota = Rota(prepare(path), clock=clock, settings=Settings(synchronous="NORMAL", busy_timeout=60), seed=7)

    def work() -> None: ...

    for number in range(TYPES):
        rota.job(name=f"work{number}", executor="inline")(work)
    if sql:
        rota.sql(";".join(f"CREATE JOB j{number} SCHEDULE = EVERY 1 HOUR CALL work0()" for number in range(JOBS)))
    else:
        for number in range(JOBS):
            rota.schedules.create(f"j{number}", f"work{number % TYPES}", every=3600)
    clock.advance(hours=1)
    fire(rota)
    store = rota._session.open().store
    assert rota.store.stats().by_status["QUEUED"] == JOBS
    with counted(store) as found:
        rota.turn()
    assert rota.store.stats().by_status["COMPLETED"] == JOBS
    lanes = len({lane.job_type for lane in store.lanes()})
    rota.close()
    return found.steps, lanes


@pytest.mark.prove
def test_claims_of_many_jobs_of_sql_cost_no_more_than_those_of_ten_types(tmp_path):
    plain, _ = steps_of_claims(tmp_path / "plain.db", sql=False)
    began = time.process_time()
    own, lanes = steps_of_claims(tmp_path / "sql.db", sql=True)
    print(
        f"{JOBS:,} jobs: {plain:,} steps with ten types, {own:,} with SQL; {time.process_time() - began:.1f} s of CPU with CREATE and all"
    )
    assert own < 2 * plain
    assert lanes <= TYPES
