"""What was written while the clock was ahead comes back when the clock does; and the mark by which a clock is trusted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.errors import DuplicateJob
from rota.model.decide import Failed
from rota.model.values import SECOND, instant
from rota.model.webhooks import Event, Sent, Verdict, Webhook
from rota.ports.hooks import Settled
from tests.stores.desk import ANNA, START, outside
from tests.stores.timekeeper import Timekeeper

YEAR_S = 365 * 86_400
AT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def desk(store):
    return Timekeeper(store)


def run_at(desk, job_id):
    return instant(desk.store.job(job_id).run_at)


def come_back(desk, seconds=YEAR_S):
    """Set the clock right, and let a worker see it."""
    desk.advance(-seconds)
    assert desk.store.beat_of_schedules().furthest > desk.now + 60 * SECOND
    desk.fire()
    assert desk.store.beat_of_schedules().furthest <= desk.now


# ---- jobs that were put off --------------------------------------------------------------------------------------------


def test_a_job_that_was_put_off_by_a_clock_ahead_waits_as_long_from_now_on(desk):
    desk.advance(YEAR_S)
    put_off = desk.add(delay=30, put_off=True)
    named = desk.add(delay=30)
    come_back(desk)
    assert run_at(desk, put_off) == desk.now + 30 * SECOND
    assert run_at(desk, named) == desk.now + (YEAR_S + 30) * SECOND
    desk.advance(30)
    assert desk.claim_one().job_id == put_off


def test_many_that_were_put_off_together_come_back_together(desk):
    desk.advance(YEAR_S)
    several = desk.several(20, delay=30, put_off=True)
    mixed = [desk.put(desk.row(delay=30, put_off=bool(number % 2)), desk.row(delay=60, put_off=True)) for number in range(4)]
    come_back(desk)
    assert {run_at(desk, each) for each in several} == {desk.now + 30 * SECOND}
    assert [[run_at(desk, each.job_id) - desk.now for each in pair] for pair in mixed] == [
        [(30 + YEAR_S * (number % 2 == 0)) * SECOND, 60 * SECOND] for number in range(4)
    ]


def test_later_jobs_of_the_right_clock_hide_none_and_keep_their_time(desk):
    desk.advance(YEAR_S)
    put_off = desk.add(delay=30, put_off=True)
    desk.advance(-YEAR_S)
    later = desk.add(delay=2 * YEAR_S, put_off=True)
    desk.advance(YEAR_S)
    come_back(desk)
    assert run_at(desk, put_off) == desk.now + 30 * SECOND
    assert run_at(desk, later) == START + 2 * YEAR_S * SECOND


def test_a_retry_made_by_a_clock_ahead_comes_back_where_there_is_no_schedule(desk):
    desk.advance(YEAR_S)
    root = desk.add()
    desk.end(desk.claim_one(), Failed("x"))
    (_, successor) = desk.store.chain(root)
    come_back(desk)
    assert run_at(desk, successor.id.replace("-", "")) == desk.now + 60 * SECOND


def test_a_job_that_was_given_another_time_by_a_clock_ahead_comes_back_and_keeps_its_expiry(desk):
    job = desk.add(delay=600, expires_at=desk.now + 7200 * SECOND)
    expires_at = desk.store.job(job).expires_at
    desk.advance(YEAR_S)
    desk.store.change(job, actor=ANNA, now=desk.now, run_at=desk.now + 30 * SECOND, put_off=True)
    come_back(desk)
    assert run_at(desk, job) == desk.now + 30 * SECOND
    assert desk.store.job(job).expires_at == expires_at
    desk.store.change(job, actor=ANNA, now=desk.now, run_at=desk.now + YEAR_S * SECOND)
    desk.advance(30)
    desk.fire()
    assert run_at(desk, job) == desk.now + (YEAR_S - 30) * SECOND


def test_an_expiry_moves_with_a_job_that_was_put_off_by_a_clock_ahead(desk):
    desk.advance(YEAR_S)
    job = desk.add(delay=30, put_off=True, expires_at=desk.now + 90 * SECOND)
    come_back(desk)
    assert instant(desk.store.job(job).expires_at) == desk.now + 90 * SECOND


def test_a_job_that_is_put_off_has_no_place_to_show(desk):
    (added,) = desk.put(desk.row(delay=30, put_off=True, unique_key="k"))
    (again,) = desk.put(desk.row(delay=30, put_off=True, unique_key="k"))
    assert (added.position, again.position, desk.store.job(added.job_id).position) == (0, 0, 0)
    desk.store.cancel(added.job_id, actor=ANNA, now=desk.now)
    assert desk.store.job(added.job_id).position == 0


def test_a_clock_a_little_ahead_changes_nothing(desk):
    desk.advance(50)
    job = desk.add(delay=30, put_off=True)
    desk.advance(-50)
    desk.fire()
    assert run_at(desk, job) == desk.now + 80 * SECOND


# ---- messages ----------------------------------------------------------------------------------------------------------


def one_message(desk):
    endpoint_id = desk.id()
    webhook = Webhook(
        id=outside(endpoint_id),
        url="https://example.com/x",
        organization="default",
        events=tuple(Event),
        created_by="anna",
        created_at=AT,
        updated_at=AT,
    )
    desk.store.add_endpoint(webhook, "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", most=10, actor=ANNA, now=desk.now)
    desk.add()
    desk.done(desk.claim_one())


def take(desk, *settled):
    return desk.store.take_mail(list(settled), now=desk.now, until=desk.now + 60 * SECOND, limit=10, each=10).parcels


def failed(desk, parcel, wait_s):
    return Settled(parcel=parcel, sent=Sent(status=500), verdict=Verdict(next_at=desk.now + wait_s * SECOND), at=desk.now)


def test_a_message_that_a_clock_ahead_put_off_waits_as_long_from_now_on(desk):
    one_message(desk)
    desk.advance(YEAR_S)
    (parcel,) = take(desk)
    take(desk, failed(desk, parcel, 5))
    come_back(desk)
    assert desk.store.mail().next_at == desk.now + 5 * SECOND
    desk.advance(5)
    assert [again.id for again in take(desk)] == [parcel.id]


def test_a_message_that_a_clock_ahead_wrote_is_due_at_once(desk):
    desk.advance(YEAR_S)
    one_message(desk)
    come_back(desk)
    assert len(take(desk)) == 1


def test_a_message_that_was_taken_on_by_a_clock_ahead_and_never_settled_is_due_at_once(desk):
    one_message(desk)
    desk.advance(YEAR_S)
    assert take(desk)
    come_back(desk)
    assert len(take(desk)) == 1


def test_a_message_that_waits_by_the_right_clock_stays_as_it_is(desk):
    one_message(desk)
    (parcel,) = take(desk)
    take(desk, failed(desk, parcel, 7 * 86_400))
    desk.advance(YEAR_S)
    desk.add(delay=30, put_off=True)
    come_back(desk)
    assert desk.store.mail().next_at == START + 7 * 86_400 * SECOND


# ---- windows -----------------------------------------------------------------------------------------------------------


def test_a_window_against_duplicates_that_a_clock_ahead_opened_refuses_nothing(desk):
    def submit():
        desk.put(desk.row(template_id=template, job_hash="ab" * 16, dedup_window=5 * SECOND))

    template = desk.id()
    desk.advance(YEAR_S)
    submit()
    desk.advance(-YEAR_S)
    submit()
    with pytest.raises(DuplicateJob):
        submit()
    desk.advance(5)
    submit()


def test_a_window_that_a_caller_with_a_slightly_later_clock_opened_holds(desk):
    template = desk.id()
    desk.put(desk.row(template_id=template, job_hash="ab" * 16, dedup_window=5 * SECOND))
    desk.advance(-30)
    with pytest.raises(DuplicateJob):
        desk.put(desk.row(template_id=template, job_hash="ab" * 16, dedup_window=5 * SECOND))


# ---- the mark ----------------------------------------------------------------------------------------------------------


def test_the_mark_of_a_store_is_its_newest_job_until_it_is_set_and_may_go_back(desk):
    assert desk.store.retention_clock() is None
    desk.add()
    assert desk.store.retention_clock() == START
    desk.store.set_retention_clock(START + SECOND)
    desk.advance(10)
    desk.add()
    assert desk.store.retention_clock() == START + SECOND
    desk.store.set_retention_clock(START - SECOND)
    assert desk.store.retention_clock() == START - SECOND
