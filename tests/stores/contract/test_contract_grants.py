"""Roles and grants: each change is kept once, audited once, all of one call or nothing, and goes with what it is about."""

import uuid

import pytest
from msgspec.structs import replace

from rota.errors import NotFound, StillNeeded
from rota.errors import Refused as Refusal
from rota.model.definitions import Organization, User
from rota.model.gate import Role, Scope
from rota.model.grants import CustomRole, Grant, GrantChanges, GranteeKind, Privilege, TargetKind
from rota.ports.store import DefinitionsChanged
from tests.stores.desk import ANNA
from tests.stores.timekeeper import Timekeeper


@pytest.fixture
def desk(store):
    desk = Timekeeper(store)
    for name in ("acme", "other"):
        store.put_organization(Organization(name=name, display_name=name), actor=ANNA, now=desk.now)
    for name in ("ada", "bob", "cid"):
        new = User(id=str(uuid.uuid4()), name=name, organization="acme", role=Role.USER)
        store.put_user(new, actor=ANNA, now=desk.now)
    return desk


def a_grant(grantee="ada", privilege=Privilege.CREATE_JOB, *, on=None, by="root", option=False, organization="acme", **fields):
    kind = fields.pop("kind", GranteeKind.USER)
    if on is not None:
        fields = {"target_kind": TargetKind.JOB, "target_id": on.id, "target": on.name, **fields}
    return Grant(
        id=str(uuid.uuid4()),
        organization=organization,
        grantee_kind=kind,
        grantee=grantee,
        privilege=privilege,
        grant_option=option,
        granted_by=by,
        **fields,
    )


def change(desk, **changes):
    return desk.store.change_grants(GrantChanges(**{name: tuple(some) for name, some in changes.items()}), actor=ANNA, now=desk.now)


def actions(desk):
    return [each.action for each in desk.store.audit(limit=100, scope=Scope()) if each.action.startswith(("grant", "role"))][::-1]


def a_role(name="ops", organization="acme"):
    return CustomRole(id=str(uuid.uuid4()), organization=organization, name=name, created_by=ANNA.name)


def test_a_new_store_has_no_roles_and_no_grants(store):
    assert store.roles() == []
    assert store.grants() == []


def test_a_grant_is_read_as_it_was_given(desk):
    job = desk.schedule("nightly", organization="acme")
    role = a_role()
    assert desk.store.add_role(role, actor=ANNA, now=desk.now)
    plain = a_grant()
    on_job = a_grant("bob", Privilege.EXECUTE, on=job, option=True)
    member = a_grant(
        "bob", Privilege.ROLE, target_kind=TargetKind.ROLE, target_id=uuid.UUID(role.id).hex, target="ops", organization="acme"
    )
    public = a_grant("", Privilege.VIEW_JOB_HISTORY, kind=GranteeKind.PUBLIC)
    secret = a_grant("ops", Privilege.USE, kind=GranteeKind.ROLE, target_kind=TargetKind.SECRET, target_id="smtp", target="smtp")
    given = [plain, on_job, member, public, secret]
    added = change(desk, add=given)
    assert sorted(added, key=str) == sorted(desk.store.grants(), key=str)
    found = {grant.id: grant for grant in added}
    for grant in given:
        bare = replace(found[grant.id], granted_at=None, target_owner=None)
        assert bare == grant
        assert found[grant.id].granted_at is not None
    assert found[on_job.id].target_owner == job.created_by
    assert actions(desk) == ["role.create", *["grant.create"] * 5]


def test_the_same_grant_again_is_the_same_grant(desk):
    first = a_grant()
    change(desk, add=[first])
    (again,) = change(desk, add=[a_grant()])
    assert again.id == first.id
    assert actions(desk) == ["grant.create"]
    (wider,) = change(desk, add=[a_grant(option=True)])
    assert (wider.id, wider.grant_option) == (first.id, True)
    (same,) = change(desk, add=[a_grant()])
    assert same.grant_option
    assert actions(desk) == ["grant.create"] * 2
    change(desk, add=[a_grant(by="other")])
    assert len(desk.store.grants()) == 2


def test_the_grant_option_can_go_alone_and_what_is_gone_is_left_out(desk):
    (grant,) = change(desk, add=[a_grant(option=True)])
    change(desk, narrow=[grant])
    (left,) = desk.store.grants()
    assert left == replace(grant, grant_option=False)
    change(desk, remove=[grant])
    change(desk, remove=[grant])
    assert desk.store.grants() == []
    assert actions(desk) == ["grant.create", "grant.delete", "grant.delete"]


def test_every_change_advances_the_version_of_the_definitions(desk):
    before = desk.store.definitions()
    (grant,) = change(desk, add=[a_grant()])
    after = desk.store.definitions()
    assert after > before
    change(desk, remove=[grant])
    role = a_role()
    at = desk.store.definitions()
    assert at > after
    desk.store.add_role(role, actor=ANNA, now=desk.now)
    assert desk.store.definitions() > at
    at = desk.store.definitions()
    desk.store.drop_role(role.id, actor=ANNA, now=desk.now)
    assert desk.store.definitions() > at


