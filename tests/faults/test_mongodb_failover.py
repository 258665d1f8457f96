"""What befalls a replica set: its primary is killed under load, also while answers are lost. Nothing acknowledged is lost or done twice."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager

import pytest

from rota import Rota, Settings
from tests.faults.stage import Stage
from tests.support.mongodb import make_lossy_set
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.waiting import eventually

KILLS = size(1, prove=50)
ROUNDS = size(1, prove=20)
LOST = 4
"""Answers that are lost on each line, to the commits that are under way."""
WRITABLE_S = 5.0


@pytest.fixture(scope="module")
def servers():
    """Three members that acknowledge what is in two journals, over lines that can lose answers."""
    made = make_lossy_set(members=3, journal=True)
    yield made
    made.throw_away()


@pytest.fixture
def stage(servers, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Stage(tmp_path, servers.url("faults"))
    yield made
    made.close()
    with servers.client() as client:
        client.drop_database("faults")


@pytest.mark.prove
@pytest.mark.paired
def test_a_primary_that_is_killed_under_load_loses_nothing_and_doubles_nothing(servers, stage):
    workers = [stage.worker(4) for _ in range(2)]
    producers = [stage.start("patient", stage.accepted_file, 10, "work", "flaky") for _ in range(2)]
    longest = 0.0
    for _ in range(KILLS):
        eventually(servers.is_whole, within=60, what="a whole set")
        before = len(stage.entries)
        eventually(lambda before=before: len(stage.entries) >= before + 20, within=30, what="executions")
        primary = servers.primary()
        servers.kill(primary)
        longest = max(longest, _until_written(stage))
        servers.start_member(primary)
        servers.wait_for(primary)
    eventually(servers.is_whole, within=60, what="a whole set")
    for producer in producers:
        producer.send(15)
        assert producer.ends(within=60) == 0, producer.text
    stage.drained(within=60)
    counts = stage.check()
    assert len(set(stage.executed)) == len(stage.executed)
    assert set(counts) == {"COMPLETED", "FAILED"}
    assert all(worker.alive for worker in workers)
    assert longest < patient(WRITABLE_S)
    print(f"{KILLS} kills of the primary; longest until an enqueue was acknowledged: {longest:.2f} s; {dict(counts)}")


@pytest.mark.prove
@pytest.mark.paired
@pytest.mark.timeout(300)
@pytest.mark.parametrize("befalls", ["killed", "stopped"])
def test_a_primary_that_goes_while_answers_are_lost_loses_nothing_and_doubles_nothing(servers, stage, befalls):
    workers = [stage.worker(4, lease_ttl=60, lease_guard=40) for _ in range(2)]
    producer = stage.start("patient", stage.accepted_file, 10, "work", "flaky")
    lost = sum(line.lost for line in servers.lines)
    for _ in range(ROUNDS):
        eventually(servers.is_whole, within=60, what="a whole set")
        before = len(stage.entries)
        eventually(lambda before=before: len(stage.entries) >= before + 20, within=60, what="executions")
        primary = servers.primary()
        servers.lose(LOST)
        if befalls == "killed":
            servers.kill(primary)
            _until_written(stage)
            servers.start_member(primary)
            servers.wait_for(primary)
        else:
            # Others elect a primary. What the old one was asked, and has not answered, it answers when it is none any more.
            with stopped(servers.processes[primary]):
                _until_written(stage)
    assert sum(line.lost for line in servers.lines) > lost
    servers.lose(0)
    eventually(servers.is_whole, within=60, what="a whole set")
    producer.send(signal.SIGTERM)
    assert producer.ends(within=60) == 0, producer.text
    stage.drained(within=60)
    assert set(stage.check()) == {"COMPLETED", "FAILED"}
    assert len(set(stage.executed)) == len(stage.executed)
    assert all(worker.alive for worker in workers)


@contextmanager
def stopped(process):
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _until_written(stage) -> float:
    """Return how long it takes until a job is accepted that nobody tried to add before."""
    begun = time.monotonic()
    rota = Rota(stage.database, settings=Settings(busy_timeout=patient(30)))
    try:
        job = rota.enqueue("work")
    finally:
        rota.close()
    with stage.accepted_file.open("a") as file:
        file.write(f"{job.id}\n")
    return time.monotonic() - begun
