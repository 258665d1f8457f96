"""Scans of a MongoDB store have the rows that those of a SQLite store have, along whichever index they go."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from rota.errors import StoreError
from rota.model.gate import Scope
from rota.model.states import Status
from rota.ports.scan import Bound, Compares, Order
from rota.stores.mongodb.statements import relation_views, scan_jobs
from rota.stores.verbs.relations import RELATIONS
from tests.sql.many_runs import START_US, STEP_US, load_mongodb, load_sqlite
from tests.stores.makers import MongoMaker, SqliteMaker
from tests.support.proof import size

RUNS, LIVE = 3000, 60
CASES = size(100, prove=4000)
SHOWN = ("number", "job_id", "status", "organization_id", "owner", "schedule_name", "template_name", "queue", "scheduled_at", "message")
SHOWN += ("finished_at", "started_at", "timeout", "blockers", "result", "error", "run_id", "job_type")
ORDERS = (None, *(Order(column, descending) for column in ("number", "finished_at", "started_at") for descending in (False, True)))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same jobs in a SQLite and a MongoDB store, live ones among them, and some that ended before they started."""
    sqlite, mongodb = SqliteMaker(tmp_path_factory.mktemp("scan")), MongoMaker(tmp_path_factory.mktemp("scan"))
    stores = sqlite.open(), mongodb.open()
    load_sqlite(sqlite, RUNS)
    load_mongodb(mongodb, RUNS)
    for number in range(RUNS + 1, RUNS + LIVE + 1):
        add_live(sqlite, mongodb, number)
    back = "UPDATE {} SET finished_at = started_at - 5000000 WHERE {} % 400 = 7"
    sqlite.damage(back.format("jobs", "number"), back.format("job_runs", "job_number"))
    change = {"finished_at": {"$subtract": ["$started_at", 5_000_000]}, "clock_back": 1}
    mongodb.hand.database["job_ends"].update_many({"_id": {"$mod": [400, 7]}}, [{"$set": change}])
    yield stores
    sqlite.close()
    mongodb.close()


def add_live(sqlite, mongodb, number):
    """Add a job that waits for its time, is ready, or runs."""
    place, at = number % 500 + 1, START_US + number * STEP_US
    status = ("PENDING", "QUEUED", "RUNNING")[number % 3]
    job_id, schedule_id, template_id = (f"{letter * 8}{n:024x}" for letter, n in (("c", number), ("b", place), ("a", place)))
    whose = {"organization_id": ("default", "acme", "beta")[place % 3], "job_type": f"type_{place}"}
    run = {"started_at": at, "worker_id": "d" * 32, "run_id": f"eeeeeeee{number:024x}"} if status == "RUNNING" else {}
    fares = {"status": status, "priority": 50, "position": number, "run_at": at, "created_at": at}
    fares |= {} if status == "PENDING" else {"queued_at": at}
    facts = {"template_id": template_id, "origin": "schedule", "due_at": at, "owner": "user1", "max_retries": 3, "max_crashes": 3}
    facts |= {
        "timeout": 300.0,
        "executor": "thread",
        "backoff": "[60,2,86400,0]",
        "params": "{}",
        "failures": 0,
        "crashes": 0,
        "snoozes": 0,
    }
    ids = {"job_id": job_id, "root_id": job_id, "schedule_id": schedule_id}
    mongodb.hand.insert("job_facts", {"_id": number, "created_at": at, **ids, **facts, **whose})
    mongodb.hand.insert("job_live", {"_id": number, "attempt": 1, "blockers": 0, **ids, **fares, **run, **whose})
    columns = {"number": number, **ids, **facts, **fares, **whose, **{name: run[name] for name in ("started_at", "worker_id") if run}}
    shown = [f"unhex('{value}')" if name.endswith("_id") and name != "organization_id" else repr(value) for name, value in columns.items()]
    sqlite.damage(f"INSERT INTO jobs ({', '.join(columns)}) VALUES ({', '.join(shown)})")
    if run:
        sqlite.damage(f"INSERT INTO job_runs (job_number, run_id, started_at) VALUES ({number}, unhex('{run['run_id']}'), {at})")


def scanned(store, relation, columns, **given):
    with store.snapshot(timeout_s=60) as snapshot:
        rows = list(snapshot.scan(relation, columns, **given))
    # SQLite writes an id that is not there as an empty text.
    return [tuple(value or None if isinstance(value, str) else value for value in row) for row in rows]


