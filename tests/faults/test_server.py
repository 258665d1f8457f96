"""What befalls the server: restarts, crashes, ended sessions, a failover, an impatient administrator. Nothing acknowledged is lost."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from rota import Rota, Settings
from tests.faults import invariants
from tests.faults.stage import Stage
from tests.stores.desk import inside
from tests.support.pace import patient
from tests.support.postgres import fresh_database, make_server
from tests.support.proof import size
from tests.support.pulse import EVERY_S, comes_again, falls_silent
from tests.support.receiver import receiving
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'rota' AND datname = %s"


@pytest.fixture(scope="module")
def server():
    """One that keeps what it has acknowledged, unlike the one that other tests share."""
    made = make_server()
    yield made
    made.throw_away()


@pytest.fixture
def stage(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with fresh_database(server) as url:
        made = Stage(tmp_path, url)
        yield made
        made.close()


def patient_producer(stage, *kinds):
    """A producer that calls again where the store is away."""
    return stage.start("patient", stage.accepted_file, 10, *kinds)


def note(stage, job_id):
    with stage.accepted_file.open("a") as file:
        file.write(f"{job_id}\n")


def some_executions(stage, more):
    before = len(stage.entries)
    eventually(lambda: len(stage.entries) >= before + more, within=30, what=f"{more} more executions\n{stage.said()}")


def comes_out_even(stage, producer, workers):
    """Everything that was accepted ran, once, on the workers that were there all the time; and nothing else is there."""
    if producer.alive:
        producer.send(signal.SIGTERM)
    assert producer.ends(within=30) == 0
    assert set(stage.drained().values()) == {"COMPLETED"}
    stage.check()
    assert sorted(invariants.tails(stage.database)) == sorted(stage.accepted)
    assert Counter(stage.executed) == Counter(stage.accepted)
    assert invariants.errors(stage.database) == {}
    with closing(Rota(stage.database)) as rota:
        assert sorted(worker.id for worker in rota.workers.list()) == sorted(worker.worker_id for worker in workers)
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [worker.ends() for worker in workers] == [0] * len(workers)


def quiet(programs, *, warnings):
    """A word when the store goes away, and not a traceback for each try."""
    for program in programs:
        assert "Traceback" not in program.text, program.text
        said = [line for line in program.text.splitlines() if line.startswith("the store is unavailable")]
        assert len(said) <= warnings, program.text


@pytest.mark.prove
def test_a_server_that_is_restarted_and_crashes_again_and_again_under_load_loses_nothing(stage, server):
    rng = random.Random(7)
    workers = [stage.worker(4), stage.worker(4)]
    producer = patient_producer(stage, "work:2", "work", "work:20")
    modes = ["fast", "immediate"] * size(2, prove=25)
    for mode in modes:
        some_executions(stage, 10)
        time.sleep(rng.random() * 0.3)
        server.stop(mode)
        server.start()
    some_executions(stage, 20)
    comes_out_even(stage, producer, workers)
    quiet(workers, warnings=2 * len(modes))


def test_sessions_that_are_ended_again_and_again_cost_a_moment_and_hints_work_when_it_is_over(stage, server):
    """Here only hints wake a worker that is idle: it would look by itself in a minute."""
    workers = [stage.worker(4, poll_hinted=60), stage.worker(4, poll_hinted=60)]
    producer = patient_producer(stage, "work:2", "work", "work:20")
    database = stage.database.rpartition("/")[2]
    ended = 0
    with server.connect() as raw:
        for _ in range(15):
            some_executions(stage, 3)
            ended += len(raw.execute(f"SELECT pg_terminate_backend(pid) FROM ({SESSIONS}) AS theirs", (database,)).fetchall())
        some_executions(stage, 20)
        assert ended > 45
        producer.send(signal.SIGTERM)
        assert producer.ends(within=30) == 0
        stage.drained()
        eventually(lambda: len(raw.execute(f"{SESSIONS} AND query LIKE 'LISTEN%%'", (database,)).fetchall()) == 2, what="two that listen")
    with closing(Rota(stage.database)) as rota:
        rota.job(name="work")(lambda ctx, ms=0: None)
        for _ in range(3):
            job = rota.enqueue("work")
            note(stage, job.id)
            assert rota.wait(job.id, timeout=patient(5)).status == "COMPLETED"
    comes_out_even(stage, producer, workers)
    quiet(workers, warnings=15)


def test_who_waits_for_an_end_or_a_direct_execution_waits_through_a_restart(stage, server):
    worker, gate = stage.worker(2), stage.folder / "gate"
    with closing(Rota(stage.database)) as rota, ThreadPoolExecutor(2) as pool:
        rota.job(name="hold")(lambda gate: None)
        job = rota.enqueue("hold", {"gate": str(gate)})
        waits = [pool.submit(rota.wait, job.id), pool.submit(rota.jobs.direct, "hold", {"gate": str(gate)})]
        eventually(lambda: len(stage.entries) == 2, what="handlers at work")
        server.stop("immediate")
        server.start()
        gate.touch()
        runs = [each.result(patient(30)) for each in waits]
        assert [str(run.status) for run in runs] == ["COMPLETED"] * 2
        assert sorted(stage.executed) == sorted(inside(run.job_id) for run in runs)
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_workers_that_are_told_to_end_while_the_server_is_away_keep_what_they_have_to_write_and_write_it_when_it_is_back(stage, server):
    busy, gate = stage.worker(2), stage.folder / "gate"
    with closing(Rota(stage.database)) as rota:
        for _ in range(2):
            note(stage, rota.enqueue("hold", {"gate": str(gate)}).id)
    eventually(lambda: len(stage.entries) == 2, what="handlers at work")
    idle = stage.worker(2)
    server.stop()
    gate.touch()
    for worker in (busy, idle):
        worker.send(signal.SIGTERM)
    assert idle.ends() == 0
    assert "could not deregister the worker" in idle.text
    assert busy.alive
    server.start()
    assert busy.ends() == 0
    assert set(stage.drained().values()) == {"COMPLETED"}
    assert Counter(stage.executed) == Counter(stage.accepted)
    quiet([busy, idle], warnings=1)


# ---- failover ------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair():
    """A server, and a replica that acknowledges each commit before it counts."""
    primary = make_server()
    replica = make_server(replica_of=primary)
    primary.set("synchronous_standby_names", "*")
    with primary.connect() as raw:
        eventually(lambda: raw.execute("SELECT sync_state FROM pg_stat_replication").fetchall() == [("sync",)], what="the replica in step")
    yield primary, replica
    primary.throw_away()
    replica.throw_away()


def test_when_the_server_is_gone_and_its_replica_takes_over_nothing_acknowledged_is_lost_and_workers_go_on_there(
    pair, tmp_path, monkeypatch
):
    primary, replica = pair
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    places = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/postgres"
    url = f"{places}?target_session_attrs=read-write"
    with closing(Stage(tmp_path, url)) as stage:
        workers = [stage.worker(4), stage.worker(4)]
        producer = patient_producer(stage, "work:2", "work", "work:20")
        some_executions(stage, 200)
        primary.kill()
        before = len(stage.accepted)
        eventually(lambda: all("the store is unavailable" in worker.text for worker in workers), what="that they notice")
        replica.promote()
        some_executions(stage, 50)
        assert len(stage.accepted) > before
        comes_out_even(stage, producer, workers)
        quiet(workers, warnings=2)
        assert Rota(url).store.url == places


# ---- an impatient administrator --------------------------------------------------------------------------------------


def test_statements_that_an_administrator_lets_be_broken_off_are_made_again_and_nothing_is_lost(stage, server):
    with closing(Rota(stage.database)) as rota:
        rota.store.stats()
    limits = {"statement_timeout": "100ms", "lock_timeout": "1ms", "idle_session_timeout": "500ms"}
    with server.connect() as raw:
        if raw.info.server_version < 140000:
            del limits["idle_session_timeout"]
        for name, value in limits.items():
            raw.execute(f"ALTER ROLE postgres SET {name} = '{value}'")
        try:
            workers = [stage.worker(4), stage.worker(4)]
            producer = patient_producer(stage, "work:2", "work", "work:20")
            for _ in range(4):
                some_executions(stage, 20)
                locker = stage.start("locker", 0.4)
                locker.ends()
            some_executions(stage, 20)
            comes_out_even(stage, producer, workers)
        finally:
            raw.execute("ALTER ROLE postgres RESET ALL")
    said = [program.text for program in [*workers, producer]]
    assert any("broke off a statement" in each and "statement_timeout" in each for each in said), said
    # The slower the machine, the more statements take longer than they may.
    quiet(workers, warnings=round(patient(8)))


def test_no_pulse_is_sent_while_the_server_is_stopped(server, stage):
    with receiving() as receiver:
        settings = Settings(pulse_url=receiver.url("/200"), pulse_every=EVERY_S, busy_timeout=0.5)
        with closing(Rota(stage.database, settings=settings)) as rota, rota.running():
            comes_again(receiver)
            server.stop()
            try:
                falls_silent(receiver)
            finally:
                server.start()
            comes_again(receiver)
