"""A thousand calls for the same job at the same moment, from several processes: there is one job, and all learn of it (U1)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults import invariants

pytestmark = pytest.mark.paired

PROCESSES, CALLS = 4, 250


def crowd(stage, how):
    """Let them all call; return what each call got: its word and what came with it."""
    gate = stage.folder / "gate"
    programs = [stage.start("crowd", how, CALLS, gate) for _ in range(PROCESSES)]
    for program in programs:
        program.says("ready")
    gate.touch()
    assert [program.ends(within=40) for program in programs] == [0] * PROCESSES
    lines = [line.split(" ") for program in programs for line in program.text.splitlines()]
    said = [(word, rest[0]) for word, *rest in lines if word in {"made", "found", "refused"}]
    assert len(said) == PROCESSES * CALLS, programs[0].text[-2000:]
    return said


def jobs_of(stage, job_type):
    with invariants.reading(stage.database) as db:
        return [row[0] for row in db.execute("SELECT lower(hex(job_id)) FROM jobs WHERE job_type = ?", (job_type,))]


def test_a_thousand_enqueues_with_one_key_make_one_job_and_all_callers_get_it(stage):
    said = crowd(stage, "key")
    assert Counter(word for word, _ in said) == {"made": 1, "found": 999}
    assert len({job_id for _, job_id in said}) == 1
    assert len(jobs_of(stage, "work")) == PROCESSES + 1
    invariants.check(stage.database)


def test_a_thousand_enqueues_of_the_same_params_make_one_job_and_the_others_are_told_which(stage):
    said = crowd(stage, "params")
    assert Counter(word for word, _ in said) == {"made": 1, "refused": 999}
    assert {job_id.replace("-", "") for _, job_id in said} == set(jobs_of(stage, "unrepeated"))
    assert len(jobs_of(stage, "unrepeated")) == 1
    invariants.check(stage.database)


def test_of_a_thousand_submissions_as_many_are_accepted_as_the_limit_says(stage):
    said = crowd(stage, "limit")
    assert Counter(word for word, _ in said) == {"made": 100, "refused": 900}
    assert all(0 < float(seconds) <= 3600 for word, seconds in said if word == "refused")
    assert len(jobs_of(stage, "few")) == 100
    invariants.check(stage.database)
