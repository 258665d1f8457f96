"""Hooks are called by the worker that wrote an outcome, once for each, beside its turns."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import closing

import pytest

from rota import Backoff, Cancelled, Rota
from rota.engine import outcome_log
from rota.errors import InvalidHandler, StoreUnavailable
from rota.hooks import AttemptEvent, On
from tests.docs.pages import page
from tests.engine import outcome_jobs
from tests.engine.outcome_jobs import OutOfStock
from tests.engine.test_engine_recovery import lost_worker
from tests.stores.desk import Desk
from tests.support.app_module import HEAD
from tests.support.pace import patient
from tests.support.prepared import prepare
from tests.support.runs import run_of
from tests.support.waiting import eventually

OUTCOMES = ("completed", "failed", "dead_letter", "cancelled", "skipped")


class Heard:
    """Registers itself for every outcome, and keeps the events."""

    def __init__(self, rota: Rota) -> None:
        self.all: list[tuple[str, AttemptEvent]] = []
        for name in OUTCOMES:
            getattr(rota.on, name)(lambda event, name=name: self.all.append((name, event)))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.all]


@pytest.mark.parametrize("place", ["inline", "thread", "process", "async"])
def test_a_failure_is_reported_once_with_what_is_known_of_it(live, place):
    heard = Heard(live)
    handler = outcome_jobs.out_of_stock_async if place == "async" else outcome_jobs.out_of_stock
    live.job(handler, name="restock", executor="thread" if place == "inline" else place, max_retries=0)
    job = live.enqueue("restock")
    if place == "inline":
        live.turn()
    else:
        with live.running(concurrency=2):
            live.wait(job.id, timeout=patient(30))
    assert heard.names == ["failed", "dead_letter"]
    (_, event), (_, again) = heard.all
    assert event is again
    job, run = live.jobs.get(job.id), run_of(live, job.id)
    assert (event.job, event.number, event.template, event.attempt) == (job.id, job.number, "restock", 1)
    assert (event.organization, event.worker, str(event.status), event.retry_at) == ("default", job.worker_id, "DEAD_LETTER", None)
    assert (event.error, event.traceback, event.exception_type) == (run.error, run.traceback, "tests.engine.outcome_jobs.OutOfStock")
    assert event.duration >= 0
    assert (type(event.exception) is OutOfStock) is (place != "process")


def test_each_failed_attempt_is_reported_and_the_last_one_as_a_dead_letter_too(rota, clock):
    heard = Heard(rota)
    rota.job(outcome_jobs.out_of_stock, name="restock", max_retries=1, backoff=Backoff(base=90, jitter=0))
    job = rota.enqueue("restock")
    rota.turn()
    (_, first), *_ = heard.all
    assert (str(first.status), first.retry_at) == ("FAILED", rota.jobs.attempts(job.id)[-1].run_at)
    clock.advance(minutes=2)
    rota.turn()
    assert [(name, event.attempt) for name, event in heard.all] == [("failed", 1), ("failed", 2), ("dead_letter", 2)]


def test_completions_skips_and_cancellations_have_their_hooks_and_snoozes_none(live):
    heard = Heard(live)
    for handler in (outcome_jobs.skips, outcome_jobs.snoozes, outcome_jobs.holds, outcome_jobs.fine):
        live.job(handler, name=handler.__name__)
    live.job(lambda: None, name="plain")
    for name in ("skips", "snoozes", "fine", "plain"):
        live.enqueue(name)
    held = live.enqueue("holds")
    with live.running():
        eventually(lambda: run_of(live, held.id) and run_of(live, held.id).progress == 1, what="it runs")
        live.jobs.cancel(held.id)
        eventually(lambda: len(heard.all) == 4, what="four outcomes are reported")
    assert sorted((name, event.template) for name, event in heard.all) == [
        ("cancelled", "holds"),
        ("completed", "fine"),
        ("completed", "plain"),
        ("skipped", "skips"),
    ]
    (reason,) = [event.error for name, event in heard.all if name == "skipped"]
    assert reason == "nothing to do"


def test_a_dead_process_and_a_timeout_are_failures_without_an_exception(live):
    heard = Heard(live)
    live.job(outcome_jobs.dies, executor="process", max_retries=0)
    live.job(outcome_jobs.holds, timeout=0.2, max_retries=1, backoff=Backoff(base=900, jitter=0))
    live.enqueue("dies")
    live.enqueue("holds")
    with live.running():
        eventually(lambda: len(heard.all) == 3, within=30, what="both are reported")
    found = {(name, event.template, str(event.status), event.exception, event.exception_type) for name, event in heard.all}
    assert found == {
        ("failed", "dies", "DEAD_LETTER", None, None),
        ("dead_letter", "dies", "DEAD_LETTER", None, None),
        ("failed", "holds", "TIMED_OUT", None, None),
    }


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_lost_workers_attempt_is_reported_by_the_one_that_recovers_it(rota, by_hand):
    heard = Heard(rota)
    rota.job(lambda: None, name="act", max_retries=2)
    job = rota.enqueue("act")
    desk = lost_worker(rota, 1)
    rota.store.recover() if by_hand else rota.turn()
    rota.store.recover()
    (name, event) = heard.all[0]
    assert (name, event.job, event.worker, event.duration, event.error) == ("failed", job.id, desk.worker, None, "Scheduler crash recovery")
    assert heard.names.count("failed") == 1


def test_a_worker_that_is_killed_leaves_its_attempt_to_be_reported_by_another(tmp_path):
    """With a real worker, killed with -9 while its handler runs."""
    path = prepare(tmp_path / "rota.db")
    script = tmp_path / "script.py"
    script.write_text(
        HEAD.format(store=str(path))
        + f"""
