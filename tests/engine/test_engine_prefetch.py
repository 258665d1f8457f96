"""Work claimed ahead of free slots: it must not wait behind a slow handler while another worker is free."""

from __future__ import annotations

import threading

from rota import Rota, Status
from tests.support.pace import patient
from tests.support.waiting import eventually


def measured(rota: Rota) -> None:
    """Let the worker learn how long `quick` takes."""
    for _ in range(20):
        rota.enqueue("quick")
    eventually(lambda: rota.stats().by_status["COMPLETED"] >= 20, what="the first quick jobs")


def test_quick_jobs_are_not_claimed_behind_a_slow_one(live: Rota):
    gate = threading.Event()
    live.job(name="slow")(gate.wait)
    live.job(name="quick")(lambda: None)
    with live.running(concurrency=1):
        measured(live)
        slow = live.enqueue("slow", priority="high")
        eventually(lambda: live.get(slow.id).status is Status.RUNNING, what="the slow job at work")
        jobs = live.enqueue_many([("quick", {})] * 40)
        live.enqueue("slow", priority="low")
        eventually(lambda: live.explain(jobs.ids[0]).summary, what="a look")
        assert {live.get(each).status for each in jobs} == {Status.QUEUED}
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
        live.pause()
        jobs = live.enqueue_many([("quick", {"wait": True})] + [("quick", {})] * 60)
        places = [live.get(each).position for each in jobs]
        live.resume()
        assert stuck.wait(patient(10))
        eventually(lambda: all(live.chain(each)[-1].status is Status.QUEUED for each in jobs.ids[1:]), what="the others back in the queue")
        assert [live.chain(each)[-1].position for each in jobs.ids[1:]] == places[1:]
        assert {job.reason for job in live.chain(jobs.ids[1])[:-1]} <= {"released"}
        gate.set()
        assert live.wait(jobs.ids[-1], timeout=patient(20)).status == "COMPLETED"
