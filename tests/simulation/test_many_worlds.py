"""Small worlds, each with every fault: whatever happens, every due time has one fate and one job at most.

Each seed is a world of its own (schedules of all kinds, zones, calendars, pauses, limits, dependencies, flaky jobs) that is lived
through with crashes in and between writes, clocks that jump by minutes to years and come back, and sleep; in some of them somebody
edits, pauses, disables, enables, deletes and fires schedules meanwhile. A seed that fails here is all that is needed to see it again.
"""

from __future__ import annotations

from collections import Counter

import pytest

from rota import Settings
from rota.simulation import Fault, stage
from rota.simulation.store import ThrowAway
from tests.faults import invariants
from tests.simulation.worlds import Meddler, order, world
from tests.support.proof import size

WORLDS = 20
"""In one test, so that no test takes long."""

TROUBLED, CHANGED = size(40, prove=800), size(20, prove=200)
"""Worlds with faults alone, and worlds in which somebody also changes the schedules."""


def live_through(seed, folder, *, meddled=0, **given):
    folder.mkdir()
    said, wanted = world(seed), order(seed, **given)
    with stage(said, wanted, Settings(), folder=folder) as made:
        somebody = Meddler(seed, made, [each.name for each in said.schedules])
        told = made.play(limit=100_000, deeds=somebody.deeds(wanted, meddled))
        somebody.rota.close()
        assert told.ok, f"seed {seed}: {told.problems[:5]}"
        invariants.check(made.path)
    return told, somebody.done


@pytest.mark.prove
@pytest.mark.parametrize("first", range(0, TROUBLED, WORLDS))
def test_after_any_trouble_every_due_time_has_one_fate_and_one_job_at_most(first, tmp_path):
    befell = set()
    for seed in range(first, first + WORLDS):
        told, _ = live_through(seed, tmp_path / str(seed))
        befell |= {line.what for line in told.story}
    assert set(Fault) <= befell


@pytest.mark.prove
@pytest.mark.parametrize("first", range(1000, 1000 + CHANGED, WORLDS))
def test_whoever_changes_schedules_meanwhile_every_due_time_has_the_fate_of_its_own_definition(first, tmp_path):
    done = Counter()
    for seed in range(first, first + WORLDS):
        done += live_through(seed, tmp_path / str(seed), meddled=12)[1]
    assert set(done) == {"edit", "rule", "pause", "enable", "disable", "fire", "delete"}


@pytest.mark.parametrize("seed", [3, 7, 11])
def test_without_faults_nothing_is_late_coalesced_or_missed(seed, tmp_path):
    told, _ = live_through(seed, tmp_path / "world", faults=(), failures=False)
    assert not {"COALESCED", "MISSED", "REFUSED"} & set(told.totals.not_run)
    assert told.recovered == 0


def test_an_error_that_the_engine_did_not_expect_is_told_and_not_swallowed(tmp_path, monkeypatch):
    real, calls = ThrowAway.fire, []

    def fire(self, *args, **options):
        calls.append(args)
        if len(calls) == 2:
            raise RuntimeError("out of the blue")
        return real(self, *args, **options)

    monkeypatch.setattr(ThrowAway, "fire", fire)
    with stage(world(3), order(3, faults=()), Settings(), folder=tmp_path) as made:
        told = made.play(limit=10)
    assert not told.ok
    assert "out of the blue" in told.problems[0].what
