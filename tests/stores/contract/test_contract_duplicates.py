"""Duplicates: unique keys, dedup windows, limits on submissions."""

from contextlib import suppress

import pytest

from rota.errors import DuplicateJob, RateLimited
from rota.model.decide import Completed, Failed, Skipped, Stopped
from rota.model.values import SECOND
from rota.ports.store import Where
from tests.stores.desk import ANNA, inside, outside

DEAD = Failed("x", permanent=True)
HASH, OTHER = "ab" * 16, "cd" * 16


@pytest.fixture
def template(desk):
    return desk.id()


def hashed(desk, template, job_hash=HASH, *, window=60.0, **fields):
    return desk.row(template_id=template, job_hash=job_hash, dedup_window=round(window * SECOND) or None, **fields)


def limited(desk, limit=3, window=10.0, **fields):
    return desk.row(submit_limit=limit, submit_window=round(window * SECOND), **fields)


def count(desk):
    return len(desk.store.find(Where(), limit=1000))


# ---- unique keys -------------------------------------------------------------------------------------------------------


def test_a_key_is_held_by_every_live_job_of_a_chain(desk):
    parent = desk.add("parent")
    first = desk.add(unique_key="k", depends_on=(parent,))
    seen = []

    def holder():
        found = desk.put(desk.row(unique_key="k"))[0]
        assert (found.root_id, found.existing) == (first, True)
        seen.append(found.status)

    holder()
    desk.done(desk.claim_one(types=("parent",)))
    holder()
    job = desk.claim_one()
    holder()
    desk.end(job, Failed("x"))
    holder()
    assert seen == ["PENDING", "QUEUED", "RUNNING", "PENDING"]


@pytest.mark.parametrize("outcome", [Completed(), DEAD, Stopped(), Skipped("x")], ids=lambda each: type(each).__name__)
def test_every_end_of_a_chain_frees_its_key(desk, outcome):
    first = desk.add(unique_key="k")
    if isinstance(outcome, Stopped):
        desk.store.cancel(first, actor=ANNA, now=desk.now)
    else:
        desk.run_to(outcome)
    again = desk.put(desk.row(unique_key="k"))[0]
    assert (again.existing, again.job_id != first) == (False, True)


def test_keys_of_other_types_and_organizations_are_others(desk):
    rows = [desk.row(unique_key="k"), desk.row("u", unique_key="k"), desk.row(unique_key="k", organization_id="acme")]
    assert [each.existing for each in desk.put(*rows)] == [False] * 3


# ---- the dedup window --------------------------------------------------------------------------------------------------


def test_the_same_hash_inside_the_window_is_refused_naming_the_job(desk, template):
    first = desk.put(hashed(desk, template))[0]
    desk.advance(59.9)
    with pytest.raises(DuplicateJob) as caught:
        desk.put(hashed(desk, template))
    words = str(caught.value)
    assert caught.value.job_id == outside(first.job_id)
    for part in (desk.job(first.job_id).number, outside(first.job_id), "QUEUED", "2026-03-01T12:01:00Z"):
        assert part in words
    assert count(desk) == 1


def test_when_the_window_is_over_the_same_hash_is_accepted_and_opens_a_new_one(desk, template):
    first = desk.put(hashed(desk, template))[0]
    desk.advance(60)
    second = desk.put(hashed(desk, template))[0]
    assert (first.existing, second.existing) == (False, False)
    desk.advance(30)
    with pytest.raises(DuplicateJob) as caught:
        desk.put(hashed(desk, template))
    assert caught.value.job_id == outside(second.job_id)


@pytest.mark.parametrize("outcome", [Completed(), DEAD, Skipped("x")], ids=lambda each: type(each).__name__)
def test_the_window_holds_whatever_became_of_the_job_and_its_end_is_named(desk, template, outcome):
    desk.put(hashed(desk, template))
    desk.run_to(outcome)
    with pytest.raises(DuplicateJob, match=str(desk.store.find(Where(), limit=1)[0][1].status)):
        desk.put(hashed(desk, template))


def test_without_a_window_nothing_is_refused(desk, template):
    assert not any(each.existing for _ in range(2) for each in desk.put(hashed(desk, template, window=0.0)))
    desk.put(hashed(desk, template))
    assert count(desk) == 3


def test_other_params_templates_and_organizations_are_no_duplicates(desk, template):
    rows = [
        hashed(desk, template),
        hashed(desk, template, OTHER),
        hashed(desk, desk.id()),
        hashed(desk, template, organization_id="acme"),
    ]
    assert [each.existing for each in desk.put(*rows)] == [False] * 4


def test_a_refused_duplicate_names_nothing_of_another_organization(desk, template):
    desk.put(hashed(desk, template, organization_id="acme"))
    desk.put(hashed(desk, template))
    with pytest.raises(DuplicateJob) as caught:
        desk.put(hashed(desk, template))
    assert "acme" not in str(caught.value)


def test_one_duplicate_refuses_the_whole_call(desk, template):
    desk.put(hashed(desk, template))
    with pytest.raises(DuplicateJob):
        desk.put(desk.row(), hashed(desk, template, OTHER), hashed(desk, template))
    assert count(desk) == 1
    assert not desk.put(hashed(desk, template, OTHER))[0].existing


def test_the_same_hash_twice_in_one_call_refuses_it_and_names_no_job_that_is_not_there(desk, template):
    with pytest.raises(DuplicateJob, match="twice in one call") as caught:
        desk.put(hashed(desk, template), hashed(desk, template))
    assert caught.value.job_id == ""
    assert count(desk) == 0


