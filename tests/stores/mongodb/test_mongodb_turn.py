"""What turns ask the server of a MongoDB store for: along which indexes, and how often. A busy machine does not change that."""

from __future__ import annotations

import pytest

from rota.stores.mongodb.db import Db
from rota.stores.mongodb.statements import looks
from rota.stores.mongodb.statements.turn import ARMS_MAX
from tests.stores.desk import Desk
from tests.stores.makers import MongoMaker

MANY = 2 * ARMS_MAX + 1
TRIPS_MAX = 8


@pytest.fixture
def maker(tmp_path):
    made = MongoMaker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(maker):
    return maker.open()


@pytest.fixture
def desk(store):
    return Desk(store)


@pytest.fixture
def trips(monkeypatch):
    """How often each piece of work asks the server, from now on."""
    found = []
    really = Db.__init__

    def made(db, *args, **options):
        really(db, *args, **options)
        found.append(db)

    monkeypatch.setattr(Db, "__init__", made)
    return lambda: [db.trips for db in found]


def offered(store, lanes, want, *, suspects=True):
    with store._reading() as db:
        return [job.job_id for job in db.candidates(tuple(lanes), want, slim=True, suspects=suspects)]


def test_a_plain_turn_asks_the_server_as_often_for_many_jobs_as_for_one(store, desk, trips):
    desk.several(102)
    asked = []
    for want in (1, 50):
        jobs = desk.claim(want)
        version = store.definitions()
        lanes = {desk.lane(): "t"}
        before = len(trips())
        desk.turn(want, done=[(job.number, desk.now) for job in jobs], definitions=version, lanes=lanes)
        asked.append(trips()[before])
    assert asked[0] == asked[1] <= TRIPS_MAX


def test_the_first_of_very_many_types_are_offered_in_their_order(store, desk):
    rows = [desk.row(f"t{number}", priority=(number * 7) % 5) for number in range(MANY)]
    rows += [desk.row(f"t{number}", priority=(number * 3) % 5) for number in range(0, MANY, 50)]
    desk.put(*rows)
    lanes = [lane.id for lane in store.lanes()]
    in_order = [row.job_id for row in sorted(rows, key=lambda row: -row.policy.priority)]
    assert len(lanes) > ARMS_MAX
    for want in (1, 10, ARMS_MAX + 10, len(rows)):
        assert offered(store, lanes, want) == in_order[:want]
        assert offered(store, lanes, want, suspects=False) == in_order[:want]
    assert set(offered(store, lanes[:-5], len(rows))) < set(in_order)


def test_a_claim_of_very_many_types_hops_from_lane_to_lane(maker, store, desk):
    desk.put(*(desk.row(f"t{number % 3}") for number in range(300)))
    stages = [{"$sort": {"lane": 1, "priority": -1, "position": 1, "created_at": 1, "job_id": 1}}, {"$group": {"_id": "$lane"}}]
    assert "DISTINCT_SCAN" in str(explained(maker, "job_live", stages, hint="live_ready"))


def explained(maker, collection, stages, **options):
    command = {"aggregate": collection, "pipeline": stages, "cursor": {}, **options}
    with maker.servers.client() as client:
        return client[maker.database].command("explain", command, verbosity="queryPlanner")


QUESTIONS = {name: question for name, question in (looks._TURN | looks._PEEK).items() if name not in {"ended", "definitions"}}


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_a_turn_asks_first_is_looked_up_along_an_index(maker, store, name):
    collection, stages = QUESTIONS[name]
    plan = str(explained(maker, collection, list(stages)))
    assert "IXSCAN" in plan
    assert "COLLSCAN" not in plan
    assert "'stage': 'SORT'" not in plan


def test_all_that_is_asked_for_comes_with_one_answer(desk, maker):
    """As it comes, the server sends 101 documents and waits to be asked for the others."""
    desk.several(150)
    with maker.servers.client() as client:
        database = client[maker.database]
        database["system.profile"].drop()
        database.command("profile", 2)
        try:
            jobs = desk.claim(150)
            desk.done(*jobs)
        finally:
            database.command("profile", 0)
        more = list(database["system.profile"].find({"op": "getmore", "ns": {"$regex": "job_"}}))
    assert len(jobs) == 150
    assert more == []
