"""Handlers of a worker that is cut off: stopped from outside the engine's thread, or by themselves when their time is over."""

import threading
import time
from pathlib import Path

import psutil
import pytest

from rota.model.decide import CUT_OFF_ERROR, Completed, Interrupted, Released
from tests.support.pace import patient

pytestmark = pytest.mark.paired

CUT_OFF = Interrupted(CUT_OFF_ERROR)
CONCURRENT = ["thread", "async", "process", "runner"]


def from_another_thread(call):
    """The engine's own thread may be waiting for an answer that never comes."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def still(rig, fact):
    """Wait without a tick: nobody turns the wheel meanwhile."""
    rig.until(fact, ticking=False)


@pytest.mark.parametrize("place", CONCURRENT)
def test_a_handler_that_is_cut_off_is_told_and_ends_as_interrupted_although_nobody_ticks(make_rig, place):
    rig = make_rig(place)
    job = rig.submit("until_cancelled", started=rig.path("started"))
    rig.until_exists("started")
    from_another_thread(lambda: rig.executor.cut(5.0))
    still(rig, lambda: rig.ear.ends)
    still(rig, lambda: rig.executor.occupied() == 0)
    assert [(end.job.number, end.outcome) for end in rig.ear.ends] == [(job.number, CUT_OFF)]


@pytest.mark.parametrize("place", CONCURRENT)
def test_what_waits_when_it_is_cut_off_never_starts_and_is_given_back_or_released(make_rig, place):
    rig = make_rig(place)
    rig.submit("until_cancelled", started=rig.path("started"))
    rig.until_exists("started")
    waiting = rig.submit("until_file", started=rig.path("never"), go=rig.path("go"))
    from_another_thread(lambda: rig.executor.cut(5.0))
    still(rig, lambda: rig.executor.occupied() == 0)
    late = rig.submit("until_file", started=rig.path("never"), go=rig.path("go"))
    back = rig.executor.release()
    ended = {end.job.number: end.outcome for end in rig.ear.ends}
    for job in (waiting, late):
        assert job in back or ended[job.number] == Released()
    assert not Path(rig.path("never")).exists()


@pytest.mark.parametrize("place", CONCURRENT)
def test_a_handler_that_returns_although_it_was_cut_off_keeps_its_result(make_rig, place):
    rig = make_rig(place)
    job = rig.submit("until_cancelled_then_return", started=rig.path("started"))
    rig.until_exists("started")
    from_another_thread(lambda: rig.executor.cut(5.0))
    still(rig, lambda: rig.ear.ends)
    assert isinstance(rig.end_of(job).outcome, Completed)


@pytest.mark.parametrize(("place", "handler"), [("thread", "stubborn"), ("async", "block_the_loop"), ("runner", "stubborn")])
def test_one_that_heeds_nothing_stays_occupied_also_after_closing(make_rig, place, handler):
    rig = make_rig(place)
    rig.submit(handler, started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    from_another_thread(lambda: rig.executor.cut(0.01))
    rig.executor.close()
    assert rig.executor.occupied() == 1
    Path(rig.path("go")).touch()
    still(rig, lambda: rig.executor.occupied() == 0)


def test_a_task_that_swallows_its_cancellation_stays_occupied_until_its_loop_is_closed(make_rig):
    rig = make_rig("async")
    rig.submit("stubborn", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    from_another_thread(lambda: rig.executor.cut(0.01))
    time.sleep(0.1)
    assert rig.executor.occupied() == 1
    rig.executor.close()
    still(rig, lambda: rig.executor.occupied() == 0)


def test_a_process_that_heeds_nothing_is_killed_with_its_programs_when_the_grace_is_over_although_nobody_ticks(make_rig):
    rig = make_rig("process")
    job = rig.submit("start_program_deaf", pids=rig.path("pids"))
    rig.until_exists("pids")
    began = time.monotonic()
    from_another_thread(lambda: rig.executor.cut(0.2))
    still(rig, lambda: rig.ear.ends)
    assert rig.end_of(job).outcome == CUT_OFF
    assert 0.2 <= time.monotonic() - began < patient(2)
    still(rig, lambda: gone(rig.path("pids")))


# ---- the lease of a handler process --------------------------------------------------------------------------------


def test_a_process_ends_itself_with_its_programs_when_its_lease_is_not_renewed(make_rig):
    rig = make_rig("process")
    job = rig.submit("start_program_deaf", pids=rig.path("pids"))
    rig.until_exists("pids")
    end = time.monotonic() + 0.7
    rig.executor.renew(end)
    still(rig, lambda: rig.ear.ends)
    assert rig.end_of(job).outcome == CUT_OFF
    assert end - 0.05 <= time.monotonic() < end + patient(2)
    still(rig, lambda: gone(rig.path("pids")))


def test_a_process_ends_itself_also_while_it_waits_for_its_worker_to_take_what_it_reports(make_rig):
    rig, awake = make_rig("process"), threading.Event()
    rig.submit("start_program_and_report", pids=rig.path("pids"))
    rig.until_exists("pids")
    rig.executor.renew(time.monotonic() + 0.5)
    rig.executor._keeper.post(awake.wait)  # as if the worker was stopped
    try:
        still(rig, lambda: ended(rig.path("pids")))
    finally:
        awake.set()


def test_a_process_whose_lease_is_renewed_goes_on_and_one_that_needs_none_goes_on_for_ever(make_rig):
    rig = make_rig("process")
    job = rig.submit("until_file", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    for _ in range(6):
        rig.executor.renew(time.monotonic() + patient(0.6))
        time.sleep(0.2)
    rig.executor.renew(None)
    time.sleep(0.8)
    assert rig.ear.ends == []
    Path(rig.path("go")).touch()
    assert isinstance(rig.end_of(job).outcome, Completed)


def test_a_lease_that_is_over_ends_no_idle_process_but_the_next_handler_in_it(make_rig):
    rig = make_rig("process")
    first = rig.run("pid")
    rig.executor.renew(time.monotonic() - 1)
    time.sleep(0.7)
    job = rig.submit("until_file", started=rig.path("started"), go=rig.path("go"))
    assert rig.end_of(job).outcome == CUT_OFF
    rig.executor.renew(None)
    assert isinstance(rig.outcome("pid"), Completed)
    assert isinstance(first.outcome, Completed)


def test_a_process_that_is_started_later_has_the_lease_too(make_rig):
    rig = make_rig("process", process_jobs_max=1, slots=1)
    rig.executor.renew(time.monotonic() + 3600)
    rig.run("nothing")
    rig.executor.renew(time.monotonic() + patient(1.5))
    rig.run("nothing")
    job = rig.submit("until_file", started=rig.path("started"), go=rig.path("go"))
    assert rig.end_of(job).outcome == CUT_OFF


def gone(path):
    return not any(psutil.pid_exists(int(pid)) for pid in Path(path).read_text().split())


def ended(path):
    """Say whether they have ended, although nobody may have taken note of it."""
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in map(int, Path(path).read_text().split()))
