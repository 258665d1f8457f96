"""Jobs that another system has begun: taken in whole, by legal moves, once."""

from __future__ import annotations

import pytest

from rota.errors import QueueFull
from rota.model.decide import Completed, Crashed, Failed, Successor, Transition
from rota.model.states import ErrorType, Status
from rota.ports.store import Adopted, Past
from tests.stores.desk import ANNA, outside

DEAD = Transition(Status.DEAD_LETTER, error="gateway timeout", error_type=ErrorType.TRANSIENT)
HOUR = 3600.0


def begun(desk, transition=None, *, failures=0, **fields):
    """A job that was made two hours ago, started an hour ago and ended half an hour ago, if it did."""
    hour = round(HOUR * 1_000_000)
    row = desk.row(chosen=True, **fields)
    past = None
    if transition is not None:
        past = Past(
            run_id=desk.id(),
            started_at=desk.now - hour,
            ended_at=desk.now - hour // 2,
            failures=failures,
            transition=transition,
            successor_id=desk.id() if transition.successor else "",
        )
    return Adopted(row=row, created_at=desk.now - 2 * hour, past=past)


def adopt(desk, *jobs):
    return desk.store.adopt(jobs, adopter_id=desk.worker, actor=ANNA, now=desk.now)


def waiting(desk, failures, delay=60.0, **counts):
    again = Successor(desk.now + round(delay * 1_000_000), failures, counts.get("crashes", 0), 0)
    return Transition(Status.FAILED, error="no line", error_type=ErrorType.TRANSIENT, successor=again)


def crashed(desk):
    again = Successor(desk.now, 0, 1, 0)
    return Transition(Status.FAILED, error="Scheduler crash recovery", error_type=ErrorType.CRASH, successor=again)


def test_a_job_without_a_past_waits_as_if_it_had_been_enqueued_then(desk):
    (made,) = adopt(desk, begun(desk, delay=60))
    job = desk.job(made.job_id)
    assert (job.status, job.attempt, made.existing) == ("PENDING", 1, False)
    assert (job.run_at.timestamp() - job.created_at.timestamp()) == 2 * HOUR + 60
    desk.advance(60)
    assert desk.claim_one().job_id == made.job_id


def test_one_that_is_overdue_is_ready_with_the_next_turn(desk):
    (made,) = adopt(desk, begun(desk, delay=-HOUR))
    assert desk.claim_one().job_id == made.job_id


def test_a_dead_letter_keeps_its_error_its_failures_and_its_times_and_can_be_retried(desk):
    (made,) = adopt(desk, begun(desk, DEAD, failures=9, unique_key="k"))
    job, run = desk.job(made.job_id), desk.store.run(made.job_id)
    assert (job.status, job.failures, job.error_type, job.ended_by) == ("DEAD_LETTER", 9, "transient", "system")
    assert (run.status, run.error) == ("FAILED", "gateway timeout")
    assert (run.started_at, run.finished_at) == (job.started_at, job.finished_at)
    assert job.created_at < job.started_at < job.finished_at
    again = desk.store.retry(made.job_id, new_id=desk.id(), actor=ANNA, now=desk.now)
    assert (again.status, again.failures, again.root_id) == ("QUEUED", 0, outside(made.job_id))
    desk.run_to(Completed())
    assert desk.tail(made.job_id).status == "COMPLETED"


def test_a_failure_with_budget_left_has_its_retry_and_the_budget_goes_on(desk):
    (made,) = adopt(desk, begun(desk, waiting(desk, 2), failures=1, max_retries=3, unique_key="k"))
    first, second = desk.store.chain(made.job_id)
    assert (first.status, second.status, second.failures, second.unique_key) == ("FAILED", "PENDING", 2, "k")
    desk.advance(60)
    desk.run_to(Failed("again"))
    desk.advance(600)
    desk.run_to(Failed("and again"))
    assert [job.status for job in desk.store.chain(made.job_id)] == ["FAILED", "FAILED", "DEAD_LETTER"]


