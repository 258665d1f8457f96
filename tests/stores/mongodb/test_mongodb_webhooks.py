"""Deliveries, endpoints and tokens: what a call examines does not grow with what else is in the store."""

from __future__ import annotations

import pytest

from rota.stores.mongodb.db import Db
from tests.stores.makers import MongoMaker

OPEN_MESSAGES, OVER, OF_JOBS, TOKENS = 20_000, 5_000, 5_000, 2_000
LANES = ("a.example shop", "b.example shop", "c.example shop")
FEW = 60
"""Keys and documents that a call with a limit of ten may examine."""


class WebhooksMaker(MongoMaker):
    database = "rota_webhooks"


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    maker = WebhooksMaker(tmp_path_factory.mktemp("webhooks"))
    maker.open()
    database = maker.hand.database
    message = {"event": "job.failed", "target": "https://a.example", "payload": "{}", "attempts": 0, "organization_id": "shop"}
    database["outbox"].insert_many(
        {**message, "_id": n, "lane": LANES[n % 3], "next_attempt_at": n, "created_at": n, "over_at": 0, "endpoint_id": "e" * 32}
        for n in range(1, OPEN_MESSAGES + 1)
    )
    database["outbox"].insert_many(
        {**message, "_id": 100_000 + n, "lane": LANES[0], "next_attempt_at": n, "created_at": n, "over_at": n, "delivered_at": n}
        for n in range(1, OVER + 1)
    )
    endpoint = {"organization_id": "shop", "url": "https://a.example", "events": "[]", "job_types": "[]", "with_result": 0, "version": 1}
    database["endpoints"].insert_many(
        {**endpoint, "_id": f"{n:032x}", "root_id": f"{n:032x}", "state": "ENABLED", "created_at": n} for n in range(OF_JOBS)
    )
    database["endpoints"].insert_one({**endpoint, "_id": "e" * 32, "state": "ENABLED", "created_at": 1, "failing_since": 5})
    database["tokens"].insert_many({"_id": f"{n:032x}", "hash": f"{n:064x}".encode(), "created_at": n} for n in range(TOKENS))
    database["sessions"].insert_many(
        {"_id": f"s{n}".encode(), "token_id": f"{n:032x}", "created_at": n, "expires_at": 10 + n} for n in range(TOKENS)
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


def test_a_round_of_deliveries_hops_from_lane_to_lane(examined):
    lanes, work = examined("open_lanes", message_lane="", limit=200)
    assert [lane for lane, _ in lanes] == list(LANES)
    assert work <= 10
    behind, work = examined("open_lanes", message_lane=LANES[0], limit=1)
    assert behind == [(LANES[1], 1)]
    assert work <= 10


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("mail", {}),
        ("parcels", {"rowids": list(range(1, 11)), "now": 1}),
        ("deliveries", {"before_id": 2**62, "state": None, "limit": 10}),
        ("deliveries", {"before_id": 2**62, "state": "delivered", "limit": 10}),
        ("deliveries_of_organization", {"organization_id": "shop", "before_id": 2**62, "state": None, "limit": 10}),
        ("deliveries_of_endpoint", {"endpoint_id": "e" * 32, "organization_id": None, "before_id": 2**62, "state": "waiting", "limit": 10}),
        ("any_endpoints", {}),
        ("count_endpoints", {"organization_id": "shop"}),
        ("endpoints", {"organization_id": "shop"}),
        ("endpoints", {"organization_id": None}),
        ("failing_endpoints", {"before": 10, "limit": 10}),
        ("enabled_endpoints", {"limit": 10}),
        ("token_by", {"hash": f"{7:064x}".encode()}),
        ("token_of_session", {"hash": b"s7", "now": 1}),
        ("tokens_behind", {"hashes": [b"s7".hex(), f"{7:064x}".encode().hex()], "now": 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_question_examines_as_much_as_it_returns(examined, name, values):
    rows, work = examined(name, **values)
    assert rows
    assert work <= FEW


def test_what_is_due_is_taken_from_the_front_of_its_lane(examined):
    rows, work = examined("take_mail", message_lane=LANES[1], now=OPEN_MESSAGES, until=OPEN_MESSAGES + 1, limit=10)
    assert rows == [(1 + 3 * n,) for n in range(10)]
    assert work <= FEW


def test_old_messages_and_sessions_are_removed_from_the_front(filled):
    assert filled.change("forget_deliveries", before=OVER, limit=10) == 10
    assert filled.change("forget_sessions", before=500, limit=10) == 10
    assert not filled.has("outbox", {"_id": {"$in": list(range(100_001, 100_011))}})


def test_messages_of_a_clock_that_was_ahead_are_sent_as_soon_as_they_would_have_been(filled):
    base = 10**15
    message = {"lane": "z", "payload": "{}", "attempts": 0, "over_at": 0}
    times = {
        "written ahead": {"created_at": base + 9_000, "next_attempt_at": base + 9_050},
        "taken on ahead": {"created_at": base, "next_attempt_at": base + 9_000},
        "fine": {"created_at": base, "next_attempt_at": base + 150},
        "tried ahead": {"created_at": base, "last_attempt_at": base + 9_000, "next_attempt_at": base + 9_070},
    }
    filled.insert("outbox", *({**message, **at, "_id": 2**40 + n, "key": key} for n, (key, at) in enumerate(times.items())))
    assert filled.change("send_as_soon", now=base + 10, ahead=base + 100, span=1_000) == 3
    found = {each["key"]: each for each in filled.find("outbox", {"lane": "z"})}
    assert {key: each["next_attempt_at"] - base for key, each in found.items()} == {
        "written ahead": 60,
        "taken on ahead": 10,
        "fine": 150,
        "tried ahead": 80,
    }
    assert found["written ahead"]["created_at"] == base + 10
    assert found["tried ahead"]["last_attempt_at"] == base + 10
    assert "last_attempt_at" not in found["taken on ahead"]
