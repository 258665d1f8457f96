"""MongoDB has no triggers: each statement that moves a job has in its own filter where the job must stand."""

from __future__ import annotations

import pytest

from rota.stores.mongodb.errors import Refused
from tests.stores.desk import Desk
from tests.stores.makers import MongoMaker


@pytest.fixture
def maker(tmp_path):
    made = MongoMaker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def desk(maker):
    return Desk(maker.open())


def change(desk, name, **values):
    return desk.store._write(lambda db: db.change(name, **values))


OF_RUNNING = {
    "set_position": {"position": 7},
    "change_waiting": {"params": "{}", "run_at": None, "priority": 90, "position": 7},
    "offer_one": {},
    "park_broken": {"held": "broken:x"},
    "park_pending": {"reason": "x"},
    "set_blockers": {"blockers": 1},
}


@pytest.mark.parametrize("name", OF_RUNNING)
def test_a_running_job_is_not_changed_as_a_waiting_one(maker, desk, name):
    desk.add()
    number = desk.claim_one().number
    before = maker.hand.find("job_live"), maker.hand.find("job_facts")
    assert change(desk, name, number=number, **OF_RUNNING[name]) == 0
    assert (maker.hand.find("job_live"), maker.hand.find("job_facts")) == before


def test_a_job_is_queued_once(maker, desk):
    number = desk.put(desk.row())[0].number
    before = maker.hand.find("job_live")
    assert change(desk, "queue_jobs", now=1, positions={number: 7}) == 0
    assert maker.hand.find("job_live") == before


def test_a_job_that_runs_does_not_start_again(desk):
    desk.add()
    job = desk.claim_one()
    with pytest.raises(Exception, match="not QUEUED cannot make this move") as refused:
        desk.store._write(lambda db: db.start([job], {}, now=desk.now, worker_id=b"w" * 16))
    assert isinstance(refused.value.__cause__, Refused)


def test_only_a_running_job_is_asked_to_end_and_once(desk):
    desk.several(2)
    number = desk.claim_one().number
    asked = {"now": desk.now, "actor": "anna", "reason": None}
    assert [change(desk, "request_cancel", number=each, **asked) for each in (number, number, number + 1)] == [1, 0, 0]
