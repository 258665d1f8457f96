"""Several processes on one store: each job once, nobody starves, a lock held long delays and does no more."""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import closing

import psycopg
import pytest

from rota import Rota, Settings
from rota.errors import StoreBusy
from tests.faults import invariants
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired


BUSY = size(4000, prove=8000)
"""Jobs that keep two workers busy for a while."""


@pytest.fixture
def rota(stage):
    with closing(Rota(stage.database)) as made:
        yield made


def shares(stage):
    """How many executions each process had."""
    return Counter(pid for _, _, pid in stage.entries)


@pytest.mark.prove
@pytest.mark.parametrize(("stage", "workers"), [("file", 2), ("file", 4), ("file", 8), ("server", 4)], indirect=["stage"])
def test_every_job_is_executed_once_and_all_processes_make_progress(stage, workers):
    jobs = size(2000, prove=20_000)
    started = [stage.start("worker", 4) for _ in range(workers)]
    for worker in started:
        stage.introduced(worker)
    producers = [stage.producer(jobs // 2, "work"), stage.producer(jobs // 2, "work:0.2")]
    for producer in producers:
        assert producer.ends(within=50) == 0
    ends = stage.drained()

    counts = stage.check()
    assert counts == {"COMPLETED": jobs}
    assert Counter(ends.values()) == {"COMPLETED": jobs}
    assert len(stage.accepted) == len(stage.executed) == jobs
    had = shares(stage)
    assert len(had) == workers, had
    for worker in started:
        worker.send(signal.SIGTERM)
    assert [worker.ends() for worker in started] == [0] * workers
    assert invariants.errors(stage.database) == {}


def test_of_two_busy_processes_neither_starves(stage, rota):
    """Both are there before the work is, so that the shares tell of the lock and not of who was started first."""
    started = [stage.worker(4), stage.worker(4)]
    rota.enqueue_many([("work", {})] * BUSY)
    stage.drained()

    had = shares(stage)
    assert sum(had.values()) == BUSY
    assert len(had) == 2
    assert min(had.values()) > BUSY // 10, had
    assert all(worker.alive for worker in started)
    stage.check()


def test_an_enqueue_is_not_starved_by_two_busy_workers(stage, rota):
    rota.job(name="work", backoff=None)(lambda ctx, ms=0: None)
    started = [stage.worker(4), stage.worker(4)]
    rota.enqueue_many([("work", {})] * BUSY)
    accepted = 0
    while invariants.any_live(stage.database) and accepted < 200:
        rota.enqueue("work", {})
        accepted += 1
    stage.drained()
    assert accepted > 5
    assert all(worker.alive for worker in started)
    stage.check()


def test_processes_that_make_the_database_at_the_same_time_agree(stage):
    if isinstance(stage.database, str):
        with psycopg.connect(stage.database) as raw:
            raw.execute("DROP SCHEMA rota CASCADE")
    started = [stage.start("worker", 1) for _ in range(5)]
    producers = [stage.producer(10, "work") for _ in range(3)]
    for worker in started:
        stage.introduced(worker)
    assert [producer.ends() for producer in producers] == [0] * 3
    assert Counter(stage.drained().values()) == {"COMPLETED": 30}
    stage.check()


def test_a_write_lock_held_for_two_seconds_delays_and_loses_nothing(stage):
    workers = [stage.worker(4), stage.worker(4)]
    producer = stage.producer(1_000_000, "work:1", pause_ms=2)
    eventually(lambda: len(stage.entries) > 100, within=20, what="work under way")
    locker = stage.start("locker", 2.0)
    locker.says("locked")
    with invariants.reading(stage.database) as db:
        [[before]] = db.execute("SELECT count(*) FROM jobs")
    assert locker.ends() == 0
    with invariants.reading(stage.database) as db:
        [[after]] = db.execute("SELECT count(*) FROM jobs")
    eventually(lambda: len(stage.accepted) > after + 50, within=20, what="the producer going on")
    producer.send(signal.SIGTERM)
    assert producer.ends() == 0
    assert set(stage.drained().values()) == {"COMPLETED"}

    stage.check()
    assert after >= before
    assert all(worker.alive for worker in workers)
    assert invariants.errors(stage.database) == {}


def test_a_worker_whose_turns_find_the_store_busy_keeps_its_outcomes_and_goes_on(stage, rota):
    worker = stage.worker(2, busy_timeout=0.1)
    gate = stage.folder / "gate"
    jobs = [rota.enqueue("hold", {"gate": str(gate)}) for _ in range(2)]
    eventually(lambda: len(stage.entries) == 2, what="handlers at work")
    locker = stage.start("locker", 1.5)
    locker.says("locked")
    gate.touch()
    assert locker.ends() == 0
    for job in jobs:
        assert rota.wait(job.id, timeout=patient(10)).status == "COMPLETED"
    assert len(stage.entries) == 2
    assert worker.alive
    assert "outcomes are kept" in worker.text
    stage.check()


def test_a_caller_that_can_wait_no_longer_is_told_so_and_nothing_is_written(stage):
    with closing(Rota(stage.database, settings=Settings(busy_timeout=0.3))) as rota:
        rota.job(name="work")(lambda ctx, ms=0: None)
        kept = rota.enqueue("work", {})
        key = stage.folder / "key"
        locker = stage.start("locker", key)
        locker.says("locked")
        with pytest.raises(StoreBusy, match="busy_timeout"):
            rota.enqueue("work", {})
        with pytest.raises(StoreBusy):
            rota.enqueue_many([("work", {})] * 3)
        with pytest.raises(StoreBusy):
            rota.jobs.cancel(kept.id)
        assert [job.id for job in rota.jobs.list()] == [kept.id]
        assert rota.jobs.get(kept.id).status == "QUEUED"
        key.touch()
        assert locker.ends() == 0
        rota.enqueue("work", {})
        assert len(rota.jobs.list()) == 2
    invariants.check(stage.database)
