"""A job that is tried again after a crash of its worker: it delays no other, is named where one waits for it, and starves nobody."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing

import pytest

from rota import Rota, Settings
from tests.faults import invariants
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

ROUNDS = size(4, prove=8)
JOBS = 100
"""More than a worker gets done in a second."""


def crashed(stage, rota, count, program="worker"):
    """Have a worker killed that holds so many long jobs, and start it again; return the jobs, the new worker and their gate."""
    gate = stage.folder / "gate"
    worker = stage.introduced(stage.start(program, 8))
    # All at once: they keep their order when they are tried again, also if the worker takes the first before the last is there.
    jobs = [rota.jobs.get(job_id) for job_id in rota.enqueue_many([("hold", {"gate": str(gate)})] * count)]
    eventually(lambda: len(stage.entries) == count, within=30, what="long jobs at work")
    worker.kill()
    worker = stage.introduced(stage.start(program, 8))
    eventually(lambda: len(stage.entries) == count + 1, within=30, what="the second attempt of the first")
    return jobs, worker, gate


def pids(stage):
    return [int(pid) for _, _, pid in stage.entries]


def registered(rota):
    rota.job(name="hold")(lambda ctx, gate: None)
    rota.job(name="work")(lambda ctx, ms=0: None)
    return rota


def test_a_long_job_that_is_tried_again_after_a_crash_delays_no_other_and_runs_in_a_process_of_its_own(stage):
    with closing(registered(Rota(stage.database))) as rota:
        [suspect], worker, gate = crashed(stage, rota, 1)
        others = [rota.enqueue("work") for _ in range(10)]
        for job in others:
            assert rota.wait(job.id, timeout=patient(20)).status == "COMPLETED"
        # all of them while it runs
        assert rota.jobs.attempts(suspect.id)[-1].status == "RUNNING"
        assert "so it runs in a process of its own" in rota.explain(suspect.id).summary
        second = pids(stage)[1]
        assert second != worker.pid
        assert second in {child.pid for child in worker.children()}
        assert set(pids(stage)[2:]) == {worker.pid}
        gate.touch()
        assert rota.wait(suspect.id, timeout=patient(20)).status == "COMPLETED"
        assert [(job.status, job.crashes) for job in rota.jobs.attempts(suspect.id)] == [("FAILED", 0), ("COMPLETED", 1)]
    stage.check()


def test_of_several_suspects_one_runs_at_a_time_and_is_named_by_those_that_wait(stage):
    with closing(registered(Rota(stage.database))) as rota:
        jobs, _, gate = crashed(stage, rota, 4)
        first, *waiting = [rota.jobs.attempts(job.id)[-1] for job in jobs]
        assert [first.status, *(job.status for job in waiting)] == ["RUNNING", "QUEUED", "QUEUED", "QUEUED"]
        words = f"{first.number} is running: of jobs that a worker crashed under, a worker runs one at a time"
        for job in waiting:
            assert rota.explain(job.id).summary == words
        overview = rota.overview()
        assert [(each.why, each.count, each.words, each.example.number) for each in overview.stuck] == [
            ("suspect", 3, words, waiting[0].number)
        ]
        assert overview.health.concerns[0].what == f"3 jobs wait: {words}"
        gate.touch()
        for job in jobs:
            assert rota.wait(job.id, timeout=patient(30)).status == "COMPLETED"
    assert len(set(stage.executed)) == len(stage.executed) == 8
    stage.check()


def test_a_suspect_that_no_process_can_import_runs_alone_in_its_worker_and_is_named_by_all_that_wait(stage):
    with closing(registered(Rota(stage.database))) as rota:
        [suspect], worker, gate = crashed(stage, rota, 1, program="embedded")
        assert pids(stage)[1] == worker.pid
        other = rota.enqueue("work")
        number = rota.jobs.attempts(suspect.id)[-1].number
        words = f"{number} runs alone: a worker crashed under it before, and nothing else starts on its worker until it finishes"
        assert rota.explain(other.id).summary == words
        assert rota.overview().health.concerns[0].what == f"1 job waits: {words}"
        assert "so it runs alone: its worker starts nothing else until it finishes" in rota.explain(suspect.id).summary
        time.sleep(0.3)
        assert rota.jobs.get(other.id).status == "QUEUED"
        gate.touch()
        assert rota.wait(other.id, timeout=patient(20)).status == "COMPLETED"
        assert rota.wait(suspect.id, timeout=patient(20)).status == "COMPLETED"
    stage.check()


@pytest.mark.prove
def test_with_a_kill_every_second_jobs_go_on_completing_and_no_innocent_one_is_dead_lettered(stage):
    stage.settings["max_crashes"] = 3
    with closing(registered(Rota(stage.database, settings=Settings(max_crashes=3)))) as rota:
        # Two that no second is long enough for: a kill that hits them beside others is not charged to them.
        rota.enqueue_many([("work", {"ms": 2000})] * 2)
        done = 0
        for _ in range(ROUNDS):
            rota.enqueue_many([("work", {"ms": 50})] * JOBS)
            worker = stage.worker(4)
            time.sleep(1)
            # On a machine that is slow a second may be too little to do anything.
            eventually(lambda so_far=done: completed(stage) > so_far, within=30, what="more completed jobs than before")
            worker.kill()
            done = completed(stage)
        stage.worker(8)
        ends = stage.drained(within=60)
        assert Counter(ends.values()) == {"COMPLETED": JOBS * ROUNDS + 2}
        assert invariants.errors(stage.database)["crash", "Scheduler crash recovery"] >= ROUNDS
    stage.check()


def completed(stage):
    return Counter(invariants.tails(stage.database).values())["COMPLETED"]
