"""Threads: fast for short jobs, prompt for long ones, fenced for late ones."""

import ctypes
import threading
import time
from pathlib import Path

import pytest

from rota.model.decide import Completed, Failed, Interrupted, Stopped, TimedOut
from tests.support.pace import patient


def _handler_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("rota-handler")]


def test_a_late_result_is_dropped_and_its_slot_stays_occupied_until_then(make_rig):
    rig = make_rig("thread", slots=1)
    late = rig.submit("until_file", timeout=0.05, started=rig.path("started"), go=rig.path("go"), mark=rig.path("returned"))
    assert rig.end_of(late).outcome == TimedOut(0.05)
    assert rig.executor.occupied() == 1
    waiting = rig.submit("give", value=1)
    assert rig.executor.tick(rig.clock.monotonic()) is None
    assert len(rig.ear.ends) == 1
    Path(rig.path("go")).touch()
    assert rig.end_of(waiting).outcome == Completed("1")
    rig.until(lambda: rig.executor.occupied() == 0)
    assert Path(rig.path("returned")).exists()
    assert len(rig.ear.ends) == 2


def test_a_handler_over_its_timeout_sees_that_it_should_stop(make_rig):
    rig = make_rig("thread")
    job = rig.submit("until_cancelled_then_return", timeout=0.05, started=rig.path("started"))
    assert rig.end_of(job).outcome == TimedOut(0.05)
    rig.until(lambda: rig.executor.occupied() == 0)
    assert len(rig.ear.ends) == 1


def test_what_a_given_up_handler_reports_and_logs_is_dropped(make_rig):
    rig = make_rig("thread", progress_interval=0.0)
    job = rig.submit("report_twice", timeout=0.05, then=rig.path("go"))
    rig.end_of(job)
    before = len(rig.ear.reports)
    Path(rig.path("go")).touch()
    rig.until(lambda: rig.executor.occupied() == 0)
    assert len(rig.ear.reports) == before


def test_blocking_jobs_given_together_all_start_promptly(make_rig):
    rig = make_rig("thread", slots=8)
    jobs = [rig.job("until_file", started=rig.path(f"started{i}"), go=rig.path("go")) for i in range(8)]
    given = time.monotonic()
    rig.executor.submit(jobs)
    rig.until(lambda: rig.executor.occupied() == 8, ticking=False)
    assert time.monotonic() - given < patient(1)
    Path(rig.path("go")).touch()
    rig.until(lambda: len(rig.ear.ends) == 8)


def test_a_job_given_while_others_block_starts_at_once(make_rig):
    rig = make_rig("thread", slots=3)
    for number in range(2):
        rig.submit("until_file", started=rig.path(f"started{number}"), go=rig.path("go"))
        rig.until_exists(f"started{number}")
    assert rig.outcome("nothing") == Completed(None)
    Path(rig.path("go")).touch()


@pytest.mark.serial
def test_short_jobs_do_not_wake_every_thread(make_rig, monkeypatch):
    # A job that no thread has taken by then wakes another: on a busy machine that takes a while.
    monkeypatch.setattr("rota.executors.thread.LOOK_S", patient(1))
    rig = make_rig("thread", slots=8)
    before = len(_handler_threads())
    for _ in range(20):
        rig.executor.submit([rig.job("nothing")])
        rig.until(lambda: len(rig.ear.ends) == rig.number)
        # On a busy machine a thread that has reported its outcome may not be back at rest yet.
        rig.until(lambda: rig.executor._idle)
    assert len(_handler_threads()) - before <= 2


def test_threads_are_daemons_and_idle_ones_end_when_closed(make_rig):
    before = set(_handler_threads())
    rig = make_rig("thread", slots=4)
    rig.run("nothing")
    mine = set(_handler_threads()) - before
    assert mine
    assert all(thread.daemon for thread in mine)
    rig.executor.close()
    for thread in mine:
        thread.join(patient(10))
        assert not thread.is_alive()


def test_an_exception_raised_into_the_thread_from_outside_does_not_take_the_pool_down(make_rig):
    rig = make_rig("thread", slots=1)
    rig.run("nothing")
    (thread,) = [thread for thread in _handler_threads() if thread.is_alive() and thread.name.endswith("-1")][-1:]
    job = rig.submit("until_file", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    assert isinstance(rig.end_of(job).outcome, Failed)
    assert rig.outcome("nothing") == Completed(None)


def test_a_handler_that_ignores_an_interrupt_is_reported_at_once(make_rig):
    rig = make_rig("thread")
    job = rig.submit("stubborn", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    rig.executor.interrupt()
    assert rig.ear.ends[0].job is job
    assert rig.ear.ends[0].outcome == Interrupted()
    Path(rig.path("go")).touch()
    rig.until(lambda: rig.executor.occupied() == 0)
    assert len(rig.ear.ends) == 1


@pytest.mark.parametrize("seed", range(3))
def test_whatever_races_every_job_is_reported_once_or_released(make_rig, seed):
    rig = make_rig("thread", slots=4)
    released, numbers = [], []
    for round_number in range(120):
        jobs = [rig.job("nothing", timeout=1000.0) for _ in range(20)]
        numbers += [job.number for job in jobs]
        rig.executor.submit(jobs)
        rig.executor.cancel(jobs[(round_number + seed) % 20].number)
        rig.executor.cancel(jobs[-1].number)
        if round_number % 7 == seed:
            released += rig.executor.release()
    rig.until(lambda: len(rig.ear.ends) + len(released) >= len(numbers))
    seen = [end.job.number for end in rig.ear.ends] + [job.number for job in released]
    assert sorted(seen) == numbers
    assert {type(end.outcome) for end in rig.ear.ends} <= {Completed, Stopped}


def test_a_cancellation_is_not_lost_between_the_queue_and_the_handler(make_rig):
    rig = make_rig("thread", slots=2)
    for number in range(40):
        job = rig.submit("until_cancelled", started=rig.path(f"started{number}"))
        rig.executor.cancel(job.number)
        assert isinstance(rig.end_of(job).outcome, Stopped)


def test_a_copy_made_by_fork_that_comes_back_ends_and_runs_none_of_the_jobs_that_wait(make_rig):
    rig = make_rig("thread")
    jobs = [rig.job("fork_and_wait"), *[rig.job("mark", path=rig.path("marks")) for _ in range(3)]]
    rig.executor.submit(jobs)
    assert [rig.end_of(job).outcome.result for job in jobs] == ['"the original"', None, None, None]
    assert Path(rig.path("marks")).read_text() == "once\n" * 3