def test_a_change_that_was_decided_by_old_knowledge_writes_nothing(desk):
    version = desk.store.definitions()
    change(desk, add=[a_grant("bob")])
    with pytest.raises(DefinitionsChanged):
        desk.store.change_grants(GrantChanges(add=(a_grant(),)), actor=ANNA, now=desk.now, definitions=version)
    assert [grant.grantee for grant in desk.store.grants()] == ["bob"]


def test_a_call_writes_all_or_nothing(desk):
    job = desk.schedule("nightly", organization="acme")
    desk.drop(job.id)
    with pytest.raises(Refusal, match="nightly was dropped"):
        change(desk, add=[a_grant(), a_grant("bob", Privilege.EXECUTE, on=job)])
    assert desk.store.grants() == []
    assert actions(desk) == []


def test_a_dropped_job_takes_its_grants_with_it_and_no_others(desk):
    job, other = desk.schedule("nightly", organization="acme"), desk.schedule("daily", organization="acme")
    change(desk, add=[a_grant("bob", Privilege.EXECUTE, on=job), a_grant("bob", Privilege.EXECUTE, on=other), a_grant()])
    version = desk.store.definitions()
    desk.drop(job.id)
    assert {grant.target for grant in desk.store.grants()} == {None, "daily"}
    assert actions(desk) == [*["grant.create"] * 3, "grant.delete"]
    assert desk.store.definitions() > version


def test_a_renamed_job_keeps_its_grants(desk):
    job = desk.schedule("nightly", organization="acme")
    change(desk, add=[a_grant("bob", Privilege.EXECUTE, on=job)])
    desk.change(job.id, name="later")
    assert [(grant.target_id, grant.target) for grant in desk.store.grants()] == [(job.id, "later")]


@pytest.mark.parametrize("leaves", ["removed", "moved"])
def test_a_user_who_leaves_takes_its_grants_and_those_that_rest_on_them(desk, leaves):
    job = desk.schedule("nightly", organization="acme")
    change(
        desk,
        add=[
            a_grant("ada", Privilege.EXECUTE, on=job, option=True),
            a_grant("bob", Privilege.EXECUTE, on=job, by="ada", option=True),
            a_grant("cid", Privilege.EXECUTE, on=job, by="bob"),
            a_grant("cid", Privilege.EXECUTE, on=job),
            a_grant("cid", Privilege.CREATE_JOB),
        ],
    )
    if leaves == "removed":
        desk.store.remove_user("ada", actor=ANNA, now=desk.now)
    else:
        desk.store.put_user(User(name="ada", organization="other", role=Role.USER), actor=ANNA, now=desk.now)
    left = desk.store.grants()
    assert sorted((grant.grantee, str(grant.privilege), grant.granted_by) for grant in left) == [
        ("cid", "CREATE JOB", "root"),
        ("cid", "EXECUTE", "root"),
    ]
    assert actions(desk).count("grant.delete") == 3


def test_a_role_has_its_name_once_in_each_organization(desk):
    assert desk.store.add_role(a_role(), actor=ANNA, now=desk.now)
    assert not desk.store.add_role(a_role(), actor=ANNA, now=desk.now)
    assert desk.store.add_role(a_role(organization="other"), actor=ANNA, now=desk.now)
    assert [(role.organization, role.name, role.created_by) for role in desk.store.roles()] == [
        ("acme", "ops", ANNA.name),
        ("other", "ops", ANNA.name),
    ]
    assert actions(desk) == ["role.create"] * 2


def test_a_role_that_something_names_is_not_dropped(desk):
    role = a_role()
    desk.store.add_role(role, actor=ANNA, now=desk.now)
    (held,) = change(desk, add=[a_grant("ops", kind=GranteeKind.ROLE)])
    with pytest.raises(StillNeeded, match=r"revoke CREATE JOB to ops \(by root\) first"):
        desk.store.drop_role(role.id, actor=ANNA, now=desk.now)
    change(desk, remove=[held])
    job = desk.schedule("nightly", organization="acme", run_as="ops")
    with pytest.raises(StillNeeded, match="nightly"):
        desk.store.drop_role(role.id, actor=ANNA, now=desk.now)
    desk.drop(job.id)
    desk.store.drop_role(role.id, actor=ANNA, now=desk.now)
    assert desk.store.roles() == []
    with pytest.raises(NotFound):
        desk.store.drop_role(role.id, actor=ANNA, now=desk.now)


def test_a_user_keeps_its_id(desk):
    before = {user.name: user.id for user in desk.store.users()}
    assert len(set(before.values()) - {None}) == 3
    desk.store.put_user(User(id=str(uuid.uuid4()), name="ada", organization="acme", role=Role.ADMIN), actor=ANNA, now=desk.now)
    desk.store.remove_user("bob", actor=ANNA, now=desk.now)
    desk.store.put_user(User(id=str(uuid.uuid4()), name="bob", organization="other", role=Role.USER), actor=ANNA, now=desk.now)
    assert {user.name: user.id for user in desk.store.users()} == before
