"""The gate on jobs, groups, pauses and workers, as a program meets it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from rota import Actor, NewJob, Rota, Status
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
from tests.stores.desk import Desk, outside

NOWHERE = str(UUID(int=7 << 76 | 2 << 62))

# ---- one job --------------------------------------------------------------------------------------------------------

ON_A_JOB = {
    "get": lambda rota, job, actor: rota.get(job, actor=actor),
    "chain": lambda rota, job, actor: rota.chain(job, actor=actor),
    "run_of": lambda rota, job, actor: rota.run_of(job, actor=actor),
    "wait": lambda rota, job, actor: rota.wait(job, 0.01, actor=actor),
    "await_end": lambda rota, job, actor: asyncio.run(rota.await_end(job, 0.01, actor=actor)),
    "explain": lambda rota, job, actor: rota.explain(job, actor=actor),
    "cancel": lambda rota, job, actor: rota.cancel(job, actor=actor),
    "retry": lambda rota, job, actor: rota.retry(job, actor=actor),
    "change": lambda rota, job, actor: rota.change(job, priority=1, actor=actor),
    "reschedule": lambda rota, job, actor: rota.reschedule(job, timedelta(hours=1), actor=actor),
    "move": lambda rota, job, actor: rota.move(job, front=True, actor=actor),
    "group": lambda rota, job, actor: rota.group([job], mode="parallel", actor=actor),
}
FOR_ADMINS = {"retry", "change", "reschedule", "move", "group"}


def refusal(act, *args) -> RotaError:
    with pytest.raises(RotaError) as raised:
        act(*args)
    return raised.value


@pytest.mark.parametrize("name", ON_A_JOB)
def test_a_job_of_another_organization_is_refused_in_the_words_for_one_that_is_not_there(shared: Rota, name):
    act = ON_A_JOB[name]
    theirs = shared.enqueue("echo", {"text": "secret"}, actor="fay")
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
    theirs = int(shared.enqueue("echo", actor="fay").number.rpartition("-")[2])
    there = refusal(act, shared, text.format(theirs), "ada")
    nowhere = refusal(act, shared, text.format(99), "ada")
    assert str(there).replace(repr(text.format(theirs)), repr(text.format(99))) == str(nowhere)
    assert "attempts" not in str(there)


def test_a_user_reads_and_cancels_its_own_and_no_colleagues(shared: Rota):
    own, other = shared.enqueue("echo", actor="bob"), shared.enqueue("echo", actor="ben")
    assert shared.get(own.id, actor="bob").owner == "bob"
    for name in ("get", "chain", "run_of", "wait", "explain", "cancel"):
        assert type(refusal(ON_A_JOB[name], shared, other.id, "bob")) is NotFound
    assert shared.cancel(own.id, actor="bob").status is Status.CANCELLED
    assert shared.get(own.id).ended_by == "bob"


def test_an_admin_steers_what_is_of_its_organization(shared: Rota):
    first, second = (shared.enqueue("echo", actor="bob") for _ in range(2))
    assert shared.change(first.id, priority=60, actor="ada").priority == 60
    assert shared.change(second.id, priority=60, actor="ada").priority == 60
    shared.move(second.id, before=first.id, actor="ada")
    assert [job.id for job in shared.queue(actor="ada")] == [second.id, first.id]
    shared.cancel(first.id, actor="ada")
    assert shared.retry(first.id, actor="ada").attempt == 2


def test_a_move_is_next_to_own_jobs_only(shared: Rota):
    own, theirs = shared.enqueue("echo", actor="bob"), shared.enqueue("echo", actor="fay")
    for place in ("before", "after"):
        for known, unknown in ((theirs.id, NOWHERE), (theirs.number, "JOB-2026-00099")):
            there = refusal(lambda place=place, known=known: shared.move(own.id, **{place: known}, actor="ada"))
            nowhere = refusal(lambda place=place, unknown=unknown: shared.move(own.id, **{place: unknown}, actor="ada"))
            assert str(there).replace(known, unknown) == str(nowhere)


def test_only_a_system_manager_acts_for_another_organization(shared: Rota):
    assert shared.enqueue("echo", organization="beta", actor="root").organization == "beta"
    assert shared.enqueue("echo", organization="beta").organization == "beta"
    acts = [
        lambda actor: shared.enqueue("echo", organization="beta", actor=actor),
        lambda actor: shared.enqueue_many([("echo", {})], organization="beta", actor=actor),
        lambda actor: shared.group([("echo", {})], organization="beta", actor=actor),
        lambda actor: shared.direct("echo", organization="beta", actor=actor),
        lambda actor: asyncio.run(shared.aenqueue("echo", organization="beta", actor=actor)),
    ]
    for act in acts:
        for actor in ("ada", "bob"):
            assert "in another organization" in str(refusal(act, actor))
            act("root")
    assert shared.enqueue("echo", organization="acme", actor="bob").owner == "bob"


def test_lists_show_what_is_in_reach(shared: Rota):
    jobs = {name: shared.enqueue("echo", actor=name).id for name in ("ada", "bob", "fay")}
    groups = {name: shared.group([("echo", {})], actor=name).id for name in ("ada", "bob", "fay")}
    assert {job.owner for job in shared.queue(actor="ada")} == {"ada", "bob"}
    assert {job.owner for job in shared.queue()} == {"ada", "bob", "fay"}
    with pytest.raises(PermissionDenied, match="statistics and the queue"):
        shared.queue(actor="bob")
    assert {group.id for group in shared.groups(actor="ada")} == {groups["ada"], groups["bob"]}
    assert {group.id for group in shared.groups(actor="bob")} == {groups["bob"]}
    assert shared.get_group(groups["bob"], actor="ada").owner == "bob"
    assert set(jobs) == {"ada", "bob", "fay"}


def test_a_group_out_of_reach_is_refused_in_the_words_for_one_that_is_not_there(shared: Rota):
    group = shared.group([("echo", {})], name="secret", actor="fay")
    for act in (shared.get_group, shared.cancel_group):
        for actor in ("ada", "bob"):
            there, nowhere = refusal(lambda: act(group.id, actor=actor)), refusal(lambda: act(NOWHERE, actor=actor))  # noqa: B023
            assert str(there).replace(group.id, NOWHERE) == str(nowhere)
            assert type(there) is type(nowhere) is NotFound
    shared.group([("echo", {})], actor="ben")
    assert shared.cancel_group(group.id, actor="fay").status == "CANCELLED"


def test_existing_jobs_are_grouped_by_who_may_change_them(shared: Rota):
    own, theirs = shared.enqueue("echo", actor="bob"), shared.enqueue("echo", actor="fay")
    with pytest.raises(PermissionDenied, match="change, move or retry"):
        shared.group([own], mode="parallel", actor="bob")
    with pytest.raises(NotFound):
        shared.group([own, theirs], mode="parallel", actor="ada")
    assert len(shared.group([own, ("echo", {})], mode="parallel", actor="ada").members) == 2
    with pytest.raises(GroupRefused):
        shared.group([own], mode="parallel", actor="ada")


def test_pauses_of_an_organization_are_its_admins_and_all_others_the_managers(shared: Rota):
    for actor in ("ada", "bob"):
        assert type(refusal(lambda actor=actor: shared.pause(actor=actor))) is PermissionDenied
        assert type(refusal(lambda actor=actor: shared.pause(template="echo", actor=actor))) is PermissionDenied
        there = refusal(lambda actor=actor: shared.pause(organization="beta", actor=actor))
        nowhere = refusal(lambda actor=actor: shared.pause(organization="nope", actor=actor))
        assert str(there) == str(nowhere)
    with pytest.raises(PermissionDenied):
        shared.pause(organization="acme", actor="bob")
    shared.pause(organization="acme", actor="ada")
    shared.pause(organization="beta", actor="root")
    shared.pause(template="echo", actor="root")
    assert shared.pauses(actor="ada") == shared.pauses(actor="bob") == [("organization", "acme"), ("template", "echo")]
    assert len(shared.pauses(actor="root")) == 3
    shared.resume(organization="acme", actor="ada")
    assert ("organization", "acme") not in shared.pauses()
    with pytest.raises(PermissionDenied):
        shared.resume(template="echo", actor="ada")


@pytest.mark.parametrize(
    "act",
    [
        lambda rota, actor: rota.workers(actor=actor),
        lambda rota, actor: rota.recover(actor=actor),
        lambda rota, actor: rota.turn(actor=actor),
        lambda rota, actor: rota.start(actor=actor),
        lambda rota, actor: rota.run(actor=actor),
        lambda rota, actor: rota.running(actor=actor).__enter__(),
        lambda rota, actor: rota.transaction(actor=actor).__enter__(),
        lambda rota, actor: rota.promote("/nowhere/rota.db", actor=actor),
        lambda rota, actor: rota.reopen(actor=actor),
    ],
    ids=["workers", "recover", "turn", "start", "run", "running", "transaction", "promote", "reopen"],
)
def test_what_serves_all_is_for_system_managers(shared: Rota, act):
    for actor in ("ada", "bob"):
        with pytest.raises(PermissionDenied, match="operate workers"):
            act(shared, actor)


def test_the_gate_comes_before_what_is_wrong_with_the_rest(shared: Rota):
    theirs = shared.enqueue("echo", actor="fay")
    with pytest.raises(NotFound):
        shared.change(theirs.id, actor="ada")
    with pytest.raises(NotFound):
        shared.move(theirs.id, actor="ada")
    with pytest.raises(PermissionDenied):
        shared.group([], organization="beta", actor="ada")


def test_a_parent_out_of_reach_is_unknown_in_the_words_for_one_that_is_not_there(shared: Rota):
    theirs, colleagues = shared.enqueue("echo", actor="fay"), shared.enqueue("echo", actor="ben")
    own = shared.enqueue("echo", actor="bob")
    for parent in (theirs, colleagues):
        there = refusal(lambda parent=parent: shared.enqueue("echo", depends_on=[parent.id], actor="bob"))
        nowhere = refusal(lambda: shared.enqueue("echo", depends_on=[NOWHERE], actor="bob"))
        assert str(there).replace(parent.id, NOWHERE) == str(nowhere)
        assert type(there) is type(nowhere) is UnknownParent
        by_number = refusal(lambda parent=parent: shared.enqueue("echo", depends_on=[parent.number], actor="bob"))
        assert parent.id not in str(by_number)
        assert type(by_number) is NotFound
    assert shared.enqueue("echo", depends_on=[own.number], actor="bob").status is Status.PENDING
    assert shared.enqueue("echo", depends_on=[colleagues.id], actor="ada").status is Status.PENDING


def test_a_key_held_by_a_colleague_is_taken_without_a_word_about_its_job(shared: Rota):
    held = shared.enqueue("echo", {"text": "private"}, unique_key="k", actor="ben")
    taken = refusal(lambda: shared.enqueue("echo", unique_key="k", actor="bob"))
    assert type(taken) is KeyTaken
    assert held.id not in str(taken)
    assert shared.enqueue("echo", unique_key="k", actor="ada").id == held.id
    assert not shared.enqueue("echo", unique_key="k", actor="fay").existing


def test_an_id_of_another_organization_cannot_be_enqueued_again(shared: Rota):
    theirs = shared.enqueue("echo", {"text": "secret"}, actor="fay")
    for actor in ("ada", "bob", "root"):
        taken = refusal(lambda actor=actor: shared.enqueue("echo", job_id=theirs.id, organization=None, actor=actor))
        assert type(taken) is DuplicateId
        assert "echo" not in str(taken)
    with pytest.raises(DuplicateId):
        shared.enqueue_many([NewJob(name="echo", job_id=theirs.id)], actor="bob")


def test_jobs_under_way_are_shown_to_those_who_may_read_them(shared: Rota):
    seen = {}

    @shared.job
    def looks() -> None:
        for actor in ("ada", "bob", "fay", "root"):
            seen[actor] = [job.owner for job in shared.under_way(actor=actor)]

    shared.enqueue("looks", actor="bob")
    shared.turn()
    assert seen == {"ada": ["bob"], "bob": ["bob"], "fay": [], "root": ["bob"]}


def test_direct_execution_is_submitting(shared: Rota):
    assert shared.direct("echo", actor="bob").result == "hi"
    with pytest.raises(PermissionDenied):
        shared.direct("echo", organization="beta", actor="bob")


def test_a_direct_execution_that_finds_no_slot_names_nobody_of_others(shared: Rota):
    desk = Desk(shared._session.open().store)
    theirs = desk.reserve("echo", organization_id="beta", owner="fay")
    words = {actor: str(refusal(lambda actor=actor: shared.direct("echo", timeout=0.03, actor=actor))) for actor in ("bob", "eve", "root")}
    assert words["bob"] == "resource busy: another direct execution is under way; try again when it has ended"
    assert "anna@here" in words["eve"]
    assert outside(theirs.job_id) in words["root"]
    shared._session.open().store.give_up_waiting(theirs.id, now=desk.now)
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["echo"], now=desk.now)
    lease = shared._session.open().liveness.take(desk.worker)
    words = {actor: str(refusal(lambda actor=actor: shared.direct("echo", timeout=0.03, actor=actor))) for actor in ("bob", "root")}
    lease.release(clean=True)
    assert words["bob"] == "resource busy: no slot became free in time; try again"
    assert "held by" in words["root"]


def test_the_highest_priority_of_an_organization_holds_for_changes_too(shared: Rota):
    shared.change_organization("acme", max_priority=60)
    job = shared.enqueue("echo", actor="bob")
    for actor in ("ada", "root", None):
        with pytest.raises(InvalidOption, match="priority 75 is over the max_priority 60 of organization 'acme'"):
            shared.change(job.id, priority="high", actor=actor)
    assert shared.change(job.id, priority=60, actor="ada").priority == 60
    with pytest.raises(InvalidOption, match="over the max_priority"):
        shared.enqueue("echo", priority="high", actor="bob")
    assert shared.enqueue("echo", priority="high", actor="fay").priority == 75


def test_a_full_organization_is_full_alone(shared: Rota):
    shared.change_organization("acme", max_queued=2)
    for _ in range(2):
        shared.enqueue("echo", actor="bob")
        shared.enqueue("echo", actor="fay")
    with pytest.raises(QueueFull, match="'acme' has 2 jobs queued"):
        shared.enqueue("echo", actor="ben")
    shared.enqueue("echo", actor="fay")


# ---- suspended and removed ------------------------------------------------------------------------------------------


def test_people_of_a_suspended_organization_may_read_and_cancel(shared: Rota):
    first, second = (shared.enqueue("echo", actor="bob") for _ in range(2))
    shared.suspend_organization("acme", actor="root")
    assert shared.get(first.id, actor="bob").status is Status.QUEUED
    assert len(shared.queue(actor="ada")) == 2
    assert shared.cancel(first.id, actor="bob").status is Status.CANCELLED
    for act in (
        lambda: shared.enqueue("echo", actor="bob"),
        lambda: shared.enqueue("echo", organization="acme", actor="root"),
        lambda: shared.enqueue_many([("echo", {})], actor="bob"),
        lambda: shared.group([("echo", {})], actor="bob"),
        lambda: shared.direct("echo", actor="bob"),
        lambda: shared.change(second.id, priority=1, actor="ada"),
        lambda: shared.retry(first.id, actor="ada"),
        lambda: shared.pause(organization="acme", actor="ada"),
    ):
        assert type(refusal(act)) is OrganizationUnavailable
    assert shared.change(second.id, priority=1, actor="root").priority == 1
    shared.resume_organization("acme")
    assert shared.enqueue("echo", actor="bob").status is Status.QUEUED


def test_people_of_a_removed_organization_may_do_nothing(shared: Rota):
    job = shared.enqueue("echo", actor="bob")
    shared.remove_organization("acme")
    for actor in ("ada", "bob", Actor("kim", "acme", "user")):
        assert type(refusal(lambda actor=actor: shared.get(job.id, actor=actor))) is PermissionDenied
        assert type(refusal(lambda actor=actor: shared.enqueue("echo", actor=actor))) is PermissionDenied
    assert type(refusal(lambda: shared.enqueue("echo", organization="acme"))) is OrganizationUnavailable
    assert shared.get(job.id, actor="root").id == job.id


# ---- actors that the program makes itself ---------------------------------------------------------------------------


def test_a_program_with_users_of_its_own_says_who_they_are(shared: Rota):
    kim = Actor("kim", "acme", "user")
    job = shared.enqueue("echo", actor=kim)
    assert (job.owner, job.organization) == ("kim", "acme")
    assert shared.get(job.id, actor=kim).id == job.id
    with pytest.raises(NotFound):
        shared.get(job.id, actor=Actor("kim", "beta", "user"))


@pytest.mark.parametrize("actor", ["", 7, b"bob"])
def test_what_is_no_actor_is_refused(shared: Rota, actor):
    with pytest.raises(InvalidName, match="actor name"):
        shared.pauses(actor=actor)


# ---- what stands in a colleague's way -------------------------------------------------------------------------------


def test_a_duplicate_of_a_colleagues_job_is_refused_without_naming_it(shared: Rota):
    shared.job(name="once", dedup_window=60)(lambda: None)
    first = shared.enqueue("once", actor="ben")
    for act in (lambda actor: shared.enqueue("once", actor=actor), lambda actor: shared.enqueue_many(["once"], actor=actor)):
        assert first.number in str(refusal(act, "ben"))
        assert first.id in str(refusal(act, "ada"))
        hidden = refusal(act, "bob")
        assert type(hidden) is DuplicateJob
        assert (hidden.job_id, first.id in str(hidden), first.number in str(hidden)) == ("", False, False)
    assert not shared.enqueue("once", actor="fay").existing


def test_a_user_is_not_told_which_of_its_colleagues_jobs_its_own_waits_for(shared: Rota):
    theirs, own = shared.enqueue("echo", actor="ben"), shared.enqueue("echo", run_at=timedelta(hours=1), actor="bob")
    shared.depend(own.id, [theirs.id], actor="ada")
    assert theirs.number in str(shared.explain(own.id, actor="ada"))
    assert theirs.number not in str(shared.explain(own.id, actor="bob"))
    assert "waits for jobs of others" in str(shared.explain(own.id, actor="bob"))
    assert theirs.id not in repr(shared.graph(own.id, actor="bob"))


# ---- permissions of templates ---------------------------------------------------------------------------------------


def test_a_template_that_requires_a_permission_is_for_those_who_have_it(shared: Rota):
    shared.job(name="payroll", requires_permission="pay")(lambda: None)
    shared.change_user("ben", permissions=["pay"])
    acts = [
        lambda actor: shared.enqueue("payroll", actor=actor),
        lambda actor: shared.enqueue("payroll", priority="high", actor=actor),
        lambda actor: shared.enqueue_many([("payroll", {})], actor=actor),
        lambda actor: shared.group(["payroll"], actor=actor),
        lambda actor: shared.direct("payroll", actor=actor),
    ]
    for act in acts:
        for actor in ("ada", "bob"):
            assert type(refusal(act, actor)) is PermissionDenied
        for actor in ("ben", "root", None, Actor("kim", "acme", "user", ["pay"])):
            act(actor)
    assert "lacks the permission 'pay' that template 'payroll' requires" in str(refusal(acts[0], "bob"))


def test_who_lacks_a_permission_does_not_borrow_that_of_who_made_a_schedule_or_a_job(shared: Rota):
    shared.job(name="payroll", requires_permission="pay")(lambda to="": None)
    shared.change_user("ben", permissions=["pay"])
    shared.schedule("nightly", "echo", cron="0 3 * * *", organization="acme")
    shared.schedule("paid", "payroll", cron="0 3 * * *", organization="acme")
    job = shared.enqueue("payroll", {"to": "ben"}, actor="ben")
    acts = [
        lambda actor: shared.edit_schedule("nightly", template="payroll", organization="acme", actor=actor),
        lambda actor: shared.edit_schedule("paid", params={"to": "me"}, organization="acme", actor=actor),
        lambda actor: shared.edit_schedule("paid", every=60, organization="acme", actor=actor),
        lambda actor: shared.fire("paid", organization="acme", actor=actor),
        lambda actor: shared.change(job.id, params={"to": "me"}, actor=actor),
    ]
    for act in acts:
        assert "'ada' lacks the permission 'pay' that template 'payroll' requires" in str(refusal(act, "ada"))
    assert (shared.get(job.id).params, shared.get_schedule("paid", organization="acme").params) == ({"to": "ben"}, {})
    shared.edit_schedule("paid", description="of the people", organization="acme", actor="ada")
    shared.pause_schedule("paid", organization="acme", actor="ada")
    shared.change(job.id, priority="low", actor="ada")
    for act in acts:
        act("root")


def test_a_priority_that_a_template_gives_is_lowered_to_what_the_organization_may_have(shared: Rota):
    shared.job(name="urgent", priority="critical")(lambda: None)
    shared.change_organization("acme", max_priority=60)
    assert shared.enqueue("urgent", actor="bob").priority == 60
    assert shared.enqueue("urgent", actor="fay").priority == 100


# ---- inside a transaction -------------------------------------------------------------------------------------------


def test_jobs_of_others_are_enqueued_inside_the_programs_own_transaction(shared: Rota):
    with shared.transaction() as tx:
        parent = shared.enqueue("echo", actor="bob", transaction=tx)
        child = shared.enqueue("echo", depends_on=[parent.id], actor="bob", transaction=tx)
        with pytest.raises(PermissionDenied):
            shared.enqueue("echo", organization="beta", actor="bob", transaction=tx)
    assert (shared.get(parent.id).owner, shared.get(child.id).status) == ("bob", Status.PENDING)
