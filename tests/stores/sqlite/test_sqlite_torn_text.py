"""SQLite text that is not UTF-8: lists still show the rows beside it, and nobody runs what was only guessed."""

from __future__ import annotations

import pytest

from rota.model.definitions import Organization
from rota.model.gate import EVERYTHING
from rota.ports.store import Where
from tests.stores.contract.test_contract_broken import drain, look
from tests.stores.desk import ANNA
from tests.stores.makers import SqliteMaker
from tests.stores.timekeeper import Timekeeper

TORN = "CAST(x'7B22ff227D' AS TEXT)"
"""{"?"} with a byte in it that no UTF-8 has."""


@pytest.fixture
def maker(tmp_path):
    made = SqliteMaker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def desk(maker):
    return Timekeeper(maker.open())


@pytest.mark.parametrize("column", ["params", "job_type", "unique_key", "owner", "reason", "meta", "backoff", "executor"])
def test_a_job_whose_text_is_torn_keeps_no_page_from_being_shown_and_no_neighbour_from_running(maker, desk, column):
    desk.store.register(desk.worker, host="here", kind="worker", job_types=["t"], now=desk.now)
    ids = desk.several(3)
    maker.damage(f"UPDATE jobs SET {column} = {TORN} WHERE number = 2")
    assert len(desk.store.find(Where(), limit=10)) == 3
    assert len(desk.store.queue(limit=10)) == 3
    assert desk.store.job(ids[1]) is not None
    assert desk.store.stats(now=desk.now).by_status
    drain(desk)
    assert [desk.status(ids[0]), desk.status(ids[2])] == ["COMPLETED", "COMPLETED"]
    assert len(desk.store.find(Where(), limit=10)) == 3


def test_a_job_whose_params_are_torn_is_not_run_with_others(maker, desk):
    (job,) = desk.several(1)
    maker.damage(f"UPDATE jobs SET params = {TORN} WHERE number = 1")
    drain(desk)
    drain(desk)
    assert desk.status(job) == "QUEUED"
    assert look(desk)
    desk.store.fix(now=desk.now)
    assert desk.status(job) == "CANCELLED"


@pytest.mark.parametrize("column", ["param_overrides", "description", "name"])
def test_a_schedule_whose_text_is_torn_keeps_no_other_from_being_listed_and_fired(maker, desk, column):
    desk.schedule("good")
    desk.schedule("bad")
    maker.damage(f"UPDATE schedules SET {column} = {TORN} WHERE name = 'bad'")
    assert "good" in [each.name for each in desk.store.schedules(scope=EVERYTHING)]
    desk.advance(120)
    desk.fire()
    desk.fire()
    assert desk.store.find(Where(), limit=10)
    assert "good" in [each.name for each in desk.store.schedules(scope=EVERYTHING)]


@pytest.mark.parametrize("column", ["defaults", "overrides", "job_type"])
def test_a_template_whose_text_is_torn_keeps_no_other_from_being_read(maker, desk, column):
    desk.template("good")
    maker.damage(f"UPDATE templates SET {column} = {TORN} WHERE name = 't'")
    good, torn = desk.store.templates()
    assert (good.name, good.broken) == ("good", None)
    assert (torn.broken is not None) == (column != "job_type")


def test_an_organization_and_an_entry_of_the_audit_whose_text_is_torn_are_shown(maker, desk):
    desk.store.put_organization(Organization(name="other", display_name="Other"), actor=ANNA, now=desk.now)
    maker.damage(f"UPDATE organizations SET display_name = {TORN} WHERE organization_id = 'other'")
    maker.damage(f"UPDATE audit SET after = {TORN}, actor = {TORN} WHERE audit_id = (SELECT max(audit_id) FROM audit)")
    shown = {each.name: each.display_name for each in desk.store.organizations()}
    assert shown["other"] == '{"\\xff"}'
    newest, *_ = desk.store.audit(limit=10)
    assert (newest.actor, newest.after) == ('{"\\xff"}', {"unreadable": '{"\\xff"}'})
