"""Work claimed ahead of free slots: it must not wait behind a slow handler while another worker is free."""

from __future__ import annotations

import threading

from rota import Rota, Status
from rota.surfaces.cli.journal import counted
from tests.support.pace import patient
from tests.support.waiting import eventually


def measured(rota: Rota) -> None:
    """Let the worker learn how long `quick` takes."""
    for _ in range(20):
        rota.enqueue("quick")
    eventually(lambda: rota.store.stats().by_status["COMPLETED"] >= 20, what="the first quick jobs")


def test_quick_jobs_are_not_claimed_behind_a_slow_one(live: Rota):
    gate = threading.Event()
    live.job(name="slow")(gate.wait)
    live.job(name="quick")(lambda: None)
    with live.running(concurrency=1):
        measured(live)
        slow = live.enqueue("slow", priority="high")
        eventually(lambda: live.jobs.get(slow.id).status is Status.RUNNING, what="the slow job at work")
        jobs = live.enqueue_many([("quick", {})] * 40)
        live.enqueue("slow", priority="low")
        eventually(lambda: live.explain(jobs.ids[0]).summary, what="a look")
        assert {live.jobs.get(each).status for each in jobs} == {Status.QUEUED}
        gate.set()
        live.wait(jobs.ids[-1], timeout=patient(20))


def test_what_was_claimed_ahead_of_a_handler_that_turned_out_slow_is_given_back_to_its_place(live: Rota):
    gate = threading.Event()
    stuck = threading.Event()

    @live.job
    def quick(wait: bool = False) -> None:
        if wait:
            stuck.set()
            gate.wait()

    with live.running(concurrency=1):
        measured(live)
        live.store.pause()
        jobs = live.enqueue_many([("quick", {"wait": True})] + [("quick", {})] * 60)
        places = [live.jobs.get(each).position for each in jobs]
        live.store.resume()
        assert stuck.wait(patient(10))
        eventually(
            lambda: all(live.jobs.attempts(each)[-1].status is Status.QUEUED for each in jobs.ids[1:]), what="the others back in the queue"
        )
        assert [live.jobs.attempts(each)[-1].position for each in jobs.ids[1:]] == places[1:]
        assert {job.reason for job in live.jobs.attempts(jobs.ids[1])[:-1]} <= {"released"}
        gate.set()
        assert live.wait(jobs.ids[-1], timeout=patient(20)).status == "COMPLETED"


def test_figures_count_handlers_that_run_and_what_is_claimed_ahead_apart(live: Rota, monkeypatch):
    monkeypatch.setattr("rota.engine.worker.STALL_S", 600.0)  # what was claimed ahead stays with its worker for the look
    gate, stuck = threading.Event(), threading.Event()

    @live.job
    def quick(wait: bool = False) -> None:
        if wait:
            stuck.set()
            gate.wait()

    with live.running(concurrency=2):
        measured(live)
        live.store.pause()
        live.enqueue_many([("quick", {"wait": True})] * 2 + [("quick", {})] * 60)
        live.store.resume()
        assert stuck.wait(patient(10))
        try:
            (worker,) = live.workers.list()
            stats, seen = live.store.stats(), live.overview()
            assert (worker.slots, worker.running, stats.running, seen.running.count) == (2, 2, 2, 2)
            assert worker.claimed_ahead == stats.claimed_ahead == seen.running.claimed_ahead > 0
            assert stats.by_status["RUNNING"] == worker.holds == 2 + worker.claimed_ahead
            assert seen.counts is not None
            assert (seen.counts.running, seen.counts.claimed_ahead) == (2, worker.claimed_ahead)
            assert f"2 running, {worker.claimed_ahead} claimed ahead" in counted(stats)
        finally:
            gate.set()


def test_a_worker_that_runs_handlers_in_the_callers_thread_has_one_slot(rota: Rota):
    seen = []
    rota.job(name="act")(lambda: seen.extend(rota.workers.list()))
    rota.enqueue_many([("act", {})] * 3)
    rota.turn()
    assert {(worker.slots, worker.running) for worker in seen if worker.kind == "worker"} == {(1, 1)}
