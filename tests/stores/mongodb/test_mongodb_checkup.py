"""What the check-up says of a replica set and of what is ours in it. Each trouble is made for real."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from rota.model.findings import State
from rota.model.settings import Settings
from rota.stores.mongodb import MongoStore, checkup
from rota.stores.mongodb.grants import privileges
from rota.stores.mongodb.schema import INDEXES
from tests.stores.desk import Desk
from tests.support.mongodb import GuardedSet, make_set, shared_set
from tests.support.waiting import eventually

NOW = 1_772_366_400_000_000
GUARDED = "guarded"


@pytest.fixture
def store():
    made = opened(shared_set())
    yield made
    made._connections.client.drop_database(made.address.database)
    made.close()


@pytest.fixture
def raw(store):
    return store._connections.client[store.address.database]


def opened(servers, **settings):
    made = MongoStore(servers.url(f"checkup_{uuid4().hex[:8]}"), Settings(**settings))
    made.migrate(now=0)
    return made


def machine():
    return round(datetime.now(UTC).timestamp() * 1_000_000)


def look(store, name="", *, clock=machine, full=True):
    return [found for found in store.checkup(now=NOW, machine=clock, full=full) if not name or found.name == name]


def one(found, state, *words):
    (finding,) = found
    assert finding.state is state, finding
    for word in words:
        assert word in f"{finding.text} → {finding.remedy}"


def test_a_sound_set_is_told_so(store):
    found = look(store, full=False)
    # The set of the tests keeps its journal out of the acknowledgement, to be fast.
    assert [finding.name for finding in found if finding.state is not State.OK] == ["durability"]
    assert len(found) == 18
    one(look(store, "replica set"), State.OK, "one member")
    one(look(store, "server"), State.OK, "MongoDB 6", "wiredTiger")


def test_another_storage_engine_is_a_problem(store, monkeypatch):
    ask = checkup.Server.admin

    def admin(server, command, *rest, **options):
        answer = ask(server, command, *rest, **options)
        return answer | {"storageEngine": {"name": "inMemory"}} if command == "serverStatus" else answer

    monkeypatch.setattr(checkup.Server, "admin", admin)
    one(look(store, "server"), State.PROBLEM, "storage engine inMemory", "use wiredTiger")


def test_acknowledgement_without_the_journal_is_named(store):
    one(look(store, "durability"), State.ADVICE, "writeConcernMajorityJournalDefault", "power", "rs.reconfig()")


def test_a_missing_and_a_changed_index_are_named_with_the_remedy(store, raw):
    raw["job_live"].drop_index("live_due")
    raw["job_live"].drop_index("live_tail")
    raw["job_live"].create_index([("priority", 1)], name="live_tail")
    raw.command("collMod", "job_ends", index={"name": "ends_failed", "hidden": True})
    missing = {finding.text.split()[1]: finding for finding in look(store, "indexes")}
    assert missing.keys() == {"live_due", "live_tail", "ends_failed"}
    assert "is missing" in missing["live_due"].text
    assert "createIndex" in missing["live_due"].remedy
    assert '"partialFilterExpression":{"status":"PENDING","blockers":0}' in missing["live_due"].remedy
    assert "dropIndex" in missing["live_tail"].remedy
    store.migrate(now=0)


def test_indexes_are_as_they_were_made(store):
    one(look(store, "indexes"), State.OK, f"all {len(INDEXES)}")


def test_a_missing_collection_is_named(store, raw):
    raw.drop_collection("run_notes")
    one(look(store, "schema"), State.PROBLEM, "run_notes", "backup")


def test_what_can_not_be_looked_at_is_a_finding_and_the_rest_goes_on(store, raw):
    raw.drop_collection("outbox")
    raw.create_collection("outbox", viewOn="meta", pipeline=[{"$project": {"torn": {"$divide": [1, 0]}}}])
    one(look(store, "outbox"), State.PROBLEM, "could not be looked at", "divide")
    one(look(store, "due jobs"), State.OK)


def test_a_broken_job_is_named(store, raw):
    desk = Desk(store)
    desk.put(desk.row("a"))
    raw["job_live"].update_one({}, {"$set": {"held": "broken:no params"}})
    one(look(store, "rows"), State.PROBLEM, "no params", "rota repair")


def test_a_clock_that_differs_is_named(store):
    one(look(store, "clock", clock=lambda: machine() + 90_000_000), State.ADVICE, "90", "ahead of", "NTP")
    one(look(store, "clock"), State.OK)


def test_a_transaction_that_is_open_for_long_is_named(store, raw, monkeypatch):
    monkeypatch.setattr(checkup, "HOLDING_S", 0.2)
    client = store._connections.client
    with client.start_session() as session:
        session.start_transaction()
        raw["meta"].find_one({}, session=session)
        time.sleep(0.3)
        (found,) = look(store, "transactions")
        session.abort_transaction()
    assert found.state is State.ADVICE
    assert "killSessions" in found.remedy


@pytest.mark.parametrize(("limit_s", "state"), [(5, State.ADVICE), (60, State.OK), (3600, State.ADVICE)])
def test_the_limit_of_transactions_is_looked_at(store, limit_s, state):
    admin = store._connections.client.admin
    admin.command("setParameter", 1, transactionLifetimeLimitSeconds=limit_s)
    one(look(store, "transaction limit"), state, str(limit_s))
    admin.command("setParameter", 1, transactionLifetimeLimitSeconds=60)


def test_little_room_is_named(store, monkeypatch):
    monkeypatch.setattr(checkup, "FREE_ADVICE_BYTES", 2**62)
    one(look(store, "disk space"), State.ADVICE, "free")
    monkeypatch.setattr(checkup, "FREE_PROBLEM_BYTES", 2**62)
    one(look(store, "disk space"), State.PROBLEM, "make room")


def test_members_that_are_down_or_behind_are_named(monkeypatch):
    servers = make_set(members=3, journal=True)
    store = opened(servers, lease_guard=5)
    try:
        eventually(lambda: look(store, "replica set")[0].state is State.OK)
        one(look(store, "durability"), State.OK)
        one(look(store, "failover"), State.ADVICE, "lease_guard")
        one(look(store, "oplog"), State.OK)
        monkeypatch.setattr(checkup, "LAG_S", -1.0)
        one(look(store, "replica set"), State.ADVICE, "behind the primary")
        servers.kill(next(member for member in range(3) if member != servers.primary()))
        eventually(lambda: look(store, "replica set")[0].state is State.PROBLEM)
        one(look(store, "replica set"), State.PROBLEM, "2 of 3 members are up", "if one more fails")
    finally:
        store.close()
        servers.throw_away()


@pytest.fixture(scope="module")
def guarded():
    """A set whose clients must say who they are, with a worker, a reader, the owner and a user who may do nothing."""
    made = GuardedSet(Path(tempfile.mkdtemp(prefix="rota-mongodb-")))
    try:
        made.start()
        with made.client() as root:
            for kind in ("owner", "worker", "reader"):
                root[GUARDED].command("createRole", f"the_{kind}", privileges=privileges(kind, GUARDED), roles=[])
                root[GUARDED].command("createUser", kind, pwd=kind, roles=[f"the_{kind}"])
            root[GUARDED].command("createUser", "nobody", pwd="nobody", roles=[])
        with closing(MongoStore(made.url(GUARDED, "owner"), Settings())) as owner:
            owner.migrate(now=0)
        yield made
    finally:
        made.throw_away()


@pytest.mark.parametrize(
    ("user", "state", "words"),
    [
        ("root", State.OK, "work, submit and read"),
        ("owner", State.OK, "work, submit and read"),
        ("worker", State.OK, "work, submit and read"),
        ("reader", State.ADVICE, "can read; a worker would lack"),
        ("nobody", State.PROBLEM, "neither submit nor read"),
    ],
)
def test_rights_are_those_of_the_user(guarded, user, state, words):
    with closing(MongoStore(guarded.url(GUARDED, user), Settings())) as store:
        one(look(store, "rights"), state, words)


def test_what_a_user_may_not_look_at_is_said_in_one_sentence(guarded):
    with closing(MongoStore(guarded.url(GUARDED, "nobody"), Settings())) as store:
        (found,) = look(store, "outbox")
    assert "to execute find on outbox. `rota grants` prints the role that a user needs" in found.text
    assert not [word for word in ("lsid", "$clusterTime", "full error") if word in found.text]


def test_a_worker_is_not_told_of_problems_that_it_may_not_look_at(guarded):
    with closing(MongoStore(guarded.url(GUARDED, "worker"), Settings())) as store:
        found = {finding.name: finding for finding in look(store)}
    assert [name for name, finding in found.items() if finding.state is State.PROBLEM] == []
    assert "clusterMonitor" in found["replica set"].text
    assert "the owner of the store" in found["indexes"].text
