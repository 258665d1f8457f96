"""Connections: each change is kept once, audited once, seen by others, and one that jobs use stays."""

import uuid

import pytest
from msgspec.structs import replace

from rota.errors import ChangedMeanwhile, NotFound, StillNeeded
from rota.errors import Refused as Refusal
from rota.model.connections import Connection
from rota.model.definitions import Organization, Template
from rota.model.gate import Scope
from rota.model.grants import Grant, GrantChanges, GranteeKind, Privilege, TargetKind
from rota.model.schedules import JobKind, OwnTemplate
from tests.stores.desk import ANNA
from tests.stores.timekeeper import Timekeeper


@pytest.fixture
def desk(store):
    desk = Timekeeper(store)
    for name in ("acme", "other"):
        store.put_organization(Organization(name=name, display_name=name), actor=ANNA, now=desk.now)
    return desk


def a_connection(name="dw", organization="acme", **fields):
    usual = {"url": "postgresql://wh/dw", "login": "etl", "secret": "pw", "created_by": ANNA.name}
    return Connection(id=str(uuid.uuid4()), organization=organization, name=name, **(usual | fields))


def put(desk, connection, **more):
    return desk.store.put_connection(connection, actor=ANNA, now=desk.now, **more)


def drop(desk, name="dw", organization="acme", **more):
    desk.store.drop_connection(name, organization=organization, actor=ANNA, now=desk.now, **more)


def trail(desk):
    entries = [each for each in desk.store.audit(limit=100, scope=Scope()) if each.action.startswith("connection")]
    return [(each.action, each.subject, each.before, each.after) for each in reversed(entries)]


def a_job(desk, name, *, connection=None, kind=JobKind.SQL, organization="acme"):
    defaults = {} if connection is None else {"connection": connection}
    own = OwnTemplate(id=desk.id(), kind=kind, job_type=f"kind:{kind}", defaults=defaults, body="SELECT 1")
    return desk.schedule(name, organization=organization, template=name, own=own)


def use(desk, grantee="ada", organization="acme", name="dw", **fields):
    return Grant(
        id=str(uuid.uuid4()),
        organization=organization,
        grantee_kind=GranteeKind.USER,
        grantee=grantee,
        privilege=Privilege.USE,
        target_kind=TargetKind.CONNECTION,
        target_id=name,
        target=name,
        granted_by="root",
        **fields,
    )


def test_a_new_store_has_no_connections(store):
    assert store.connections() == []


def test_a_connection_is_read_as_it_was_put(desk):
    given = a_connection(multi=True)
    put(desk, a_connection(organization="other"))
    written = put(desk, given)
    assert replace(written, created_at=None, updated_at=None) == given
    assert written.created_at is not None
    assert [each.key for each in desk.store.connections()] == [("acme", "dw"), ("other", "dw")]
    plain = a_connection("file", url="sqlite:////data/x.db", login=None, secret=None)
    assert replace(put(desk, plain), created_at=None, updated_at=None) == plain


def test_a_change_keeps_its_id_and_creator_and_is_audited_without_a_password(desk):
    first = put(desk, a_connection())
    desk.now += 1_000_000
    second = put(desk, a_connection(url="postgresql://wh2/dw", secret=None, created_by="somebody else"))
    assert (second.id, second.created_by, second.created_at, second.version) == (first.id, first.created_by, first.created_at, 2)
    assert second.updated_at > first.updated_at
    assert put(desk, second) == second
    drop(desk)
    before = {"url": "postgresql://wh/dw", "login": "etl", "secret": "pw", "multi": False}
    after = before | {"url": "postgresql://wh2/dw", "secret": None}
    assert trail(desk) == [
        ("connection.create", "connection", None, before),
        ("connection.change", "connection", before, after),
        ("connection.delete", "connection", after, None),
    ]


def test_every_change_advances_the_version_of_the_definitions(desk):
    seen = [desk.store.definitions()]
    for step in (
        lambda: put(desk, a_connection()),
        lambda: put(desk, a_connection(multi=True)),
        lambda: drop(desk),
    ):
        step()
        seen.append(desk.store.definitions())
    assert seen == sorted(set(seen))
    put(desk, a_connection())
    at = desk.store.definitions()
    put(desk, a_connection())
    assert desk.store.definitions() == at, "the same again changes nothing"


