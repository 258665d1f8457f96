"""What the hot verbs cost, counted in steps of SQLite's machine: a bound that no slow machine breaks and no slower verb keeps."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.steps import counted

FULL = 4000
"""Jobs that wait in the store already: a verb that walks them all is seen."""

VERBS = {
    "enqueue": lambda desk: desk.put(desk.row("seldom")),
    "claim": lambda desk: desk.claim(1, types=["often"]),
    "end": lambda desk: desk.done(desk.claimed),
    "look": lambda desk: desk.store.turn(desk.request(1, types=("never",))),
}
STEPS_MAX = {"enqueue": 850, "claim": 1400, "end": 1750, "look": 420}
"""Twice what each took when this was written."""

SLOWDOWNS = {
    "enqueue": "CREATE TRIGGER slow AFTER INSERT ON jobs BEGIN SELECT count(params) FROM jobs; END",
    "claim": "CREATE TRIGGER slow AFTER UPDATE OF started_at ON jobs BEGIN SELECT count(params) FROM jobs; END",
    "end": "CREATE TRIGGER slow AFTER UPDATE OF finished_at ON jobs BEGIN SELECT count(params) FROM jobs; END",
    "look": "DROP INDEX jobs_due",
}
"""What makes each of them walk all the jobs."""


@pytest.fixture
def full(desk):
    row = desk.row("often")
    desk.put(*(msgspec.structs.replace(row, job_id=job_id) for job_id in desk.ids.take(FULL, desk.now)))
    desk.put(desk.row("seldom"))
    # The first call also prepares its statements and looks the definitions up.
    for _ in range(2):
        (desk.claimed,) = desk.claim(1, types=["often"])
        desk.done(desk.claimed)
    (desk.claimed,) = desk.claim(1, types=["often"])
    return desk


def cost(desk, verb):
    with counted(desk.store) as found:
        VERBS[verb](desk)
    return found.steps


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_no_more_steps_than_it_did(full, verb):
    assert cost(full, verb) <= STEPS_MAX[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_became_ten_times_slower_is_seen(full, raw, verb):
    usual = STEPS_MAX[verb] / 2
    raw.execute(SLOWDOWNS[verb])
    slow = cost(full, verb)
    assert slow > 10 * usual
    assert slow > STEPS_MAX[verb]


def test_a_verb_takes_as_many_steps_whatever_waits_in_the_store(full):
    before = {verb: cost(full, verb) for verb in ("enqueue", "look")}
    row = full.row("often")
    full.put(*(msgspec.structs.replace(row, job_id=job_id) for job_id in full.ids.take(FULL, full.now)))
    for verb, steps in before.items():
        assert cost(full, verb) <= 1.2 * steps
