"""Direct execution's reservation, as the store keeps it."""

import pytest

from rota.model.decide import Completed, Crashed, Failed
from rota.model.values import SECOND
from rota.ports.turns import Choice
from tests.stores.desk import ANNA, inside


def reserving(desk, reservation_id):
    return {
        "reservation_id": reservation_id,
        "reserved_by": "me",
        "worker_id": desk.worker,
        "now": desk.now,
        "expires_at": desk.now + SECOND,
    }


def test_the_direct_job_and_its_reservation_are_made_together(desk):
    reservation = desk.reserve(params='{"a":1}')
    job = desk.job(reservation.job_id)
    assert (job.status, job.held, job.origin, job.params) == ("QUEUED", "direct", "direct", {"a": 1})
    assert (reservation.reserved_by, reservation.worker_id, reservation.expires_at) == ("anna@here", desk.worker, desk.now + 600 * SECOND)
    assert desk.store.reservation() == reservation


def test_a_second_reservation_gets_none_and_makes_no_job(desk):
    first = desk.reserve()
    assert desk.reserve() is None
    assert desk.order() == [first.job_id]
    assert desk.store.reservation() == first


def test_a_repeated_reserve_says_the_same(desk):
    row, reservation_id = desk.row(origin="direct", max_retries=0), desk.id()
    fields = reserving(desk, reservation_id)
    first = desk.store.reserve(row, **fields)
    before = desk.snapshot()
    assert desk.store.reserve(row, **fields) == first
    assert desk.snapshot() == before


def test_a_reserve_repeated_after_its_end_does_not_run_the_job_again(desk):
    row, reservation_id = desk.row(origin="direct", max_retries=0), desk.id()
    fields = reserving(desk, reservation_id)
    first = desk.store.reserve(row, **fields)
    desk.done(desk.claim_one())
    again = desk.store.reserve(row, **fields)
    assert again is None or again == first
    assert desk.store.reservation() is None
    assert desk.claim(5) == []


def test_it_is_offered_alone_and_first_and_then_the_queue_in_its_order(desk):
    first, second = desk.several(2)
    reservation = desk.reserve()
    offered = []

    def chooser(candidates, active, usage):
        offered.append(([job.job_id for job in candidates], active))
        return Choice(take=list(candidates), park=[])

    assert [job.job_id for job in desk.claim(2, choose=chooser)] == [reservation.job_id, first]
    assert offered == [([reservation.job_id], reservation), ([first], None)]
    assert [job.job_id for job in desk.claim(5)] == [second]


def test_with_one_slot_free_it_is_taken_and_the_queue_stays_as_it_is(desk):
    waiting = desk.several(3)
    reservation = desk.reserve()
    assert [job.job_id for job in desk.claim(1)] == [reservation.job_id]
    assert desk.order() == waiting


def test_one_that_is_not_taken_keeps_nobody_from_the_queue(desk):
    waiting = desk.several(2)
    reservation = desk.reserve()

    def chooser(candidates, active, usage):
        return Choice(take=[] if active else list(candidates), park=[])

    assert [job.job_id for job in desk.claim(5, choose=chooser)] == waiting
    assert desk.job(reservation.job_id).held == "direct"


def test_a_worker_that_does_not_have_its_handler_takes_from_the_queue_as_ever(desk):
    waiting = desk.several(2)
    desk.reserve("special")
    assert [job.job_id for job in desk.claim(1, types=("t",))] == waiting[:1]
    assert [job.job_type for job in desk.claim(5, types=("t", "special"))] == ["special", "t"]


def test_a_turn_for_direct_executions_alone_takes_nothing_else(desk):
    waiting = desk.several(2)
    assert desk.claim(5, direct_only=True) == []
    reservation = desk.reserve()
    assert [job.job_id for job in desk.claim(5, direct_only=True)] == [reservation.job_id]
    assert desk.order() == waiting


def test_its_start_does_not_send_newcomers_of_other_organizations_to_the_end(desk):
    acme = desk.several(5, organization_id="acme")
    desk.reserve(organization_id="acme")
    desk.done(desk.claim_one())
    beta = desk.add(organization_id="beta")
    assert [job.job_id for job in desk.claim(2)] == [acme[0], beta]


@pytest.mark.parametrize("outcome", [None, Completed('"ok"')], ids=["plain", "result"])
def test_while_it_runs_turns_are_made_beside_others_as_ever_and_its_end_releases_it(desk, maker, outcome):
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["t"], now=desk.now)
    reservation = desk.reserve()
    assert not desk.turn().calm
    job = desk.claim_one()
    assert desk.turn().calm
    desk.done(job) if outcome is None else desk.end(job, outcome)
    assert (desk.store.reservation(), maker.reservation_status(reservation.id)) == (None, "RELEASED")


@pytest.mark.parametrize("outcome", [None, Completed('"ok"'), Failed("x"), Crashed()], ids=["plain", "result", "failed", "crashed"])
def test_its_end_releases_the_next_slot_in_the_same_move_and_the_queue_is_as_before(desk, maker, outcome):
    waiting = desk.several(3)
    reservation = desk.reserve()
    job = desk.claim_one()
    if outcome is None:
        desk.done(job)
    else:
        desk.end(job, outcome)
    assert desk.store.reservation() is None
    assert maker.reservation_status(reservation.id) == "RELEASED"
    assert desk.order() == waiting
    (ended,) = desk.store.chain(reservation.job_id)
    assert ended.status == ("COMPLETED" if outcome is None or isinstance(outcome, Completed) else "DEAD_LETTER")
    assert [each.job_id for each in desk.claim(5)] == waiting


