"""What an organization's state and its users' rights mean for jobs that are there already, and fair share."""

from __future__ import annotations

import pytest

from rota import Actor
from rota.model.decide import Crashed, Interrupted, Released
from rota.model.gate import Role
from tests.stores.desk import ANNA, Desk, inside
from tests.support.runs import run_of

ACME = Actor("ann", "acme", Role.ADMIN)


@pytest.fixture
def ran(rota):
    """The names of the jobs whose handler was entered."""
    entered = []

    @rota.job
    def act(n):
        entered.append(n)

    rota.organizations.create("acme")
    return entered


def act(rota, name, **options):
    return rota.enqueue("act", {"n": name}, organization="acme", **options)


def end_of(rota, job):
    tail = rota.jobs.attempts(job.id)[-1]
    run = run_of(rota, tail.id)
    return str(tail.status), tail.error_type, run.error if run else None


# ---- states ----------------------------------------------------------------------------------------------------------


def test_the_jobs_of_a_suspended_organization_wait_and_go_on_in_their_order(rota, ran):
    jobs = [act(rota, name) for name in "abc"]
    rota.organizations.suspend("acme")
    rota.enqueue("act", {"n": "other"})
    rota.turn()
    assert ran == ["other"]
    assert {rota.jobs.get(job.id).held for job in jobs} == {"suspended:acme"}
    assert rota.explain(jobs[0].id).reasons[4].detail == "organization acme is suspended"
    rota.organizations.restore("acme")
    rota.turn()
    assert ran == ["other", "a", "b", "c"]


def test_what_runs_when_its_organization_is_suspended_finishes_and_its_retry_waits(rota, clock):
    def once(ctx):
        if ctx.attempt == 1:
            rota.organizations.suspend("acme")
            raise ValueError("x")

    rota.organizations.create("acme")
    rota.job(once, name="once")
    job = rota.enqueue("once", organization="acme")
    rota.turn()
    assert [str(each.status) for each in rota.jobs.attempts(job.id)] == ["FAILED", "PENDING"]
    clock.advance(hours=1)
    rota.turn()
    assert rota.jobs.attempts(job.id)[-1].held == "suspended:acme"
    rota.organizations.restore("acme")
    rota.turn()
    assert end_of(rota, job)[0] == "COMPLETED"


def test_the_jobs_of_a_removed_organization_fail_without_entering_their_handler(rota, ran):
    jobs = [act(rota, name) for name in "ab"]
    rota.organizations.delete("acme")
    rota.turn()
    assert ran == []
    assert [end_of(rota, job) for job in jobs] == [("DEAD_LETTER", "permanent", "Organization not found")] * 2
    # nothing is cascaded away
    assert rota.jobs.get(jobs[0].id).params == {"n": "a"}


@pytest.mark.parametrize("first", ["suspend", "pause", "limit", "due later"])
def test_jobs_that_wait_for_any_reason_fail_when_their_organization_is_removed(rota, ran, clock, first):
    from datetime import timedelta

    job = act(rota, "a", run_at=timedelta(hours=1) if first == "due later" else None)
    if first == "suspend":
        rota.organizations.suspend("acme")
    elif first == "pause":
        rota.organizations.pause("acme")
    elif first == "limit":
        rota.organizations.update("acme", max_running=0)
    rota.turn()
    rota.organizations.delete("acme")
    clock.advance(hours=1)
    rota.turn()
    assert end_of(rota, job) == ("DEAD_LETTER", "permanent", "Organization not found")
    assert ran == []


def test_a_removed_organization_that_is_brought_back_can_retry_what_failed(rota, ran):
    job = act(rota, "a")
    rota.organizations.delete("acme")
    rota.turn()
    rota.organizations.restore("acme")
    rota.jobs.retry(job.id)
    rota.turn()
    assert ran == ["a"]


# ---- permissions at execution ----------------------------------------------------------------------------------------


@pytest.fixture
def guarded(rota, ran):
    @rota.job(requires_permission="payments")
    def pay(n):
        ran.append(n)

    rota.users.create("root", role="system_manager")
    rota.users.create("bob", organization="acme", permissions=["payments"])
    return rota.acting_as("bob").enqueue("pay", {"n": "bob's"})


LACKS = ("DEAD_LETTER", "permanent", "owner 'bob' lacks the permission 'payments' that template 'pay' requires")


def test_an_owner_who_still_has_the_permission_has_the_job_run(rota, ran, guarded):
    rota.turn()
    assert ran == ["bob's"]


def test_an_owner_who_lost_the_permission_meanwhile_has_the_job_fail_without_being_run(rota, ran, guarded):
    rota.users.update("bob", permissions=[])
    rota.turn()
    assert end_of(rota, guarded) == LACKS
    assert ran == []


