"""The executor of jobs that are SQL, procedures and commands: what it does beyond the contract of all executors."""

import json
import time
from pathlib import Path

import pytest

from rota.executors import runner as runner_module
from rota.executors.attempt import Attempt
from rota.executors.capture import LINE_MAX
from rota.executors.runner import perform_inline
from rota.model.decide import CUT_OFF_ERROR, Completed, Failed, Interrupted, Stopped, TimedOut
from rota.model.kinds import RUNNER
from rota.model.redaction import MASK
from rota.ports.executor import Reply
from tests.executors.scripted_runner import ScriptedRunner

KEY = "correct-horse-battery-staple"


@pytest.fixture
def rig(make_rig):
    made = make_rig(RUNNER, kill_grace=0.05, timeout_grace=0.05)
    made.ear.secrets = {"key": KEY}
    return made


def begun(rig, name, **fields):
    """Submit a job, and return it when its runner has begun."""
    job = rig.submit(name, started=rig.path("started"), **fields)
    rig.until_exists("started")
    return job


def log_lines(rig, job):
    return [line.split(" ", 1)[1] for line in rig.log_of(job).splitlines()]


# ---- stops ------------------------------------------------------------------------------------------------------------


def test_a_runner_is_told_to_stop_and_then_forced(rig):
    job = begun(rig, "until_forced")
    rig.executor.cancel(job.number)
    assert rig.end_of(job).outcome == Stopped()
    assert ScriptedRunner.made[-1].stops == ["stop", "force"]


def test_a_runner_over_its_time_is_forced_after_the_grace_of_timeouts(rig):
    job = begun(rig, "until_forced", timeout=0.05)
    assert rig.end_of(job).outcome == TimedOut(0.05)
    assert ScriptedRunner.made[-1].stops == ["stop", "force"]


@pytest.mark.parametrize(("stop", "outcome"), [("interrupt", Interrupted()), ("cut", Interrupted(CUT_OFF_ERROR))])
def test_a_shutdown_and_a_lost_lease_are_told_as_such(rig, stop, outcome):
    job = begun(rig, "until_cancelled")
    rig.executor.interrupt() if stop == "interrupt" else rig.executor.cut(5.0)
    assert rig.end_of(job).outcome == outcome


def test_what_is_cut_off_is_forced_by_a_timer_although_nobody_ticks(rig):
    begun(rig, "until_forced")
    rig.executor.cut(0.02)
    rig.executor.cut(0.02)
    rig.until(lambda: rig.ear.ends, ticking=False)
    assert rig.ear.ends[0].outcome == Interrupted(CUT_OFF_ERROR)


def test_one_that_heeds_nothing_is_given_up_and_its_slot_stays_taken_until_it_returns(rig, monkeypatch, caplog):
    monkeypatch.setattr(runner_module, "GIVE_UP_S", 0.05)
    job = begun(rig, "stubborn", go=rig.path("go"))
    rig.executor.cancel(job.number)
    assert rig.end_of(job).outcome == Stopped()
    assert (rig.executor.occupied(), rig.executor.given_up()) == (1, 1)
    assert "was given up" in caplog.text
    Path(rig.path("go")).touch()
    rig.until(lambda: rig.executor.occupied() == 0)
    assert rig.executor.given_up() == 0
    assert len(rig.ear.ends) == 1, "what it returned is dropped"
    assert rig.outcome("give", value=1) == Completed("1")


def test_a_stop_that_raises_is_logged_without_secrets_and_the_run_is_forced_and_given_up(rig, monkeypatch, caplog):
    monkeypatch.setattr(runner_module, "GIVE_UP_S", 0.05)
    job = begun(rig, "fail_to_stop", go=rig.path("go"))
    rig.executor.cancel(job.number)
    assert rig.end_of(job).outcome == Stopped()
    Path(rig.path("go")).touch()
    rig.until(lambda: rig.executor.occupied() == 0)
    assert f"could not cancel with {MASK}" in caplog.text
    assert KEY not in caplog.text


def test_one_that_is_asked_to_stop_before_it_watches_is_told_at_once(rig):
    job = begun(rig, "stop_late", go=rig.path("go"))
    rig.executor.cancel(job.number)
    Path(rig.path("go")).touch()
    assert rig.end_of(job).outcome == Completed('["cancel","True"]')


def test_closing_stops_and_forces_what_runs_and_lets_go_of_runners(rig):
    begun(rig, "until_forced")
    rig.executor.close()
    made = ScriptedRunner.made[-1]
    assert (made.stops[-1], made.closed) == ("force", True)
    assert rig.executor.occupied() == 0
    assert rig.ear.ends == []


# ---- time -------------------------------------------------------------------------------------------------------------


def test_a_runner_knows_how_long_it_may_run(rig):
    assert rig.outcome("remaining") == Completed(None)
    left = float(rig.outcome("remaining", timeout=100.0).result)
    assert 99 < left <= 100


def test_a_lease_is_passed_on_to_runners_that_are_there_and_that_come(rig):
    rig.executor.renew(5.0)
    rig.run("nothing")
    made = ScriptedRunner.made[-1]
    assert made.until == [5.0]
    rig.executor.renew(None)
    rig.run("nothing")
    assert made.until == [5.0, None]
    assert ScriptedRunner.made[-1] is made, "one runner for all runs of a kind"


