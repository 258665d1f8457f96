"""Several verbs in one transaction: each sees those before it, and all of them are written or none."""

import pytest

from rota.errors import ScheduleExists, TransactionMisuse
from rota.model.definitions import Organization
from tests.stores.desk import ANNA
from tests.stores.timekeeper import Timekeeper


@pytest.fixture
def desk(store):
    return Timekeeper(store)


def new(desk, name, **fields):
    return desk.schedule(name, at_once=False, **fields)


def names(store):
    return [each.name for each in store.schedules()]


def test_verbs_see_what_those_before_them_have_written_and_others_see_all_of_it_at_the_end(desk):
    a, b = new(desk, "a"), new(desk, "b", depends_on=("a",))

    def work(store):
        version = store.definitions()
        store.add_schedule(a, actor=ANNA, now=desk.now)
        seen = names(desk.store)
        store.add_schedule(b, actor=ANNA, now=desk.now)
        assert names(store) == ["a", "b"]
        assert store.schedule(a.id).name == "a"
        return seen, store.definitions() - version

    seen, _ = desk.store.together(work)
    assert seen == [], "nobody else sees a part of it"
    assert names(desk.store) == ["a", "b"]


def test_all_is_undone_if_the_work_raises(desk):
    desk.schedule("there")
    first, taken = new(desk, "first"), new(desk, "there")

    def work(store):
        store.add_schedule(first, actor=ANNA, now=desk.now)
        store.put_organization(Organization(name="acme", display_name="Acme"), actor=ANNA, now=desk.now)
        store.add_schedule(taken, actor=ANNA, now=desk.now)

    before = len(desk.store.audit(limit=100)), desk.store.definitions()
    with pytest.raises(ScheduleExists):
        desk.store.together(work)
    assert names(desk.store) == ["there"]
    assert [each.name for each in desk.store.organizations()] == ["default"]
    assert (len(desk.store.audit(limit=100)), desk.store.definitions()) == before
    # Nothing is left of it that would keep others from writing.
    desk.store.together(lambda store: store.add_schedule(first, actor=ANNA, now=desk.now))
    assert names(desk.store) == ["first", "there"]


def test_jobs_are_added_and_cancelled_with_definitions(desk):
    row = desk.row()

    def work(store):
        store.add_schedule(new_one, actor=ANNA, now=desk.now)
        (added,) = store.enqueue([row], now=desk.now)
        return store.cancel(added.job_id, actor=ANNA, now=desk.now).status

    new_one = new(desk, "s")
    assert desk.store.together(work) == "CANCELLED"
    assert desk.store.job(row.job_id).status == "CANCELLED"


def test_a_transaction_inside_another_is_refused(desk):
    def work(store):
        assert store.transacting()
        with pytest.raises(TransactionMisuse):
            store.job(desk.id(), transaction=object())

    desk.store.together(work)
    assert not desk.store.transacting()
    with desk.store.transaction(), pytest.raises(TransactionMisuse):
        desk.store.together(lambda store: None)
