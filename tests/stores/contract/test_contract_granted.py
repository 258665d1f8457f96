"""Scopes with jobs that somebody was granted: every read has those rows beside its owner's, and no others."""

import pytest

from rota.model.definitions import Organization
from rota.model.gate import NOBODY, Scope
from rota.ports.scan import Bound, Compares, Order
from rota.ports.schedules import Ledger
from rota.ports.store import Where
from tests.stores.desk import ANNA
from tests.stores.timekeeper import Timekeeper


@pytest.fixture
def desk(store):
    """Schedules of two owners in one organization and of one in another, each with a run."""
    desk = Timekeeper(store)
    for name in ("acme", "other"):
        store.put_organization(Organization(name=name, display_name=name), actor=ANNA, now=desk.now)
    desk.made = {
        name: desk.schedule(name, organization=organization, created_by=owner)
        for name, organization, owner in [
            ("own", "acme", "bob"),
            ("granted", "acme", "ada"),
            ("hidden", "acme", "ada"),
            ("foreign", "other", "bob"),
        ]
    }
    desk.pass_time(61)
    return desk


@pytest.fixture(params=["bob", NOBODY])
def owner(request):
    return request.param


@pytest.fixture
def seen(owner):
    return {"granted", "own"} if owner == "bob" else {"granted"}


@pytest.fixture
def scope(desk, owner):
    # One of another organization in the list stays outside.
    return Scope("acme", owner, (desk.made["granted"].id, desk.made["foreign"].id))


def names(desk, ids):
    known = {schedule.id: name for name, schedule in desk.made.items()}
    return {known[each.replace("-", "")] for each in ids}


def test_every_schedule_has_a_run(desk):
    assert names(desk, [job.schedule_id for _, job in desk.store.find(Where(), limit=100)]) == set(desk.made)


def test_lists_of_jobs(desk, scope, seen):
    found = desk.store.find(Where(scope=scope), limit=100)
    assert names(desk, [job.schedule_id for _, job in found]) == seen


def test_a_filter_by_owner_is_inside_the_scope(desk, scope):
    everybody = {job.owner for _, job in desk.store.find(Where(), limit=100)}
    for each in everybody:
        found = desk.store.find(Where(scope=scope, owner=each), limit=100)
        expected = [job.id for _, job in desk.store.find(Where(scope=scope), limit=100) if job.owner == each]
        assert [job.id for _, job in found] == expected
    assert desk.store.find(Where(scope=scope, owner="nobody"), limit=100) == []
    assert desk.store.find(Where(scope=scope, organization="other"), limit=100) == []


def test_a_list_of_one_schedule(desk, scope, seen):
    for name, schedule in desk.made.items():
        assert bool(desk.store.find(Where(scope=scope, schedule_id=schedule.id), limit=100)) is (name in seen)


def test_schedules(desk, scope, seen):
    assert {each.name for each in desk.store.schedules(scope=scope)} == seen
    for name in desk.made:
        assert [each.name for each in desk.store.schedules(scope=scope, name=name)] == [name] * (name in seen)


def test_the_ledger(desk, scope, seen):
    found = desk.store.occurrences(Ledger(scope=scope), limit=100)
    assert {each.schedule for each in found} == seen


@pytest.mark.parametrize("relation", ["jobs", "schedules", "occurrences"])
@pytest.mark.parametrize("order", [None, "first"])
def test_scans(desk, scope, seen, relation, order):
    with desk.store.snapshot(timeout_s=30) as snapshot:
        for by in sorted(snapshot.orders(relation), key=str) if order else [None]:
            rows = snapshot.scan(relation, ("schedule_id",), order=by, scope=scope)
            assert names(desk, [each for (each,) in rows]) == seen
        for name, schedule in desk.made.items():
            bounds = (Bound("schedule_id", Compares.EQUAL, schedule.id),)
            rows = list(snapshot.scan(relation, ("schedule_id",), bounds=bounds, scope=scope))
            assert bool(rows) is (name in seen)
        assert Order("number") in snapshot.orders("jobs")


def test_a_user_named_like_an_id_reads_nothing_by_that(desk):
    scope = Scope("acme", "ada", (desk.made["own"].id,))
    desk.schedule("odd", organization="acme", created_by=desk.made["own"].id)
    with desk.store.snapshot(timeout_s=30) as snapshot:
        rows = list(snapshot.scan("schedules", ("name",), scope=scope))
    assert sorted(rows) == [("granted",), ("hidden",), ("own",)]
