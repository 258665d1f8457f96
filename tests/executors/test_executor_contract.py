"""What every executor does, whatever it runs handlers on."""

import importlib
import json
import re
import time
from pathlib import Path

import pytest

from rota.errors import InvalidOption
from rota.executors import build
from rota.executors.invoke import inside_handler
from rota.executors.stops import take_all
from rota.model.decide import Completed, Failed, Interrupted, Skipped, Snoozed, Stopped, TimedOut
from rota.model.kinds import RUNNER
from rota.ports.executor import Readiness

PLACES = ["inline", "thread", "async", "process"]
CONCURRENT = ["thread", "async", "process"]
STOPPABLE = [*CONCURRENT, RUNNER]
"""Those that run several at once. A runner's work is not a handler's: what only a handler does is not for it."""


@pytest.fixture(params=PLACES)
def rig(request, make_rig):
    return make_rig(request.param)


@pytest.fixture(params=STOPPABLE)
def busy_rig(request, make_rig):
    return make_rig(request.param)


@pytest.fixture(params=CONCURRENT)
def handler_rig(request, make_rig):
    return make_rig(request.param)


def test_a_handler_that_returns_nothing_completes_without_a_result(rig):
    end = rig.run("nothing")
    assert end.outcome == Completed(None)
    assert end.log_path is None
    assert end.seconds >= 0
    assert end.at > 0


