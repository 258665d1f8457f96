"""Several machines on one PostgreSQL: one is cut off, one is stopped, one has a wrong clock; no chain runs twice at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing
from datetime import timedelta
from itertools import pairwise

import psutil
import pytest

from rota import Rota, Settings
from rota.engine.heartbeat import EXIT_CUT_OFF
from rota.model.decide import CUT_OFF_ERROR
from rota.model.values import SECOND
from rota.ports.clock import SystemClock
from rota.stores.postgres.address import DOOR
from tests.faults.hosts import SMALL, TIMES, WATCHFUL, Hosts, Network
from tests.support.pace import patient
from tests.support.postgres import TUNED, make_server
from tests.support.runs import run_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

KINDS = ("heedful", "awaiting", "apart")
TTL_S = SMALL["lease_ttl"]
TICK_S = round(TIMES)
"""A schedule so frequent that its times come while a test waits, and so rare that a busy machine misses none."""


@pytest.fixture(scope="module")
def network():
    made = Network()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def server(network):
    made = make_server(**TUNED, listen_addresses=network.here)
    made.allow("host all all 192.0.2.0/24 trust")
    yield made
    made.throw_away()


@pytest.fixture
def hosts(server, network, tmp_path):
    with server.connect() as raw:
        raw.execute("DROP SCHEMA IF EXISTS rota CASCADE")
    network.mend()
    made = Hosts(tmp_path, server.url() + WATCHFUL)
    yield made
    made.close()


@pytest.fixture
def rota(hosts):
    with closing(Rota(hosts.url, settings=Settings(**SMALL))) as made:
        yield made


def enqueue(rota, hosts, *names):
    return [rota.enqueue(name, {"gate": str(hosts.gate)}) for name in names]


def beats(rota):
    return {worker.id: worker.beat for worker in rota.workers.list()}


def seen(rota, program):
    """Wait until a worker has beaten a few times: by then it has looked around, and its handler processes have their lease."""
    before = beats(rota)[program.worker_id]
    eventually(lambda: beats(rota)[program.worker_id] >= before + 4, what=f"beats of {program.worker_id}")


def ends(rota, job):
    return [str(each.status) for each in rota.jobs.attempts(job.id)]


# ---- cut off -------------------------------------------------------------------------------------------------------


def test_a_machine_that_is_cut_off_has_stopped_its_handlers_of_every_kind_when_another_takes_over_and_goes_on_when_it_is_back(
    hosts, rota, network
):
    lost = hosts.worker("lost", prefix=network.prefix)
    jobs = enqueue(rota, hosts, *KINDS)
    for name in KINDS:
        assert hosts.begun(name).host == "lost"
    other = hosts.worker("other")
    seen(rota, lost)

    network.cut()
    cut = time.monotonic()
    for job in jobs:
        eventually(lambda job=job: ends(rota, job) == ["FAILED", "COMPLETED"], what=f"the chain's end\n{hosts.said()}")
        assert run_of(rota, job.id).error == "Scheduler crash recovery"
    for name in KINDS:
        second = hosts.begun(name, 2)
        assert second.host == "other"
        assert hosts.last(name) < second.at, f"{name} ran here and there at once"
        assert second.at - cut > TTL_S - 2 * SMALL["beat"]
    assert lost.alive

    # It comes back, is refused whatever it still had to say, and works on as another.
    network.mend()
    eventually(lambda: len(beats(rota)) == 2, within=20, what=f"its return\n{hosts.said()}")
    assert lost.worker_id not in beats(rota)
    other.send(signal.SIGTERM)
    assert other.ends() == 0
    [again] = enqueue(rota, hosts, "apart")
    hosts.gate.touch()
    assert rota.wait(again.id, timeout=patient(20)).status == "COMPLETED"
    assert [line.host for line in hosts.lines if line.name == "apart"][-1] == "lost"
    assert [ends(rota, job) for job in jobs] == [["FAILED", "COMPLETED"]] * len(KINDS)
    lost.send(signal.SIGTERM)
    assert lost.ends() == 0


def test_a_machine_that_is_back_before_others_take_over_goes_on_under_its_id_and_its_jobs_were_interrupted(hosts, rota, network):
    slow = {"lease_ttl": 12 * TIMES, "lease_guard": 1.5 * TIMES}
    lost = hosts.worker("lost", prefix=network.prefix, **slow)
    jobs = enqueue(rota, hosts, *KINDS)
    for name in KINDS:
        hosts.begun(name)
    hosts.worker("other", **slow)
    seen(rota, lost)

    network.cut()
    eventually(lambda: "stopping all handlers" in lost.text, what="the guard")
    eventually(lambda: max(hosts.last(name) for name in KINDS) < time.monotonic() - 0.5, what="the end of the handlers")
    network.mend()
    for job in jobs:
        eventually(lambda job=job: ends(rota, job) == ["FAILED", "COMPLETED"], within=20, what=f"the chain's end\n{hosts.said()}")
        first, second = rota.jobs.attempts(job.id)
        assert (run_of(rota, first.id).error, second.crashes, second.failures) == (CUT_OFF_ERROR, 0, 0)
    eventually(lambda: "the worker claims jobs again" in lost.text, what="that it goes on")
    assert lost.worker_id in beats(rota)
    assert rota.store.stats().late_results == 0


def test_a_process_whose_threads_do_not_stop_ends_itself_before_others_take_over(hosts, rota, network):
    lost = hosts.worker("lost", prefix=network.prefix)
    [job] = enqueue(rota, hosts, "deaf")
    hosts.begun("deaf")
    hosts.worker("other")
    seen(rota, lost)

    network.cut()
    assert lost.ends() == EXIT_CUT_OFF
    second = hosts.begun("deaf", 2)
    assert (second.host, hosts.last("deaf") < second.at) == ("other", True)
    assert "take over their jobs; exiting" in lost.text
    eventually(lambda: ends(rota, job) == ["FAILED", "COMPLETED"], what="the chain's end")


def test_a_machine_alone_on_its_store_lets_its_handlers_go_on_while_it_is_cut_off(hosts, rota, network):
    lost = hosts.worker("lost", prefix=network.prefix)
    jobs = enqueue(rota, hosts, *KINDS)
    for name in KINDS:
        hosts.begun(name)
    seen(rota, lost)
    network.cut()
    time.sleep(TTL_S + 1)
    assert all(hosts.last(name) > time.monotonic() - patient(0.5) for name in KINDS)
    hosts.gate.touch()
    network.mend()
    for job in jobs:
        eventually(lambda job=job: ends(rota, job) == ["COMPLETED"], within=20, what=f"its end\n{hosts.said()}")


# ---- stopped -------------------------------------------------------------------------------------------------------


def test_of_a_process_that_is_stopped_the_handler_processes_end_themselves_and_its_late_result_is_refused_when_it_wakes(hosts, rota):
    stopped = hosts.worker("stopped")
    jobs = enqueue(rota, hosts, "heedful", "apart")
    first = hosts.begun("apart")
    hosts.begun("heedful")
    hosts.worker("other")
    seen(rota, stopped)

    stopped.send(signal.SIGSTOP)
    began = time.monotonic()
    for job in jobs:
        eventually(lambda job=job: ends(rota, job) == ["FAILED", "COMPLETED"], what=f"the chain's end\n{hosts.said()}")
    for name in ("heedful", "apart"):
        second = hosts.begun(name, 2)
        assert (second.host, hosts.last(name) < second.at) == ("other", True)
    # The process that ran it was not stopped, and nobody told it to end.
    assert hosts.last("apart") - began > 0.3
    assert psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE

    stopped.send(signal.SIGCONT)
    eventually(lambda: "continuing under a new id" in stopped.text, what=f"its awakening\n{hosts.said()}")
    eventually(lambda: rota.store.stats().late_results >= 1, what="its late result")
    eventually(lambda: len(beats(rota)) == 2 and stopped.worker_id not in beats(rota), what="its new id")
    assert [ends(rota, job) for job in jobs] == [["FAILED", "COMPLETED"]] * 2
    assert [line.host for line in hosts.lines if line.what == "end"] == ["other"] * 2


def test_a_process_that_is_stopped_inside_a_transaction_keeps_nobody_out_for_long(hosts, rota):
    """The server ends a transaction of ours that says nothing: else one stopped process would hold the store's door for ever."""
    store = rota._session.open().store
    pid = os.fork()
    if not pid:
        from rota.stores.postgres import PostgresStore

        own = PostgresStore(hosts.url, Settings(**SMALL))
        own._write(lambda _: os.kill(os.getpid(), signal.SIGSTOP))
        os._exit(0)
    try:
        eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, what="the stop")
        began = time.monotonic()
        store.recovered(now=0)
        assert 0.1 < time.monotonic() - began < TTL_S
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_worker_that_is_stopped_inside_its_beat_can_be_given_up(hosts, rota):
    """The lock on its own row goes with its transaction: else what it holds would wait until somebody kills it."""
    store = rota._session.open().store
    worker, now = rota._session.ids.take(1, rota._session.clock.now())[0], rota._session.clock.now()
    store.register(worker, host="h", kind="worker", job_types=[], now=now)
    pid = os.fork()
    if not pid:
        from rota.stores.postgres import PostgresStore
        from rota.stores.verbs import recovery
        from rota.stores.verbs.store import Hold

        def beat(db):
            recovery.beat(db, worker, job_types=[])
            os.kill(os.getpid(), signal.SIGSTOP)

        PostgresStore(hosts.url, Settings(**SMALL))._write(beat, hold=Hold.NOTHING)
        os._exit(0)
    try:
        eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, what="the stop")
        began = time.monotonic()
        store.end_worker(worker, now=now)
        assert 0.1 < time.monotonic() - began < TTL_S
        assert worker not in beats(rota)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_beat_waits_neither_for_the_stores_door_nor_for_a_connection_that_others_wait_with(hosts, server):
    settings = Settings(**(SMALL | {"pool_size": 2, "busy_timeout": 20}))
    with closing(Rota(hosts.url, settings=settings)) as rota:
        store = rota._session.open().store
        rota.job(lambda: None, name="act")
        rota.enqueue("act")
        worker, now = rota._session.ids.take(1, rota._session.clock.now())[0], rota._session.clock.now()
        store.register(worker, host="h", kind="worker", job_types=[], now=now)
        with server.connect() as other:
            other.execute("SELECT pg_advisory_lock(%s, %s)", store.address.key(DOOR))
            waiting = [threading.Thread(target=rota.enqueue, args=("act",)) for _ in range(3)]
            for thread in waiting:
                thread.start()
            time.sleep(0.3)
            began = time.monotonic()
            assert store.beat(worker, job_types=[])
            assert time.monotonic() - began < patient(1)
            assert all(thread.is_alive() for thread in waiting)
        for thread in waiting:
            thread.join(patient(10))


