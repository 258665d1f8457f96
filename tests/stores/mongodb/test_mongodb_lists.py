"""Lists, overviews and events on MongoDB: each walks the index that it should, and no more of it than it has to."""

from __future__ import annotations

import msgspec
import pytest

from rota.model.gate import Scope
from rota.ports.events import Span
from rota.ports.store import Where
from rota.stores.mongodb.db import SOURCES, Db
from rota.stores.verbs import lists
from tests.stores.makers import MongoMaker

JOBS, LANES, TYPES = 6_000, 16, 8
"""Half of the jobs have ended."""
LARGE = ("job_facts", "job_live", "job_ends", "run_notes", "audit", "occurrences", "schedule_reports")
GROUP, SCHEDULE, WORKER = "5" * 32, "7" * 32, "9" * 32
ENDS = ("FAILED", "TIMED_OUT", "DEAD_LETTER", "SKIPPED", "CANCELLED")
ODD_TAGS = ["a,", ",b", 'say "hi"', "back\\slash"]


class ListsMaker(MongoMaker):
    database = "rota_lists"


def job_id(number):
    return f"{number:032x}"


def lane(number):
    return number % LANES + 1


def job_type(number):
    return f"t{lane(number) % TYPES}"


def fact(number):
    of_group = {"group_id": GROUP, "sequence_number": number} if number % 500 == 0 else {}
    of_schedule = {"schedule_id": SCHEDULE} if number % 300 == 0 else {}
    tagged = {"tags": msgspec.json.encode(ODD_TAGS).decode()} if number == JOBS - 3 else {}
    return {
        "_id": number,
        "job_id": job_id(number),
        "root_id": job_id(number),
        "attempt": 1,
        "job_type": job_type(number),
        "organization_id": "shop" if number % 4 == 0 else "default",
        "owner": f"user{number % 5}",
        "params": f'{{"place":{number}}}',
        "origin": "api",
        "failures": 0,
        "crashes": 0,
        "snoozes": 0,
        "max_retries": 3,
        "max_crashes": 3,
        "backoff": "{}",
        "timeout": 0.0,
        "executor": "thread",
        "lane": lane(number),
        "created_at": number,
        **of_group,
        **of_schedule,
        **tagged,
    }


