"""Live jobs that go are removed together, and nobody in the same transaction sees them in between; nor what was read ahead of a write."""

from __future__ import annotations

import pytest

from rota.errors import IllegalMove
from rota.stores.mongodb.db import Undone
from rota.stores.mongodb.errors import Refused
from rota.stores.verbs.store import Hold
from tests.stores.desk import Desk
from tests.stores.makers import MongoMaker

RUNNING, QUEUED = {"status": "RUNNING"}, {"status": "QUEUED"}


@pytest.fixture
def maker(tmp_path):
    made = MongoMaker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def desk(maker):
    desk = Desk(maker.open())
    desk.several(3)
    desk.claim(2)
    return desk


def working(desk, work):
    return desk.store._write(work)


def remove(db, where=RUNNING, count=2):
    db.remove("job_live", where, count, "they do not run")


READS = {
    "find": lambda db: len(db.find("job_live", {})),
    "find_those": lambda db: len(db.find("job_live", RUNNING | {"attempt": 1})) + 1,
    "find_several": lambda db: len(db.find("job_live", {"status": {"$in": ["RUNNING", "QUEUED"]}})),
    "size": lambda db: db.size("job_live", {}),
    "lookup": lambda db: len(
        db.aggregate("meta", [{"$match": {"_id": "clock"}}, {"$lookup": {"from": "job_live", "pipeline": [], "as": "jobs"}}])[0]["jobs"]
    ),
    "update": lambda db: db.update("job_live", {}, {"$set": {"priority": 7}}),
    "delete": lambda db: db.delete("job_live", {}),
}


@pytest.mark.parametrize("name", READS)
def test_what_is_to_be_removed_is_not_seen_any_more(desk, name):
    def work(db):
        remove(db)
        return READS[name](db)

    assert working(desk, work) == 1


def test_jobs_of_another_status_are_read_before_a_removal(maker, desk):
    def work(db):
        remove(db)
        before = db.trips
        found = db.find("job_live", QUEUED), db.find("job_facts", {})
        return [len(jobs) for jobs in found], db.trips - before

    assert working(desk, work) == ([1, 3], 2)
    assert len(maker.hand.find("job_live")) == 1


def test_removals_are_made_together(maker, desk):
    def work(db):
        before = db.trips
        remove(db)
        remove(db, QUEUED, 1)
        db.flush()
        return db.trips - before

    assert working(desk, work) == 1
    assert maker.hand.find("job_live") == []


def test_work_is_undone_if_less_is_there_than_it_removes(maker, desk):
    def work(db):
        db.update("meta", {"_id": "late_results"}, {"$inc": {"value": 1}})
        remove(db, count=3)

    with pytest.raises(IllegalMove, match="they do not run"):
        working(desk, work)
    assert len(maker.hand.find("job_live")) == 3
    assert [found["value"] for found in maker.hand.find("meta", _id="late_results")] == [0]


def test_a_part_makes_its_own_removals(desk):
    failures = []

    def part(db):
        with db.savepoint(("part", 1)):
            remove(db, count=3)

    def work(db):
        try:
            part(db)
        except Undone as undone:
            failures.append(undone.error)
            raise
        except Refused:
            return "undone alone"
        return "done"

    assert working(desk, work) == "undone alone"
    assert [str(failure) for failure in failures] == ["they do not run"]


def test_the_transaction_of_a_caller_has_no_removals_left(maker, desk):
    with desk.store.transaction() as tx, tx.lending(Hold.ALL) as db:
        remove(db)
    assert len(maker.hand.find("job_live")) == 1


def test_what_was_read_ahead_counts_until_something_is_written(desk):
    where = RUNNING | {"attempt": 1}

    def work(db):
        db.read_ahead(where, [{"_id": 0}])
        counts = [len(db.live(where)), len(db.live(RUNNING))]
        db.update("job_live", RUNNING, {"$set": {"priority": 7}})
        return [*counts, len(db.live(where))]

    assert working(desk, work) == [1, 2, 2]