import time

@rota.on.failed
def failed(event):
    print("failed", event.job, event.worker, event.error, flush=True)

@rota.job(max_retries=0)
def holds():
    print("holds", flush=True)
    time.sleep({patient(600)})

if __name__ == "__main__":
    rota.run(concurrency=1)
"""
    )
    with closing(Rota(path)) as rota:
        rota.job(lambda: None, name="holds", max_retries=0, max_crashes=1)
        job = rota.enqueue("holds")
        first = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
        assert first.stdout.readline() == "holds\n"
        worker = rota.jobs.get(job.id).worker_id
        first.send_signal(signal.SIGKILL)
        first.wait()
        first.stdout.close()
        second = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
        line = second.stdout.readline()
        second.terminate()
        rest = second.communicate(timeout=patient(30))[0]
    assert line.split() == ["failed", job.id, worker, "Scheduler", "crash", "recovery"]
    assert "failed" not in rest


def test_a_turn_whose_reply_was_lost_is_reported_once(rota, monkeypatch):
    heard = Heard(rota)
    rota.job(outcome_jobs.out_of_stock, name="restock", max_retries=0)
    jobs = [rota.enqueue("restock") for _ in range(3)]
    store = rota._session.open().store
    turn, lost = store.turn, []

    def lose(request):
        turned = turn(request)
        if request.endings and not lost:
            lost.append(request)
            raise StoreUnavailable("the reply was lost")
        return turned

    monkeypatch.setattr(store, "turn", lose)
    for _ in range(5):
        rota.turn()
    assert lost
    assert sorted(event.job for name, event in heard.all if name == "failed") == sorted(job.id for job in jobs)


def test_a_direct_execution_that_outlives_its_reservation_is_reported(rota, clock):
    heard = Heard(rota)
    rota.job(outcome_jobs.out_of_stock, name="restock")
    assert rota.jobs.direct("restock").status == "FAILED"
    desk = Desk(rota._session.open().store)
    desk.ids, desk.now, desk.worker = rota._session.ids, clock.now(), rota._session.ids.take(1, clock.now())[0]
    desk.store.register(desk.worker, host="here", kind="worker", job_types=["restock"], now=desk.now)
    desk.reserve("restock", ttl=60)
    desk.claim_one(types=("restock",))
    clock.advance(seconds=61)
    rota.store.recover()
    assert heard.names == ["failed", "dead_letter"] * 2
    assert heard.all[-1][1].error == "its reservation expired while it ran"


def test_a_hook_that_raises_is_logged_and_hurts_nobody(rota, caplog):
    told = []

    @rota.on.failed
    def breaks(event):
        raise RuntimeError("no network")

    @rota.on.failed
    def leaves(event):
        sys.exit(3)

    rota.on.failed(told.append)
    rota.job(outcome_jobs.out_of_stock, name="restock", max_retries=0)
    job = rota.enqueue("restock")
    rota.turn()
    assert str(rota.jobs.get(job.id).status) == "DEAD_LETTER"
    assert len(told) == 1
    records = [record for record in caplog.records if record.name == "rota.hooks"]
    assert [record.levelname for record in records] == ["ERROR", "ERROR"]
    assert "breaks of rota.on.failed failed" in records[0].getMessage()
    assert isinstance(records[0].exc_info[1], RuntimeError)


def test_a_hook_that_hangs_does_not_hold_up_the_worker(live, monkeypatch, caplog):
    monkeypatch.setattr(outcome_log, "CLOSE_S", 0.1)
    monkeypatch.setattr(outcome_log, "EVENTS_MAX", 5)
    entered, let_go, threads = threading.Event(), threading.Event(), set()

    @live.on.completed
    def hangs(event):
        threads.add(threading.current_thread().name)
        entered.set()
        let_go.wait(patient(60))

    live.job(lambda: None, name="act")
    try:
        with live.running():
            first = live.enqueue("act")
            assert entered.wait(patient(20))
            for _ in range(20):
                assert live.wait(live.enqueue("act").id, timeout=patient(20))
        assert live.jobs.get(first.id).status == "COMPLETED"
        messages = [record.getMessage() for record in caplog.records if record.name == "rota.hooks"]
        assert any(text.startswith("hooks are slower than the worker: 5 events wait") for text in messages)
        assert any("a hook has not returned within 0.1 s" in text for text in messages)
        assert threads == {"rota-hooks"}
    finally:
        let_go.set()


def test_a_worker_calls_every_waiting_hook_before_it_has_stopped(live):
    told, workers = [], []
    live.on.worker_start(lambda event: workers.append(("start", event.worker, event.pid)))
    live.on.worker_stop(lambda event: workers.append(("stop", event.worker, event.pid, len(told))))

    @live.on.completed
    def slowly(event):
        threading.Event().wait(0.01)
        told.append(event.job)

    live.job(lambda: None, name="act")
    jobs = [live.enqueue("act") for _ in range(30)]
    with live.running() as rota:
        worker = rota._session.drivers[0].worker.id
        for job in jobs:
            live.wait(job.id, timeout=patient(20))
    assert sorted(told) == sorted(job.id for job in jobs)
    assert workers == [("start", worker, os.getpid()), ("stop", worker, os.getpid(), 30)]


def test_worker_start_is_over_before_the_first_job_begins(live):
    trail = []
    live.job(lambda: trail.append("job"), name="act")
    job = live.enqueue("act")

    @live.on.worker_start
    def prepare_slowly(event):
        threading.Event().wait(0.2)
        trail.append("start")

    with live.running():
        live.wait(job.id, timeout=patient(20))
    assert trail == ["start", "job"]


def test_turn_and_direct_start_no_worker_in_the_eyes_of_hooks(rota):
    trail = []
    rota.on.worker_start(trail.append)
    rota.on.worker_stop(trail.append)
    rota.job(lambda: None, name="act")
    rota.jobs.direct("act")
    rota.turn()
    rota.close()
    assert trail == []


def test_an_exception_that_was_reported_is_let_go_of(live, monkeypatch):
    monkeypatch.setattr(logging.getLogger("rota.jobs"), "propagate", False)  # pytest keeps every record that reaches the root
    kept = []

    @live.on.failed
    def watch(event):
        kept.append(weakref.ref(event.exception))

    live.job(outcome_jobs.out_of_stock, name="restock", max_retries=0)
    with live.running():
        live.wait(live.enqueue("restock").id, timeout=patient(20))
        eventually(lambda: kept and gc.collect() >= 0 and kept[0]() is None, what="nobody holds the exception while the worker is idle")


def test_a_name_that_is_not_there_and_a_function_that_can_not_be_called_are_refused(rota):
    with pytest.raises(AttributeError):
        rota.on.fialed(print)

    async def later(event):
        """Never awaited."""

    with pytest.raises(InvalidHandler, match=r"later is async.*pass rota.on.failed a plain function"):
        rota.on.failed(later)
    with pytest.raises(InvalidHandler, match="can't be called"):
        rota.on.failed(7)
    assert rota.on.failed(print) is print
    rota.on.failed(print)
    assert rota.on.failed.functions == (print,)


def test_every_hook_is_in_the_guide():
    text = page("docs/guide/hooks.md")
    assert [name for name in (*On.__slots__, *AttemptEvent.__struct_fields__) if f"| `{name}` |" not in text] == []


def test_nobody_registered_costs_no_thread_and_no_call(live):
    live.job(outcome_jobs.fine)
    with live.running():
        live.wait(live.enqueue("fine").id, timeout=patient(20))
        assert "rota-hooks" not in {thread.name for thread in threading.enumerate()}


def test_on_postgresql_each_of_many_outcomes_is_reported_once(database, settings):
    """Where plain completions are written beside the turn."""
    with closing(Rota(database.server.url(), settings=settings)) as rota:
        heard = Heard(rota)
        rota.job(lambda: None, name="plain")
        rota.job(outcome_jobs.out_of_stock, name="restock", max_retries=0)
        jobs = rota.enqueue_many([("plain", {}), ("plain", {}), ("restock", {})] * 200)
        with rota.running():
            eventually(lambda: len(heard.all) >= 800, within=60, what="each outcome is reported")
    assert sorted(event.job for name, event in heard.all if name != "dead_letter") == sorted(jobs)
    assert (heard.names.count("completed"), heard.names.count("failed"), heard.names.count("dead_letter")) == (400, 200, 200)


@pytest.mark.parametrize("kind", [asyncio.CancelledError, Cancelled])
def test_a_hook_that_raises_what_stops_handlers_stops_no_other_hook(live: Rota, kind):
    seen = []

    @live.on.completed
    def first(event):
        raise kind("no")

    live.on.completed(lambda event: seen.append(event.template))
    live.job(lambda: None, name="act")
    with live.running():
        jobs = [live.enqueue("act") for _ in range(3)]
        for job in jobs:
            live.wait(job.id, timeout=patient(20))
        eventually(lambda: len(seen) == 3, what="all hooks")
