"""SIGTERM: stop claiming, let what runs finish, give back what has not started, write everything, exit 0."""

from __future__ import annotations

import signal
import threading
from contextlib import closing

import pytest

from rota import Rota
from tests.faults import invariants
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually


@pytest.fixture
def gate(stage):
    return stage.folder / "gate"


@pytest.fixture
def rota(stage):
    with closing(Rota(stage.database)) as made:
        yield made


def hold(stage, rota, gate, count, name="hold", **options):
    """Enqueue so many that wait for the gate, and wait until all are entered."""
    before = len(stage.entries)
    jobs = [rota.enqueue(name, {"gate": str(gate)}, **options) for _ in range(count)]
    eventually(lambda: len(stage.entries) == before + count, within=20, what="handlers at work")
    return jobs


def has_begun_to_stop(rota):
    eventually(lambda: all(worker.stopping_at for worker in rota.workers.list()), what="the beginning of the shutdown in the record")


def test_sigterm_stops_claiming_lets_running_jobs_finish_and_exits_0(stage, rota, gate):
    worker = stage.worker(2)
    running = hold(stage, rota, gate, 2)
    waiting = [rota.enqueue("work", {}) for _ in range(3)]
    worker.send(signal.SIGTERM)
    has_begun_to_stop(rota)
    late = rota.enqueue("work", {})
    gate.touch()

    assert worker.ends() == 0

    assert worker.says("home") == ""
    assert [rota.jobs.get(job.id).status for job in running] == ["COMPLETED"] * 2
    assert [rota.jobs.get(job.id).status for job in [*waiting, late]] == ["QUEUED"] * 4
    assert rota.workers.list() == []
    assert not list(stage.locks.iterdir())
    stage.check()


def test_an_idle_worker_goes_home_at_once(stage):
    worker = stage.worker(2)
    worker.send(signal.SIGTERM)
    assert worker.ends(within=10) == 0


def test_a_sigterm_that_comes_while_the_worker_starts_is_obeyed_all_the_same(stage, rota):
    rota.job(name="work")(lambda ctx, ms=0: None)
    rota.enqueue_many([("work", {"ms": 5})] * 50)
    for _ in range(3):
        worker = stage.start("worker", 2)
        while not rota.workers.list():
            assert worker.alive, worker.text
        worker.send(signal.SIGTERM)
        assert worker.ends() == 0
        assert rota.workers.list() == []
    stage.check()


def test_jobs_claimed_ahead_are_given_back_to_their_own_places(stage, rota):
    worker = stage.worker(2, prefetch=10)
    rota.enqueue_many([("work", {"ms": 1})] * 4)
    eventually(lambda: not invariants.any_live(stage.database), what="a first few, so that the type's mean is known")
    ids = [each.replace("-", "") for each in rota.enqueue_many([("work", {"ms": 40})] * 300).ids]
    order = [each for each in invariants.line(stage.database) if each in set(ids)]
    eventually(lambda: rota.store.stats().by_status.get("RUNNING", 0) > 20, what="jobs claimed ahead")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0

    entered = {root for _, root, _ in stage.entries}
    released = [job for job in rota.jobs.list(status="SKIPPED", limit=400) if job.reason == "released"]
    assert len(released) > 10
    for job in released:
        tail = rota.jobs.attempts(job.id)[-1]
        assert (tail.status, tail.position, tail.priority) == ("QUEUED", job.position, job.priority)
        assert (tail.failures, tail.crashes) == (0, 0)
    assert invariants.line(stage.database) == [root for root in order if root not in entered]
    assert invariants.errors(stage.database) == {}
    stage.check()


@pytest.mark.parametrize("name", ["hold", "hold_apart"])
def test_what_still_runs_when_the_grace_is_over_is_interrupted_and_keeps_its_place_and_budget(stage, rota, gate, name):
    stage.apart = name == "hold_apart"
    worker = stage.worker(2, shutdown_grace=0.3, kill_grace=0.3)
    jobs = hold(stage, rota, gate, 2, name)
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0

    for job in jobs:
        first, second = rota.jobs.attempts(job.id)
        run = run_of(rota, first.id)
        assert (first.status, run.error, run.error_type) == ("FAILED", "Interrupted by shutdown", "interrupted")
        assert (second.status, second.position, second.failures, second.crashes) == ("QUEUED", first.position, 0, 0)
    gate.touch()
    stage.worker(2)
    assert set(stage.drained().values()) == {"COMPLETED"}
    stage.check()


