"""The gate on jobs, groups, pauses and workers, as a program meets it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from rota import Actor, NewJob, Rota, Status, enqueue_async
from rota.errors import (
    DuplicateId,
    DuplicateJob,
    GroupRefused,
    InvalidName,
    InvalidOption,
    KeyTaken,
    NotFound,
    OrganizationUnavailable,
    PermissionDenied,
    QueueFull,
    RotaError,
    UnknownParent,
)
from rota.waits import wait_async
from tests.stores.desk import Desk, outside
from tests.support.runs import run_of

NOWHERE = str(UUID(int=7 << 76 | 2 << 62))

# ---- one job --------------------------------------------------------------------------------------------------------

ON_A_JOB = {
    "get": lambda rota, job, actor: rota.acting_as(actor).jobs.get(job),
    "chain": lambda rota, job, actor: rota.acting_as(actor).jobs.attempts(job),
    "run_of": lambda rota, job, actor: run_of(rota.acting_as(actor), job),
    "wait": lambda rota, job, actor: rota.acting_as(actor).wait(job, 0.01),
    "await_end": lambda rota, job, actor: asyncio.run(wait_async(rota._session, actor, job, 0.01)),
    "explain": lambda rota, job, actor: rota.acting_as(actor).explain(job),
    "cancel": lambda rota, job, actor: rota.acting_as(actor).jobs.cancel(job),
    "retry": lambda rota, job, actor: rota.acting_as(actor).jobs.retry(job),
    "change": lambda rota, job, actor: rota.acting_as(actor).jobs.update(job, priority=1),
    "reschedule": lambda rota, job, actor: rota.acting_as(actor).jobs.update(job, run_at=timedelta(hours=1)),
    "move": lambda rota, job, actor: rota.acting_as(actor).jobs.move(job, front=True),
    "group": lambda rota, job, actor: rota.acting_as(actor).group([job], mode="parallel"),
}
FOR_ADMINS = {"retry", "change", "reschedule", "move", "group"}


def refusal(act, *args) -> RotaError:
    with pytest.raises(RotaError) as raised:
        act(*args)
    return raised.value


@pytest.mark.parametrize("name", ON_A_JOB)
def test_a_job_of_another_organization_is_refused_in_the_words_for_one_that_is_not_there(shared: Rota, name):
    act = ON_A_JOB[name]
    theirs = shared.acting_as("fay").enqueue("echo", {"text": "secret"})
    for actor in ("ada", "bob"):
        there = refusal(act, shared, theirs.id, actor)
        nowhere = refusal(act, shared, NOWHERE, actor)
        assert type(there) is type(nowhere)
        assert str(there).replace(theirs.id, NOWHERE) == str(nowhere)
        assert type(there) is (PermissionDenied if actor == "bob" and name in FOR_ADMINS else NotFound)


@pytest.mark.parametrize("name", sorted(ON_A_JOB.keys() - {"group"}))
@pytest.mark.parametrize("text", ["JOB-2026-{:05d}", "{}", "JOB-2026-{:05d}.7", "{}.1"])
def test_a_number_of_another_organization_is_refused_in_the_words_for_one_that_is_not_there(shared: Rota, name, text):
    act = ON_A_JOB[name]
    theirs = int(shared.acting_as("fay").enqueue("echo").number.rpartition("-")[2])
    there = refusal(act, shared, text.format(theirs), "ada")
    nowhere = refusal(act, shared, text.format(99), "ada")
    assert str(there).replace(repr(text.format(theirs)), repr(text.format(99))) == str(nowhere)
    assert "attempts" not in str(there)


def test_a_user_reads_and_cancels_its_own_and_no_colleagues(shared: Rota):
    own, other = shared.acting_as("bob").enqueue("echo"), shared.acting_as("ben").enqueue("echo")
    assert shared.acting_as("bob").jobs.get(own.id).owner == "bob"
    for name in ("get", "chain", "run_of", "wait", "explain", "cancel"):
        assert type(refusal(ON_A_JOB[name], shared, other.id, "bob")) is NotFound
    assert shared.acting_as("bob").jobs.cancel(own.id).status is Status.CANCELLED
    assert shared.jobs.get(own.id).ended_by == "bob"


def test_an_admin_steers_what_is_of_its_organization(shared: Rota):
    first, second = (shared.acting_as("bob").enqueue("echo") for _ in range(2))
    assert shared.acting_as("ada").jobs.update(first.id, priority=60).priority == 60
    assert shared.acting_as("ada").jobs.update(second.id, priority=60).priority == 60
    shared.acting_as("ada").jobs.move(second.id, before=first.id)
    assert [job.id for job in shared.acting_as("ada").queues.jobs()] == [second.id, first.id]
    shared.acting_as("ada").jobs.cancel(first.id)
    assert shared.acting_as("ada").jobs.retry(first.id).attempt == 2


def test_a_move_is_next_to_own_jobs_only(shared: Rota):
    own, theirs = shared.acting_as("bob").enqueue("echo"), shared.acting_as("fay").enqueue("echo")
    for place in ("before", "after"):
        for known, unknown in ((theirs.id, NOWHERE), (theirs.number, "JOB-2026-00099")):
            there = refusal(lambda place=place, known=known: shared.acting_as("ada").jobs.move(own.id, **{place: known}))
            nowhere = refusal(lambda place=place, unknown=unknown: shared.acting_as("ada").jobs.move(own.id, **{place: unknown}))
            assert str(there).replace(known, unknown) == str(nowhere)


def test_only_a_system_manager_acts_for_another_organization(shared: Rota):
    assert shared.jobs.get(shared.acting_as("root").enqueue("echo", organization="beta")).organization == "beta"
    assert shared.jobs.get(shared.enqueue("echo", organization="beta")).organization == "beta"
    acts = [
        lambda actor: shared.acting_as(actor).enqueue("echo", organization="beta"),
        lambda actor: shared.acting_as(actor).enqueue_many([("echo", {})], organization="beta"),
        lambda actor: shared.acting_as(actor).group([("echo", {})], organization="beta"),
        lambda actor: shared.acting_as(actor).jobs.direct("echo", organization="beta"),
        lambda actor: asyncio.run(enqueue_async(shared.acting_as(actor), "echo", organization="beta")),
    ]
    for act in acts:
        for actor in ("ada", "bob"):
            assert "in another organization" in str(refusal(act, actor))
            act("root")
    assert shared.jobs.get(shared.acting_as("bob").enqueue("echo", organization="acme")).owner == "bob"


def test_lists_show_what_is_in_reach(shared: Rota):
    jobs = {name: shared.acting_as(name).enqueue("echo").id for name in ("ada", "bob", "fay")}
    groups = {name: shared.acting_as(name).group([("echo", {})]).id for name in ("ada", "bob", "fay")}
    assert {job.owner for job in shared.acting_as("ada").queues.jobs()} == {"ada", "bob"}
    assert {job.owner for job in shared.queues.jobs()} == {"ada", "bob", "fay"}
    with pytest.raises(PermissionDenied, match="statistics and the queue"):
        shared.acting_as("bob").queues.jobs()
    assert {group.id for group in shared.acting_as("ada").groups.list()} == {groups["ada"], groups["bob"]}
    assert {group.id for group in shared.acting_as("bob").groups.list()} == {groups["bob"]}
    assert shared.acting_as("ada").groups.get(groups["bob"]).owner == "bob"
    assert set(jobs) == {"ada", "bob", "fay"}


def test_a_group_out_of_reach_is_refused_in_the_words_for_one_that_is_not_there(shared: Rota):
    group = shared.acting_as("fay").group([("echo", {})], name="secret")
    for verb in ("get", "cancel"):
        for actor in ("ada", "bob"):
            act = getattr(shared.acting_as(actor).groups, verb)
            there, nowhere = refusal(lambda: act(group.id)), refusal(lambda: act(NOWHERE))  # noqa: B023
            assert str(there).replace(group.id, NOWHERE) == str(nowhere)
            assert type(there) is type(nowhere) is NotFound
    shared.acting_as("ben").group([("echo", {})])
    assert shared.acting_as("fay").groups.cancel(group.id).status == "CANCELLED"


def test_existing_jobs_are_grouped_by_who_may_change_them(shared: Rota):
    own, theirs = shared.acting_as("bob").enqueue("echo"), shared.acting_as("fay").enqueue("echo")
    with pytest.raises(PermissionDenied, match="change, move or retry"):
        shared.acting_as("bob").group([own], mode="parallel")
    with pytest.raises(NotFound):
        shared.acting_as("ada").group([own, theirs], mode="parallel")
    assert len(shared.acting_as("ada").group([own, ("echo", {})], mode="parallel").members) == 2
    with pytest.raises(GroupRefused):
        shared.acting_as("ada").group([own], mode="parallel")


def test_pauses_of_an_organization_are_its_admins_and_all_others_the_managers(shared: Rota):
    for actor in ("ada", "bob"):
        assert type(refusal(lambda actor=actor: shared.acting_as(actor).store.pause())) is PermissionDenied
        assert type(refusal(lambda actor=actor: shared.acting_as(actor).templates.pause("echo"))) is PermissionDenied
        there = refusal(lambda actor=actor: shared.acting_as(actor).organizations.pause("beta"))
        nowhere = refusal(lambda actor=actor: shared.acting_as(actor).organizations.pause("nope"))
        assert str(there) == str(nowhere)
    with pytest.raises(PermissionDenied):
        shared.acting_as("bob").organizations.pause("acme")
    shared.acting_as("ada").organizations.pause("acme")
    shared.acting_as("root").organizations.pause("beta")
    shared.acting_as("root").templates.pause("echo")
    assert (
        shared.acting_as("ada").store.pauses() == shared.acting_as("bob").store.pauses() == [("organization", "acme"), ("template", "echo")]
    )
    assert len(shared.acting_as("root").store.pauses()) == 3
    shared.acting_as("ada").organizations.resume("acme")
    assert ("organization", "acme") not in shared.store.pauses()
    with pytest.raises(PermissionDenied):
        shared.acting_as("ada").templates.resume("echo")


@pytest.mark.parametrize(
    "act",
    [
        lambda rota, actor: rota.acting_as(actor).workers.list(),
        lambda rota, actor: rota.acting_as(actor).store.recover(),
        lambda rota, actor: rota.acting_as(actor).turn(),
        lambda rota, actor: rota.acting_as(actor).start(),
        lambda rota, actor: rota.acting_as(actor).run(),
        lambda rota, actor: rota.acting_as(actor).running().__enter__(),
        lambda rota, actor: rota.acting_as(actor).transaction().__enter__(),
        lambda rota, actor: rota.acting_as(actor).store.promote("/nowhere/rota.db"),
        lambda rota, actor: rota.acting_as(actor).store.reopen(),
    ],
    ids=["workers", "recover", "turn", "start", "run", "running", "transaction", "promote", "reopen"],
)
def test_what_serves_all_is_for_system_managers(shared: Rota, act):
    for actor in ("ada", "bob"):
        with pytest.raises(PermissionDenied, match="operate workers"):
            act(shared, actor)


def test_the_gate_comes_before_what_is_wrong_with_the_rest(shared: Rota):
    theirs = shared.acting_as("fay").enqueue("echo")
    with pytest.raises(NotFound):
        shared.acting_as("ada").jobs.update(theirs.id)
    with pytest.raises(NotFound):
        shared.acting_as("ada").jobs.move(theirs.id)
    with pytest.raises(PermissionDenied):
        shared.acting_as("ada").group([], organization="beta")


def test_a_parent_out_of_reach_is_unknown_in_the_words_for_one_that_is_not_there(shared: Rota):
    theirs, colleagues = shared.acting_as("fay").enqueue("echo"), shared.acting_as("ben").enqueue("echo")
    own = shared.acting_as("bob").enqueue("echo")
    for parent in (theirs, colleagues):
        there = refusal(lambda parent=parent: shared.acting_as("bob").enqueue("echo", depends_on=[parent.id]))
        nowhere = refusal(lambda: shared.acting_as("bob").enqueue("echo", depends_on=[NOWHERE]))
        assert str(there).replace(parent.id, NOWHERE) == str(nowhere)
        assert type(there) is type(nowhere) is UnknownParent
        by_number = refusal(lambda parent=parent: shared.acting_as("bob").enqueue("echo", depends_on=[parent.number]))
        assert parent.id not in str(by_number)
        assert type(by_number) is NotFound
    assert shared.jobs.get(shared.acting_as("bob").enqueue("echo", depends_on=[own.number])).status is Status.PENDING
    assert shared.jobs.get(shared.acting_as("ada").enqueue("echo", depends_on=[colleagues.id])).status is Status.PENDING


def test_a_key_held_by_a_colleague_is_taken_without_a_word_about_its_job(shared: Rota):
    held = shared.acting_as("ben").enqueue("echo", {"text": "private"}, unique_key="k")
    taken = refusal(lambda: shared.acting_as("bob").enqueue("echo", unique_key="k"))
    assert type(taken) is KeyTaken
    assert held.id not in str(taken)
    assert shared.acting_as("ada").enqueue("echo", unique_key="k").id == held.id
    assert not shared.acting_as("fay").enqueue("echo", unique_key="k").existing


def test_an_id_of_another_organization_cannot_be_enqueued_again(shared: Rota):
    theirs = shared.acting_as("fay").enqueue("echo", {"text": "secret"})
    for actor in ("ada", "bob", "root"):
        taken = refusal(lambda actor=actor: shared.acting_as(actor).enqueue("echo", job_id=theirs.id, organization=None))
        assert type(taken) is DuplicateId
        assert "echo" not in str(taken)
    with pytest.raises(DuplicateId):
        shared.acting_as("bob").enqueue_many([NewJob(name="echo", job_id=theirs.id)])


def test_jobs_under_way_are_shown_to_those_who_may_read_them(shared: Rota):
    seen = {}

    @shared.job
    def looks() -> None:
        for actor in ("ada", "bob", "fay", "root"):
            seen[actor] = [job.owner for job in shared.acting_as(actor).workers.jobs()]

    shared.acting_as("bob").enqueue("looks")
    shared.turn()
    assert seen == {"ada": ["bob"], "bob": ["bob"], "fay": [], "root": ["bob"]}


def test_direct_execution_is_submitting(shared: Rota):
    assert shared.acting_as("bob").jobs.direct("echo").result == "hi"
    with pytest.raises(PermissionDenied):
        shared.acting_as("bob").jobs.direct("echo", organization="beta")


def test_a_direct_execution_that_finds_no_slot_names_nobody_of_others(shared: Rota):
    desk = Desk(shared._session.open().store)
    theirs = desk.reserve("echo", organization_id="beta", owner="fay")
    words = {
        actor: str(refusal(lambda actor=actor: shared.acting_as(actor).jobs.direct("echo", timeout=0.03)))
        for actor in ("bob", "eve", "root")
    }
    assert words["bob"] == "resource busy: another direct execution is under way; try again when it has ended"
    assert "anna@here" in words["eve"]
    assert outside(theirs.job_id) in words["root"]
    shared._session.open().store.give_up_waiting(theirs.id, now=desk.now)
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["echo"], now=desk.now)
    lease = shared._session.open().liveness.take(desk.worker)
    words = {
        actor: str(refusal(lambda actor=actor: shared.acting_as(actor).jobs.direct("echo", timeout=0.03))) for actor in ("bob", "root")
    }
    lease.release(clean=True)
    assert words["bob"] == "resource busy: no slot became free in time; try again"
    assert "held by" in words["root"]


def test_the_highest_priority_of_an_organization_holds_for_changes_too(shared: Rota):
    shared.organizations.update("acme", max_priority=60)
    job = shared.acting_as("bob").enqueue("echo")
    for actor in ("ada", "root", None):
        with pytest.raises(InvalidOption, match="priority 75 is over the max_priority 60 of organization 'acme'"):
            shared.acting_as(actor).jobs.update(job.id, priority="high")
    assert shared.acting_as("ada").jobs.update(job.id, priority=60).priority == 60
    with pytest.raises(InvalidOption, match="over the max_priority"):
        shared.acting_as("bob").enqueue("echo", priority="high")
    assert shared.jobs.get(shared.acting_as("fay").enqueue("echo", priority="high")).priority == 75


def test_a_full_organization_is_full_alone(shared: Rota):
    shared.organizations.update("acme", max_queued=2)
    for _ in range(2):
        shared.acting_as("bob").enqueue("echo")
        shared.acting_as("fay").enqueue("echo")
    with pytest.raises(QueueFull, match="'acme' has 2 jobs queued"):
        shared.acting_as("ben").enqueue("echo")
    shared.acting_as("fay").enqueue("echo")


# ---- suspended and removed ------------------------------------------------------------------------------------------


def test_people_of_a_suspended_organization_may_read_and_cancel(shared: Rota):
    first, second = (shared.acting_as("bob").enqueue("echo") for _ in range(2))
    shared.acting_as("root").organizations.suspend("acme")
    assert shared.acting_as("bob").jobs.get(first.id).status is Status.QUEUED
    assert len(shared.acting_as("ada").queues.jobs()) == 2
    assert shared.acting_as("bob").jobs.cancel(first.id).status is Status.CANCELLED
    for act in (
        lambda: shared.acting_as("bob").enqueue("echo"),
        lambda: shared.acting_as("root").enqueue("echo", organization="acme"),
        lambda: shared.acting_as("bob").enqueue_many([("echo", {})]),
        lambda: shared.acting_as("bob").group([("echo", {})]),
        lambda: shared.acting_as("bob").jobs.direct("echo"),
        lambda: shared.acting_as("ada").jobs.update(second.id, priority=1),
        lambda: shared.acting_as("ada").jobs.retry(first.id),
        lambda: shared.acting_as("ada").organizations.pause("acme"),
    ):
        assert type(refusal(act)) is OrganizationUnavailable
    assert shared.acting_as("root").jobs.update(second.id, priority=1).priority == 1
    shared.organizations.restore("acme")
    assert shared.jobs.get(shared.acting_as("bob").enqueue("echo")).status is Status.QUEUED


def test_people_of_a_removed_organization_may_do_nothing(shared: Rota):
    job = shared.acting_as("bob").enqueue("echo")
    shared.organizations.delete("acme")
    for actor in ("ada", "bob", Actor("kim", "acme", "user")):
        assert type(refusal(lambda actor=actor: shared.acting_as(actor).jobs.get(job.id))) is PermissionDenied
        assert type(refusal(lambda actor=actor: shared.acting_as(actor).enqueue("echo"))) is PermissionDenied
    assert type(refusal(lambda: shared.enqueue("echo", organization="acme"))) is OrganizationUnavailable
    assert shared.acting_as("root").jobs.get(job.id).id == job.id


# ---- actors that the program makes itself ---------------------------------------------------------------------------


def test_a_program_with_users_of_its_own_says_who_they_are(shared: Rota):
    kim = Actor("kim", "acme", "user")
    job = shared.acting_as(kim).enqueue("echo")
    assert (shared.jobs.get(job).owner, shared.jobs.get(job).organization) == ("kim", "acme")
    assert shared.acting_as(kim).jobs.get(job.id).id == job.id
    with pytest.raises(NotFound):
        shared.acting_as(Actor("kim", "beta", "user")).jobs.get(job.id)


@pytest.mark.parametrize("actor", ["", 7, b"bob"])
def test_what_is_no_actor_is_refused(shared: Rota, actor):
    with pytest.raises(InvalidName, match="actor name"):
        shared.acting_as(actor).store.pauses()


# ---- what stands in a colleague's way -------------------------------------------------------------------------------


def test_a_duplicate_of_a_colleagues_job_is_refused_without_naming_it(shared: Rota):
    shared.job(name="once", dedup_window=60)(lambda: None)
    first = shared.acting_as("ben").enqueue("once")
    for act in (lambda actor: shared.acting_as(actor).enqueue("once"), lambda actor: shared.acting_as(actor).enqueue_many(["once"])):
        assert first.number in str(refusal(act, "ben"))
        assert first.id in str(refusal(act, "ada"))
        hidden = refusal(act, "bob")
        assert type(hidden) is DuplicateJob
        assert (hidden.job_id, first.id in str(hidden), first.number in str(hidden)) == ("", False, False)
    assert not shared.acting_as("fay").enqueue("once").existing


def test_a_user_is_not_told_which_of_its_colleagues_jobs_its_own_waits_for(shared: Rota):
    theirs, own = shared.acting_as("ben").enqueue("echo"), shared.acting_as("bob").enqueue("echo", run_at=timedelta(hours=1))
    shared.acting_as("ada").jobs.depend(own.id, [theirs.id])
    assert theirs.number in str(shared.acting_as("ada").explain(own.id))
    assert theirs.number not in str(shared.acting_as("bob").explain(own.id))
    assert "waits for jobs of others" in str(shared.acting_as("bob").explain(own.id))
    assert theirs.id not in repr(shared.acting_as("bob").jobs.graph(own.id))


# ---- permissions of templates ---------------------------------------------------------------------------------------


def test_a_template_that_requires_a_permission_is_for_those_who_have_it(shared: Rota):
    shared.job(name="payroll", requires_permission="pay")(lambda: None)
    shared.users.update("ben", permissions=["pay"])
    acts = [
        lambda actor: shared.acting_as(actor).enqueue("payroll"),
        lambda actor: shared.acting_as(actor).enqueue("payroll", priority="high"),
        lambda actor: shared.acting_as(actor).enqueue_many([("payroll", {})]),
        lambda actor: shared.acting_as(actor).group(["payroll"]),
        lambda actor: shared.acting_as(actor).jobs.direct("payroll"),
    ]
    for act in acts:
        for actor in ("ada", "bob"):
            assert type(refusal(act, actor)) is PermissionDenied
        for actor in ("ben", "root", None, Actor("kim", "acme", "user", ["pay"])):
            act(actor)
    assert "lacks the permission 'pay' that template 'payroll' requires" in str(refusal(acts[0], "bob"))


def test_who_lacks_a_permission_does_not_borrow_that_of_who_made_a_schedule_or_a_job(shared: Rota):
    shared.job(name="payroll", requires_permission="pay")(lambda to="": None)
    shared.users.update("ben", permissions=["pay"])
    shared.schedule("nightly", "echo", cron="0 3 * * *", organization="acme")
    shared.schedule("paid", "payroll", cron="0 3 * * *", organization="acme")
    job = shared.acting_as("ben").enqueue("payroll", {"to": "ben"})
    acts = [
        lambda actor: shared.acting_as(actor).schedules.update("nightly", template="payroll", organization="acme"),
        lambda actor: shared.acting_as(actor).schedules.update("paid", params={"to": "me"}, organization="acme"),
        lambda actor: shared.acting_as(actor).schedules.update("paid", every=60, organization="acme"),
        lambda actor: shared.acting_as(actor).schedules.fire("paid", organization="acme"),
        lambda actor: shared.acting_as(actor).jobs.update(job.id, params={"to": "me"}),
    ]
    for act in acts:
        assert "'ada' lacks the permission 'pay' that template 'payroll' requires" in str(refusal(act, "ada"))
    assert (shared.jobs.get(job.id).params, shared.schedules.get("paid", organization="acme").params) == ({"to": "ben"}, {})
    shared.acting_as("ada").schedules.update("paid", description="of the people", organization="acme")
    shared.acting_as("ada").schedules.pause("paid", organization="acme")
    shared.acting_as("ada").jobs.update(job.id, priority="low")
    for act in acts:
        act("root")


def test_a_priority_that_a_template_gives_is_lowered_to_what_the_organization_may_have(shared: Rota):
    shared.job(name="urgent", priority="critical")(lambda: None)
    shared.organizations.update("acme", max_priority=60)
    assert shared.jobs.get(shared.acting_as("bob").enqueue("urgent")).priority == 60
    assert shared.jobs.get(shared.acting_as("fay").enqueue("urgent")).priority == 100


# ---- inside a transaction -------------------------------------------------------------------------------------------


def test_jobs_of_others_are_enqueued_inside_the_programs_own_transaction(shared: Rota):
    with shared.transaction() as tx:
        parent = shared.acting_as("bob").enqueue("echo", transaction=tx)
        child = shared.acting_as("bob").enqueue("echo", depends_on=[parent.id], transaction=tx)
        with pytest.raises(PermissionDenied):
            shared.acting_as("bob").enqueue("echo", organization="beta", transaction=tx)
    assert (shared.jobs.get(parent.id).owner, shared.jobs.get(child.id).status) == ("bob", Status.PENDING)