def test_an_owner_who_was_removed_meanwhile_has_the_job_fail_without_being_run(rota, ran, guarded):
    rota.users.delete("bob")
    rota.turn()
    assert end_of(rota, guarded) == LACKS
    assert ran == []


def test_a_permission_that_is_required_only_since_is_asked_for_too(rota, ran):
    rota.users.create("root", role="system_manager")
    rota.users.create("bob", organization="acme")
    job = rota.acting_as("bob").enqueue("act", {"n": "a"})
    rota.templates.update("act", requires_permission="payments")
    rota.turn()
    assert end_of(rota, job) == ("DEAD_LETTER", "permanent", LACKS[2].replace("'pay'", "'act'"))


def test_who_got_the_permission_back_can_retry_what_failed(rota, ran, guarded):
    rota.users.update("bob", permissions=[])
    rota.turn()
    rota.users.update("bob", permissions=["payments"])
    rota.jobs.retry(guarded.id)
    rota.turn()
    assert ran == ["bob's"]


def test_a_manager_needs_no_permission_and_an_owner_the_store_does_not_know_was_vouched_for(rota, ran, guarded):
    rota.acting_as("root").enqueue("pay", {"n": "root's"})
    rota.acting_as(Actor("somebody", "acme", Role.USER, frozenset({"payments"}))).enqueue("pay", {"n": "somebody's"})
    rota.turn()
    assert set(ran) == {"bob's", "root's", "somebody's"}


# ---- fair share ------------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(rota):
    return Desk(rota._session.open().store)


def bulk(desk, count, **fields):
    import msgspec

    row = desk.row(**fields)
    return [each.job_id for each in desk.put(*(msgspec.structs.replace(row, job_id=job_id) for job_id in desk.ids.take(count, desk.now)))]


def test_a_single_job_is_not_delayed_by_anothers_hundred_thousand(desk):
    bulk(desk, 100_000, organization_id="loud")
    for _ in range(10):
        desk.claim(500)
    quiet = desk.add(organization_id="quiet")
    assert quiet in {job.job_id for job in desk.claim(2)}


def test_a_thousand_organizations_take_turns(desk):
    names = [f"o{index}" for index in range(1000)]
    desk.put(*(desk.row(organization_id=name) for name in names for _ in range(3)))
    for _ in range(3):
        claimed = desk.claim(1000)
        assert {job.organization_id for job in claimed} == set(names)


def test_retries_and_promoted_jobs_line_up_fairly_too(desk):
    from rota.model.decide import Failed

    bulk(desk, 50, organization_id="loud", backoff='{"base":1,"factor":1,"cap":1,"jitter":0}')
    jobs = desk.claim(50)
    desk.turn(endings=[desk.ending(job, Failed("x")) for job in jobs])
    bulk(desk, 50, organization_id="third")
    desk.claim(10)
    desk.advance(1)
    quiet = desk.add(organization_id="quiet", delay=0)
    desk.turn()
    order = desk.order()
    assert order.index(quiet) <= 3


def test_one_who_enqueues_and_cancels_is_served_as_if_nothing_had_been(desk):
    bulk(desk, 500, organization_id="loud")
    desk.claim(100)
    for job_id in bulk(desk, 300, organization_id="fickle"):
        desk.store.cancel(job_id, actor=ANNA, now=desk.now)
    fickle, quiet = desk.add(organization_id="fickle"), desk.add(organization_id="quiet")
    positions = {inside(job.id): job.position for job in desk.store.queue(limit=1000)}
    assert positions[fickle] == positions[quiet]


@pytest.mark.parametrize("outcome", [Crashed(), Interrupted(), Released()], ids=lambda each: type(each).__name__)
def test_a_job_keeps_its_place_also_when_its_priority_was_counted_anew(desk, outcome):
    """Its place is before those who came after it was claimed, however far the old count had come."""
    bulk(desk, 300)
    *_, first, second = desk.claim(300)
    newcomers = desk.several(3)
    desk.end(first, outcome)
    desk.end(second, outcome)
    assert desk.order() == [desk.tail_id(first.job_id), desk.tail_id(second.job_id), *newcomers]


def test_a_job_that_keeps_its_place_twice_stays_before_those_who_came_later(desk):
    bulk(desk, 300)
    *_, last = desk.claim(300)
    newcomers = desk.several(2)
    desk.end(last, Interrupted())
    again = desk.claim_one()
    assert again.root_id == last.job_id
    desk.end(again, Interrupted())
    assert desk.order() == [desk.tail_id(last.job_id), *newcomers]
