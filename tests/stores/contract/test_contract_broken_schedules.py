"""Schedules whose rows are damaged: the others fire and are listed, and the broken one is disabled so that it can be shown again."""

from __future__ import annotations

import logging

import pytest

from rota.model.gate import EVERYTHING
from rota.ports.store import Where
from tests.stores.contract.test_contract_broken import look
from tests.stores.desk import inside
from tests.stores.timekeeper import Timekeeper

DAMAGES = {
    "params that are a list": "param_overrides = '[1]'",
    "dependencies that are not names": "depends_on = '[1]'",
    "a declaration that is a number": "declared = '7'",
}


@pytest.fixture
def desk(store):
    return Timekeeper(store)


def names(desk):
    return [each.name for each in desk.store.schedules(scope=EVERYTHING)]


@pytest.mark.parametrize("change", DAMAGES.values(), ids=DAMAGES)
def test_a_schedule_that_can_not_be_read_keeps_no_other_from_being_listed_and_is_disabled_by_repair(maker, desk, change):
    desk.schedule("good")
    desk.schedule("bad")
    maker.damage(f"UPDATE schedules SET {change} WHERE name = 'bad'")
    assert names(desk) == ["good"]
    (problem,) = look(desk)
    assert "schedule bad of default can't be read" in problem.text
    (done,) = desk.store.fix(now=desk.now)
    assert "bad of default" in done.text
    assert look(desk) == []
    assert desk.store.fix(now=desk.now) == []
    assert names(desk) == ["bad", "good"]


def test_a_schedule_that_can_not_be_decoded_is_disabled_by_the_firing_and_the_others_fire(maker, desk, caplog):
    good = desk.schedule("good")
    desk.schedule("bad")
    maker.damage("UPDATE schedules SET param_overrides = '[1]' WHERE name = 'bad'")
    desk.advance(120)
    with caplog.at_level(logging.ERROR, logger="rota.store"):
        assert desk.fire().unfinished
        desk.fire()
    assert {inside(job.schedule_id) for _, job in desk.store.find(Where(), limit=10)} == {good.id}
    (logged,) = [record.getMessage() for record in caplog.records]
    assert logged.startswith("schedule bad of default can't be read and was disabled: ")
    assert look(desk) == []
    assert [(each.name, str(each.state)) for each in desk.store.schedules(scope=EVERYTHING)] == [("bad", "DISABLED"), ("good", "ENABLED")]
