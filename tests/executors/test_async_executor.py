"""Tasks of one loop: cancelled when over time, given up when they will not be."""

import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from rota.executors.attempt import Attempt
from rota.model.decide import Completed, Failed, Interrupted, Stopped, TimedOut
from rota.ports.executor import Receipt


def test_a_timeout_cancels_the_task_and_its_finally_runs(make_rig):
    rig = make_rig("async")
    job = rig.submit("tidy", timeout=0.05, started=rig.path("started"), tidied=rig.path("tidied"))
    assert rig.end_of(job).outcome == TimedOut(0.05)
    assert Path(rig.path("tidied")).exists()


def test_a_task_that_swallows_its_cancellation_is_given_up_after_the_grace(make_rig):
    rig = make_rig("async", slots=2, timeout_grace=0.05)
    job = rig.submit("stubborn", timeout=0.05, started=rig.path("started"), go=rig.path("go"))
    end = rig.end_of(job)
    assert end.outcome == TimedOut(0.05)
    assert end.seconds >= 0.1
    assert rig.executor.occupied() == 1
    assert rig.outcome("nothing") == Completed(None)
    Path(rig.path("go")).touch()
    rig.until(lambda: rig.executor.occupied() == 0)
    assert len(rig.ear.ends) == 2


def test_a_handler_that_blocks_the_loop_is_reported_all_the_same(make_rig):
    rig = make_rig("async", timeout_grace=0.05)
    job = rig.submit("block_the_loop", timeout=0.05, started=rig.path("started"), go=rig.path("go"))
    assert rig.end_of(job).outcome == TimedOut(0.05)
    Path(rig.path("go")).touch()
    assert rig.outcome("nothing") == Completed(None)
    assert len(rig.ear.ends) == 2


def test_a_task_that_was_asked_to_stop_and_will_not_still_has_its_timeout(make_rig):
    rig = make_rig("async", timeout_grace=0.05)
    job = rig.submit("stubborn", timeout=0.2, started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    rig.executor.cancel(job.number)
    assert rig.end_of(job).outcome == TimedOut(0.2)
    Path(rig.path("go")).touch()


def test_a_task_that_ignores_an_interrupt_is_given_up_after_the_grace(make_rig):
    rig = make_rig("async", kill_grace=0.05)
    job = rig.submit("stubborn", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    rig.executor.interrupt()
    assert rig.end_of(job).outcome == Interrupted()
    Path(rig.path("go")).touch()
    rig.until(lambda: rig.executor.occupied() == 0)
    assert len(rig.ear.ends) == 1


def test_a_handler_at_a_checkpoint_is_cancelled_once_and_can_tidy_up(make_rig, monkeypatch):
    stop = Attempt.stop

    def stop_slowly(attempt):
        stop(attempt)
        time.sleep(0.05)

    monkeypatch.setattr(Attempt, "stop", stop_slowly)
    rig = make_rig("async")
    rig.ear.answers = False
    job = rig.submit("tidy_after_checkpoint", tidied=rig.path("tidied"))
    rig.until(lambda: rig.ear.waiting)
    rig.executor.interrupt()
    assert rig.end_of(job).outcome == Interrupted()
    assert Path(rig.path("tidied")).exists()


def test_a_handler_whose_checkpoint_is_written_when_it_is_cancelled_is_cancelled_once_too(make_rig):
    rig = make_rig("async")
    rig.ear.answers = False
    job = rig.submit("tidy_after_checkpoint", tidied=rig.path("tidied"))
    rig.until(lambda: rig.ear.waiting)
    loop = rig.executor._loop

    def answer_and_cancel():
        rig.ear.waiting[0](Receipt.WRITTEN)
        loop.call_soon(rig.executor._cancel, job.number)

    loop.call_soon_threadsafe(answer_and_cancel)
    assert rig.end_of(job).outcome == Stopped()
    assert Path(rig.path("tidied")).exists()


def test_a_cancelled_error_of_the_handlers_own_is_a_failure(make_rig):
    outcome = make_rig("async").outcome("cancel_itself")
    assert isinstance(outcome, Failed)
    assert outcome.error == "CancelledError"


@pytest.mark.parametrize("name", ["stop_the_loop", "leave_a_poisoned_task"])
def test_a_handler_can_not_stop_the_loop_for_the_others(make_rig, name):
    rig = make_rig("async", slots=2)
    other = rig.submit("until_file", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    assert rig.outcome(name) == Completed(None)
    Path(rig.path("go")).touch()
    assert rig.end_of(other).outcome == Completed('"late"')


def test_hundreds_of_tasks_wait_side_by_side(make_rig):
    rig = make_rig("async", slots=300)
    rig.executor.submit([rig.job("until_file", started=rig.path("started"), go=rig.path("go")) for _ in range(300)])
    rig.until(lambda: rig.executor.occupied() == 300)
    Path(rig.path("go")).touch()
    rig.until(lambda: len(rig.ear.ends) == 300)


def test_a_job_cancelled_in_the_instant_it_starts_is_stopped(make_rig):
    rig = make_rig("async", slots=2)
    for number in range(40):
        job = rig.submit("until_cancelled", started=rig.path(f"started{number}"))
        rig.executor.cancel(job.number)
        assert isinstance(rig.end_of(job).outcome, Stopped)


def test_an_error_of_our_own_around_the_handler_ends_the_job_as_failed(make_rig, monkeypatch):
    monkeypatch.setattr("rota.executors.aio.run_async", Mock(side_effect=RuntimeError("no tracer")))
    rig = make_rig("async")
    assert rig.outcome("nothing").error == "RuntimeError: no tracer"
    assert rig.executor.occupied() == 0


def test_a_copy_made_by_fork_that_comes_back_ends_and_runs_none_of_the_others(make_rig):
    rig = make_rig("async", slots=4)
    jobs = [rig.job("fork_and_return"), *[rig.job("make_mark", path=rig.path("marks")) for _ in range(6)]]
    rig.executor.submit(jobs)
    assert [rig.end_of(job).outcome.result for job in jobs] == ['"the original"', *[None] * 6]
    assert Path(rig.path("marks")).read_text() == "once\n" * 6