def test_an_executor_with_a_free_slot_is_ready_and_one_without_is_not(busy_rig):
    rig, name = busy_rig, "until_file"
    rig.until(lambda: rig.executor.readiness(name) is Readiness.NOW)
    job = rig.submit(name, started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    assert rig.executor.readiness(name) is Readiness.LATER
    Path(rig.path("go")).touch()
    rig.end_of(job)
    rig.until(lambda: rig.executor.readiness(name) is Readiness.NOW)


@pytest.mark.parametrize("value", [0, False, "", [], {"a": [1, None, "é"]}, 1.5])
def test_a_result_is_kept_as_json(rig, value):
    assert json.loads(rig.outcome("give", value=value).result) == value


def test_params_are_passed_by_name_and_defaults_hold(rig):
    assert rig.outcome("add", a=1) == Completed("11")
    assert rig.outcome("add", b=1, a=1) == Completed("2")


def test_a_missing_parameter_fails_for_good_and_is_named(rig):
    outcome = rig.outcome("add")
    assert outcome.permanent
    assert "'a'" in outcome.error


def test_a_parameter_too_many_fails_for_good_and_is_named(rig):
    outcome = rig.outcome("add", a=1, c=2)
    assert outcome.permanent
    assert "'c'" in outcome.error


def test_an_exception_fails_the_run_with_its_type_message_and_traceback(rig):
    outcome = rig.outcome("fail", message="no ink")
    assert outcome.error == "RuntimeError: no ink"
    assert not outcome.permanent
    assert "in fail" in outcome.traceback
    assert "rota/executors" not in outcome.traceback


def test_a_permanent_error_is_permanent(rig):
    assert rig.outcome("fail_for_good").permanent


@pytest.mark.parametrize(("status", "permanent"), [(404, True), (400, True), (429, False), (503, False)])
def test_an_http_error_carries_its_status_and_4xx_is_permanent(rig, status, permanent):
    outcome = rig.outcome("fail_http", status=status)
    assert outcome.error_code == str(status)
    assert outcome.permanent is permanent


def test_retry_snooze_and_skip_say_what_they_want(rig):
    assert rig.outcome("retry", after=7).after_s == 7
    assert rig.outcome("retry").after_s is None
    assert rig.outcome("snooze", seconds=30) == Snoozed(30.0)
    assert rig.outcome("snooze_for_ever").delay_s < 1e10
    assert rig.outcome("skip", reason="empty") == Skipped("empty")


def test_a_handler_that_raises_cancelled_is_stopped(rig):
    assert rig.outcome("say_cancelled") == Stopped("enough")


@pytest.mark.parametrize("name", ["leave", "press_ctrl_c", "raise_unusual"])
def test_a_base_exception_fails_only_its_own_run(rig, name):
    outcome = rig.outcome(name)
    assert isinstance(outcome, Failed)
    assert not outcome.permanent
    assert rig.outcome("nothing") == Completed(None)


def test_sys_exit_keeps_its_code(rig):
    outcome = rig.outcome("leave", code=3)
    assert outcome.error == "SystemExit: 3"
    assert outcome.exit_code == 3


@pytest.mark.parametrize(("name", "reason"), [("give_nan", "result.rate is NaN"), ("give_object", "result is an object")])
def test_a_result_that_is_not_json_fails_for_good(rig, name, reason):
    outcome = rig.outcome(name)
    assert outcome.permanent
    assert outcome.error.startswith(f"result could not be stored: {reason}")


@pytest.mark.parametrize("place", PLACES)
def test_a_result_over_the_limit_fails_for_good_and_names_it(make_rig, place):
    rig = make_rig(place, result_max=1000)
    assert rig.outcome("give_much", size=998) == Completed('"' + "x" * 998 + '"')
    outcome = rig.outcome("give_much", size=999)
    assert outcome.permanent
    assert outcome.error.startswith("result could not be stored: it takes 1,001 bytes; the limit is 1,000")


@pytest.mark.parametrize("place", PLACES)
def test_error_texts_are_cut_at_their_bound(make_rig, place):
    outcome = make_rig(place, error_max=300).outcome("fail", message="é" * 5000)
    assert len(outcome.error.encode()) <= 300
    assert len(outcome.traceback.encode()) <= 300
    assert outcome.error.startswith("RuntimeError: éé")


def test_an_error_whose_text_is_broken_is_still_reported(rig):
    assert rig.outcome("surrogate").error == "RuntimeError: bad \\udc80 text"
    assert rig.outcome("unprintable").error.startswith("MuteError: ")


@pytest.mark.parametrize(("name", "error"), [("rude", "RudeError"), ("snooze_without_end", "HastySnooze")])
def test_an_error_that_breaks_whoever_looks_at_it_is_still_reported_and_the_next_job_runs(rig, name, error):
    assert rig.outcome(name).error.startswith(f"{error}, which can't be looked at: ")
    assert rig.outcome("nothing") == Completed(None)


def test_a_generator_shows_progress_that_never_goes_back_and_its_last_value_is_not_lost(rig):
    job = rig.submit("steps")
    outcome = rig.end_of(job).outcome
    assert outcome == Completed(None if rig.place == "async" else '"over"')
    assert rig.progress_of(job) == [(10, None), (60, "never back")]


def test_a_generator_that_yields_nonsense_fails_saying_what_to_yield(rig):
    assert "yield a number" in rig.outcome("bad_steps").error


def test_the_context_says_who_the_job_is(rig):
    job = rig.submit("identify", attempt=3, checkpoint='{"page":2}', color="red")
    seen = json.loads(rig.end_of(job).outcome.result)
    assert seen == {
        "attempt": 3,
        "root_id": "00000001-bbbb-bbbb-0000-000000000000",
        "run_id": "00000001-cccc-cccc-0000-000000000000",
        "params": {"color": "red"},
        "resumed": {"page": 2},
        "number": 1,
        "cancelled": False,
    }


def test_log_lines_go_to_the_runs_own_file(rig):
    job = rig.submit("talk")
    end = rig.end_of(job)
    assert end.log_path == f"{rig.log_dir}/{job.run_id[:2]}/{job.run_id}.log"
    lines = rig.log_of(job).splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z INFO copied 3 of 7", lines[0])
    assert lines[1].endswith("DEBUG percent %% stays")
    assert lines[2].endswith("WARNING wrong %d ('format',)")
    assert lines[3].endswith("ERROR it broke")
    assert lines[4].startswith("    Traceback")
    assert lines[-2] == "    ValueError: inner"
    assert lines[-1].endswith("ERROR done")


@pytest.mark.parametrize("place", PLACES)
def test_a_log_is_cut_at_its_bound_and_says_so_once(make_rig, place):
    rig = make_rig(place, log_max=5000)
    job = rig.submit("babble", lines=500)
    assert rig.end_of(job).outcome == Completed(None)
    log = rig.log_of(job)
    assert 4000 < len(log) <= 5000
    assert log.count("the log was cut here") == 1
    assert "the log was cut here" in log.splitlines()[-1]


def test_artifacts_checkpoints_and_progress_are_reported_in_order(rig):
    job = rig.submit("report")
    rig.end_of(job)
    artifact, checkpoint, *progress = rig.reports_of(job)
    assert artifact.artifact == "/tmp/report.pdf"
    assert json.loads(checkpoint.checkpoint) == {"page": 3}
    assert [report.progress for report in progress] == [0, 100]


def test_code_knows_whether_it_runs_inside_a_handler(rig):
    assert rig.outcome("is_inside") == Completed("true")
    assert not inside_handler()


def test_a_job_whose_handler_is_not_here_fails_and_names_it(rig):
    outcome = rig.outcome("ghost")
    assert outcome.error == "no handler for 'ghost' is registered in this process"
    assert not outcome.permanent


@pytest.mark.parametrize("place", [*PLACES, RUNNER])
def test_each_of_many_jobs_is_reported_exactly_once(make_rig, place):
    rig = make_rig(place, slots=4)
    jobs = [rig.job("nothing") for _ in range(600)]
    for start in range(0, 600, 50):
        rig.executor.submit(jobs[start : start + 50])
    rig.until(lambda: len(rig.ear.ends) >= 600)
    assert sorted(end.job.number for end in rig.ear.ends) == [job.number for job in jobs]
    rig.until(lambda: rig.executor.occupied() == 0)


def test_an_unknown_place_is_refused(rig):
    with pytest.raises(InvalidOption, match="'moon' is not one of inline, thread, async, process, runner"):
        build("moon", rig.equipment)


def test_closing_twice_is_harmless(rig):
    rig.executor.close()
    rig.executor.close()


# ---- with jobs side by side -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", STOPPABLE)
def test_no_more_than_slots_run_at_once_and_the_rest_follow_in_order(make_rig, place):
    rig = make_rig(place, slots=2)
    jobs = [rig.job("until_file", started=rig.path(f"started{i}"), go=rig.path("go")) for i in range(4)]
    rig.executor.submit(jobs)
    rig.until_exists("started0", "started1")
    assert rig.executor.occupied() == 2
    assert [job.number for job in rig.executor.release()] == [3, 4]
    assert not Path(rig.path("started2")).exists()
    Path(rig.path("go")).touch()
    for job in jobs[:2]:
        assert rig.end_of(job).outcome == Completed('"late"')
    rig.until(lambda: rig.executor.occupied() == 0)
    assert len(rig.ear.ends) == 2


def test_jobs_start_in_the_order_given(busy_rig):
    jobs = [busy_rig.job("give", value=number) for number in range(30)]
    busy_rig.executor.submit(jobs)
    busy_rig.until(lambda: len(busy_rig.ear.ends) == 30)
    assert [end.job.number for end in busy_rig.ear.ends] == [job.number for job in jobs]


def test_a_waiting_job_that_is_cancelled_is_stopped_at_once_and_never_entered(busy_rig):
    rig = busy_rig
    first = rig.submit("until_file", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    second, third = rig.submit("tidy", started=rig.path("second"), tidied=rig.path("x")), rig.submit("give", value=3)
    rig.executor.cancel(second.number)
    assert rig.ear.ends[0].job is second
    assert rig.ear.ends[0].outcome == Stopped()
    Path(rig.path("go")).touch()
    assert rig.end_of(first).outcome == Completed('"late"')
    assert rig.end_of(third).outcome == Completed("3")
    assert not Path(rig.path("second")).exists()
    assert len(rig.ear.ends) == 3


def test_a_running_job_that_is_cancelled_learns_it_from_its_context(busy_rig):
    rig = busy_rig
    job = rig.submit("until_cancelled", started=rig.path("started"))
    rig.until_exists("started")
    rig.executor.cancel(job.number)
    assert isinstance(rig.end_of(job).outcome, Stopped)
    assert rig.outcome("nothing") == Completed(None)


def test_a_generator_that_is_cancelled_stops_at_its_next_yield(handler_rig):
    rig = handler_rig
    job = rig.submit("endless_steps", started=rig.path("started"))
    rig.until_exists("started")
    rig.executor.cancel(job.number)
    assert isinstance(rig.end_of(job).outcome, Stopped)


def test_a_handler_that_finishes_although_cancelled_keeps_its_result(busy_rig):
    rig = busy_rig
    job = rig.submit("until_cancelled_then_return", started=rig.path("started"))
    rig.until_exists("started")
    rig.executor.cancel(job.number)
    assert rig.end_of(job).outcome == Completed('"finished anyway"')


def test_a_handler_that_fails_when_cancelled_says_so(busy_rig):
    rig = busy_rig
    job = rig.submit("until_cancelled_then_fail", started=rig.path("started"))
    rig.until_exists("started")
    rig.executor.cancel(job.number)
    assert rig.end_of(job).outcome.error == "RuntimeError: in that very instant"


def test_cancelling_what_is_not_here_does_nothing(busy_rig):
    busy_rig.executor.cancel(999)
    done = busy_rig.run("nothing")
    busy_rig.executor.cancel(done.job.number)
    assert busy_rig.outcome("nothing") == Completed(None)
    assert len(busy_rig.ear.ends) == 2


def test_a_handler_over_its_timeout_is_reported_once_and_soon(busy_rig):
    rig = busy_rig
    job = rig.submit("until_cancelled", timeout=0.05, started=rig.path("started"))
    end = rig.end_of(job)
    assert end.outcome == TimedOut(0.05)
    assert 0.05 <= end.seconds < 2
    rig.until(lambda: rig.executor.occupied() == 0)
    assert rig.outcome("nothing") == Completed(None)
    assert len(rig.ear.ends) == 2


def test_tick_says_when_it_wants_to_be_called_again(busy_rig):
    rig = busy_rig
    assert rig.executor.tick(rig.clock.monotonic()) is None
    job = rig.submit("until_file", timeout=1000.0, started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    now = rig.clock.monotonic()
    assert now + 900 < rig.executor.tick(now) < now + 1100
    Path(rig.path("go")).touch()
    rig.end_of(job)
    assert rig.executor.tick(rig.clock.monotonic()) is None


def test_interrupt_ends_every_running_handler_as_interrupted(busy_rig):
    rig = busy_rig
    job = rig.submit("until_cancelled", started=rig.path("started"))
    rig.until_exists("started")
    waiting = rig.submit("nothing")
    assert rig.executor.release() == [waiting]
    rig.executor.interrupt()
    assert rig.end_of(job).outcome == Interrupted()
    rig.until(lambda: rig.executor.occupied() == 0)
    assert len(rig.ear.ends) == 1


@pytest.mark.parametrize("place", CONCURRENT)
def test_progress_that_was_held_back_is_shown_before_the_end(make_rig, place):
    rig = make_rig(place, progress_interval=0.05)
    job = rig.submit("report_twice", then=rig.path("go"))
    rig.until(lambda: len(rig.progress_of(job)) == 2)
    assert rig.progress_of(job) == [(1, None), (2, "second")]
    Path(rig.path("go")).touch()
    assert rig.end_of(job).outcome == Completed(None)


@pytest.mark.parametrize("place", STOPPABLE)
def test_nothing_is_reported_after_closing(make_rig, place):
    rig = make_rig(place, slots=2)
    rig.submit("until_file", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    rig.submit("until_file", started=rig.path("started2"), go=rig.path("go"), mark=rig.path("mark"))
    rig.until_exists("started2")
    rig.executor.close()
    Path(rig.path("go")).touch()
    if place in {"thread", RUNNER}:
        rig.until_exists("mark")
    rig.until(lambda: rig.executor.occupied() == 0, ticking=False)
    assert rig.ear.ends == []


def test_jobs_that_wait_are_not_forgotten_when_a_cancellation_comes_just_too_late(handler_rig, monkeypatch):
    """Who looks for a job takes all out of the queue for a moment: in that moment handlers end, and find nothing to go on with."""
    rig = handler_rig
    first = rig.submit("until_file", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    rest = [rig.submit("nothing") for _ in range(3)]
    module = importlib.import_module(type(rig.executor).__module__)
    take_one, taken = module.take_one, []

    def overtaken(waiting, number):
        taken.extend(take_all(waiting))
        Path(rig.path("go")).touch()
        rig.end_of(first)
        rig.until(lambda: rig.executor.occupied() == 0)
        time.sleep(0.05)  # until it rests
        waiting.extend(taken)
        return take_one(waiting, number)

    monkeypatch.setattr(module, "take_one", overtaken)
    rig.executor.cancel(first.number)
    assert taken == rest
    for job in rest:
        assert rig.end_of(job).outcome == Completed(None)