def test_a_job_that_was_at_work_there_crashed_and_waits_now(desk):
    (made,) = adopt(desk, begun(desk, crashed(desk)))
    _, second = desk.store.chain(made.job_id)
    assert (second.status, second.crashes, second.failures) == ("PENDING", 1, 0)
    job = desk.claim_one()
    assert (job.crashes, job.root_id) == (1, made.job_id)
    desk.end(job, Crashed())
    assert desk.tail(made.job_id).crashes == 2


def test_history_is_history(desk):
    (made,) = adopt(desk, begun(desk, Transition(Status.COMPLETED), failures=2))
    assert (desk.job(made.job_id).status, desk.store.run(made.job_id).status) == ("COMPLETED", "COMPLETED")
    assert desk.claim() == []


def test_taking_the_same_in_again_changes_nothing(desk, maker):
    jobs = [begun(desk, DEAD), begun(desk), begun(desk, waiting(desk, 1)), begun(desk, Transition(Status.COMPLETED))]
    first = adopt(desk, *jobs)
    before, audited = desk.snapshot(), maker.audit()
    again = adopt(desk, *jobs)
    assert [each.existing for each in again] == [True] * 4
    assert [each.job_id for each in again] == [each.job_id for each in first]
    assert desk.snapshot() == before
    assert maker.audit() == audited


def test_a_live_holder_of_the_key_keeps_a_waiting_job_out_and_is_named(desk):
    holder = desk.add(unique_key="k")
    (kept_out,) = adopt(desk, begun(desk, unique_key="k"))
    assert (kept_out.existing, kept_out.job_id) == (True, holder)


def test_one_whose_chain_has_ended_comes_in_without_the_key_that_another_holds(desk):
    holder = desk.add(unique_key="k")
    (made,) = adopt(desk, begun(desk, DEAD, unique_key="k"))
    assert (desk.status(made.job_id), desk.job(made.job_id).unique_key) == ("DEAD_LETTER", None)
    assert desk.status(holder) == "QUEUED"


def test_all_come_in_or_none(desk, maker):
    maker.limit_queue("default", 2)
    before = desk.snapshot()
    with pytest.raises(QueueFull):
        adopt(desk, *[begun(desk, delay=-2 * HOUR) for _ in range(3)])
    assert desk.snapshot() == before
    assert maker.audit() == []


def test_it_is_audited_once_for_a_call(desk, maker):
    adopt(desk, begun(desk, DEAD), begun(desk))
    (entry,) = maker.audit()
    assert (entry["actor"], entry["action"], entry["subject_id"], entry["after"]) == ("anna", "job.adopt", desk.worker, {"jobs": 2})


def test_nothing_is_left_at_work_by_who_took_it_in(desk):
    adopt(desk, begun(desk, DEAD), begun(desk, waiting(desk, 1)))
    assert desk.held(desk.worker) == []
    assert desk.store.repair(since=0) == []


def test_the_line_of_those_who_wait_here_is_kept_and_the_newcomers_stand_behind(desk):
    mine = desk.several(3)
    adopt(desk, begun(desk, crashed(desk)), begun(desk, delay=-HOUR))
    desk.turn()
    assert desk.order()[:3] == mine
    assert len(desk.order()) == 5


def test_a_failure_whose_retries_are_the_other_systems_has_a_skipped_successor_and_nothing_waits_here(desk):
    job = begun(desk, waiting(desk, 1))
    job.past.left = "retried elsewhere"
    (made,) = adopt(desk, job)
    first, second = desk.store.chain(made.job_id)
    assert (first.status, desk.store.run(made.job_id).error) == ("FAILED", "no line")
    assert (second.status, second.reason, second.started_at) == ("SKIPPED", "retried elsewhere", None)
    desk.advance(3600)
    assert desk.claim() == []
