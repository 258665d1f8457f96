"""Organizations and users, as a program meets them."""

from __future__ import annotations

import pytest

from rota import Rota
from rota.errors import (
    InvalidName,
    InvalidOption,
    NotFound,
    PermissionDenied,
    Refused,
    UnknownOrganization,
)

# ---- organizations --------------------------------------------------------------------------------------------------


def test_an_organization_is_made_changed_and_read(rota: Rota):
    made = rota.create_organization("acme", max_running=3, max_queued=10, max_priority="high")
    assert (made.name, made.display_name, made.state, made.max_running, made.max_queued, made.max_priority) == (
        "acme",
        "acme",
        "ACTIVE",
        3,
        10,
        75,
    )
    changed = rota.change_organization("acme", display_name="Acme Ltd", max_running=None)
    assert (changed.display_name, changed.max_running, changed.max_queued) == ("Acme Ltd", None, 10)
    assert rota.organization("acme") == changed
    assert [each.name for each in rota.organizations()] == ["acme", "default"]


def test_making_the_same_organization_again_is_harmless_and_another_one_of_its_name_refused(rota: Rota):
    made = rota.create_organization("acme", max_running=3)
    assert rota.create_organization("acme", max_running=3) == made
    with pytest.raises(Refused, match=r"there already: change it with change_organization\('acme'"):
        rota.create_organization("acme", max_running=4)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"name": ""}, InvalidName, "1 to 255"),
        ({"name": "a\nb"}, InvalidName, "can't be printed"),
        ({"name": "x" * 256}, InvalidName, "256 characters"),
        ({"name": "a", "max_running": -1}, InvalidOption, "max_running=-1"),
        ({"name": "a", "max_queued": 1.5}, InvalidOption, "max_queued=1.5"),
        ({"name": "a", "max_queued": True}, InvalidOption, "max_queued=True"),
        ({"name": "a", "max_priority": 101}, InvalidOption, "priority 101"),
        ({"name": "a", "display_name": ""}, InvalidOption, "display_name=''"),
    ],
)
def test_an_organization_that_cannot_be_is_refused(rota: Rota, given, error, words):
    with pytest.raises(error, match=words):
        rota.create_organization(**given)
    assert [each.name for each in rota.organizations()] == ["default"]


def test_a_removed_organization_keeps_its_name_and_comes_back_when_it_is_resumed(rota: Rota):
    rota.create_organization("acme")
    assert rota.remove_organization("acme").state == "REMOVED"
    assert [each.name for each in rota.organizations()] == ["default"]
    assert [each.name for each in rota.organizations(removed=True)] == ["acme", "default"]
    with pytest.raises(Refused, match="resume_organization"):
        rota.create_organization("acme")
    assert rota.resume_organization("acme").state == "ACTIVE"


@pytest.mark.parametrize(
    "act", ["change_organization", "suspend_organization", "resume_organization", "remove_organization", "organization"]
)
def test_an_organization_that_is_not_there_is_unknown(rota: Rota, act):
    with pytest.raises(UnknownOrganization, match="there is no organization 'acme' in this store"):
        getattr(rota, act)("acme")


def test_jobs_of_an_organization_that_is_not_there_are_refused(shared: Rota):
    with pytest.raises(UnknownOrganization, match="'nope'"):
        shared.enqueue("echo", organization="nope")
    with pytest.raises(UnknownOrganization, match="'nope'"):
        shared.pause(organization="nope")


def test_nobody_but_a_system_manager_manages_organizations_and_users(shared: Rota):
    acts = [
        lambda actor: shared.create_organization("new", actor=actor),
        lambda actor: shared.change_organization("acme", max_running=1, actor=actor),
        lambda actor: shared.suspend_organization("acme", actor=actor),
        lambda actor: shared.resume_organization("acme", actor=actor),
        lambda actor: shared.remove_organization("beta", actor=actor),
        lambda actor: shared.add_user("new", organization="acme", actor=actor),
        lambda actor: shared.change_user("bob", role="admin", actor=actor),
        lambda actor: shared.remove_user("bob", actor=actor),
    ]
    for act in acts:
        for actor in ("ada", "bob"):
            with pytest.raises(PermissionDenied, match="may not manage organizations and users"):
                act(actor)
        act("root")


