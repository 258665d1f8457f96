"""Schedules and their ledger on MongoDB: what a call examines does not grow with what else is in the store."""

from __future__ import annotations

import msgspec
import pytest

from rota.stores.mongodb.db import Db
from tests.stores.makers import MongoMaker

SCHEDULES, RUNS = 5_000, 20_000
BUSY = 10
"""Schedules that have all the runs, half of which are live."""
FEW = 150
"""Keys and documents that a call with a limit of ten may examine: it reads the ledger a hundred rows at a time, at least."""
TEMPLATE = f"{0xABC:032x}"


class SchedulesMaker(MongoMaker):
    database = "rota_schedules"


def schedule_id(number):
    return f"{number:032x}"


def job_id(number):
    return f"{0xF00000 + number:032x}"


def schedule(number):
    """One of a minute each; the last half is disabled, as if it were over."""
    used = {"state": "ENABLED", "next_trigger_at": 1_000 + number} if number < SCHEDULES // 2 else {"state": "DISABLED", "at": 5}
    return {
        "_id": schedule_id(number),
        "row_id": number,
        "organization_id": "default",
        "template_id": TEMPLATE,
        "name": f"s{number}",
        "kind": "CRON",
        "cron_expression": "* * * * *",
        "timezone": "UTC",
        "param_overrides": "{}",
        "catch_up": "last",
        "overlap": "skip",
        "jitter": 0,
        "on_completion": "PRESERVE",
        "cursor_at": 1,
        "version": 1,
        "created_by": "anna",
        "created_at": 1,
        "updated_at": 1,
        **used,
    }


def run_of(number):
    names = {"_id": number, "job_id": job_id(number), "root_id": job_id(number), "attempt": 1, "schedule_id": schedule_id(number % BUSY)}
    return names | {"organization_id": "default", "job_type": "t", "created_at": number}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    maker = SchedulesMaker(tmp_path_factory.mktemp("schedules"))
    maker.open()
    database = maker.hand.database
    database["templates"].insert_one({"_id": TEMPLATE, "name": "t", "kind": "python", "job_type": "t", "defaults": "{}", "version": 1})
    database["schedules"].insert_many(map(schedule, range(SCHEDULES)))
    database["job_facts"].insert_many([{**run_of(n), "due_at": n} for n in range(RUNS)], bypass_document_validation=True)
    waiting = {"status": "PENDING", "blockers": 0, "priority": 50, "position": 0}
    database["job_live"].insert_many([{**run_of(n), **waiting, "run_at": n} for n in range(RUNS // 2)], bypass_document_validation=True)
    database["job_ends"].insert_many(
        [{"_id": n, "job_type": "t", "status": "COMPLETED", "created_at": n, "finished_at": n} for n in range(RUNS // 2, RUNS)],
        bypass_document_validation=True,
    )
    fired = {"count": 1, "fate": "FIRED", "recorded_at": 5}
    database["occurrences"].insert_many(
        {**fired, "schedule_id": schedule_id(n % BUSY), "due_at": n, "last_due_at": n, "job_id": job_id(n)} for n in range(RUNS)
    )
    span = {"due_at": 5, "last_due_at": RUNS, "count": 3, "fate": "MISSED", "recorded_at": 5, "schedule_id": schedule_id(BUSY)}
    database["occurrences"].insert_one(span)
    yield Db(database, None)
    maker.close()


@pytest.fixture
def examined(filled):
    """Run a statement, and return its rows and how many keys and documents the server has examined for it."""
    database = filled._database

    def run(name, /, **values):
        database["system.profile"].drop()
        database.command("profile", 2)
        try:
            rows = filled.rows(name, **values)
        finally:
            database.command("profile", 0)
        steps = list(database["system.profile"].find({"ns": {"$not": {"$regex": "profile"}}}))
        return rows, sum(step.get("keysExamined", 0) + step.get("docsExamined", 0) for step in steps)

    return run


ALL = {"organization_id": None, "owner": None, "granted": (), "fates": (), "not_ran": 0}
BEGINNING = {"before_at": None, "before_schedule": None, "before_fate": None}
BEHIND = {"before_at": RUNS // 2, "before_schedule": schedule_id(5), "before_fate": "FIRED"}


@pytest.mark.parametrize(
    ("name", "values", "count"),
    [
        ("beat_of_schedules", {"span": 1}, 1),
        ("due_before_it", {"names": ["s1", "s2"], "organization_id": "default", "now": RUNS}, 2),
        ("schedule_named", {"organization_id": "default", "name": "s7"}, 1),
        ("all_depending", {"organization_id": "default"}, 0),
        ("ids_over", {"limit": 10}, 0),
        ("any_purging", {}, 1),
        ("newest_occurrence", {"schedule_id": schedule_id(3), "cursor_at": RUNS // 2}, 1),
        ("begins_inside", {"schedule_id": schedule_id(3), "due_at": 50, "last_due_at": 103}, 1),
        ("fired_in_window", {"schedule_id": schedule_id(3), "after": 5_000, "until": 10_000}, 1),
        ("ended_in_window", {"schedule_id": schedule_id(3), "look": 10, "after": 0, "until": RUNS}, 1),
        ("anybody_late", {"now": 5}, 1),
        ("waited_too_long", {"now": 5, "limit": 10}, 0),
        ("occurrences_reaching", {"schedule_id": None, "since": 100, "earliest": 0, "latest": 99, "limit": 10, **ALL, **BEGINNING}, 1),
    ],
)
def test_a_question_examines_as_much_as_it_returns(examined, name, values, count):
    rows, work = examined(name, **values)
    assert len(rows) == count
    assert work <= FEW


def test_what_is_due_is_taken_from_the_front_and_whether_it_has_live_chains_from_one_key_each(examined):
    rows, work = examined("schedules_due_now", depends=0, now=RUNS, limit=10)
    due = msgspec.json.decode(rows[0][0])
    assert [(row_id, has_live) for row_id, _, has_live, *_ in due] == [(number, 1) for number in range(10)]
    assert work <= FEW


def test_the_live_chains_of_a_schedule_are_walked_by_its_own_index(examined):
    rows, work = examined("live_roots", schedule_id=schedule_id(3))
    assert len(rows) == RUNS // 2 // BUSY
    assert work <= 2 * len(rows) + 1


@pytest.mark.parametrize("place", [BEGINNING, BEHIND], ids=["from the beginning", "behind a place"])
@pytest.mark.parametrize("own", [{}, {"schedule_id": schedule_id(3)}], ids=["of all", "of one"])
def test_a_page_of_the_ledger_examines_a_chunk_with_its_jobs(examined, own, place):
    name = "occurrences_of_schedule" if own else "occurrences_everywhere"
    rows, work = examined(name, earliest=0, latest=RUNS, limit=10, **own, **ALL, **place)
    assert len(rows) == 10
    # A row, its schedule, its job and that one's state, each by a key.
    assert work <= 10 * FEW
