"""Changes that say which version they mean: of those who have seen the same one, one wins."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread

import msgspec
import pytest

from rota.errors import ChangedMeanwhile
from rota.model.definitions import Template, TemplateState
from tests.stores.desk import ANNA
from tests.stores.timekeeper import Timekeeper


@pytest.fixture
def desk(store):
    return Timekeeper(store)


def change(store, desk, version, **overrides):
    empty = Template(id=desk.id(), name="mail", job_type="mail")
    return store.set_template(empty, actor=ANNA, now=desk.now, overrides=overrides, version=version)


def test_a_template_is_changed_by_those_only_who_have_seen_it_as_it_is(desk):
    made = change(desk.store, desk, 0, handler="shop.jobs:mail")
    audited = len(desk.store.audit(limit=100))
    for verb in (
        lambda: change(desk.store, desk, 0, timeout=5.0),
        lambda: change(desk.store, desk, made.version + 1, timeout=5.0),
        lambda: desk.store.set_template_state("mail", TemplateState.DISABLED, actor=ANNA, now=desk.now, version=made.version + 1),
        lambda: desk.store.drop_template("mail", actor=ANNA, now=desk.now, version=made.version + 1),
    ):
        with pytest.raises(ChangedMeanwhile, match=f"version {made.version} by now"):
            verb()
    assert made in desk.store.templates()
    assert len(desk.store.audit(limit=100)) == audited
    changed = change(desk.store, desk, made.version, timeout=5.0)
    state = desk.store.set_template_state("mail", TemplateState.DISABLED, actor=ANNA, now=desk.now, version=changed.version)
    desk.store.drop_template("mail", actor=ANNA, now=desk.now, version=state.version)
    assert "mail" not in [each.name for each in desk.store.templates()]


def test_a_schedule_is_dropped_by_those_only_who_have_seen_it_as_it_is(desk):
    schedule = desk.schedule()
    with pytest.raises(ChangedMeanwhile):
        desk.store.drop_schedule(schedule.id, desk.decide, actor=ANNA, now=desk.now, version=schedule.version + 1)
    assert desk.read(schedule.id) == schedule
    desk.store.drop_schedule(schedule.id, desk.decide, actor=ANNA, now=desk.now, version=schedule.version)
    assert desk.store.schedules() == []


def crowd(verbs: list[Callable[[], object]]) -> list[bool]:
    """Do all at once; say which of them were not too late."""
    ready, won = Barrier(len(verbs)), [False] * len(verbs)

    def one(index: int, verb: Callable[[], object]) -> None:
        ready.wait()
        try:
            verb()
            won[index] = True
        except ChangedMeanwhile:
            pass

    threads = [Thread(target=one, args=each) for each in enumerate(verbs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_of_a_crowd_that_has_seen_the_same_version_one_changes_it(desk, maker):
    stores = [desk.store, maker.open()]
    made = change(desk.store, desk, 0, handler="shop.jobs:mail")
    schedule = desk.schedule()

    def edit(store, text):
        def seen(found):
            if found.version != schedule.version:
                raise ChangedMeanwhile("it", has=found.version, given=schedule.version)
            return msgspec.structs.replace(found, description=text)

        return store.change_schedule(schedule.id, seen, desk.decide, actor=ANNA, now=desk.now)

    numbers = range(8)
    assert sum(crowd([lambda n=n: change(stores[n % 2], desk, made.version, timeout=float(n + 1)) for n in numbers])) == 1
    assert sum(crowd([lambda n=n: edit(stores[n % 2], f"by {n}") for n in numbers])) == 1
