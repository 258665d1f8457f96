"""Secrets: kept as they were sealed, one of a name, audited by name alone, and gone with their job."""

import threading
import uuid

import msgspec
import pytest

from rota.errors import NotFound, StillNeeded
from rota.errors import Refused as Refusal
from rota.model.definitions import Organization, Template
from rota.model.gate import Scope
from rota.model.grants import Grant, GrantChanges, GranteeKind, Privilege, TargetKind
from rota.model.schedules import JobKind, OwnTemplate
from rota.model.secrets import KeyUse, Put, Rewrapped, Sealed, SecretPlace, SecretUse
from rota.model.values import dashed, moment_of
from rota.model.webhooks import SigningSecret
from tests.stores.desk import ANNA
from tests.stores.timekeeper import Timekeeper
from tests.support.proof import size


@pytest.fixture
def desk(store):
    desk = Timekeeper(store)
    store.put_organization(Organization(name="acme", display_name="acme"), actor=ANNA, now=desk.now)
    return desk


def sealing(place, key_id="old", body=b"sealed"):
    def seal(version):
        return Sealed(
            organization=place.organization, name=place.name, job=place.job, version=version, key_id=key_id, wrapped=b"\0w\xff", body=body
        )

    return seal


def put(desk, name="PASSWORD", *, job=None, how=Put.EITHER, organization="acme", **sealed):
    place = SecretPlace(organization, name, job)
    return desk.store.put_secret(place, sealing(place, **sealed), put=how, secret_id=desk.id(), actor=ANNA, now=desk.now)


def drop(desk, name="PASSWORD", *, job=None, organization="acme"):
    desk.store.drop_secret(SecretPlace(organization, name, job), actor=ANNA, now=desk.now)


def given(desk, *names, job=None, organization="acme"):
    return {each.name: each for each in desk.store.sealed_secrets(organization, job, names)}


def entries(desk):
    return [each for each in desk.store.audit(limit=1000, scope=Scope()) if each.action.startswith("secret")][::-1]


def a_job(desk, name="nightly", secrets=()):
    own = OwnTemplate(id=desk.id(), kind=JobKind.SQL, job_type="sql", defaults={"secrets": list(secrets)}, body="SELECT 1")
    return desk.schedule(name, organization="acme", template=name, own=own)


def test_a_new_store_has_no_secrets(store):
    assert store.stored_secrets() == []
    assert store.sealed_secrets("default", None, ["a"]) == []
    assert store.master_keys() == []


def test_a_secret_is_read_as_it_was_sealed(desk):
    secret = put(desk, body=b"\0body\xfe")
    assert (secret.organization, secret.name, secret.job, secret.version, secret.key_id) == ("acme", "PASSWORD", None, 1, "old")
    assert (secret.created_by, secret.created_at, secret.updated_at, secret.last_used_at) == (
        "anna",
        moment_of(desk.now),
        moment_of(desk.now),
        None,
    )
    assert desk.store.stored_secrets() == [secret]
    (sealed,) = given(desk, "PASSWORD", "MISSING").values()
    assert (sealed.wrapped, sealed.body, sealed.version, dashed(sealed.id)) == (b"\0w\xff", b"\0body\xfe", 1, secret.id)


def test_a_new_value_is_a_new_version_of_the_same_secret(desk):
    first = put(desk)
    desk.advance(5)
    second = put(desk, how=Put.EXISTING, key_id="new", body=b"other")
    assert (second.id, second.version, second.key_id) == (first.id, 2, "new")
    assert second.updated_at > second.created_at == first.created_at
    assert given(desk, "PASSWORD")["PASSWORD"].body == b"other"
    assert [each.action for each in entries(desk)] == ["secret.create", "secret.change"]


def test_a_name_is_taken_once_in_an_organization_and_once_by_each_job(desk):
    job, other = desk.schedule("nightly", organization="acme"), desk.schedule("weekly", organization="acme")
    for where in ({}, {"job": job.id}, {"job": other.id}, {"organization": "default"}):
        put(desk, how=Put.NEW, **where)
        with pytest.raises(Refusal, match="there is a secret 'PASSWORD' already"):
            put(desk, how=Put.NEW, **where)
    assert [(each.organization, each.job) for each in desk.store.stored_secrets()] == [
        ("acme", None),
        ("acme", "nightly"),
        ("acme", "weekly"),
        ("default", None),
    ]