def random_bounds(rng):
    """Return what a query may pass on."""
    number = rng.randrange(1, RUNS + LIVE + 20)
    moments = sorted(START_US + rng.randrange(RUNS) * STEP_US for _ in range(2))
    place = rng.randrange(1, 20)
    all_bounds = [
        Bound("job_id", Compares.EQUAL, f"cccccccc{number:024x}"),
        Bound("number", Compares.EQUAL, number),
        Bound("number", Compares.LEAST, number - 300),
        Bound("number", Compares.MOST, number + 300),
        Bound("schedule_id", Compares.EQUAL, f"bbbbbbbb{place:024x}"),
        Bound("schedule_name", Compares.EQUAL, f"job_{place}"),
        Bound("organization_id", Compares.EQUAL, rng.choice(["default", "acme", "nobody"])),
        Bound("owner", Compares.EQUAL, f"user{rng.randrange(8)}"),
        Bound("job_type", Compares.EQUAL, f"type_{place}"),
        Bound("status", Compares.AMONG, tuple(str(status) for status in rng.sample(list(Status), rng.randrange(4)))),
        Bound("finished_at", Compares.LEAST, moments[0]),
        Bound("finished_at", Compares.MOST, moments[1]),
        Bound("started_at", Compares.GIVEN),
    ]
    return tuple(rng.sample(all_bounds, rng.choice([0, 1, 1, 2, 2, 3])))


def random_scope(rng):
    granted = tuple(f"bbbbbbbb{place:024x}" for place in range(1, 4))
    scopes = [Scope(), Scope(), Scope("acme"), Scope("acme", "user3"), Scope("beta", "user2", granted)]
    return rng.choice(scopes)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(4))
def test_scans_of_jobs_have_the_rows_of_another_store(both, seed, monkeypatch):
    rng = Random(seed)
    # Small, so that scans of a few thousand take each way.
    monkeypatch.setattr(scan_jobs, "FEW", rng.choice([2, 100, 5000]))
    monkeypatch.setattr(relation_views, "CHUNK_MAX", 100)
    for _ in range(CASES // 4):
        given = {"bounds": random_bounds(rng), "order": rng.choice(ORDERS), "scope": random_scope(rng)}
        # A query asks for the number, or it could not tell rows apart.
        columns = ("number", *rng.sample(SHOWN[1:], rng.randrange(6)))
        order = given["order"]
        asked = (*columns, *(() if order is None else (order.column,)))
        expected, found = (scanned(store, "jobs", asked, **given) for store in both)
        assert Counter(found) == Counter(expected), given
        if order is not None:
            assert [row[-1] for row in found] == [row[-1] for row in expected], given


@pytest.mark.parametrize("relation", [name for name in RELATIONS if name not in {"jobs", "facts", "ends"}])
def test_scans_of_other_relations_have_the_rows_of_another_store(both, relation):
    columns = [column for column in RELATIONS[relation].columns if column not in {"created_at", "updated_at", "beat"}]
    for scope in (Scope(), Scope("acme"), Scope("acme", "x")):
        expected, found = (scanned(store, relation, columns, scope=scope) for store in both)
        assert Counter(found) == Counter(expected)


def test_nothing_compares_with_null(both):
    _, mongodb = both
    for compares in (Compares.EQUAL, Compares.LEAST, Compares.MOST):
        assert scanned(mongodb, "jobs", ("number",), bounds=(Bound("worker_id", compares, None),)) == []
        assert scanned(mongodb, "jobs", ("number",), bounds=(Bound("template_name", compares, None),)) == []


def test_a_walk_is_read_as_far_as_it_is_asked_for(both):
    _, mongodb = both
    with mongodb.snapshot(timeout_s=60) as snapshot:
        rows = snapshot.scan("jobs", ("number", "params"), order=Order("number", descending=True))
        assert [next(rows)[0] for _ in range(3)] == [RUNS + LIVE, RUNS + LIVE - 1, RUNS + LIVE - 2]
        assert snapshot._db.trips < 8


def test_a_step_that_takes_too_long_is_broken_off(both):
    _, mongodb = both

    def read_whole():
        with mongodb.snapshot(timeout_s=0.001) as snapshot:
            for _ in range(50):
                list(snapshot.scan("jobs", SHOWN))

    with pytest.raises(StoreError, match="too long"):
        read_whole()
