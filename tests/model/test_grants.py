"""Privileges: what somebody holds, how far that widens a right, who may grant, and what rests on what."""

from __future__ import annotations

import itertools

import pytest

from rota.errors import PermissionDenied
from rota.model.access import PERMITS, Permit
from rota.model.definitions import User, by_right
from rota.model.gate import EVERYTHING, GIVES, NOBODY, RIGHTS, Actor, Reach, Right, Role, Scope, act_in, may_grant, scope_of
from rota.model.grants import (
    ALL_ON_JOB,
    NOTHING,
    PRIVILEGES,
    Entitlement,
    Grant,
    GrantChanges,
    GranteeKind,
    Privilege,
    TargetKind,
    dependents,
    holdings_of,
)

JOB, OTHER_JOB = "0" * 31 + "1", "0" * 31 + "2"
BOB = Actor("bob", "acme", Role.USER)
ids = itertools.count(1)


def a_grant(grantee, privilege, *, on=None, by="root", option=False, kind=GranteeKind.USER, organization="acme", **fields):
    if on is not None:
        fields = {"target_kind": TargetKind.JOB, "target_id": on, "target": on}
    return Grant(
        id=str(next(ids)),
        organization=organization,
        grantee_kind=kind,
        grantee=grantee,
        privilege=privilege,
        grant_option=option,
        granted_by=by,
        **fields,
    )


def member(name, role, *, by="root", option=False, kind=GranteeKind.USER):
    target = {"target_kind": TargetKind.ROLE, "target_id": f"id of {role}", "target": role}
    return a_grant(name, Privilege.ROLE, by=by, option=option, kind=kind, **target)


def to_role(role, privilege, **fields):
    return a_grant(role, privilege, kind=GranteeKind.ROLE, **fields)


def scope(right, *grants, actor=BOB):
    return scope_of(actor, right, holdings_of(actor.name, actor.organization, grants))


WIDENED = [(privilege, right) for privilege, rights in GIVES.items() for right in rights]


@pytest.mark.parametrize(("privilege", "right"), [each for each in WIDENED if TargetKind.JOB in PRIVILEGES[each[0]]])
def test_a_privilege_on_a_job_reaches_that_job_beside_what_the_role_reaches(privilege, right):
    owner = BOB.name if RIGHTS[right][Role.USER] is Reach.OWN else NOBODY
    for grants in (
        [a_grant("bob", privilege, on=JOB)],
        [a_grant("", privilege, on=JOB, kind=GranteeKind.PUBLIC)],
        [member("bob", "ops"), to_role("ops", privilege, on=JOB)],
        [member("", "ops", kind=GranteeKind.PUBLIC), to_role("ops", privilege, on=JOB)],
    ):
        assert scope(right, *grants) == Scope("acme", owner, (JOB,))
    for others in (
        [a_grant("ada", privilege, on=JOB)],
        [to_role("ops", privilege, on=JOB)],
        [member("ada", "ops"), to_role("ops", privilege, on=JOB)],
        [a_grant("bob", privilege, on=JOB, organization="other")],
    ):
        if owner == NOBODY:
            with pytest.raises(PermissionDenied):
                scope(right, *others)
        else:
            assert scope(right, *others) == Scope("acme", "bob")


@pytest.mark.parametrize(("privilege", "right"), [each for each in WIDENED if None in PRIVILEGES[each[0]]])
def test_a_privilege_on_nothing_in_particular_reaches_the_organization_and_no_further(privilege, right):
    assert scope(right, a_grant("bob", privilege)) == Scope("acme")
    with pytest.raises(PermissionDenied, match="in another organization"):
        act_in(BOB, right, "other", holdings_of("bob", "acme", [a_grant("bob", privilege)]))


@pytest.mark.parametrize("right", Right)
def test_no_privilege_widens_any_other_right(right):
    everything = [a_grant("bob", privilege) for privilege in Privilege] + [a_grant("bob", privilege, on=JOB) for privilege in Privilege]
    if right in {right for rights in GIVES.values() for right in rights}:
        return
    if RIGHTS[right][Role.USER] is Reach.NONE:
        with pytest.raises(PermissionDenied):
            scope(right, *everything)
    else:
        assert scope(right, *everything) == scope(right)


@pytest.mark.parametrize(("privilege", "right"), WIDENED)
def test_a_privilege_never_exceeds_the_permit_of_a_token(privilege, right):
    grants = [a_grant("bob", privilege), a_grant("bob", privilege, on=JOB)]
    for permit in set(Permit) - {Permit.MANAGE}:
        operations = frozenset(each for each, needed in PERMITS.items() if needed is permit)
        token = Actor("bob", "acme", Role.USER, operations=operations)
        if PERMITS[right] is permit:
            scope(right, *grants, actor=token)
        else:
            with pytest.raises(PermissionDenied, match="came with a token"):
                scope(right, *grants, actor=token)


def test_managers_and_admins_reach_what_they_reached():
    grants = [a_grant("root", Privilege.EXECUTE, on=JOB), a_grant("root", Privilege.VIEW_JOB_HISTORY)]
    for right in Right:
        assert scope(right, *grants, actor=Actor("root", "acme", Role.MANAGER)) == EVERYTHING
    assert scope(Right.READ, *grants, actor=Actor("root", "acme", Role.ADMIN)) == Scope("acme")