# ---- clocks --------------------------------------------------------------------------------------------------------


def test_machines_whose_clocks_are_an_hour_apart_fire_every_due_time_once_and_give_nobody_up(hosts, rota):
    early = hosts.worker("early", clock_s=3600)
    late = hosts.worker("late", clock_s=-3600)
    rota.schedule("tick", "quick", every=TICK_S)
    assert "3600.0 s ahead of the store's" in early.text
    assert "3600.0 s behind the store's" in late.text
    began = time.monotonic()
    delayed = rota.enqueue("heedful", {"gate": "/"}, run_at=timedelta(seconds=3))
    line = hosts.begun("heedful")
    assert 2.5 < line.at - began < patient(6)
    eventually(lambda: len([line for line in hosts.lines if line.name == "quick"]) >= 8, within=20, what="eight ticks")

    found = rota.schedules.occurrences("tick", limit=100)
    assert {str(each.fate) for each in found} == {"FIRED"}
    at = sorted(each.due_at for each in found)
    assert len(at) == len(set(at))
    assert {later - sooner for sooner, later in pairwise(at)} == {timedelta(seconds=TICK_S)}
    assert rota.schedules.verify().problems == ()
    assert set(beats(rota)) == {early.worker_id, late.worker_id}
    assert "is gone" not in early.text + late.text
    run = run_of(rota, delayed.id)
    assert abs((run.started_at - rota.jobs.get(delayed.id).run_at).total_seconds()) < patient(2)
    assert {str(job.status) for job in rota.jobs.list(limit=100)} <= {"COMPLETED", "RUNNING", "QUEUED"}


