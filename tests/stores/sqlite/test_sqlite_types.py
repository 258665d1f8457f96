"""A claim costs what is ready, and not what a worker knows: SQLite's own steps are counted, not seconds."""

from __future__ import annotations

from contextlib import contextmanager

import apsw
import pytest

from rota.stores.sqlite.db import ARMS_MAX, Db, candidates
from tests.stores.desk import Desk
from tests.support.proof import size

pytestmark = pytest.mark.prove

MANY = size(1000, prove=5000)
JOBS = 2000
STEPS_A_TYPE, STEPS_A_JOB, STEPS_A_NAME = 60, 130, 10
"""Bounds for one type that has something ready, one job that is offered, and one name that the worker knows."""


@contextmanager
def counted(raw: apsw.Connection):
    """Count the steps of SQLite's virtual machine in a block."""
    steps: list[int] = []
    raw.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]))
    try:
        yield steps
    finally:
        raw.trace_v2(0, None)


def lanes_of(raw: apsw.Connection, known: int) -> tuple[int, ...]:
    """Return the lanes of this many types: those that have had a job, and others that the worker knows."""
    names = [f"t{n}" for n in range(known)]
    found = dict(raw.execute("SELECT job_type, lane FROM lanes"))
    return tuple(found.get(name, 1_000_000 + place) for place, name in enumerate(names))


def steps_of_claim(raw: apsw.Connection, known: int, want: int) -> int:
    lanes = lanes_of(raw, known)
    with counted(raw) as steps:
        offered = Db(raw).candidates(lanes, want, slim=True, suspects=True)
    assert offered
    return sum(steps)


def test_a_claim_costs_the_types_that_have_something_ready_and_the_jobs_that_are_wanted(desk, raw):
    desk.put(*(desk.row(f"t{n}") for n in range(0, MANY, 10)))
    for want in (8, 100):
        assert steps_of_claim(raw, MANY, want) < STEPS_A_TYPE * MANY / 10 + STEPS_A_JOB * want + STEPS_A_NAME * MANY


def test_a_claim_costs_no_more_where_the_queue_is_deep(desk, raw):
    desk.put(*(desk.row(f"t{n}") for n in range(0, MANY, 10)))
    shallow = steps_of_claim(raw, MANY, 20)
    for _ in range(20):
        desk.put(*(desk.row(f"t{n}") for n in range(0, MANY, 10)))
    assert steps_of_claim(raw, MANY, 20) < 1.1 * shallow


def test_types_that_have_nothing_ready_cost_their_name(desk, raw):
    desk.put(*(desk.row(f"t{n}") for n in range(50)))
    few, many = steps_of_claim(raw, ARMS_MAX + 1, 50), steps_of_claim(raw, MANY, 50)
    assert many - few < STEPS_A_NAME * (MANY - ARMS_MAX)


def steps_of_drain(desk: Desk, types: int) -> float:
    """Claim and end jobs in batches as large as a worker's; return all steps of the turns that it took, for each job."""
    names = tuple(f"t{n}" for n in range(types))
    desk.put(*(desk.row(names[n % types]) for n in range(JOBS)))
    with counted(desk.store._write(lambda db: db.raw)) as steps:
        while some := desk.claim(500, types=names):
            desk.done(*some)
    return sum(steps) / JOBS


def test_a_drain_over_many_types_takes_few_more_steps_than_over_ten(desk):
    ten = steps_of_drain(desk, 10)
    assert steps_of_drain(desk, MANY) < 3 * ten


@pytest.mark.parametrize("types", [1, ARMS_MAX, ARMS_MAX + 1, MANY])
def test_the_driver_keeps_every_claim_prepared(desk, raw, types):
    """It compiles anew, at each call, a statement that is too long for its cache."""
    desk.add("t0")
    for slim in (False, True):
        for _ in range(2):
            lanes = lanes_of(raw, types)
            before = raw.cache_stats()
            Db(raw).candidates(lanes, 5, slim=slim, suspects=True)
            after = raw.cache_stats()
        assert after["too_big"] == 0
        assert (after["misses"], after["hits"]) == (before["misses"], before["hits"] + 1)


def test_one_arm_more_than_a_claim_has_still_fits_the_drivers_cache():
    assert all(len(candidates(ARMS_MAX + 1, slim=slim, suspects=True)) <= 16_384 for slim in (False, True))
