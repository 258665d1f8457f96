"""Jobs as documents of Monque's collection: written as the library writes them, and changed by its rules."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from bson import Decimal128, ObjectId

from rota.compat.monque import Monque
from rota.compat.monque_collection import INDEXES, check_server, create_indexes, index_findings, open_collection
from rota.errors import InvalidName, InvalidOption, InvalidParams, InvalidSchedule, NotFound, PayloadTooLarge, Refused, StoreUnavailable
from rota.model.findings import State

ALWAYS = {"_id", "name", "data", "status", "nextRunAt", "failCount", "createdAt", "updatedAt"}


@pytest.fixture
def jobs(jobs):
    create_indexes(jobs)
    return jobs


@pytest.fixture
def monque(jobs):
    return Monque(jobs)


def nested(levels):
    data = {}
    for _ in range(levels):
        data = {"a": data}
    return data


def states(found):
    return [each.state for each in found]


def test_a_job_is_a_pending_document_with_the_fields_of_the_library_and_no_others(monque, jobs):
    made = monque.now("send-email", {"to": "ada"})
    (document,) = jobs.find()
    assert document == made
    assert document.keys() == ALWAYS
    assert isinstance(document["_id"], ObjectId)
    assert (document["name"], document["data"], document["status"], document["failCount"]) == ("send-email", {"to": "ada"}, "pending", 0)
    assert document["nextRunAt"] == document["createdAt"] == document["updatedAt"] <= datetime.now(UTC)
    assert document["createdAt"].microsecond % 1000 == 0


def test_optional_fields_are_there_only_if_they_are_given(monque):
    due = datetime(2030, 1, 1, tzinfo=UTC)
    made = monque.enqueue("a", run_at=due, unique_key="k", priority=7)
    assert made.keys() == ALWAYS | {"uniqueKey", "priority"}
    assert (made["nextRunAt"], made["uniqueKey"], made["priority"], made["data"]) == (due, "k", 7, {})
    later = monque.enqueue("a", run_at=timedelta(hours=1))
    assert timedelta(minutes=59) < later["nextRunAt"] - datetime.now(UTC) <= timedelta(hours=1)


def test_a_recurring_job_waits_for_its_first_due_time_in_its_zone(monque):
    utc = monque.schedule("0 0 * * *", "daily", {"of": "sales"})
    assert utc.keys() == ALWAYS | {"repeatInterval"}
    assert (utc["repeatInterval"], utc["status"], utc["nextRunAt"].hour) == ("0 0 * * *", "pending", 0)
    assert timedelta(0) < utc["nextRunAt"] - utc["createdAt"] <= timedelta(days=1)
    there = monque.schedule("30 4 * * *", "daily", timezone="Asia/Kolkata", unique_key="k")
    assert (there["timezone"], there["nextRunAt"].strftime("%H:%M")) == ("Asia/Kolkata", "23:00")


def test_types_of_mongodb_are_kept_in_data(monque, jobs):
    who, at = ObjectId(), datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    monque.now("a", {"who": who, "at": at, "amount": Decimal("12.30"), "bytes": b"hello", "many": ({"at": at},)})
    data = jobs.find_one()["data"]
    assert data == {"who": who, "at": at, "amount": Decimal128("12.30"), "bytes": b"hello", "many": [{"at": at}]}
    monque.now("list", [1, "two"])
    assert jobs.find_one({"name": "list"})["data"] == [1, "two"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda monque: monque.now(""), InvalidName),
        (lambda monque: monque.now("with space"), InvalidName),
        (lambda monque: monque.now("x" * 256), InvalidName),
        (lambda monque: monque.enqueue("a", unique_key=" "), InvalidOption),
        (lambda monque: monque.enqueue("a", run_at=datetime(2030, 1, 1)), InvalidOption),  # noqa: DTZ001 - that is what is refused
        (lambda monque: monque.now("a", {"at": datetime(2030, 1, 1)}), InvalidParams),  # noqa: DTZ001 - as above
        (lambda monque: monque.now("a", {"x": {1: 2}}), InvalidParams),
        (lambda monque: monque.now("a", {"x": object()}), InvalidParams),
        (lambda monque: monque.now("a", {"x": "y" * 17_000_000}), PayloadTooLarge),
        (lambda monque: monque.now("a", {"x": 2**64}), InvalidParams),
        (lambda monque: monque.now("a", {"x": "\ud800"}), InvalidParams),
        (lambda monque: monque.now("a", {"x": float("nan")}), InvalidParams),
        (lambda monque: monque.now("a", {"x": Decimal("1." + "1" * 40)}), InvalidParams),
        (lambda monque: monque.now("a", nested(1000)), InvalidParams),
        (lambda monque: monque.now("a", nested(190)), InvalidParams),
        (lambda monque: monque.enqueue("a", nested(190), unique_key="k"), InvalidParams),
        (lambda monque: monque.enqueue("a", {"x": {"$inc": 1}}, unique_key="k" * 1025), InvalidOption),
        (lambda monque: monque.enqueue("a", {"x": "y" * 17_000_000}, unique_key="k"), PayloadTooLarge),
        (lambda monque: monque.now(7), InvalidName),
        (lambda monque: monque.now("a\ud800"), InvalidName),
        (lambda monque: monque.enqueue("a", unique_key=7), InvalidOption),
        (lambda monque: monque.enqueue("a", unique_key="\ud800"), InvalidOption),
        (lambda monque: monque.enqueue("a", priority="high"), InvalidOption),
        (lambda monque: monque.enqueue("a", priority=1.5), InvalidOption),
        (lambda monque: monque.enqueue("a", priority=2**70), InvalidOption),
        (lambda monque: monque.enqueue("a", run_at="tomorrow"), InvalidOption),
        (lambda monque: monque.enqueue("a", run_at=timedelta.max), InvalidOption),
        (lambda monque: monque.enqueue("a", run_at=datetime(1969, 1, 1, tzinfo=UTC)), InvalidOption),
        (lambda monque: monque.schedule("61 * * * *", "a"), InvalidSchedule),
        (lambda monque: monque.schedule("0 0 30 2 *", "a"), InvalidSchedule),
        (lambda monque: monque.schedule(5, "a"), InvalidSchedule),
        (lambda monque: monque.schedule("* * * * *", "a", timezone=5), InvalidSchedule),
        (lambda monque: monque.schedule("* * * * *", "a", timezone="Mars/Crater"), InvalidSchedule),
    ],
)
def test_what_the_library_refuses_is_refused_before_anything_is_written(monque, jobs, call, error):
    with pytest.raises(error):
        call(monque)
    assert jobs.count_documents({}) == 0


def test_a_key_is_held_by_a_pending_or_processing_document_of_the_same_name(monque, jobs):
    first = monque.enqueue("sync", {"n": 1}, unique_key="k")
    assert monque.enqueue("sync", {"n": 2}, unique_key="k") == first
    assert monque.enqueue("other", unique_key="k")["_id"] != first["_id"]
    jobs.update_one({"_id": first["_id"]}, {"$set": {"status": "processing"}})
    assert monque.enqueue("sync", unique_key="k")["_id"] == first["_id"]
    for over in ("completed", "failed", "cancelled"):
        jobs.update_one({"name": "sync", "status": {"$in": ["pending", "processing"]}}, {"$set": {"status": over}})
        assert monque.enqueue("sync", unique_key="k")["status"] == "pending"
    assert jobs.count_documents({"name": "sync"}) == 4


def test_many_callers_at_once_make_one_document_and_none_of_them_sees_an_error(monque, jobs):
    made, gate = [], threading.Barrier(8)

    def call():
        gate.wait()
        made.extend(monque.enqueue("sync", {"n": n}, unique_key=f"k{n}")["_id"] for n in range(20))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(set(made)), jobs.count_documents({})) == (160, 20, 20)


def test_a_pending_job_is_cancelled_and_what_is_over_can_be_retried(monque, jobs):
    made = monque.now("a")
    assert monque.cancel(made)["status"] == "cancelled"
    assert monque.cancel(str(made["_id"]))["status"] == "cancelled"
    again = monque.retry(made["_id"])
    assert (again["status"], again["failCount"]) == ("pending", 0)
    jobs.update_one({"_id": made["_id"]}, {"$set": {"status": "failed", "failCount": 10, "failReason": "no line"}})
    again = monque.retry(made)
    assert (again["status"], again["failCount"], "failReason" in again) == ("pending", 0, False)
    jobs.update_one({"_id": made["_id"]}, {"$set": {"status": "processing"}})
    for refused in (monque.cancel, monque.retry):
        with pytest.raises(Refused, match="processing"):
            refused(made)
    assert monque.delete(made) is True
    assert monque.delete(made) is False
    with pytest.raises(NotFound):
        monque.cancel(made)


def test_a_retry_is_refused_while_another_document_has_its_key(monque, jobs):
    first = monque.enqueue("a", unique_key="k")
    monque.cancel(first)
    monque.enqueue("a", unique_key="k")
    with pytest.raises(Refused, match="uniqueKey"):
        monque.retry(first)


def test_a_job_is_part_of_the_callers_transaction(monque, jobs):
    client = jobs.database.client
    with client.start_session() as session:
        session.start_transaction()
        monque.enqueue("a", {"x": 1}, session=session)
        monque.enqueue("a", unique_key="k", session=session)
        assert jobs.count_documents({}) == 0
        session.abort_transaction()
        assert jobs.count_documents({}) == 0
        with session.start_transaction():
            monque.enqueue("a", unique_key="k", session=session)
        assert jobs.count_documents({}) == 1


# ---- indexes -------------------------------------------------------------------------------------------------------------


def test_the_ten_indexes_of_the_library_are_created_under_their_default_names(jobs):
    names = {each["name"] for each in jobs.list_indexes()} - {"_id_"}
    assert names == {index.name for index in INDEXES}
    assert len(names) == 10
    create_indexes(jobs)
    (finding,) = index_findings(jobs)
    assert finding.state is State.OK


def test_findings_name_each_index_that_is_missing_or_different(jobs):
    jobs.drop_index("name_1_status_1")
    assert states(index_findings(jobs)) == [State.ADVICE]
    jobs.drop_index("name_1_uniqueKey_1")
    assert sorted(states(index_findings(jobs))) == [State.ADVICE, State.PROBLEM]
    jobs.create_index([("name", 1), ("uniqueKey", 1)])
    assert "other options" in next(each.text for each in index_findings(jobs) if each.state is State.PROBLEM)
    jobs.drop_index("status_1_nextRunAt_1")
    jobs.create_index([("status", 1), ("nextRunAt", 1)], name="due")
    assert any("has the name due" in each.text for each in index_findings(jobs))
    with pytest.raises(InvalidOption, match="--no-indexes"):
        create_indexes(jobs)


def test_a_url_names_database_and_collection():
    named, usual = open_collection("mongodb://localhost/shop?collection=jobs&replicaSet=rs0"), open_collection("mongodb://localhost/shop")
    assert (named.database.name, named.name, usual.name) == ("shop", "jobs", "monque_jobs")
    assert named.write_concern.document == {"w": "majority"}
    for each in (named, usual):
        each.database.client.close()
    for bad in ("mongodb://localhost", "postgresql://localhost/shop"):
        with pytest.raises(InvalidOption, match="mongodb://host/database"):
            open_collection(bad)


def test_a_server_that_is_not_there_is_unavailable():
    jobs = open_collection("mongodb://127.0.0.1:1/shop", patience_s=0.2)
    with pytest.raises(StoreUnavailable):
        check_server(jobs)
    jobs.database.client.close()


def test_options_of_the_url_reach_the_driver_as_they_are():
    url = "mongodb://localhost/shop?readPreference=secondary&readPreferenceTags=dc:ny,rack:1&collection=my%20jobs&replicaSet=rs0"
    jobs = open_collection(url)
    assert jobs.name == "my jobs"
    assert jobs.database.client.read_preference.tag_sets == [{"dc": "ny", "rack": "1"}]
    # A secondary may still show a claim that has ended.
    assert jobs.read_preference.mode == 0
    jobs.database.client.close()
    for bad in ("?collection=", "?collection=a%24b"):
        with pytest.raises(InvalidOption, match="collection names"):
            open_collection(f"mongodb://localhost/shop{bad}")


def test_the_document_that_is_returned_is_the_one_that_is_kept(monque, jobs):
    made = monque.enqueue("a", {"deep": nested(90)}, run_at=datetime(2030, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC))
    assert jobs.find_one() == made
    assert made["nextRunAt"].microsecond == 123_000


@pytest.mark.parametrize("name", ["x" * 255, "über-job", "名前", "a.b/c:d", "$set"])
def test_a_name_may_have_any_characters_but_spaces(monque, jobs, name):
    assert monque.enqueue(name, {"$inc": {"a.b": 1}})["name"] == name
    assert monque.enqueue(name, {"$inc": {"a.b": 1}}, unique_key="$k")["data"] == {"$inc": {"a.b": 1}}
    assert jobs.count_documents({"name": name}) == 2


def test_a_document_without_a_status_can_be_neither_cancelled_nor_retried(monque, jobs):
    jobs.insert_one({"_id": "odd"})
    for refused in (monque.cancel, monque.retry):
        with pytest.raises(Refused, match="document odd is None"):
            refused("odd")
