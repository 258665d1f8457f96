"""Organizations and users: each change is kept once, audited once, seen by everybody, and takes nothing away (O)."""

import pytest

from rota.errors import NotFound, Refused, UnknownOrganization
from rota.model.definitions import Organization, OrganizationState, User
from rota.model.gate import Role, Scope
from rota.ports.turns import Choice
from tests.stores.desk import ANNA, inside

ACME = Organization(name="acme", display_name="Acme", max_running=2, max_queued=10, max_priority=75)
BOB = User(name="bob", organization="acme", role=Role.USER, permissions=("reports",))
ROOT = User(name="root", organization="default", role=Role.MANAGER)


@pytest.fixture
def office(desk):
    """A desk with hands for organizations and users."""

    class Office:
        store = desk.store

        def put(self, *things, **changes):
            for thing in things:
                verb = self.store.put_organization if isinstance(thing, Organization) else self.store.put_user
                verb(thing, actor=ANNA, now=desk.now)

        def state(self, name, state):
            self.store.set_organization_state(name, OrganizationState(state), actor=ANNA, now=desk.now)

        def fire(self, name):
            self.store.remove_user(name, actor=ANNA, now=desk.now)

        def organization(self, name):
            return next(each for each in self.store.organizations() if each.name == name)

        def user(self, name):
            return next(each for each in self.store.users() if each.name == name)

    return Office()


def actions(maker):
    return [entry["action"] for entry in maker.audit()]


def test_a_new_store_has_one_organization_and_no_users(store):
    (default,) = store.organizations()
    assert (default.name, default.state, default.max_running, default.max_queued, default.max_priority) == (
        "default",
        "ACTIVE",
        None,
        None,
        None,
    )
    assert store.users() == []


def test_an_organization_is_kept_as_it_was_given(desk, office):
    office.put(ACME)
    found = office.organization("acme")
    assert (found.display_name, found.state, found.max_running, found.max_queued, found.max_priority) == ("Acme", "ACTIVE", 2, 10, 75)
    assert round(found.created_at.timestamp() * 1_000_000) == desk.now


def test_organizations_and_users_come_by_name(office):
    office.put(Organization(name="zeta", display_name="Z"), ACME, BOB, User(name="ada", organization="zeta", role=Role.ADMIN))
    assert [each.name for each in office.store.organizations()] == ["acme", "default", "zeta"]
    assert [each.name for each in office.store.users()] == ["ada", "bob"]


def test_a_change_says_what_was_and_what_is(maker, office):
    office.put(ACME)
    office.put(Organization(name="acme", display_name="Acme", max_running=5))
    created, changed = maker.audit()
    assert (created["action"], created["subject"], created["subject_id"], created["before"]) == (
        "organization.create",
        "organization",
        "acme",
        None,
    )
    assert changed["action"] == "organization.change"
    assert (changed["before"]["max_running"], changed["after"]["max_running"], changed["after"]["max_queued"]) == (2, 5, None)


def test_a_change_of_limits_leaves_the_state_alone(office):
    office.put(ACME)
    office.state("acme", "SUSPENDED")
    office.put(Organization(name="acme", display_name="Other"))
    assert office.organization("acme").state == "SUSPENDED"


@pytest.mark.parametrize(
    "act",
    [
        lambda office: office.put(ACME),
        lambda office: office.put(BOB),
        lambda office: office.state("acme", "SUSPENDED"),
        lambda office: office.state("acme", "REMOVED"),
        lambda office: office.fire("bob"),
    ],
    ids=["put organization", "put user", "suspend", "remove", "remove user"],
)
def test_each_change_advances_the_definitions_and_is_audited_once_however_often_it_is_repeated(maker, office, act):
    office.put(ACME, User(name="bob", organization="acme", role=Role.ADMIN))
    office.put(Organization(name="acme", display_name="Before"))
    version, before = office.store.definitions(), len(maker.audit())
    act(office)
    assert office.store.definitions() == version + 1
    assert len(maker.audit()) == before + 1
    act(office)
    act(office)
    assert office.store.definitions() == version + 1
    assert len(maker.audit()) == before + 1


def test_suspend_resume_and_remove_are_audited_by_their_names(maker, office):
    office.put(ACME)
    for state in ("SUSPENDED", "ACTIVE", "REMOVED", "ACTIVE"):
        office.state("acme", state)
    assert actions(maker)[1:] == ["organization.suspend", "organization.resume", "organization.remove", "organization.resume"]
    assert maker.audit()[1]["before"] == {"state": "ACTIVE"}
    assert maker.audit()[1]["after"] == {"state": "SUSPENDED"}


def test_an_organization_that_is_not_there_has_no_state(office):
    with pytest.raises(UnknownOrganization, match="'acme'"):
        office.state("acme", "SUSPENDED")


def test_the_default_organization_cannot_be_removed_but_suspended(office):
    with pytest.raises(Refused, match="can't be removed"):
        office.state("default", "REMOVED")
    office.state("default", "SUSPENDED")
    assert office.organization("default").state == "SUSPENDED"


