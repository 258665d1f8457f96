"""What follows from the end of an attempt: every row of the table in DESIGN 2.2."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.backoff import Backoff
from rota.model.decide import (
    CRASH_ERROR,
    INTERRUPTED_ERROR,
    Completed,
    Crashed,
    Failed,
    Interrupted,
    Limits,
    Released,
    Skipped,
    Snoozed,
    Stopped,
    Successor,
    TimedOut,
    Transition,
    decide,
    decide_cancelled,
)
from rota.model.states import CHAIN_ENDS, ErrorType, Status, is_legal
from rota.model.values import SECOND, Claimed

NOW = 1_772_366_400 * SECOND
EXACT = msgspec.json.encode(Backoff(base=60, factor=2, cap=86_400, jitter=0)).decode()


def held(**fields):
    values = {
        "number": 7,
        "job_id": "a" * 32,
        "root_id": "b" * 32,
        "root_number": 3,
        "run_id": "c" * 32,
        "job_type": "send",
        "origin": "api",
        "organization_id": "default",
        "params": "{}",
        "priority": 50,
        "position": 300,
        "attempt": 1,
        "failures": 0,
        "crashes": 0,
        "snoozes": 0,
        "max_retries": 3,
        "max_crashes": 3,
        "backoff": EXACT,
        "timeout": 300.0,
        "executor": "thread",
        "started_at": NOW,
        "checkpoint": None,
    }
    return Claimed(**(values | fields))


def end(outcome, *, limits=None, **fields):
    return decide(held(**fields), outcome, NOW, Random(1), limits or Limits())


def execute(outcome, **fields):
    """Play a chain to its end with one outcome again and again; return the statuses of its attempts."""
    job, seen = held(**fields), []
    while len(seen) < 50:
        transition = decide(job, outcome, NOW, Random(1))
        seen.append(str(transition.status))
        if transition.successor is None:
            return seen
        next_one = transition.successor
        job = held(
            **fields | {"attempt": job.attempt + 1, "failures": next_one.failures, "crashes": next_one.crashes, "snoozes": next_one.snoozes}
        )
    return seen


def test_a_handler_that_returned_completes_with_its_result():
    assert end(Completed('"ok"')) == Transition(Status.COMPLETED, result='"ok"')


def test_an_error_with_budget_left_fails_and_comes_back_by_backoff():
    transition = end(Failed("boom", traceback="tb", error_code="503", exit_code=4), failures=1)
    assert transition == Transition(
        Status.FAILED,
        error="boom",
        error_type=ErrorType.TRANSIENT,
        error_code="503",
        traceback="tb",
        exit_code=4,
        successor=Successor(NOW + 120 * SECOND, failures=2, crashes=0, snoozes=0),
    )


def test_retry_after_is_obeyed_instead_of_the_backoff_and_uses_the_budget():
    successor = end(Failed("later", after_s=7.5), failures=2).successor
    assert successor == Successor(NOW + 7_500_000, failures=3, crashes=0, snoozes=0)
    assert end(Failed("later", after_s=7.5), failures=3).status is Status.DEAD_LETTER


def test_retry_after_zero_or_less_means_now_not_by_backoff():
    for after_s in (0.0, -5.0):
        assert end(Failed("now", after_s=after_s)).successor == Successor(NOW, failures=1, crashes=0, snoozes=0)


def test_a_timeout_with_budget_left_is_timed_out_and_comes_back_by_backoff():
    transition = end(TimedOut(1.5))
    assert transition.status is Status.TIMED_OUT
    assert transition.error == "timed out after 1.5 s"
    assert transition.error_type is ErrorType.TIMEOUT
    assert transition.successor == Successor(NOW + 60 * SECOND, failures=1, crashes=0, snoozes=0)


def test_a_permanent_error_is_dead_at_once_whatever_the_budget():
    transition = end(Failed("no such user", permanent=True), max_retries=1000)
    assert (transition.status, transition.error_type, transition.successor) == (Status.DEAD_LETTER, ErrorType.PERMANENT, None)


@pytest.mark.parametrize("outcome", [Failed("boom"), TimedOut(1.0)])
def test_a_used_up_budget_is_dead_and_keeps_the_kind_of_its_last_error(outcome):
    transition = end(outcome, failures=3)
    assert transition.status is Status.DEAD_LETTER
    assert transition.successor is None
    assert transition.error_type is (ErrorType.TIMEOUT if isinstance(outcome, TimedOut) else ErrorType.TRANSIENT)


@pytest.mark.parametrize(
    ("outcome", "max_retries", "executions"),
    [
        (Failed("boom"), 3, ["FAILED"] * 3 + ["DEAD_LETTER"]),
        (TimedOut(1.0), 3, ["TIMED_OUT"] * 3 + ["DEAD_LETTER"]),
        (Failed("boom"), 1, ["FAILED", "DEAD_LETTER"]),
        (Failed("boom"), 0, ["DEAD_LETTER"]),
        (TimedOut(1.0), 0, ["DEAD_LETTER"]),
        (Crashed(), 0, ["DEAD_LETTER"]),
        (Interrupted(), 0, ["DEAD_LETTER"]),
        (Crashed(), 3, ["FAILED", "FAILED", "DEAD_LETTER"]),
        (Crashed(), 1, ["FAILED", "FAILED", "DEAD_LETTER"]),
    ],
)
def test_the_number_of_executions_follows_the_budgets(outcome, max_retries, executions):
    assert execute(outcome, max_retries=max_retries) == executions


def test_a_crash_keeps_the_place_and_counts_as_a_crash_not_as_a_failure():
    transition = end(Crashed(exit_code=-9), failures=2, crashes=1, snoozes=4)
    assert transition == Transition(
        Status.FAILED,
        error="Scheduler crash recovery",
        error_type=ErrorType.CRASH,
        exit_code=-9,
        successor=Successor(NOW, failures=2, crashes=2, snoozes=4, in_place=True),
    )
    assert CRASH_ERROR == "Scheduler crash recovery"


def test_a_crash_that_does_not_count_changes_no_budget_and_is_recorded_all_the_same():
    transition = end(Crashed(counts=False), failures=1, crashes=2, snoozes=4)
    assert (transition.status, transition.error, transition.error_type) == (Status.FAILED, CRASH_ERROR, ErrorType.CRASH)
    assert transition.successor == Successor(NOW, failures=1, crashes=2, snoozes=4, in_place=True)


def test_the_last_crash_allowed_is_one_less_than_max_crashes():
    assert end(Crashed(), crashes=1, max_crashes=3).status is Status.FAILED
    assert end(Crashed(), crashes=2, max_crashes=3).status is Status.DEAD_LETTER
    assert end(Crashed(), crashes=0, max_crashes=1).status is Status.DEAD_LETTER


def test_a_crash_with_the_failure_budget_used_up_still_goes_on():
    assert end(Crashed(), failures=3, max_retries=3).status is Status.FAILED


def test_an_interruption_keeps_the_place_and_uses_no_budget():
    transition = end(Interrupted(), failures=3, crashes=2, snoozes=1)
    assert transition.status is Status.FAILED
    assert (transition.error, transition.error_type) == (INTERRUPTED_ERROR, ErrorType.INTERRUPTED)
    assert transition.successor == Successor(NOW, failures=3, crashes=2, snoozes=1, in_place=True)
    assert INTERRUPTED_ERROR == "Interrupted by shutdown"


@pytest.mark.parametrize("max_retries", [0, 3])
def test_a_job_claimed_but_never_started_is_released_in_place_even_without_retries(max_retries):
    transition = end(Released(), max_retries=max_retries, failures=max_retries, crashes=1)
    assert (transition.status, transition.reason) == (Status.SKIPPED, "released")
    assert transition.successor == Successor(NOW, failures=max_retries, crashes=1, snoozes=0, in_place=True)


def test_a_snooze_uses_no_failure_budget_and_counts_snoozes():
    transition = end(Snoozed(90.0, "not yet"), failures=3, crashes=1, snoozes=5)
    assert (transition.status, transition.reason) == (Status.SKIPPED, "not yet")
    assert transition.successor == Successor(NOW + 90 * SECOND, failures=3, crashes=1, snoozes=6)


@pytest.mark.parametrize("delay_s", [-10.0, 0.0, 0.2, 1.0])
def test_a_snooze_lasts_at_least_the_floor(delay_s):
    assert end(Snoozed(delay_s)).successor.run_at == NOW + SECOND


def test_snoozing_once_too_often_is_dead():
    limits = Limits(max_snoozes=2)
    assert end(Snoozed(5.0), limits=limits, snoozes=1).status is Status.SKIPPED
    transition = end(Snoozed(5.0), limits=limits, snoozes=2)
    assert (transition.status, transition.successor) == (Status.DEAD_LETTER, None)
    assert transition.error == "snoozed 2 times; max_snoozes is 2"


def test_a_job_without_retries_may_still_snooze():
    assert end(Snoozed(5.0), max_retries=0).successor is not None


def test_a_skip_ends_the_chain_with_its_reason():
    assert end(Skipped("nothing to do")) == Transition(Status.SKIPPED, reason="nothing to do")


def test_a_handler_that_stopped_as_asked_is_cancelled():
    assert end(Stopped("as asked")) == Transition(Status.CANCELLED, error="as asked", reason="cancelled")


OUTCOMES = [
    Completed('"ok"'),
    Failed("boom"),
    Failed("boom", permanent=True),
    Failed("boom", after_s=1.0),
    TimedOut(1.0),
    Crashed(),
    Interrupted(),
    Released(),
    Snoozed(5.0),
    Skipped("nothing"),
    Stopped(),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_a_direct_execution_is_never_retried_and_never_ends_failed(outcome):
    transition = end(outcome, origin="direct", max_retries=1000, max_crashes=1000)
    assert transition.successor is None
    assert transition.status in CHAIN_ENDS


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_a_cancelled_chain_keeps_a_result_and_otherwise_ends_cancelled_without_successor(outcome):
    transition = decide_cancelled(outcome)
    assert transition.successor is None
    if isinstance(outcome, Completed):
        assert transition == Transition(Status.COMPLETED, result='"ok"')
    else:
        assert (transition.status, transition.reason) == (Status.CANCELLED, "cancelled")


def test_a_cancelled_chain_still_records_what_its_handler_raised():
    assert decide_cancelled(Failed("boom", exit_code=3)).error == "boom"
    assert decide_cancelled(Failed("boom", exit_code=3)).exit_code == 3
    assert decide_cancelled(Crashed(exit_code=-9)).exit_code == -9


@given(
    outcome=st.sampled_from(OUTCOMES),
    failures=st.integers(0, 6),
    crashes=st.integers(0, 6),
    snoozes=st.integers(0, 6),
    max_retries=st.integers(0, 6),
    max_crashes=st.integers(1, 6),
    origin=st.sampled_from(["api", "direct", "schedule", "group"]),
)
def test_every_decision_is_a_legal_end_and_has_a_successor_exactly_if_the_chain_goes_on(
    outcome, failures, crashes, snoozes, max_retries, max_crashes, origin
):
    transition = end(
        outcome,
        limits=Limits(max_snoozes=4),
        failures=failures,
        crashes=crashes,
        snoozes=snoozes,
        max_retries=max_retries,
        max_crashes=max_crashes,
        origin=origin,
    )
    assert is_legal(Status.RUNNING, transition.status)
    if transition.status in {Status.FAILED, Status.TIMED_OUT}:
        assert transition.successor is not None
        assert max_retries > 0
    if transition.status in {Status.COMPLETED, Status.DEAD_LETTER, Status.CANCELLED}:
        assert transition.successor is None
    if transition.successor is not None:
        successor = transition.successor
        assert successor.run_at >= NOW
        # one budget at most is used by one end
        assert (successor.failures - failures) + (successor.crashes - crashes) + (successor.snoozes - snoozes) in {0, 1}
        assert successor.failures <= max(max_retries, failures)
        assert not successor.in_place or successor.run_at == NOW
