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
    made = rota.organizations.create("acme", max_running=3, max_queued=10, max_priority="high")
    assert (made.name, made.display_name, made.state, made.max_running, made.max_queued, made.max_priority) == (
        "acme",
        "acme",
        "ACTIVE",
        3,
        10,
        75,
    )
    changed = rota.organizations.update("acme", display_name="Acme Ltd", max_running=None)
    assert (changed.display_name, changed.max_running, changed.max_queued) == ("Acme Ltd", None, 10)
    assert rota.organizations.get("acme") == changed
    assert [each.name for each in rota.organizations.list()] == ["acme", "default"]


def test_making_the_same_organization_again_is_harmless_and_another_one_of_its_name_refused(rota: Rota):
    made = rota.organizations.create("acme", max_running=3)
    assert rota.organizations.create("acme", max_running=3) == made
    with pytest.raises(Refused, match=r"there already: change it with organizations.update\('acme'"):
        rota.organizations.create("acme", max_running=4)


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
        rota.organizations.create(**given)
    assert [each.name for each in rota.organizations.list()] == ["default"]


def test_a_removed_organization_keeps_its_name_and_comes_back_when_it_is_resumed(rota: Rota):
    rota.organizations.create("acme")
    assert rota.organizations.delete("acme").state == "REMOVED"
    assert [each.name for each in rota.organizations.list()] == ["default"]
    assert [each.name for each in rota.organizations.list(removed=True)] == ["acme", "default"]
    with pytest.raises(Refused, match=r"organizations\.restore"):
        rota.organizations.create("acme")
    assert rota.organizations.restore("acme").state == "ACTIVE"


@pytest.mark.parametrize("act", ["update", "suspend", "restore", "delete", "get"])
def test_an_organization_that_is_not_there_is_unknown(rota: Rota, act):
    with pytest.raises(UnknownOrganization, match="there is no organization 'acme' in this store"):
        getattr(rota.organizations, act)("acme")


def test_jobs_of_an_organization_that_is_not_there_are_refused(shared: Rota):
    with pytest.raises(UnknownOrganization, match="'nope'"):
        shared.enqueue("echo", organization="nope")
    with pytest.raises(UnknownOrganization, match="'nope'"):
        shared.organizations.pause("nope")


def test_nobody_but_a_system_manager_manages_organizations_and_users(shared: Rota):
    acts = [
        lambda actor: shared.acting_as(actor).organizations.create("new"),
        lambda actor: shared.acting_as(actor).organizations.update("acme", max_running=1),
        lambda actor: shared.acting_as(actor).organizations.suspend("acme"),
        lambda actor: shared.acting_as(actor).organizations.restore("acme"),
        lambda actor: shared.acting_as(actor).organizations.delete("beta"),
        lambda actor: shared.acting_as(actor).users.create("new", organization="acme"),
        lambda actor: shared.acting_as(actor).users.update("bob", role="admin"),
        lambda actor: shared.acting_as(actor).users.delete("bob"),
    ]
    for act in acts:
        for actor in ("ada", "bob"):
            with pytest.raises(PermissionDenied, match="may not manage organizations and users"):
                act(actor)
        act("root")


def test_an_admin_reads_its_own_organization_and_its_users(shared: Rota):
    assert [each.name for each in shared.acting_as("ada").organizations.list()] == ["acme"]
    assert [each.name for each in shared.acting_as("ada").users.list()] == ["ada", "ben", "bob"]
    assert shared.acting_as("ada").organizations.get("acme").name == "acme"
    with pytest.raises(UnknownOrganization) as there:
        shared.acting_as("ada").organizations.get("beta")
    with pytest.raises(UnknownOrganization) as nowhere:
        shared.acting_as("ada").organizations.get("nope")
    assert str(there.value).replace("beta", "nope") == str(nowhere.value)
    with pytest.raises(PermissionDenied, match="may not read organizations"):
        shared.acting_as("bob").organizations.list()


# ---- users ----------------------------------------------------------------------------------------------------------


def test_before_the_first_user_a_name_is_only_recorded(rota: Rota):
    rota.job(name="echo")(lambda: None)
    job = rota.acting_as("anybody").enqueue("echo")
    assert (rota.jobs.get(job).owner, rota.jobs.get(job).organization) == ("anybody", "default")
    rota.acting_as("somebody else").jobs.cancel(job.id)
    assert rota.jobs.get(job.id).ended_by == "somebody else"


def test_from_the_first_user_on_other_names_may_do_nothing(shared: Rota):
    job = shared.enqueue("echo")
    nobody = shared.acting_as("anybody")
    for act in (nobody.jobs.get, nobody.jobs.cancel, nobody.explain):
        with pytest.raises(PermissionDenied, match="'anybody' is no user"):
            act(job.id)
    with pytest.raises(PermissionDenied, match="'anybody' is no user"):
        shared.acting_as("anybody").enqueue("echo")


def test_a_user_is_made_changed_and_removed(shared: Rota):
    made = shared.users.create("kim", organization="acme", permissions=["b", "a", "b"])
    assert (made.organization, made.role, made.permissions) == ("acme", "user", ("a", "b"))
    changed = shared.users.update("kim", role="admin", permissions=[])
    assert (changed.organization, changed.role, changed.permissions) == ("acme", "admin", ())
    assert shared.users.update("kim", organization="beta").role == "admin"
    assert shared.users.delete("kim").removed
    assert "kim" not in [each.name for each in shared.users.list()]
    assert "kim" in [each.name for each in shared.users.list(removed=True)]
    with pytest.raises(PermissionDenied, match="'kim' is no user"):
        shared.acting_as("kim").groups.list()
    with pytest.raises(NotFound, match="'kim'"):
        shared.users.update("kim", role="user")
    assert not shared.users.create("kim", organization="beta").removed


def test_adding_the_same_user_again_is_harmless_and_another_one_of_its_name_refused(shared: Rota):
    assert shared.users.create("bob", organization="acme") == shared.users.create("bob", organization="acme")
    with pytest.raises(Refused, match=r"there already: change it with users.update\('bob'"):
        shared.users.create("bob", organization="beta")


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
        rota.users.create(**given)
    assert rota.users.list(removed=True) == []


def test_the_last_system_manager_cannot_remove_itself(shared: Rota):
    with pytest.raises(Refused, match="'root' is the last system manager of this store: make another one first"):
        shared.acting_as("root").users.delete("root")
    with pytest.raises(Refused, match="'root' is the last system manager"):
        shared.acting_as("root").users.update("root", role="user")
    shared.acting_as("root").users.create("deputy", role="system_manager")
    assert shared.acting_as("root").users.delete("root").removed


def test_a_changed_right_holds_at_once_also_for_another_program(shared: Rota, tmp_path, clock):
    other = Rota(tmp_path / "rota.db", clock=clock)
    job = shared.acting_as("ben").enqueue("echo")
    with pytest.raises(NotFound):
        other.acting_as("bob").jobs.get(job.id)
    shared.users.update("bob", role="admin")
    assert other.acting_as("bob").jobs.get(job.id).id == job.id
    shared.users.delete("bob")
    with pytest.raises(PermissionDenied):
        other.acting_as("bob").jobs.get(job.id)
    other.close()
