"""What the server refuses whichever program writes it: documents that contradict themselves."""

from __future__ import annotations

import pytest
from pymongo.errors import WriteError

from tests.stores.desk import Desk
from tests.stores.makers import MongoMaker


@pytest.fixture
def maker(tmp_path):
    made = MongoMaker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def desk(maker):
    made = Desk(maker.open())
    made.several(4)
    job, _ = made.claim(2)
    made.done(job)
    return made


BROKEN = [
    ("job_live", "RUNNING", {"$unset": {"run_id": ""}}),
    ("job_live", "RUNNING", {"$unset": {"worker_id": ""}}),
    ("job_live", "RUNNING", {"$set": {"status": "COMPLETED"}}),
    ("job_live", "QUEUED", {"$set": {"status": "RUNNING"}}),
    ("job_live", "QUEUED", {"$set": {"blockers": 1}}),
    ("job_live", "QUEUED", {"$set": {"started_at": 5}}),
    ("job_live", "QUEUED", {"$set": {"priority": 101}}),
    ("job_live", "QUEUED", {"$set": {"priority": -1}}),
    ("job_ends", "COMPLETED", {"$unset": {"finished_at": ""}}),
    ("job_ends", "COMPLETED", {"$unset": {"run_id": ""}}),
    ("job_ends", "COMPLETED", {"$set": {"status": "RUNNING"}}),
]


@pytest.mark.parametrize(("collection", "status", "change"), BROKEN)
def test_a_document_that_contradicts_itself_is_refused(maker, desk, collection, status, change):
    assert maker.hand.find(collection, status=status)
    with pytest.raises(WriteError, match="failed validation"):
        maker.hand.database[collection].update_one({"status": status}, change)


@pytest.mark.parametrize("change", [{"attempt": 0}, {"failures": -1}, {"timeout": -1.0}, {"origin": "nowhere"}, {"max_crashes": 0}])
def test_facts_out_of_their_bounds_are_refused(maker, desk, change):
    with pytest.raises(WriteError, match="failed validation"):
        maker.hand.database["job_facts"].update_one({}, {"$set": change})