@pytest.mark.parametrize("name", ["hold", "hold_apart"])
def test_a_second_sigterm_interrupts_at_once(stage, rota, gate, name):
    stage.apart = name == "hold_apart"
    worker = stage.worker(2, shutdown_grace=1000, kill_grace=0.3)
    jobs = hold(stage, rota, gate, 2, name)
    worker.send(signal.SIGTERM)
    has_begun_to_stop(rota)
    assert worker.alive
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0

    assert {run_of(rota, job.id).error for job in jobs} == {"Interrupted by shutdown"}
    stage.check()


def test_a_job_without_retries_that_is_interrupted_is_never_entered_again(stage, rota, gate):
    worker = stage.worker(2, shutdown_grace=0.2)
    [job] = hold(stage, rota, gate, 1, "once")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0
    gate.touch()
    stage.worker(2)
    probe = rota.enqueue("work", {})
    rota.wait(probe.id, timeout=patient(20))

    assert [each.status for each in rota.jobs.attempts(job.id)] == ["DEAD_LETTER"]
    assert run_of(rota, job.id).error == "Interrupted by shutdown"
    assert len(stage.entries) == 2


def test_a_job_without_retries_whose_worker_is_killed_is_never_entered_again(stage, rota, gate):
    worker = stage.worker(2)
    [job] = hold(stage, rota, gate, 1, "once")
    worker.kill()
    gate.touch()
    stage.worker(2)
    assert rota.wait(job.id, timeout=patient(20)).error == "Scheduler crash recovery"

    assert [each.status for each in rota.jobs.attempts(job.id)] == ["DEAD_LETTER"]
    assert len(stage.entries) == 1


def test_a_worker_inside_a_program_is_brought_home_at_the_end_of_its_block(stage, rota):
    started, gate = threading.Event(), threading.Event()

    @rota.job
    def slow():
        started.set()
        gate.wait(patient(10))

    with rota.running(concurrency=1):
        job = rota.enqueue("slow")
        started.wait(patient(10))
        threading.Timer(0.1, gate.set).start()
    assert rota.jobs.get(job.id).status == "COMPLETED"
    assert rota.workers.list() == []


def test_a_sigterm_that_meets_a_locked_database_waits_for_it_and_loses_nothing(stage, rota, gate):
    worker = stage.worker(2, busy_timeout=0.2, shutdown_grace=0.5)
    jobs = hold(stage, rota, gate, 2)
    key = stage.folder / "key"
    locker = stage.start("locker", key)
    locker.says("locked")
    gate.touch()
    worker.send(signal.SIGTERM)
    threading.Timer(1.0, key.touch).start()
    assert worker.ends() == 0
    assert locker.ends() == 0

    stage.worker(2, lease_ttl=1)
    assert set(stage.drained().values()) == {"COMPLETED"}
    stage.check()
    assert len(stage.entries) == len(jobs)


def test_a_worker_that_could_not_write_its_last_words_is_seen_to_be_dead_at_once(stage, rota, gate):
    worker = stage.worker(2, busy_timeout=0.2, shutdown_grace=0.5, kill_grace=0.2)
    hold(stage, rota, gate, 2)
    key = stage.folder / "key"
    locker = stage.start("locker", key)
    locker.says("locked")
    worker.send(signal.SIGTERM)
    worker.ends()
    key.touch()
    locker.ends()
    gate.touch()

    # Its lock is free: nobody has to wait for a lease (30 s) to run out.
    stage.worker(2)
    assert set(stage.drained(within=10).values()) == {"COMPLETED"}
    stage.check()


def test_a_shutdown_that_began_while_the_store_was_busy_is_recorded_when_it_is_not(stage, rota, gate):
    worker = stage.worker(2, busy_timeout=0.1, shutdown_grace=1000)
    hold(stage, rota, gate, 2)
    locker = stage.start("locker", 1.0)
    locker.says("locked")
    worker.send(signal.SIGTERM)
    assert locker.ends() == 0
    eventually(lambda: rota.workers.list()[0].stopping_at, within=3, what="the beginning of the shutdown in the record")