def test_a_row_is_inside_by_its_owner_or_by_its_schedule():
    inside = Scope("acme", "bob", (JOB,))
    dashed = f"{JOB[:8]}-{JOB[8:12]}-{JOB[12:16]}-{JOB[16:20]}-{JOB[20:]}"
    assert inside.holds("acme", "bob")
    assert inside.holds("acme", "ada", JOB)
    assert inside.holds("acme", "ada", dashed)
    assert not inside.holds("acme", "ada", OTHER_JOB)
    assert not inside.holds("acme", "ada", None)
    assert not inside.holds("other", "bob", JOB)
    assert not Scope("acme", NOBODY, (JOB,)).holds("acme", None)


# ---- who may grant -----------------------------------------------------------------------------------------------------

EVERY = [Entitlement(privilege, None) for privilege in Privilege] + [Entitlement(each, TargetKind.JOB, JOB) for each in ALL_ON_JOB]


@pytest.mark.parametrize("wanted", EVERY, ids=str)
def test_nobody_grants_what_they_have_not(wanted):
    def may(role, *, is_owner=False, held=NOTHING):
        return may_grant(Actor("bob", "acme", role), wanted, held, is_owner=is_owner)

    assert may(Role.MANAGER)
    not_of_admins = {Privilege.EXECUTE_EXTERNAL_JOB, Privilege.ROLE, Privilege.ALL}
    assert may(Role.ADMIN) is (wanted.privilege not in not_of_admins)
    assert not may(Role.USER)
    if wanted.target_kind is TargetKind.JOB:
        assert may(Role.USER, is_owner=True)
    target = {"on": JOB} if wanted.target_kind else {}
    assert may(Role.USER, held=holdings_of("bob", "acme", [a_grant("bob", wanted.privilege, option=True, **target)]))
    assert not may(Role.USER, held=holdings_of("bob", "acme", [a_grant("bob", wanted.privilege, **target)]))


def test_a_privilege_on_everything_is_one_on_each_job_and_not_the_other_way_round():
    everywhere = holdings_of("bob", "acme", [a_grant("bob", Privilege.VIEW_JOB_HISTORY, option=True)])
    one = holdings_of("bob", "acme", [a_grant("bob", Privilege.VIEW_JOB_HISTORY, on=JOB, option=True)])
    on_job, anywhere = Entitlement(Privilege.VIEW_JOB_HISTORY, TargetKind.JOB, JOB), Entitlement(Privilege.VIEW_JOB_HISTORY)
    assert everywhere.may_grant(on_job)
    assert everywhere.may_grant(anywhere)
    assert one.may_grant(on_job)
    assert not one.may_grant(anywhere)


def test_the_scope_of_granting_has_the_jobs_on_which_something_may_be_granted():
    held = [a_grant("bob", Privilege.EXECUTE, on=JOB, option=True), a_grant("bob", Privilege.ALTER, on=OTHER_JOB)]
    assert scope(Right.GRANT, *held) == Scope("acme", "bob", (JOB,))


# ---- lineage -----------------------------------------------------------------------------------------------------------

USERS = {name: User(name=name, organization="acme", role=Role.USER) for name in "bcdef"}
USERS["ann"] = User(name="ann", organization="acme", role=Role.ADMIN)


def resting(grants, *gone, narrow=()):
    changes = GrantChanges(remove=tuple(gone), narrow=tuple(narrow))
    return [(each.granted_by, each.grantee) for each in dependents(grants, changes, by_right(USERS))]


def chain(*names, **fields):
    pairs = itertools.pairwise(names)
    return [a_grant(after, Privilege.EXECUTE, on=JOB, by=before, option=True, **fields) for before, after in pairs]


def test_what_was_granted_onward_rests_on_the_grant_before():
    grants = chain("ann", "b", "c", "d")
    assert resting(grants, grants[0]) == [("b", "c"), ("c", "d")]
    assert resting(grants, grants[1]) == [("c", "d")]
    assert resting(grants, grants[2]) == []
    assert resting(grants, narrow=[grants[0]]) == [("b", "c"), ("c", "d")]


def test_a_grant_with_another_reason_stays():
    grants = chain("ann", "b", "c")
    again = a_grant("b", Privilege.EXECUTE, on=JOB, by="root", option=True)
    assert resting([*grants, again], grants[0]) == []
    assert resting([*grants, again], grants[0], again) == [("b", "c")]


def test_two_grants_that_rest_on_each_other_alone_rest_on_nothing():
    grants = [*chain("ann", "b", "c"), a_grant("b", Privilege.EXECUTE, on=JOB, by="c", option=True)]
    assert resting(grants, grants[0]) == [("b", "c"), ("c", "b")]


def test_what_the_owner_of_a_job_grants_rests_on_nothing_else():
    held = a_grant("b", Privilege.EXECUTE, on=JOB, by="ann", option=True)
    onward = Grant(
        id="own",
        organization="acme",
        grantee_kind=GranteeKind.USER,
        grantee="c",
        privilege=Privilege.EXECUTE,
        target_kind=TargetKind.JOB,
        target_id=JOB,
        target_owner="b",
        granted_by="b",
    )
    assert resting([held, onward], held) == []


def test_who_leaves_a_role_loses_what_it_could_grant_by_that():
    grants = [member("b", "ops"), to_role("ops", Privilege.EXECUTE, on=JOB, option=True), *chain("b", "c")]
    assert resting(grants, grants[0]) == [("b", "c")]
    assert resting(grants, grants[1]) == [("b", "c")]


def test_a_demoted_admin_takes_nothing_with_a_revoke_of_something_else():
    grants = [a_grant("c", Privilege.CREATE_JOB, by="d"), *chain("ann", "b", "e")]
    assert resting(grants, grants[1]) == [("b", "e")]