def test_an_edit_of_another_version_writes_nothing(desk):
    with pytest.raises(ChangedMeanwhile):
        put(desk, a_connection(), version=1)
    put(desk, a_connection(), version=0)
    for version in (0, 2):
        with pytest.raises(ChangedMeanwhile):
            put(desk, a_connection(multi=True), version=version)
        with pytest.raises(ChangedMeanwhile):
            drop(desk, version=version)
    (left,) = desk.store.connections()
    assert (left.multi, left.version) == (False, 1)
    drop(desk, version=1)
    with pytest.raises(NotFound, match="no connection 'dw' in organization 'acme'"):
        drop(desk)


def test_a_connection_that_jobs_name_is_not_dropped(desk):
    put(desk, a_connection())
    put(desk, a_connection(organization="other"))
    job = a_job(desk, "nightly", connection="dw")
    call = a_job(desk, "call", connection="dw", kind=JobKind.PROCEDURE)
    with pytest.raises(StillNeeded, match=r"connection 'dw' can't be dropped while jobs use it: change or drop call, nightly first"):
        drop(desk)
    drop(desk, organization="other")
    desk.drop(job.id)
    desk.change(call.id, own=replace(call.own, defaults={"connection": "dw2"}))
    drop(desk)
    assert desk.store.connections() == []


def test_the_default_connection_is_used_by_sql_jobs_that_name_none(desk):
    put(desk, a_connection("default"))
    put(desk, a_connection())
    a_job(desk, "command", kind=JobKind.EXTERNAL)
    a_job(desk, "call", kind=JobKind.PROCEDURE)
    a_job(desk, "elsewhere", organization="other")
    a_job(desk, "named", connection="dw")
    job = a_job(desk, "plain")
    with pytest.raises(StillNeeded, match=r"change or drop plain first"):
        drop(desk, "default")
    desk.drop(job.id)
    drop(desk, "default")


@pytest.mark.parametrize("scheduled", ["not", "here", "elsewhere"])
@pytest.mark.parametrize(("name", "defaults"), [("dw", {"connection": "dw"}), ("default", {})])
def test_a_connection_that_a_shared_template_uses_is_not_dropped(desk, scheduled, name, defaults):
    put(desk, a_connection(name))
    put(desk, a_connection(name, organization="other"))
    shared = Template(id=desk.id(), name="by_region", job_type="by_region", kind=JobKind.SQL, defaults=defaults, body="SELECT 1")
    desk.store.define_template(shared, actor=ANNA, now=desk.now)
    if scheduled != "not":
        desk.schedule("hourly", organization={"here": "acme", "elsewhere": "other"}[scheduled], template="by_region")
    for organization in ("acme", "other"):
        with pytest.raises(StillNeeded, match=r"while templates use it: change or drop template by_region first"):
            drop(desk, name, organization=organization)
    desk.store.define_template(replace(shared, defaults={"connection": "dw2"}), actor=ANNA, now=desk.now)
    drop(desk, name)


def test_only_some_of_many_jobs_are_named(desk):
    put(desk, a_connection())
    for number in range(7):
        a_job(desk, f"j{number}", connection="dw")
    with pytest.raises(StillNeeded, match="j0, j1, j2, j3, j4 and others first"):
        drop(desk)


def test_grants_are_on_connections_that_are_there_and_go_with_them(desk):
    store = desk.store
    with pytest.raises(Refusal, match="connection dw was dropped in the meantime"):
        store.change_grants(GrantChanges(add=(use(desk),)), actor=ANNA, now=desk.now)
    for organization in ("acme", "other"):
        put(desk, a_connection(organization=organization))
    put(desk, a_connection("second"))
    given = (use(desk, grant_option=True), use(desk, "bob"), use(desk, organization="other"), use(desk, name="second"))
    store.change_grants(GrantChanges(add=given), actor=ANNA, now=desk.now)
    drop(desk)
    assert {(grant.organization, grant.target) for grant in store.grants()} == {("other", "dw"), ("acme", "second")}
    put(desk, a_connection())
    assert len(store.grants()) == 2, "a connection of the same name is another one"