def test_one_that_is_not_there_is_neither_changed_nor_dropped(desk):
    job = desk.schedule("nightly", organization="acme")
    put(desk, job=job.id)
    with pytest.raises(NotFound, match="no secret 'PASSWORD' in organization 'acme'"):
        put(desk, how=Put.EXISTING)
    with pytest.raises(NotFound):
        drop(desk)
    with pytest.raises(NotFound, match="of this job"):
        drop(desk, "OTHER", job=job.id)
    desk.drop(job.id)
    with pytest.raises(NotFound):
        put(desk, job=job.id)
    assert desk.store.stored_secrets() == []


def test_what_fails_to_be_sealed_changes_nothing(desk):
    def fail(version):
        raise Refusal(f"no key for version {version}")

    before = put(desk)
    with pytest.raises(Refusal, match="version 2"):
        desk.store.put_secret(SecretPlace("acme", "PASSWORD"), fail, put=Put.EITHER, secret_id=desk.id(), actor=ANNA, now=desk.now)
    assert desk.store.stored_secrets() == [before]


def test_a_run_is_given_the_jobs_own_secrets_and_those_it_names(desk):
    job, other = desk.schedule("nightly", organization="acme"), desk.schedule("weekly", organization="acme")
    put(desk, "SHARED", body=b"shared")
    put(desk, "BOTH", body=b"of the organization")
    put(desk, "UNNAMED")
    put(desk, "BOTH", job=job.id, body=b"of the job")
    put(desk, "OWN", job=job.id)
    put(desk, "THEIRS", job=other.id)
    put(desk, "SHARED", organization="default", body=b"of others")
    found = given(desk, "SHARED", "BOTH", "THEIRS", job=job.id)
    assert {name: each.body for name, each in found.items()} == {"SHARED": b"shared", "BOTH": b"of the job", "OWN": b"sealed"}
    assert {name: each.job for name, each in found.items()} == {"SHARED": None, "BOTH": job.id, "OWN": job.id}
    assert {name: each.body for name, each in given(desk, "SHARED", "BOTH").items()} == {
        "SHARED": b"shared",
        "BOTH": b"of the organization",
    }
    assert given(desk, job=job.id).keys() == {"BOTH", "OWN"}


@pytest.mark.parametrize("keep", [False, True], ids=["history goes", "history stays"])
def test_a_job_that_is_dropped_takes_its_secrets_along(desk, keep):
    job = a_job(desk)
    put(desk, "OWN", job=job.id)
    put(desk, "SHARED")
    desk.store.drop_job(job.id, desk.decide, actor=ANNA, now=desk.now, keep_history=keep)
    assert [each.name for each in desk.store.stored_secrets()] == ["SHARED"]
    dropped = entries(desk)[-1]
    assert (dropped.action, dropped.subject_id, dropped.job_uuid) == ("secret.drop", "OWN", dashed(job.id))


def test_a_job_that_is_replaced_leaves_its_secrets_behind(desk):
    job = a_job(desk)
    put(desk, "OWN", job=job.id)
    own = OwnTemplate(id=desk.id(), kind=JobKind.SQL, job_type="sql", defaults={}, body="SELECT 2")
    new = msgspec.structs.replace(desk.schedule("nightly", at_once=False, organization="acme"), own=own, template="nightly")
    desk.store.replace_schedule(job.id, new, desk.decide, actor=ANNA, now=desk.now)
    assert desk.store.stored_secrets() == []
    assert given(desk, "OWN", job=new.id) == {}


def test_a_secret_that_jobs_name_is_not_dropped(desk):
    job = a_job(desk, secrets=["PASSWORD"])
    put(desk)
    put(desk, organization="default")
    drop(desk, organization="default")
    with pytest.raises(StillNeeded, match="secret 'PASSWORD' can't be dropped while jobs name it: change nightly first"):
        drop(desk)
    desk.store.drop_job(job.id, desk.decide, actor=ANNA, now=desk.now)
    drop(desk)
    assert desk.store.stored_secrets() == []