def test_an_admin_reads_its_own_organization_and_its_users(shared: Rota):
    assert [each.name for each in shared.organizations(actor="ada")] == ["acme"]
    assert [each.name for each in shared.users(actor="ada")] == ["ada", "ben", "bob"]
    assert shared.organization("acme", actor="ada").name == "acme"
    with pytest.raises(UnknownOrganization) as there:
        shared.organization("beta", actor="ada")
    with pytest.raises(UnknownOrganization) as nowhere:
        shared.organization("nope", actor="ada")
    assert str(there.value).replace("beta", "nope") == str(nowhere.value)
    with pytest.raises(PermissionDenied, match="may not read organizations"):
        shared.organizations(actor="bob")


# ---- users ----------------------------------------------------------------------------------------------------------


def test_before_the_first_user_a_name_is_only_recorded(rota: Rota):
    rota.job(name="echo")(lambda: None)
    job = rota.enqueue("echo", actor="anybody")
    assert (job.owner, job.organization) == ("anybody", "default")
    rota.cancel(job.id, actor="somebody else")
    assert rota.get(job.id).ended_by == "somebody else"


def test_from_the_first_user_on_other_names_may_do_nothing(shared: Rota):
    job = shared.enqueue("echo")
    for act in (shared.get, shared.cancel, shared.explain):
        with pytest.raises(PermissionDenied, match="'anybody' is no user"):
            act(job.id, actor="anybody")
    with pytest.raises(PermissionDenied, match="'anybody' is no user"):
        shared.enqueue("echo", actor="anybody")


def test_a_user_is_made_changed_and_removed(shared: Rota):
    made = shared.add_user("kim", organization="acme", permissions=["b", "a", "b"])
    assert (made.organization, made.role, made.permissions) == ("acme", "user", ("a", "b"))
    changed = shared.change_user("kim", role="admin", permissions=[])
    assert (changed.organization, changed.role, changed.permissions) == ("acme", "admin", ())
    assert shared.change_user("kim", organization="beta").role == "admin"
    assert shared.remove_user("kim").removed
    assert "kim" not in [each.name for each in shared.users()]
    assert "kim" in [each.name for each in shared.users(removed=True)]
    with pytest.raises(PermissionDenied, match="'kim' is no user"):
        shared.groups(actor="kim")
    with pytest.raises(NotFound, match="'kim'"):
        shared.change_user("kim", role="user")
    assert not shared.add_user("kim", organization="beta").removed


def test_adding_the_same_user_again_is_harmless_and_another_one_of_its_name_refused(shared: Rota):
    assert shared.add_user("bob", organization="acme") == shared.add_user("bob", organization="acme")
    with pytest.raises(Refused, match=r"there already: change it with change_user\('bob'"):
        shared.add_user("bob", organization="beta")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"name": ""}, InvalidName, "user name"),
        ({"name": "kim", "role": "boss"}, InvalidOption, "system_manager, admin, user"),
        ({"name": "kim", "permissions": "abc"}, InvalidOption, "give a list"),
        ({"name": "kim", "permissions": [""]}, InvalidName, "permission name"),
        ({"name": "kim", "organization": "nope"}, UnknownOrganization, "'nope'"),
    ],
)
def test_a_user_that_cannot_be_is_refused(rota: Rota, given, error, words):
    with pytest.raises(error, match=words):
        rota.add_user(**given)
    assert rota.users(removed=True) == []


def test_the_last_system_manager_cannot_remove_itself(shared: Rota):
    with pytest.raises(Refused, match="'root' is the last system manager of this store: make another one first"):
        shared.remove_user("root", actor="root")
    with pytest.raises(Refused, match="'root' is the last system manager"):
        shared.change_user("root", role="user", actor="root")
    shared.add_user("deputy", role="system_manager", actor="root")
    assert shared.remove_user("root", actor="root").removed


def test_a_changed_right_holds_at_once_also_for_another_program(shared: Rota, tmp_path, clock):
    other = Rota(tmp_path / "rota.db", clock=clock)
    job = shared.enqueue("echo", actor="ben")
    with pytest.raises(NotFound):
        other.get(job.id, actor="bob")
    shared.change_user("bob", role="admin")
    assert other.get(job.id, actor="bob").id == job.id
    shared.remove_user("bob")
    with pytest.raises(PermissionDenied):
        other.get(job.id, actor="bob")
    other.close()
