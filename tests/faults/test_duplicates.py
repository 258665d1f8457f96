"""Many calls for the same job at the same moment, from several processes: there is one job, and all learn of it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults import invariants
from tests.support.proof import size

pytestmark = [pytest.mark.paired, pytest.mark.prove]

PROCESSES, CALLS = 4, size(50, prove=1000)
OTHERS = PROCESSES * CALLS - 1


def crowd(stage, how):
    """Let them all call; return what each call got: its word and what came with it."""
    gate = stage.folder / "gate"
    programs = [stage.start("crowd", how, CALLS, gate) for _ in range(PROCESSES)]
    for program in programs:
        program.says("ready")
    gate.touch()
    assert [program.ends(within=50) for program in programs] == [0] * PROCESSES
    lines = [line.split(" ") for program in programs for line in program.text.splitlines()]
    said = [(word, rest[0]) for word, *rest in lines if word in {"made", "found", "refused"}]
    assert len(said) == PROCESSES * CALLS, programs[0].text[-2000:]
    return said


def jobs_of(stage, job_type):
    with invariants.reading(stage.database) as db:
        return [row[0] for row in db.execute("SELECT lower(hex(job_id)) FROM jobs WHERE job_type = ?", (job_type,))]


def test_many_enqueues_with_one_key_make_one_job_and_all_callers_get_it(stage):
    said = crowd(stage, "key")
    assert Counter(word for word, _ in said) == {"made": 1, "found": OTHERS}
    assert len({job_id for _, job_id in said}) == 1
    assert len(jobs_of(stage, "work")) == PROCESSES + 1
    invariants.check(stage.database)


def test_many_enqueues_of_the_same_params_make_one_job_and_the_others_are_told_which(stage):
    said = crowd(stage, "params")
    assert Counter(word for word, _ in said) == {"made": 1, "refused": OTHERS}
    assert {job_id.replace("-", "") for _, job_id in said} == set(jobs_of(stage, "unrepeated"))
    assert len(jobs_of(stage, "unrepeated")) == 1
    invariants.check(stage.database)


def test_of_many_submissions_as_many_are_accepted_as_the_limit_says(stage):
    said = crowd(stage, "limit")
    assert Counter(word for word, _ in said) == {"made": 100, "refused": PROCESSES * CALLS - 100}
    assert all(0 < float(seconds) <= 3600 for word, seconds in said if word == "refused")
    assert len(jobs_of(stage, "few")) == 100
    invariants.check(stage.database)