@pytest.mark.parametrize("scheduled", ["not", "here", "elsewhere"])
def test_a_secret_that_a_shared_template_names_is_not_dropped(desk, scheduled):
    put(desk)
    put(desk, organization="default")
    shared = Template(
        id=desk.id(), name="by_region", job_type="by_region", kind=JobKind.SQL, defaults={"secrets": ["PASSWORD"]}, body="SELECT 1"
    )
    desk.store.define_template(shared, actor=ANNA, now=desk.now)
    if scheduled != "not":
        desk.schedule("hourly", organization={"here": "acme", "elsewhere": "default"}[scheduled], template="by_region")
    a_job(desk, secrets=["PASSWORD"])
    with pytest.raises(StillNeeded, match="while jobs and templates name it: change nightly, template by_region first"):
        drop(desk)
    # Every organization may make jobs of it.
    with pytest.raises(StillNeeded, match="while templates name it: change template by_region first"):
        drop(desk, organization="default")
    desk.store.define_template(msgspec.structs.replace(shared, defaults={}), actor=ANNA, now=desk.now)
    drop(desk, organization="default")


def test_grants_on_a_secret_go_with_it(desk):
    for organization in ("acme", "default"):
        put(desk, organization=organization)
        grant = Grant(
            id=str(uuid.uuid4()),
            organization=organization,
            grantee_kind=GranteeKind.PUBLIC,
            grantee="",
            privilege=Privilege.USE,
            target_kind=TargetKind.SECRET,
            target_id="PASSWORD",
            target="PASSWORD",
            granted_by="anna",
        )
        desk.store.change_grants(GrantChanges(add=(grant,)), actor=ANNA, now=desk.now)
    version = desk.store.definitions()
    drop(desk)
    assert [grant.organization for grant in desk.store.grants()] == ["default"]
    assert desk.store.definitions() > version


def test_values_do_not_advance_the_definitions(desk):
    before = desk.store.definitions()
    put(desk)
    put(desk)
    drop(desk)
    assert desk.store.definitions() == before


def test_a_use_is_recorded_once_a_run(desk):
    job = desk.schedule("nightly", organization="acme")
    put(desk, "A")
    put(desk, "B")
    desk.advance(60)
    runs = [desk.id(), desk.id()]
    uses = [
        SecretUse(run=run, job=job.id, organization="acme", owner="ada", secrets=tuple(given(desk, *names).values()))
        for run, names in zip(runs, (("A", "B"), ("A",)), strict=True)
    ]
    nothing = SecretUse(run=desk.id(), job=None, organization="acme", owner="ada", secrets=())
    desk.store.note_secrets_used([*uses, nothing], now=desk.now)
    assert {each.last_used_at for each in desk.store.stored_secrets()} == {moment_of(desk.now)}
    used = [each for each in entries(desk) if each.action == "secret.use"]
    assert [(each.job_run_uuid, each.job_uuid, each.actor, each.after) for each in used] == [
        (dashed(runs[0]), dashed(job.id), "ada", {"secrets": ["A", "B"]}),
        (dashed(runs[1]), dashed(job.id), "ada", {"secrets": ["A"]}),
    ]
    desk.store.note_secrets_used(uses, now=desk.now - 5)
    assert {each.last_used_at for each in desk.store.stored_secrets()} == {moment_of(desk.now)}


# ---- master keys ------------------------------------------------------------------------------------------------------


def rewrapped(sealed, key_id="new"):
    return Rewrapped(sealed, msgspec.structs.replace(sealed, key_id=key_id, wrapped=b"again"))