def test_removing_an_organization_deletes_nothing_of_it(desk, office):
    office.put(ACME, BOB)
    jobs = desk.several(3, organization_id="acme")
    office.state("acme", "REMOVED")
    assert [desk.status(job) for job in jobs] == ["QUEUED"] * 3
    assert office.user("bob").organization == "acme"


def park(desk, word):
    """Park everything that is ready, each under its organization, as a dispatcher does."""
    turned = desk.turn(
        100, choose=lambda candidates, *_: Choice(take=[], park=[(job.number, f"{word}:{job.organization_id}") for job in candidates])
    )
    assert not turned.claimed


@pytest.mark.parametrize("state", ["ACTIVE", "REMOVED"])
def test_what_a_suspension_parked_is_offered_again_when_it_is_over(desk, office, state):
    office.put(ACME)
    jobs = desk.several(3, organization_id="acme")
    other = desk.add(organization_id="default")
    office.state("acme", "SUSPENDED")
    park(desk, "suspended")
    assert desk.claim(10) == []
    office.state("acme", state)
    assert {job.job_id for job in desk.claim(10)} == set(jobs)
    assert desk.job(other).held == "suspended:default"


def test_what_a_limit_parked_is_offered_again_when_the_limit_changes(desk, office):
    office.put(ACME)
    jobs = desk.several(3, organization_id="acme")
    park(desk, "organization-limit")
    office.put(Organization(name="acme", display_name="Acme", max_running=2, max_queued=99, max_priority=75))
    assert desk.claim(10) == []
    office.put(Organization(name="acme", display_name="Acme", max_queued=99, max_priority=75))
    assert {job.job_id for job in desk.claim(10)} == set(jobs)


def test_a_user_is_kept_as_it_was_given(office):
    office.put(ACME, BOB)
    found = office.user("bob")
    assert (found.organization, found.role, found.permissions, found.removed) == ("acme", Role.USER, ("reports",), False)
    assert found.created_at is not None


@pytest.mark.parametrize("state", [None, "REMOVED"])
def test_a_user_needs_an_organization_that_is_there(office, state):
    if state:
        office.put(ACME)
        office.state("acme", state)
    with pytest.raises(UnknownOrganization, match="'acme'"):
        office.put(BOB)


def test_a_removed_user_stays_under_its_name_and_can_come_back(maker, office):
    office.put(ACME, BOB)
    office.fire("bob")
    assert office.user("bob").removed
    office.put(BOB)
    assert not office.user("bob").removed
    assert actions(maker)[1:] == ["user.add", "user.remove", "user.add"]


def test_a_user_that_never_was_cannot_be_removed(office):
    with pytest.raises(NotFound, match="'bob'"):
        office.fire("bob")


@pytest.mark.parametrize(
    "act",
    [lambda office: office.fire("root"), lambda office: office.put(User(name="root", organization="default", role=Role.ADMIN))],
    ids=["removed", "made less"],
)
def test_the_last_system_manager_stays_one(office, act):
    office.put(ACME, BOB, ROOT, User(name="gone", organization="default", role=Role.MANAGER))
    office.fire("gone")
    with pytest.raises(Refused, match="'root' is the last system manager"):
        act(office)
    assert office.user("root").role is Role.MANAGER
    office.put(User(name="eve", organization="default", role=Role.MANAGER))
    act(office)
    assert not any(each.name == "root" and each.role is Role.MANAGER and not each.removed for each in office.store.users())


def test_an_organization_sees_its_own_part_of_the_audit(desk, office):
    office.put(ACME, BOB, Organization(name="beta", display_name="Beta"), ROOT)
    job = desk.add(organization_id="acme")
    desk.store.change(job, actor=ANNA, now=desk.now, priority=60)
    desk.store.cancel(job, actor=ANNA, now=desk.now)
    desk.store.retry(job, new_id=desk.id(), actor=ANNA, now=desk.now)
    desk.store.cancel(job, actor=ANNA, now=desk.now)
    desk.store.discard(job, actor=ANNA, now=desk.now)
    group = desk.grouped([desk.row(organization_id="acme")], organization_id="acme")
    desk.store.cancel_group(inside(group.id), actor=ANNA, now=desk.now)
    desk.store.pause("organization", "acme", actor=ANNA, now=desk.now)
    office.put(User(name="bob", organization="beta", role=Role.USER))
    seen = {name: [each.action for each in desk.store.audit(limit=100, scope=Scope(name))] for name in ("acme", "beta", "default")}
    steered = ["job.discard", "job.cancel", "job.retry", "job.cancel", "job.change"]
    assert seen["acme"] == ["pause", "group.cancel", *steered, "user.add", "organization.create"]
    assert seen["beta"] == ["organization.create"]
    assert seen["default"] == ["user.add"]
    assert desk.store.audit(limit=1)[0].action == "user.change"