def test_inline_a_timer_keeps_the_time(rig):
    job = rig.job("until_cancelled", timeout=0.05, started=rig.path("started"))
    begun_at = time.monotonic()
    assert perform_inline(job, Attempt(job, rig.equipment), rig.equipment) == TimedOut(0.05)
    assert time.monotonic() - begun_at < 5
    forced = rig.job("until_forced", timeout=0.05, started=rig.path("started"))
    assert perform_inline(forced, Attempt(forced, rig.equipment), rig.equipment) == TimedOut(0.05)


# ---- orders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "permanent", "code"),
    [
        (Reply(error="PermissionDenied", text="bob may not"), True, "permission_denied"),
        (Reply(error="NotFound", text="there is no connection"), True, "not_found"),
        (Reply(error="StoreBusy", text="locked"), False, "store_busy"),
        (Reply(error="StoreUnavailable", text="away"), False, "store_unavailable"),
    ],
)
def test_an_order_that_is_refused_fails_the_run_for_good_unless_the_store_is_away(rig, reply, permanent, code):
    rig.ear.reply = reply
    outcome = rig.outcome("nothing")
    assert (outcome.error, outcome.permanent, outcome.error_code) == (reply.text, permanent, code)


def test_an_order_that_can_not_be_read_fails_the_run_and_the_next_one_is_taken(rig, caplog):
    rig.ear.reply = Reply('{"kind": "poetry"}')
    outcome = rig.outcome("nothing")
    assert (outcome.permanent, "could not be found out: ValidationError" in outcome.error) == (False, True)
    assert "what job 1 is to do" in caplog.text
    rig.ear.reply = None
    assert rig.outcome("nothing") == Completed(None)


def test_an_order_that_nobody_answers_any_more_ends_the_run_as_stopped(rig):
    rig.ear.reply = Reply(lost=True)
    assert rig.outcome("nothing") == Stopped()


def test_a_kind_that_this_worker_does_not_run_is_said_and_may_be_tried_elsewhere(rig):
    outcome = rig.outcome("of_another_kind")
    assert (outcome.error, outcome.permanent, outcome.error_code) == ("this worker does not run EXTERNAL jobs", False, "no_runner")


# ---- what a run says --------------------------------------------------------------------------------------------------


def test_output_is_in_the_log_line_by_line_and_what_has_no_end_too(rig):
    pieces = [["stdout", "one\ntw"], ["stderr", "err\nor"], ["stdout", "o\n\nthree"]]
    job = rig.submit("say", pieces=pieces)
    rig.end_of(job)
    assert sorted(log_lines(rig, job)) == sorted(f"OUTPUT {line}" for line in ["one", "err", "two", "", "three", "or"])


def test_a_line_without_end_is_cut_into_lines(rig):
    job = rig.submit("say", pieces=[["stdout", "x" * 5000]] * 5)
    rig.end_of(job)
    assert [len(line) - len("OUTPUT ") for line in log_lines(rig, job)] == [LINE_MAX] * 3 + [25_000 - 3 * LINE_MAX]


def test_a_character_is_not_cut_in_two(rig):
    job = rig.submit("say", pieces=[["stdout", "é" * (LINE_MAX + 1)], ["stderr", "é" * LINE_MAX + "\n"]])
    rig.end_of(job)
    assert "".join(line.removeprefix("OUTPUT ") for line in log_lines(rig, job)) == "é" * (2 * LINE_MAX + 1)


@pytest.mark.parametrize("size", [1, 3, 7, 27, 28, 29, 1000])
def test_a_secret_is_redacted_whatever_the_pieces_that_it_comes_in(rig, size):
    text = f"before {KEY} between {KEY}{KEY}\nand {KEY} at the end {KEY[:-1]}"
    job = rig.submit("say", pieces=[["stdout", text[at : at + size]] for at in range(0, len(text), size)])
    rig.end_of(job)
    log = rig.log_of(job)
    assert KEY not in log
    assert f"before {MASK} between {MASK}" in log
    assert log.rstrip().endswith(KEY[:-1]), "what is not the secret is kept"


def test_streams_have_their_own_memory(rig):
    half = len(KEY) // 2
    job = rig.submit("say", pieces=[["stdout", KEY[:half]], ["stderr", "x\n"], ["stdout", f"{KEY[half:]}\n"]])
    rig.end_of(job)
    assert log_lines(rig, job) == ["OUTPUT x", f"OUTPUT {MASK}"]


def test_a_secret_is_in_nothing_that_a_run_returns(rig):
    outcome = rig.outcome("tell")
    assert KEY not in str(outcome)
    assert (outcome.message, MASK in json.loads(outcome.result)) == (f"used {MASK}", True)
    failed = rig.outcome("tell", fails=True)
    assert (failed.error, failed.traceback) == (f"wrong: {MASK}", f"at {MASK}")


def test_a_runner_that_raises_fails_its_run_without_the_text_and_logs_it_without_secrets(rig, caplog):
    outcome = rig.outcome("break")
    assert isinstance(outcome, Failed)
    assert not outcome.permanent
    assert outcome.error == "the runner of SQL jobs failed: RuntimeError; the log of the worker says more"
    assert f"broken at {MASK}" in caplog.text
    assert KEY not in caplog.text
    assert rig.outcome("nothing") == Completed(None)
