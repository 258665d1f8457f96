"""Entering the queue, limits and moves on MongoDB: what a call examines does not grow with what else is in the queue."""

from __future__ import annotations

import msgspec
import pytest

from rota.stores.mongodb.db import Db
from tests.stores.makers import MongoMaker

JOBS, ORGANIZATIONS, TYPES, PRIORITIES = 12_000, 20, 10, 3
FEW = 60
"""Keys and documents that a call with a limit of ten may examine."""
LATER = 10**9


class QueueMaker(MongoMaker):
    database = "rota_queue"


def job_id(number):
    return f"{number:032x}"


def live(number):
    """Return a job. A third of them is ready, a third parked, a third PENDING."""
    organization, job_type = f"o{number % ORGANIZATIONS}", f"t{number % TYPES}"
    status = "PENDING" if number // 60 % 3 == 2 else "QUEUED"
    word = (f"organization-limit:{organization}", f"template-limit:{job_type}", f"rate-limit:{job_type}")[number // 180 % 3]
    return {
        "_id": number,
        "job_id": job_id(number),
        "root_id": job_id(number),
        "attempt": 1,
        "organization_id": organization,
        "job_type": job_type,
        "created_at": number,
        "status": status,
        "blockers": 0,
        "priority": 50 + number % PRIORITIES,
        "position": 100 * number,
        "run_at": number,
        "lane": 1 + number % TYPES,
        **({"queued_at": number} if status == "QUEUED" else {}),
        **({"held": word} if number // 60 % 3 == 1 else {}),
        **({"unique_key": f"k{number}"} if number % 7 == 0 else {}),
        **({"expires_at": LATER + number} if number % 11 == 0 else {}),
    }


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    maker = QueueMaker(tmp_path_factory.mktemp("queue"))
    maker.open()
    database = maker.hand.database
    database["job_live"].insert_many([live(number) for number in range(1, JOBS + 1)], bypass_document_validation=True)
    facts = ("_id", "job_id", "root_id", "attempt", "organization_id", "job_type", "lane")
    database["job_facts"].insert_many(
        [{name: job[name] for name in facts} for job in map(live, range(1, JOBS + 1))], bypass_document_validation=True
    )
    yield Db(database, None)
    maker.close()


@pytest.fixture
def examined(filled):
    """Run a statement, and return its rows and how many keys and documents the server has examined for it."""
    database = filled._database

    def run(name, **values):
        database["system.profile"].drop()
        database.command("profile", 2)
        try:
            rows = filled.rows(name, **values)
        finally:
            database.command("profile", 0)
        steps = list(database["system.profile"].find({"ns": {"$not": {"$regex": "profile"}}}))
        return rows, sum(step.get("keysExamined", 0) + step.get("docsExamined", 0) for step in steps)

    return run


NEW = bytes.fromhex(job_id(LATER))
IN_LINE = {"priority": 51, "organization_id": "o1", "moved": 1}
PLACE = {"position": 100 * 3001, "created_at": 0, "job_id": ""}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("enqueue_gate", {"organization_id": "o1", "priority": 51, "first": NEW, "last": NEW}),
        ("position_base", {"organization_id": "o1", "priority": 51}),
        ("same_id", {"job_id": job_id(77)}),
        ("key_holder", {"organization_id": "o7", "job_type": "t7", "unique_key": "k7"}),
        ("standing", {"ids": bytes.fromhex(job_id(5)) + NEW, "keys": [("o0", "t0", None), ("o7", "t7", "k7")]}),
        ("due_priorities", {}),
        ("due_jobs", {"priority": 50, "now": LATER, "limit": 10}),
        ("expired_jobs", {"now": 2 * LATER, "limit": 10}),
        ("old_in_lane", {"lane": 1, "before": LATER, "look": 10, "limit": 10}),
        ("stray_types", {"limit": 10}),
        ("running_by_kind", {}),
        ("types_waiting", {"types": ["t1", "t2", "none"]}),
        ("any_over_limit", {}),
        ("lanes_of_gone", {"numbers": [1, 2, 3]}),
        ("lanes_of_word", {"held": "organization-limit:o1"}),
        ("locate", {"job_id": job_id(77)}),
        ("live_of_root", {"root_id": job_id(77)}),
        ("tail_of", {"job_id": job_id(77)}),
        ("place_of", {"number": 77}),
        ("first_in_line", IN_LINE),
        ("neighbours_behind", {**IN_LINE, **PLACE, "limit": 10}),
        ("neighbours_ahead", {**IN_LINE, **PLACE, "limit": 10}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_question_examines_as_much_as_it_returns(examined, name, values):
    _, work = examined(name, **values)
    assert work <= FEW


def test_the_lanes_of_parked_jobs_are_found_by_hops(examined):
    ((found,),), work = examined("lanes")
    lanes = {(job["held"], job["job_type"]) for job in map(live, range(1, JOBS + 1)) if "held" in job}
    assert {tuple(lane) for lane in msgspec.json.decode(found)} == lanes
    assert work <= 4 * len(lanes)


def test_each_priority_has_its_earliest_job(filled):
    due = [(job["priority"], job["run_at"]) for job in map(live, range(1, JOBS + 1)) if job["status"] == "PENDING"]
    earliest = {priority: min(at for own, at in due if own == priority) for priority in range(50, 50 + PRIORITIES)}
    assert filled.rows("due_priorities") == sorted(earliest.items(), reverse=True)


@pytest.mark.parametrize("limit", [1, 10])
def test_neighbours_who_share_a_position_stand_in_the_order_of_their_making(filled, limit):
    alike = {"status": "QUEUED", "priority": 99, "organization_id": "o", "blockers": 0, "attempt": 1, "lane": 1, "queued_at": 1}
    places = [(100, 5), (200, 9), (200, 7), (200, 8), (300, 1)]
    numbers = [10**8 + place for place in range(len(places))]
    filled.insert(
        "job_live",
        *(
            {**alike, "_id": number, "job_id": job_id(number), "root_id": job_id(number), "position": position, "created_at": made}
            for number, (position, made) in zip(numbers, places, strict=True)
        ),
    )
    try:
        line = {"priority": 99, "organization_id": "o", "moved": 0, "limit": limit}
        at = {"position": 200, "created_at": 8, "job_id": job_id(numbers[3])}
        behind, ahead = filled.rows("neighbours_behind", **line, **at), filled.rows("neighbours_ahead", **line, **at)
        assert behind == [(numbers[3], 200), (numbers[1], 200), (numbers[4], 300)][:limit]
        assert ahead == [(numbers[2], 200), (numbers[0], 100)][:limit]
        first = filled.rows("first_in_line", priority=99, organization_id="o", moved=numbers[0])
        assert first == [(numbers[2], 200, 7, job_id(numbers[2]))]
    finally:
        filled.delete("job_live", {"_id": {"$in": numbers}})
