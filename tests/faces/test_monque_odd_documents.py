"""Documents that nobody should have written: each is run, failed with its reason or left alone, and no other waits behind it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from bson import Decimal128, ObjectId, encode
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from rota import Context, Rota
from rota.compat.monque import Monque, data_of
from rota.compat.monque_bridge import Bridge
from tests.support.waiting import eventually

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
ALWAYS = {"name": "odd", "data": {}, "status": "pending", "nextRunAt": NOW, "failCount": 0, "createdAt": NOW, "updatedAt": NOW}
FIRST, LAST = DatetimeMS(-8_640_000_000_000_000), DatetimeMS(8_640_000_000_000_000)
"""The first and the last moment of JavaScript's dates."""


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def bridge(live: Rota, server, jobs, seen):
    """A bridge that has handlers, and keeps what they are called with."""

    @live.job(name="odd")
    def odd(ctx: Context, **params: Any) -> None:
        seen.append((params, data_of(ctx, params)))

    live.job(name="good")(lambda: None)
    live.settings = msgspec.structs.replace(live.settings, monque_poll=0.02, monque_heartbeat=0.1, monque_retry_base=0.01)
    made = Bridge(live, server.url, indexes=False).start()
    yield made
    made.stop()


def outcome(jobs, fields: dict[str, Any]) -> dict[str, Any]:
    """Add an odd document and then a good one, wait until the good one has run and nothing is claimed, and return the odd one."""
    document = {"_id": ObjectId(), **ALWAYS, **fields}
    jobs.insert_one(document)
    good = Monque(jobs).now("good")
    eventually(lambda: jobs.count_documents({"_id": good["_id"], "status": "completed"}))
    eventually(lambda: jobs.count_documents({"status": "processing"}) == 0)
    return jobs.find_one({"_id": document["_id"]})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"failCount": float("nan")}, "failCount has"),
        ({"failCount": float("inf")}, "failCount has"),
        ({"failCount": 1e300}, "failCount is 1e300"),
        ({"failCount": 2**63 - 1}, "failCount is 9223372036854775807"),
        ({"failCount": -5}, "failCount is -5"),
        ({"nextRunAt": [NOW]}, "nextRunAt is"),
        ({"nextRunAt": FIRST}, "nextRunAt is"),
        ({"createdAt": LAST}, "createdAt is"),
        ({"data": {"at": LAST}}, "data has"),
        ({"data": {"n": float("nan")}}, "data has"),
        ({"priority": float("nan")}, "priority has"),
        ({"uniqueKey": 5}, "uniqueKey is 5"),
        ({"data": {"x": "y" * 3_000_000}}, "params take"),
    ],
)
def test_a_document_that_cant_become_a_job_fails_with_its_reason_and_holds_up_no_other(bridge, jobs, fields, reason, seen):
    after = outcome(jobs, fields)
    assert (after["status"], seen) == ("failed", [])
    assert after["failReason"].startswith(reason)
    # What is no count begins from 0 again.
    assert after["failCount"] == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ["odd"]},
        {"_id": {"a": 1}},
        {"_id": Decimal128("1.5")},
        {"status": "running"},
        {"nextRunAt": "2020-01-01T00:00:00Z"},
        {"repeatInterval": {}},
        {"repeatInterval": "* * * * *", "timezone": ["UTC"]},
        {"repeatInterval": "* * * * *", "timezone": "a" * 100_000},
    ],
    ids=str,
)
def test_a_document_that_the_bridge_cant_handle_is_left_as_it_is(bridge, jobs, fields, seen):
    assert outcome(jobs, {"_id": "odd"} | fields) == {"_id": "odd", **ALWAYS, **fields}
    assert seen == []


@pytest.mark.parametrize("identity", ["a\nb", "x" * 900, "über 💥", 7, True, NOW, b"abc", uuid.UUID(int=7)], ids=repr)
def test_an_id_may_have_any_type(bridge, jobs, identity, seen):
    assert outcome(jobs, {"_id": identity})["status"] == "completed"
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("data", "params"),
    [
        (None, {}),
        ([1, "two"], {"data": [1, "two"]}),
        ([NOW], {"data": ["2026-01-02T03:04:05.678Z"]}),
        (5, {"data": 5}),
        ("text", {"data": "text"}),
        ({"": 1, "x": "a\0b"}, {"": 1, "x": "a\0b"}),
        ({"key": uuid.UUID(int=7)}, {"key": "AAAAAAAAAAAAAAAAAAAABw=="}),
    ],
    ids=str,
)
def test_data_of_any_form_reaches_the_handler_and_data_of_returns_it_as_it_is(bridge, jobs, seen, data, params):
    assert outcome(jobs, {"data": data})["status"] == "completed"
    assert seen == [(params, data)]


def test_data_may_be_nested_a_hundred_levels_deep(bridge, jobs, seen):
    data: dict[str, Any] = {}
    for _ in range(100):
        data = {"a": data}
    assert outcome(jobs, {"data": data})["status"] == "completed"
    assert seen == [(data, data)]


def test_a_text_that_is_not_utf_8_holds_up_no_other(bridge, jobs, seen):
    whole = jobs.database[jobs.name].with_options(codec_options=jobs.codec_options.with_options(document_class=RawBSONDocument))
    raw = encode({"_id": "odd", **ALWAYS, "data": {"x": "abc"}}).replace(b"abc\0", b"\xff\xfe\xfd\0")
    whole.insert_one(RawBSONDocument(raw, codec_options=whole.codec_options))
    good = Monque(jobs).now("good")
    eventually(lambda: jobs.count_documents({"_id": good["_id"], "status": "completed"}))
    eventually(lambda: jobs.count_documents({"_id": "odd", "status": "completed"}))
    assert seen[0][0] == {"x": "\ufffd\ufffd\ufffd"}


def test_a_time_that_python_has_not_is_read_as_its_milliseconds(jobs):
    jobs.insert_one({"_id": "odd", **ALWAYS, "data": {"at": LAST}})
    assert jobs.codec_options.datetime_conversion is DatetimeConversion.DATETIME_AUTO
    assert Monque(jobs).get("odd")["data"]["at"] == LAST