def end(number):
    status = ENDS[number // 10 % len(ENDS)] if number % 10 == 0 else "COMPLETED"
    failed = {"error_type": "permanent"} if status in {"FAILED", "DEAD_LETTER"} else {}
    return {
        "_id": number,
        "job_type": job_type(number),
        "status": status,
        "created_at": number,
        "finished_at": number + 5,
        "priority": 50,
        "position": number,
        "run_at": number,
        "queued_at": number,
        "started_at": number,
        "worker_id": WORKER,
        "run_id": job_id(number),
        **failed,
    }


def live(number):
    queued = {"status": "QUEUED", "queued_at": number}
    runs = {"status": "RUNNING", "queued_at": number, "started_at": number, "worker_id": WORKER, "run_id": job_id(number)}
    state = {
        6: queued | {"held": f"suspended:{number % 3}"},
        7: {"status": "PENDING"},
        8: {"status": "PENDING", "blockers": 1},
        9: runs if number % 100 == 9 else queued,
    }
    return {
        "_id": number,
        "job_id": job_id(number),
        "root_id": job_id(number),
        "attempt": 1,
        "job_type": job_type(number),
        "blockers": 0,
        "organization_id": "shop" if number % 4 == 0 else "default",
        "created_at": number,
        "priority": (25, 50)[number % 2],
        "position": number,
        "run_at": number,
        "lane": lane(number),
        **state.get(number % 10, queued),
    }


@pytest.fixture(scope="module")
def maker(tmp_path_factory):
    maker = ListsMaker(tmp_path_factory.mktemp("lists"))
    maker.open()
    database = maker.hand.database
    database["lanes"].insert_many(
        {"_id": each, "job_type": f"t{each % TYPES}", "queue": "slow" if each > TYPES else "default", "digest": ""}
        for each in range(1, LANES + 1)
    )
    database["job_facts"].insert_many(map(fact, range(1, JOBS + 1)))
    database["job_ends"].insert_many(map(end, range(1, JOBS // 2 + 1)))
    database["job_live"].insert_many(map(live, range(JOBS // 2 + 1, JOBS + 1)))
    database["run_notes"].insert_many({"_id": number, "error": f"lost {number}", "artifacts": "[]"} for number in range(10, JOBS // 2, 10))
    entry = {"at": 1, "actor": "anna", "action": "job.retry", "subject": "job", "outcome": "ok"}
    database["audit"].insert_many({**entry, "_id": number, "subject_id": job_id(number)} for number in range(1, 2000))
    report = {"event": "schedule.missed", "organization_id": "shop", "last_due_at": 1, "count": 1, "outcome": "MISSED", "phase": "opened"}
    database["schedule_reports"].insert_many(
        {**report, "_id": number, "schedule_id": SCHEDULE, "due_at": number, "created_at": number} for number in range(1, 2000)
    )
    yield maker
    maker.close()


@pytest.fixture
def store(maker):
    store = maker.open()
    yield store
    store.close()


@pytest.fixture
def profiled(maker):
    """Do something, and return what it gave, with the steps that the server took for it."""
    database = maker.hand.database

    def run(work):
        database["system.profile"].drop()
        database.command("profile", 2)
        try:
            given = work()
        finally:
            database.command("profile", 0)
        return given, list(database["system.profile"].find({"ns": {"$not": {"$regex": "profile"}}}))

    return run


def walks(steps):
    """Return the large collections that a step has walked over without an index."""
    return {step["ns"] for step in steps if "COLLSCAN" in step.get("planSummary", "") and step["ns"].split(".")[1] in LARGE}


def examined(steps):
    return sum(step.get("keysExamined", 0) + step.get("docsExamined", 0) for step in steps)


ASKED = {
    "chain": {"root_id": bytes.fromhex(job_id(7))},
    "group": {"group_id": bytes.fromhex(GROUP)},
    "schedule": {"schedule_id": bytes.fromhex(SCHEDULE)},
    "organization": {"organization_id": "shop"},
    "status": {"status": "DEAD_LETTER"},
    "ended_of_type": {"job_type": "t3"},
    "ready_of_type": {"job_type": "t3"},
    "held_of_type": {"job_type": "t3"},
    "ready_of_queue": {"queue": "slow"},
}
IN_ORDER = ("all", "ends", "status", "organization", "schedule")
EVERYTHING = lists._values(Where())


def values_of(source):
    return EVERYTHING | {"floor": 0, "before": lists.LAST, "limit": 5, "status": None} | ASKED.get(source, {})


def matches(source, number):
    """Say whether a job is in a source, told from what the fixture has written."""
    ended, now = number <= JOBS // 2, end(number) if number <= JOBS // 2 else live(number)
    ready, held, status = now["status"] == "QUEUED" and "held" not in now, "held" in now, now["status"]
    return {
        "all": True,
        "chain": number == 7,
        "group": number % 500 == 0,
        "schedule": number % 300 == 0,
        "organization": number % 4 == 0,
        "status": status == "DEAD_LETTER",
        "ends": ended,
        "ended": ended,
        "ended_of_type": ended and job_type(number) == "t3",
        "running": status == "RUNNING",
        "ready": ready,
        "ready_of_type": ready and job_type(number) == "t3",
        "ready_of_queue": ready and lane(number) > TYPES,
        "held": held,
        "held_of_type": held and job_type(number) == "t3",
        "due": status == "PENDING" and now["blockers"] == 0,
        "blocked": status == "PENDING" and now["blockers"] > 0,
    }[source]


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_has_its_jobs_and_walks_its_own_index_only(maker, profiled, source):
    db, values = Db(maker.hand.database, None), values_of(source)
    expected = [number for number in range(JOBS, 0, -1) if matches(source, number)]
    ((size,),), steps = profiled(lambda: db.along("size", source, **values | {"limit": JOBS}))
    assert size == len(expected)
    assert not walks(steps)
    rows, steps = profiled(lambda: db.along("find", source, **values))
    assert [row[1] for row in rows] == expected[:5]
    assert not walks(steps)
    if source in IN_ORDER:
        assert not any(step.get("hasSortStage") for step in steps)
        assert examined(steps) < 200
        assert db.along("newest", source, **values) == [(expected[0],)]


def test_a_type_that_is_parked_is_reached_from_word_to_word(maker, profiled):
    db = Db(maker.hand.database, None)
    _, steps = profiled(lambda: db.along("find", "held_of_type", **values_of("held_of_type") | {"job_type": "none"}))
    assert examined(steps) < 20


def test_moments_are_compared_in_the_index(maker, profiled):
    db = Db(maker.hand.database, None)
    for source in ("ready", "ended", "held"):
        values = values_of(source) | {"created_from": JOBS * 2, "created_until": JOBS * 3}
        rows, steps = profiled(lambda source=source, values=values: db.along("find", source, **values))
        assert rows == []
        assert sum(step.get("docsExamined", 0) for step in steps) == 0


@pytest.mark.parametrize("tag", [*ODD_TAGS, ",", "a", "hi", '"', ""])
def test_a_tag_is_one_of_the_list_and_never_a_part_of_it(store, tag):
    found = [number for number, _ in store.find(Where(tag=tag), limit=10)]
    assert found == ([JOBS - 3] if tag in ODD_TAGS else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [(f'"place":{JOBS - 1}}}', [JOBS - 1]), ("lost 100", [1000, 100]), ("no.such", []), ("a\0b", []), ("(", [])],
)
def test_a_text_is_looked_for_as_it_is(store, text, expected):
    assert [number for number, _ in store.find(Where(text=text), limit=10)] == expected


def test_what_is_far_apart_is_looked_up_and_what_is_close_is_walked_over(store):
    owned = Where(status=("DEAD_LETTER",), owner="user0", tails=True)
    found = [number for number, _ in store.find(owned, limit=JOBS)]
    assert found == [number for number in range(JOBS // 2, 0, -1) if end(number)["status"] == "DEAD_LETTER" and number % 5 == 0]
    nobody = store.find(Where(status=("COMPLETED",), owner="user7"), limit=5)
    assert nobody == []
    completed = [number for number, _ in store.find(Where(status=("COMPLETED",), owner="user1"), limit=JOBS)]
    assert completed == [number for number in range(JOBS // 2, 0, -1) if number % 5 == 1]


SHOP = Scope(organization="shop", owner="user1")
READS = {
    "waiting": lambda store: store.waiting(now=JOBS, look=100_000),
    "waiting of": lambda store: store.waiting(now=JOBS, look=100_000, scope=SHOP),
    "running": lambda store: store.running(look=500, limit=10),
    "dead": lambda store: store.dead_lately(since=0, look=100, limit=10),
    "unfired": lambda store: store.unfired(since=0, limit=10),
    "queue": lambda store: store.queue(limit=10),
    "ahead": lambda store: store.ahead(job_id(JOBS)),
    "counts": lambda store: store.counts(),
    "marks": lambda store: store.marks(),
    "made in": lambda store: store.made_in([Span(1, 10), Span(50, 60), Span(1000, 1500)], limit=20),
    "ended since": lambda store: store.ended_since(JOBS // 2 - 100, limit=5),
    "jobs now": lambda store: store.jobs_now([1, JOBS]),
    "progress": lambda store: store.progress_now(limit=100),
    "changes": lambda store: store.definition_changes(after=0, limit=10),
    "reports": lambda store: store.reports_after(5, limit=10),
    "reports since": lambda store: store.reports_since(1990, limit=10),
    "tails": lambda store: store.tails([job_id(1), job_id(JOBS)]),
    "chain": lambda store: store.chain(job_id(7)),
    "log": lambda store: store.log(job_id(7)),
    "run": lambda store: store.run(job_id(7)),
    "blockers": lambda store: store.blockers(job_id(7)),
    "audit": lambda store: store.audit(limit=10),
    "audit of a chain": lambda store: store.audit(limit=10, subject=f"job:{job_id(7)}"),
    "audit of an action": lambda store: store.audit(limit=10, actions=["job.retry"]),
    "audit of a job": lambda store: store.audit(limit=10, job=SCHEDULE),
}
COUNTING = {"waiting", "waiting of", "ahead", "counts", "changes"}
"""These count what there is, up to a bound that is higher than what this store has."""


@pytest.mark.parametrize("name", READS)
def test_a_read_walks_over_no_collection(store, profiled, name):
    _, steps = profiled(lambda: READS[name](store))
    assert not walks(steps)
    if name not in COUNTING:
        assert examined(steps) < 600


def test_the_last_ends_of_a_type_are_told_by_the_index_alone(store, profiled):
    found, steps = profiled(lambda: store.ended_since(JOBS // 2 - 100, limit=5))
    assert len(found) == 8
    assert all(len(numbers) == 5 and numbers == sorted(numbers, reverse=True) for numbers in found)
    assert examined(steps) < 100