def test_a_direct_job_whose_worker_was_lost_is_dead_and_never_retried_and_its_reservation_expired(desk, maker):
    reservation = desk.reserve()
    desk.claim_one()
    assert desk.recover(desk.worker, Crashed()) == 1
    (ended,) = desk.store.chain(reservation.job_id)
    assert ended.status == "DEAD_LETTER"
    assert desk.store.reservation() is None
    assert maker.reservation_status(reservation.id) == "EXPIRED"
    assert desk.store.repair(since=0) == []


def test_giving_up_before_the_start_cancels_the_job_and_expires_the_reservation(desk, maker):
    waiting = desk.several(2)
    reservation = desk.reserve()
    assert desk.store.give_up_waiting(reservation.id, now=desk.now) is True
    assert (desk.status(reservation.job_id), maker.reservation_status(reservation.id)) == ("CANCELLED", "EXPIRED")
    assert desk.store.run(reservation.job_id) is None
    assert desk.store.give_up_waiting(reservation.id, now=desk.now) is False
    assert [job.job_id for job in desk.claim(5)] == waiting


def test_giving_up_waiting_leaves_a_job_that_has_started(desk):
    reservation = desk.reserve()
    job = desk.claim_one()
    assert desk.store.give_up_waiting(reservation.id, now=desk.now) is False
    assert desk.store.reservation() == reservation
    desk.done(job)
    assert desk.status(reservation.job_id) == "COMPLETED"


def test_giving_up_while_it_runs_can_end_run_job_and_reservation_in_one_move(desk, maker):
    reservation = desk.reserve()
    job = desk.claim_one()
    assert desk.store.give_up(reservation.id, now=desk.now, stop_running=True) is True
    ended, run = desk.job(reservation.job_id), desk.store.run(reservation.job_id)
    assert (ended.status, run.status, maker.reservation_status(reservation.id)) == ("DEAD_LETTER", "FAILED", "EXPIRED")
    assert "expired" in run.error
    desk.advance(1)
    # a hung call can't block the queue for ever, and its late result changes nothing
    assert desk.end(job, Completed('"late"')).late == [job.number]
    assert desk.store.run(reservation.job_id) == run


def test_giving_up_while_it_runs_can_leave_the_job_to_its_worker(desk, maker):
    waiting = desk.add()
    reservation = desk.reserve()
    job = desk.claim_one()
    assert desk.store.give_up(reservation.id, now=desk.now, stop_running=False) is True
    assert (desk.status(reservation.job_id), maker.reservation_status(reservation.id)) == ("RUNNING", "EXPIRED")
    assert [each.job_id for each in desk.claim(5)] == [waiting]
    desk.done(job)
    assert (desk.status(reservation.job_id), maker.reservation_status(reservation.id)) == ("COMPLETED", "EXPIRED")


def test_a_late_failure_of_a_direct_job_that_was_given_up_is_late(desk):
    reservation = desk.reserve()
    job = desk.claim_one()
    desk.store.give_up(reservation.id, now=desk.now, stop_running=True)
    desk.advance(1)
    assert desk.end(job, Failed("late")).late == [job.number]


def test_giving_up_before_the_start_by_force_cancels_too(desk, maker):
    reservation = desk.reserve()
    assert desk.store.give_up(reservation.id, now=desk.now, stop_running=True) is False
    assert (desk.status(reservation.job_id), maker.reservation_status(reservation.id)) == ("CANCELLED", "EXPIRED")


def test_a_reservation_that_has_ended_stays_as_it_is(desk, maker):
    reservation = desk.reserve()
    desk.done(desk.claim_one())
    before = desk.snapshot()
    assert desk.store.give_up(reservation.id, now=desk.now, stop_running=True) is False
    assert desk.store.give_up(desk.id(), now=desk.now, stop_running=True) is False
    assert desk.snapshot() == before
    assert maker.reservation_status(reservation.id) == "RELEASED"


def test_cancelling_the_waiting_direct_job_releases_the_slot(desk):
    reservation = desk.reserve()
    desk.store.cancel(reservation.job_id, actor=ANNA, now=desk.now)
    assert desk.store.reservation() is None
    assert desk.reserve() is not None


def test_a_peek_sees_one_that_waits_for_a_type_as_ready(desk):
    desk.reserve()
    assert desk.store.peek(types=("t",), worker_id=desk.worker).ready
    assert not desk.store.peek(types=("u",), worker_id=desk.worker).ready
    desk.claim_one()
    assert not desk.store.peek(types=("t",), worker_id=desk.worker).ready


def test_a_direct_job_stands_outside_the_positions_of_the_others(desk):
    desk.reserve(priority=75)
    desk.several(2)
    assert [job.position for job in desk.store.queue(limit=5) if job.held is None] == [100, 200]


def test_a_pause_of_its_organization_holds_a_direct_job_and_the_resume_lets_it_run(desk):
    reservation = desk.reserve()

    def park(candidates, _, usage):
        return Choice(take=[], park=[(job.number, "organization:default") for job in candidates])

    desk.store.pause("organization", "default", actor=ANNA, now=desk.now)
    assert desk.claim(1, choose=park) == []
    desk.store.resume("organization", "default", actor=ANNA, now=desk.now)
    assert [job.job_id for job in desk.claim(1)] == [reservation.job_id]
    assert inside(desk.job(reservation.job_id).worker_id) == desk.worker