def test_secrets_are_put_under_another_key_a_batch_at_a_time(desk):
    for number in range(5):
        put(desk, f"S{number}")
    put(desk, "NEW", key_id="new")
    after, batches = "", []
    while batch := desk.store.secrets_to_rewrap("new", after=after, limit=2):
        batches.append(desk.store.rewrap_secrets([rewrapped(each) for each in batch], actor=ANNA, now=desk.now))
        after = batch[-1].id
    assert batches == [2, 2, 1]
    assert desk.store.master_keys() == [KeyUse("new", 6)]
    assert {each.wrapped for each in given(desk, *(f"S{number}" for number in range(5))).values()} == {b"again"}
    assert given(desk, "S0")["S0"].body == b"sealed"
    assert [each.after for each in entries(desk) if each.action == "secret.rotate"] == [
        {"secrets": count, "key_id": "new"} for count in (2, 2, 1)
    ]


def test_a_secret_that_has_changed_since_it_was_read_is_not_rewrapped(desk):
    put(desk, "A")
    put(desk, "B")
    put(desk, "C")
    batch = desk.store.secrets_to_rewrap("new", after="", limit=10)
    put(desk, "A", body=b"newer")
    desk.store.rewrap_secrets([rewrapped(each, "newest") for each in batch if each.name == "B"], actor=ANNA, now=desk.now)
    drop(desk, "C")
    assert desk.store.rewrap_secrets([rewrapped(each) for each in batch], actor=ANNA, now=desk.now) == 0
    assert desk.store.master_keys() == [KeyUse("newest", 1), KeyUse("old", 1)]


@pytest.mark.prove
def test_rotation_under_load_has_no_errors(desk):
    count, names = size(40, prove=1000), []
    for number in range(count):
        names.append(f"S{number}")
        put(desk, names[-1])
    errors, done, worked = [], threading.Event(), []

    def watched(work):
        def run():
            number = 0
            while not done.is_set():
                try:
                    work(names[number % count])
                except Exception as error:
                    errors.append(error)
                number += 7
            worked.append(number)

        return threading.Thread(target=run)

    def read(name):
        assert given(desk, name)[name].body in {b"sealed", b"newer"}

    threads = [watched(read), watched(read), watched(lambda name: put(desk, name, body=b"newer"))]
    for thread in threads:
        thread.start()
    passes = [rotate(desk) for _ in range(size(3, prove=10))]
    done.set()
    for thread in threads:
        thread.join()
    passes.append(rotate(desk))
    assert errors == []
    assert all(worked)
    assert sum(passes) >= count
    assert desk.store.master_keys() == [KeyUse("new", count)]


def rotate(desk):
    after, done = "", 0
    while batch := desk.store.secrets_to_rewrap("new", after=after, limit=20):
        done += desk.store.rewrap_secrets([rewrapped(each) for each in batch], actor=ANNA, now=desk.now)
        after = batch[-1].id
    return done


def test_secrets_that_sign_webhooks_are_replaced_by_the_same_under_a_key(desk):
    for owner, secret in (("a", "whsec_a"), ("b", "whsec_b"), ("c", "sealed:0123456789abcdef:w:b")):
        desk.store.set_secret(owner, secret, organization="acme", previous_until=0, actor=ANNA, now=desk.now)
    desk.store.set_secret("b", "whsec_newer", organization="acme", previous_until=desk.now + 9, actor=ANNA, now=desk.now)
    assert desk.store.master_keys() == [KeyUse("", 0, 3), KeyUse("0123456789abcdef", 0, 1)]
    first, second = desk.store.signing_secrets(after="", limit=2)
    assert (first, second) == (SigningSecret("a", "whsec_a"), SigningSecret("b", "whsec_newer", "whsec_b"))
    assert "whsec" not in repr(first)
    stale = msgspec.structs.replace(first, secret="whsec_other")
    changes = [
        (stale, msgspec.structs.replace(first, secret="sealed:1")),
        (second, SigningSecret("b", "sealed:fedcba9876543210:x", "sealed:fedcba9876543210:y")),
    ]
    assert desk.store.reseal_signing(changes, actor=ANNA, now=desk.now) == 1
    assert desk.store.secrets("b", now=desk.now) == ("sealed:fedcba9876543210:x", "sealed:fedcba9876543210:y")
    assert [each.owner for each in desk.store.signing_secrets(after="b", limit=2)] == ["c"]
