"""A forecast is what happens: what it says of a fleet is what a simulation of all of it says, and what the real workers do."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.model.schedules import Fate
from rota.model.values import undashed
from tests.simulation.fleets import START, Told, each_due, fleet, live_through, program
from tests.support.proof import size

TAIL = timedelta(minutes=3)
"""What waits for another schedule is given up by then."""
MANY = size(15, prove=1000)
FEW = size(3, prove=50)
PARTS = 3
"""Tests that share the fleets, and may run at the same time."""

pytestmark = pytest.mark.prove


@pytest.mark.parametrize("part", range(PARTS))
def test_a_forecast_is_what_a_simulation_of_the_whole_fleet_says(part):
    for seed in range(part, MANY, PARTS):
        drawn = fleet(seed)
        with program(drawn) as (kit, _, _):
            end = START + drawn.length
            foretold = kit.app.forecast(start=START, end=end, skipped=True)
            days = (drawn.length + TAIL) / timedelta(days=1)
            told = kit.app.simulate(days, start=START, workers=drawn.workers, concurrency=drawn.concurrency, limit=1_000_000)
            assert foretold.exact_until is None
            rows = [(line.schedule or "", Fate(line.what), line.at, line.until or line.at, line.count) for line in told.story]
            assert said(foretold) == each_due(kit.app, rows, end), seed


@pytest.mark.parametrize("seed", range(FEW))
def test_a_forecast_is_what_real_workers_do(seed):
    drawn = fleet(seed + 7000)
    with program(drawn) as (kit, sleepers, workers):
        end = START + drawn.length
        foretold = kit.app.forecast(start=START, end=end, skipped=True)
        starts = {(item.schedule, item.due_at): item.starts_at for item in foretold if item.fate is Fate.FIRED}
        live_through(kit, sleepers, workers, end + TAIL)
        rows = [(row.schedule, row.fate, row.due_at, row.last_due_at, row.count) for row in kit.app.schedules.occurrences(limit=100_000)]
        assert said(foretold) == each_due(kit.app, rows, end)
        if drawn.workers == 1:
            # Which of several workers is the first to see a free place, and so which job has it, is theirs to find out.
            names = {each.id: each.name for each in kit.app._session.open().store.schedules()}
            ran = {
                (names[undashed(job.schedule_id or "")], job.due_at): job.started_at for job in kit.jobs() if job.due_at and job.started_at
            }
            assert {key: at for key, at in ran.items() if starts.get(key)} == {key: at for key, at in starts.items() if at and key in ran}


def said(foretold) -> list[Told]:
    return sorted((item.due_at, item.schedule, item.fate) for item in foretold)