def test_times_of_a_handler_process_are_the_stores_whatever_its_machine_says(hosts, rota):
    hosts.worker("early", clock_s=3600)
    hosts.gate.touch()
    [job] = enqueue(rota, hosts, "apart")
    rota.wait(job.id, timeout=patient(20))
    run = run_of(rota, job.id)
    assert abs((run.finished_at - run.started_at).total_seconds()) < 10
    assert abs((run.started_at - rota.jobs.get(job.id).created_at).total_seconds()) < 10


def test_an_edit_from_a_machine_whose_clock_is_an_hour_ahead_leaves_the_ledger_where_it_is(hosts, rota):
    class Wrong(SystemClock):
        def now(self):
            return super().now() + 3600 * SECOND

    hosts.worker("right")
    rota.schedule("often", "quick", every=TICK_S)
    hosts.begun("quick")
    with closing(Rota(hosts.url, settings=Settings(**SMALL))) as wrong:
        wrong._session.follows._own = Wrong()
        wrong.schedules.update("often", every=2 * TICK_S)
    before = len(hosts.lines)
    eventually(lambda: len(hosts.lines) > before, within=6, what="that it goes on")
    assert {str(each.fate) for each in rota.schedules.occurrences("often", limit=100)} == {"FIRED"}
    assert rota.schedules.verify().problems == ()