def test_a_repeated_call_gets_its_own_job_and_is_no_duplicate(desk, template):
    row = hashed(desk, template, chosen=True)
    first = desk.put(row)[0]
    again = desk.put(row)[0]
    assert (again.job_id, again.existing, first.existing) == (row.job_id, True, False)
    rows = [hashed(desk, template, OTHER), hashed(desk, template, "ef" * 16)]
    desk.put(*rows)
    assert [each.existing for each in desk.put(*rows)] == [True, True]


def test_the_live_holder_of_a_key_comes_back_before_duplicates_are_looked_for(desk, template):
    first = desk.put(hashed(desk, template, unique_key="k"))[0]
    again = desk.put(hashed(desk, template, unique_key="k"))[0]
    assert (again.job_id, again.existing) == (first.job_id, True)
    desk.run_to(Completed())
    with pytest.raises(DuplicateJob):
        desk.put(hashed(desk, template, unique_key="k"))


def test_a_retry_is_no_duplicate_of_its_own_chain(desk, template):
    desk.put(hashed(desk, template, max_retries=1))
    desk.run_to(Failed("x"))
    desk.advance(60)
    desk.run_to(Failed("x"))
    root = inside(desk.store.find(Where(), limit=1)[0][1].root_id)
    assert desk.store.retry(root, new_id=desk.id(), actor=ANNA, now=desk.now).status == "QUEUED"


# ---- limits on submissions ---------------------------------------------------------------------------------------------


def test_beyond_the_submit_limit_a_job_is_refused_with_the_time_to_try_again(desk):
    for _ in range(3):
        desk.put(limited(desk))
        desk.advance(2)
    with pytest.raises(RateLimited) as caught:
        desk.put(limited(desk))
    assert caught.value.retry_after_s == 4.0
    for part in ("'t'", "3 jobs in 10 s", "in 4 s", "2026-03-01T12:00:10.000000Z"):
        assert part in str(caught.value)
    assert count(desk) == 3


def test_the_window_slides_exactly(desk):
    for _ in range(3):
        desk.put(limited(desk))
        desk.advance(2)
    desk.advance(3.999999)
    with pytest.raises(RateLimited) as caught:
        desk.put(limited(desk))
    assert caught.value.retry_after_s == pytest.approx(0.000001)
    desk.advance(0.000001)
    desk.put(limited(desk))
    with pytest.raises(RateLimited) as caught:
        desk.put(limited(desk))
    assert caught.value.retry_after_s == 2.0


def test_a_caller_who_comes_with_an_earlier_now_waits_no_longer_than_the_window(desk):
    desk.advance(3)
    desk.put(limited(desk), limited(desk), limited(desk))
    desk.advance(-3)
    with pytest.raises(RateLimited) as caught:
        desk.put(limited(desk))
    assert caught.value.retry_after_s == 10.0


def test_in_no_window_more_are_accepted_than_the_limit_says(desk):
    accepted = []
    for step in range(130):
        desk.advance((step * 7 % 13) / 10)
        with suppress(RateLimited):
            desk.put(limited(desk))
            accepted.append(desk.now)
    assert len(accepted) > 20
    for index in range(len(accepted) - 3):
        assert accepted[index + 3] - accepted[index] >= 10 * SECOND


def test_a_bulk_call_that_would_exceed_the_limit_is_refused_whole(desk):
    desk.put(limited(desk), limited(desk))
    desk.advance(4)
    with pytest.raises(RateLimited) as caught:
        desk.put(limited(desk), limited(desk))
    assert (caught.value.retry_after_s, count(desk)) == (6.0, 2)
    desk.put(limited(desk))
    with pytest.raises(RateLimited, match="at most 3 at once"):
        desk.put(*(limited(desk) for _ in range(4)))
    assert count(desk) == 3


def test_the_limit_counts_by_organization_and_type(desk):
    desk.put(*(limited(desk) for _ in range(3)))
    desk.put(limited(desk, job_type="u"), limited(desk, organization_id="acme"), desk.row())
    with pytest.raises(RateLimited) as caught:
        desk.put(limited(desk, organization_id="acme", limit=1))
    assert "acme" not in str(caught.value)


def test_jobs_that_are_there_already_count_for_nothing(desk):
    row = limited(desk, chosen=True, unique_key="k")
    desk.put(row)
    for _ in range(5):
        assert desk.put(row)[0].existing
        assert desk.put(limited(desk, unique_key="k"))[0].existing
    desk.put(limited(desk), limited(desk))
    assert count(desk) == 3


def test_a_refused_call_counts_for_nothing(desk, template):
    desk.put(hashed(desk, template))
    for _ in range(5):
        with pytest.raises(DuplicateJob):
            desk.put(limited(desk), hashed(desk, template))
    desk.put(limited(desk), limited(desk), limited(desk))
    with pytest.raises(RateLimited):
        desk.put(limited(desk))


def test_a_job_that_ended_still_counts_as_submitted(desk):
    desk.put(*(limited(desk) for _ in range(3)))
    desk.done(*desk.claim(3))
    with pytest.raises(RateLimited):
        desk.put(limited(desk))


def test_submissions_noted_by_a_clock_that_was_ahead_are_not_held_against_anybody(desk):
    desk.put(*(limited(desk) for _ in range(3)))
    desk.advance(5 * 365 * 86_400)
    desk.put(*(limited(desk) for _ in range(3)))
    desk.advance(-5 * 365 * 86_400 + 11)
    desk.put(*(limited(desk) for _ in range(3)))
    with pytest.raises(RateLimited) as refused:
        desk.put(limited(desk))
    assert refused.value.retry_after_s == pytest.approx(10.0)
