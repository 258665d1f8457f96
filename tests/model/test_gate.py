"""Who may do what to whose: the table, word for word, and the functions that read it."""

from __future__ import annotations

import pytest

from rota.errors import InvalidName, InvalidOption, PermissionDenied
from rota.model.gate import (
    EVERYTHING,
    LOCAL,
    RIGHTS,
    SYSTEM,
    WHILE_SUSPENDED,
    Actor,
    Reach,
    Right,
    Role,
    Scope,
    act_in,
    may_use,
    scope_of,
)

MANAGER = Actor("root", role=Role.MANAGER)
ADMIN = Actor("ada", "acme", Role.ADMIN)
USER = Actor("bob", "acme", Role.USER, frozenset({"reports"}))
ACTORS = {Role.MANAGER: MANAGER, Role.ADMIN: ADMIN, Role.USER: USER}

TABLE = {
    Right.READ: ("all", "organization", "own"),
    Right.READ_LOG: ("all", "organization", "none"),
    Right.READ_STATS: ("all", "organization", "none"),
    Right.READ_AUDIT: ("all", "organization", "none"),
    Right.SUBMIT: ("all", "organization", "organization"),
    Right.CANCEL: ("all", "organization", "own"),
    Right.STEER: ("all", "organization", "none"),
    Right.PAUSE: ("all", "organization", "none"),
    Right.DELETE: ("all", "none", "none"),
    Right.READ_ORGANIZATIONS: ("all", "organization", "none"),
    Right.SCHEDULE: ("all", "organization", "none"),
    Right.DELETE_SCHEDULES: ("all", "none", "none"),
    Right.CREATE_JOBS: ("all", "organization", "none"),
    Right.ALTER_JOBS: ("all", "organization", "own"),
    Right.DROP_JOBS: ("all", "organization", "own"),
    Right.EXECUTE_JOBS: ("all", "organization", "own"),
    Right.EXTERNAL: ("all", "none", "none"),
    Right.READ_WEBHOOKS: ("all", "organization", "none"),
    Right.WEBHOOKS: ("all", "organization", "none"),
    Right.DELETE_WEBHOOKS: ("all", "none", "none"),
    Right.MANAGE_CONNECTIONS: ("all", "organization", "none"),
    Right.GRANT: ("all", "organization", "own"),
    Right.MANAGE_GRANTS: ("all", "organization", "none"),
    Right.MANAGE_SECRETS: ("all", "organization", "none"),
    Right.MANAGE_TEMPLATES: ("all", "none", "none"),
    Right.MANAGE_ORGANIZATIONS: ("all", "none", "none"),
    Right.OPERATE: ("all", "none", "none"),
}
CASES = [(operation, role, reach) for operation, reaches in TABLE.items() for role, reach in zip(Role, reaches, strict=True)]


def test_every_operation_says_how_far_it_reaches_for_every_role():
    assert set(TABLE) == set(RIGHTS) == set(Right)
    assert all(set(reaches) == set(Role) for reaches in RIGHTS.values())


@pytest.mark.parametrize(("operation", "role", "reach"), CASES)
def test_a_right_reaches_as_far_as_the_table_says(operation, role, reach):
    assert RIGHTS[operation][role] is Reach(reach)


@pytest.mark.parametrize(("operation", "role", "reach"), CASES)
def test_the_scope_of_a_right_is_its_reach(operation, role, reach):
    actor = ACTORS[role]
    expected = {"all": EVERYTHING, "organization": Scope(actor.organization), "own": Scope(actor.organization, actor.name)}
    if reach == "none":
        with pytest.raises(PermissionDenied, match=f"{actor.name!r} \\({role}\\) may not {operation}"):
            scope_of(actor, operation)
    else:
        assert scope_of(actor, operation) == expected[reach]


@pytest.mark.parametrize(("operation", "role", "reach"), CASES)
def test_only_a_right_over_all_acts_in_another_organization(operation, role, reach):
    actor = ACTORS[role]
    if reach == "all":
        assert act_in(actor, operation, "other") == Actor(actor.name, "other", role, actor.permissions)
        return
    with pytest.raises(PermissionDenied) as refused:
        act_in(actor, operation, "other")
    assert "other'" not in str(refused.value)


def test_in_its_own_organization_an_actor_acts_as_itself():
    assert act_in(USER, Right.SUBMIT, None) is USER
    assert act_in(USER, Right.SUBMIT, "acme") is USER


@pytest.mark.parametrize(
    ("scope", "inside"),
    [
        (EVERYTHING, [True, True, True]),
        (Scope("acme"), [True, True, False]),
        (Scope("acme", "bob"), [True, False, False]),
    ],
)
def test_a_scope_holds_its_own_rows(scope, inside):
    assert [scope.holds(*row) for row in [("acme", "bob"), ("acme", "ada"), ("beta", "bob")]] == inside


def test_a_permission_is_needed_by_all_but_system_managers():
    assert may_use(USER, None)
    assert may_use(USER, "reports")
    assert not may_use(USER, "payroll")
    assert not may_use(ADMIN, "reports")
    assert may_use(MANAGER, "payroll")


def test_while_an_organization_is_suspended_its_people_may_read_and_cancel():
    assert {operation for operation in Right if operation.startswith("read")} | {Right.CANCEL} == WHILE_SUSPENDED


def test_the_system_and_the_local_program_are_managers():
    assert (SYSTEM.role, LOCAL.role) == (Role.MANAGER, Role.MANAGER)


def test_an_actor_takes_its_role_as_a_word_and_its_permissions_as_a_list():
    assert Actor("bob", "acme", "user", ["reports"]) == USER


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": ""}, InvalidName),
        ({"name": None}, InvalidName),
        ({"name": "bob", "organization": " "}, InvalidName),
        ({"name": "bob", "role": "root"}, InvalidOption),
        ({"name": "bob", "role": None}, InvalidOption),
        ({"name": "bob", "permissions": "reports"}, InvalidOption),
    ],
)
def test_what_is_no_actor_is_refused(given, error):
    with pytest.raises(error):
        Actor(**given)
