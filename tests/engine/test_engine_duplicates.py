"""Duplicates and submit limits as callers meet them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import Backoff, NewJob
from rota.engine.submit import job_hash
from rota.errors import DuplicateJob, RateLimited
from tests.support.waiting import eventually

# ---- the hash --------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def reordered(value):
    """The same value with every object's keys the other way round."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return [reordered(each) for each in value] if isinstance(value, list) else value


@given(params=st.dictionaries(st.text(max_size=3), JSON, max_size=5))
def test_the_hash_is_independent_of_the_order_of_keys(params):
    assert job_hash("o", "t", params) == job_hash("o", "t", reordered(params))


def test_the_hash_differs_by_organization_template_and_params():
    hashes = {
        job_hash(organization, template, params)
        for organization in ("a", "ab")
        for template in ("t", "bt")
        for params in ({}, {"x": 1}, {"x": "1"}, {"x": [1]}, {"y": 1}, {"x": None}, {"x": {"x": 1}})
    }
    assert len(hashes) == 2 * 2 * 7
    assert job_hash("a", "t", None) == job_hash("a", "t", {})


def test_the_hash_copes_with_dates_and_decimals():
    params = {
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "for": timedelta(hours=1),
        "price": Decimal("19.99"),
        "id": UUID(int=7),
        "tags": {"b", "a"},
        "numbers": {2: "b", 1: "a"},
    }
    assert job_hash("o", "t", params) == job_hash("o", "t", dict(reversed(list(params.items()))) | {"numbers": {1: "a", 2: "b"}})
    assert job_hash("o", "t", params) != job_hash("o", "t", params | {"price": Decimal("19.98")})


# ---- the window ------------------------------------------------------------------------------------------------------


@pytest.fixture
def once(rota):
    return rota.job(lambda x=0, y=0: None, name="once", dedup_window=60)


def test_a_duplicate_is_refused_until_the_window_is_over(rota, clock, once):
    first = rota.enqueue("once", {"x": 1, "y": 2})
    with pytest.raises(DuplicateJob) as caught:
        rota.enqueue("once", {"y": 2, "x": 1})
    assert caught.value.job_id == first.id
    assert first.number in str(caught.value)
    rota.enqueue("once", {"x": 2, "y": 1})
    clock.advance(seconds=60)
    assert rota.enqueue("once", {"y": 2, "x": 1}).id != first.id


@pytest.mark.parametrize("window", [None, 0, 0.0])
def test_without_a_window_the_same_params_are_accepted_again(rota, window):
    rota.job(lambda: None, name="often", dedup_window=window)
    assert rota.enqueue("often").id != rota.enqueue("often").id


def test_a_window_is_the_templates_own(rota, once):
    rota.job(lambda x=0: None, name="other", dedup_window=60)
    rota.enqueue("once", {"x": 1})
    rota.enqueue("other", {"x": 1})
    with pytest.raises(DuplicateJob):
        rota.enqueue("other", {"x": 1})


def test_organizations_don_t_see_each_others_duplicates(rota, once):
    rota.organizations.create("acme")
    rota.enqueue("once", organization="acme")
    rota.enqueue("once")
    with pytest.raises(DuplicateJob) as caught:
        rota.enqueue("once")
    assert "acme" not in str(caught.value)


def test_a_caller_who_lost_the_reply_gets_its_own_job_again(rota, once):
    job_id = rota._session.ids.take(1, rota._session.clock.now())[0]
    first = rota.enqueue("once", {"x": 1}, job_id=job_id)
    again = rota.enqueue("once", {"x": 1}, job_id=job_id)
    assert (again.id, again.existing, first.existing) == (first.id, True, False)


def test_a_bulk_call_with_a_duplicate_adds_nothing(rota, once):
    rota.enqueue("once", {"x": 3})
    with pytest.raises(DuplicateJob):
        rota.enqueue_many([("once", {"x": each}) for each in range(5)])
    assert len(rota.jobs.list()) == 1


def test_a_duplicate_can_be_caught_inside_a_transaction_that_goes_on(rota, once):
    with rota.transaction() as tx:
        first = rota.enqueue("once", transaction=tx)
        with pytest.raises(DuplicateJob) as caught:
            rota.enqueue("once", transaction=tx)
        assert caught.value.job_id == first.id
    assert [job.id for job in rota.jobs.list()] == [first.id]


def test_retries_and_groups_go_their_way(rota, clock):
    @rota.job(dedup_window=3600, max_retries=1, backoff=Backoff(base=1, jitter=0))
    def flaky(ctx, n: int = 0):
        if ctx.attempt == 1:
            raise ValueError("x")

    job = rota.enqueue("flaky")
    rota.turn()
    clock.advance(seconds=1)
    rota.turn()
    assert [str(each.status) for each in rota.jobs.attempts(job.id)] == ["FAILED", "COMPLETED"]


# ---- keys, with a worker ---------------------------------------------------------------------------------------------


def test_a_key_is_held_through_backoff_and_freed_by_the_end(rota, clock):
    @rota.job(max_retries=1, backoff=Backoff(base=60, jitter=0))
    def fails():
        raise ValueError("x")

    first = rota.enqueue("fails", unique_key="k")
    rota.turn()
    waiting = rota.enqueue("fails", unique_key="k")
    assert (rota.jobs.get(waiting).root_id, rota.jobs.get(waiting).status, waiting.existing) == (first.id, "PENDING", True)
    clock.advance(seconds=60)
    rota.turn()
    assert not rota.enqueue("fails", unique_key="k").existing


# ---- limits on submissions -------------------------------------------------------------------------------------------


def test_a_submission_beyond_the_limit_is_refused_until_there_is_room(rota, clock):
    rota.job(lambda: None, name="few", submit_limit="2/60s")
    rota.enqueue("few")
    clock.advance(seconds=20)
    rota.enqueue("few")
    with pytest.raises(RateLimited, match="'few' takes at most 2 jobs in 60 s") as caught:
        rota.enqueue("few")
    assert caught.value.retry_after_s == 40.0
    with pytest.raises(RateLimited):
        rota.enqueue_many([("few", {})] * 2)
    clock.advance(seconds=40)
    rota.enqueue("few")
    assert len(rota.jobs.list()) == 3


def test_a_limit_does_not_concern_other_templates(rota):
    rota.job(lambda: None, name="few", submit_limit=(1, 60))
    rota.job(lambda: None, name="many")
    rota.enqueue("few")
    rota.enqueue_many([NewJob(name="many") for _ in range(50)])
    with pytest.raises(RateLimited):
        rota.enqueue_many([("many", {}), ("few", {})])
    assert len(rota.jobs.list()) == 51


def test_whoever_waits_as_long_as_told_is_accepted(live):
    live.job(lambda: None, name="few", submit_limit=(1, 0.2))
    live.enqueue("few")
    with pytest.raises(RateLimited) as caught:
        live.enqueue("few")
    end = live._session.clock.now() + round(caught.value.retry_after_s * 1e6)
    eventually(lambda: live._session.clock.now() >= end, what="the time that was told")
    live.enqueue("few")
