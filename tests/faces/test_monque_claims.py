"""Claims on documents of Monque's collection: what is written is what the library writes, and only the owner ends a claim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandListener

from rota.compat.monque import Monque
from rota.compat.monque_claims import Claims, Rules
from rota.compat.monque_collection import as_jobs

RULES = Rules(max_retries=3, base_s=1.0, max_s=10.0, heartbeat_s=30.0, lock_timeout_s=60.0, timezone="UTC")
ROOMS = {"a": 100, "b": 100}


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)

    def __call__(self) -> datetime:
        return self.at

    def pass_by(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def monque(jobs):
    made = Monque(jobs)
    made.create_indexes()
    return made


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def claims(jobs, time):
    return claims_of(jobs, time, "ours")


def claims_of(jobs, time, owner, rules=RULES):
    return Claims(jobs, rules, owner=owner, now=time, rng=Random(7))


def one(claims):
    (document,) = claims.claim(ROOMS, 1, ())
    return document


def test_a_claim_writes_what_the_library_writes(claims, monque, jobs, time):
    made = monque.now("a", {"x": 1})
    document = one(claims)
    assert document["_id"] == made["_id"]
    claimed = {field: document[field] for field in ("status", "claimedBy", "lockedAt", "lastHeartbeat", "heartbeatInterval", "updatedAt")}
    assert claimed == {
        "status": "processing",
        "claimedBy": "ours",
        "lockedAt": time.at,
        "lastHeartbeat": time.at,
        "heartbeatInterval": 30_000,
        "updatedAt": time.at,
    }
    assert {field: document[field] for field in ("name", "data", "failCount", "createdAt", "nextRunAt")} == {
        field: made[field] for field in ("name", "data", "failCount", "createdAt", "nextRunAt")
    }


def test_only_what_is_due_pending_unclaimed_and_of_a_name_with_room_is_claimed(claims, monque, jobs):
    monque.enqueue("a", run_at=timedelta(hours=1))
    monque.cancel(monque.now("a"))
    for over in ("completed", "failed", "unknown"):
        jobs.update_one({"_id": monque.now("a")["_id"]}, {"$set": {"status": over}})
    monque.now("stranger")
    jobs.update_one({"_id": monque.now("a")["_id"]}, {"$set": {"claimedBy": "somebody"}})
    for _ in range(3):
        monque.now("a")
        monque.now("b")
    got = claims.claim({"a": 2, "b": 0}, 5, ())
    assert [each["name"] for each in got] == ["a", "a"]
    assert claims.claim({"a": 2, "b": 0}, 0, [each["_id"] for each in got]) == []


def test_the_priority_decides_and_then_the_due_time(claims, monque, time):
    names = ["late", "early", "urgent", "low"]
    for name, seconds, priority in zip(names, (-1, -5, 0, -9), (None, None, 10, -1), strict=True):
        monque.enqueue("a", {"n": name}, run_at=timedelta(seconds=seconds), priority=priority)
    assert [each["data"]["n"] for each in claims.claim(ROOMS, 2, ())] == ["urgent", "early"]
    assert {each["data"]["n"] for each in claims.claim(ROOMS, 9, ())} == set(names)


def test_two_that_claim_at_once_share_the_documents_and_none_is_claimed_twice(jobs, monque, time):
    for _ in range(30):
        monque.now("a")
    ours, theirs = claims_of(jobs, time, "ours"), claims_of(jobs, time, "theirs")
    first, second = ours.claim(ROOMS, 20, ()), theirs.claim(ROOMS, 20, ())
    assert (len(first), len(second)) == (20, 10)
    assert not {each["_id"] for each in first} & {each["_id"] for each in second}


def test_a_claim_whose_answer_was_lost_is_taken_up_by_the_next(claims, monque):
    monque.now("a")
    lost = one(claims)
    (found,) = claims.claim({"a": 0}, 0, ())
    assert found["_id"] == lost["_id"]
    assert claims.claim({"a": 0}, 0, [lost["_id"]]) == []


def test_what_is_claimed_is_read_from_the_primary_as_a_majority_has_it(server, monque, time):
    asked = []

    class Listener(CommandListener):
        def started(self, event):
            asked.append(event.command)

        def succeeded(self, event): ...

        def failed(self, event): ...

    monque.now("a")
    address = server.url.partition("&collection=")[0]
    with MongoClient(f"{address}&readPreference=secondaryPreferred", event_listeners=[Listener()]) as client:
        documents = as_jobs(client[server.jobs.database.name][server.name])
        assert len(claims_of(documents, time, "ours").claim(ROOMS, 1, ())) == 1
    update, find = (
        each for each in asked if each.get("update") or (each.get("find") and "claimedBy" in each["filter"] and each["filter"]["claimedBy"])
    )
    assert update["writeConcern"] == {"w": "majority"}
    assert find["readConcern"]["level"] == "majority"
    assert "$readPreference" not in find


def test_a_success_completes_it_and_leaves_no_claim(claims, monque, jobs):
    made = monque.now("a")
    jobs.update_one({"_id": made["_id"]}, {"$set": {"failCount": 2, "failReason": "before"}})
    document = one(claims)
    assert claims.end([(document, claims.succeeded(document))]) == set()
    after = jobs.find_one()
    assert (after["status"], after["failCount"], after["nextRunAt"]) == ("completed", 2, made["nextRunAt"])
    assert not after.keys() & {"lockedAt", "claimedBy", "lastHeartbeat", "claimId", "failReason"}


def test_failures_are_counted_and_delayed_until_the_last(claims, monque, jobs, time):
    monque.now("a")
    for count in (1, 2):
        document = one(claims)
        claims.end([(document, claims.failed(document, f"failure {count}"))])
        after = jobs.find_one()
        assert (after["status"], after["failCount"], after["failReason"]) == ("pending", count, f"failure {count}")
        delay_s = (after["nextRunAt"] - time.at).total_seconds()
        assert 0.75 * 2**count <= delay_s <= 1.25 * 2**count
        assert claims.claim(ROOMS, 1, ()) == []
        time.pass_by(3600)
    document = one(claims)
    claims.end([(document, claims.failed(document, "the last"))])
    after = jobs.find_one()
    assert (after["status"], after["failCount"], after["failReason"]) == ("failed", 3, "the last")
    assert "claimedBy" not in after


def test_delays_grow_by_two_up_to_their_bound_and_vary_by_a_quarter():
    rng = Random(1)
    for count in range(1, 100):
        wanted = min(2.0**count, 10.0)
        assert 0.75 * wanted <= RULES.delay_s(count, rng) <= min(1.25 * wanted, 10.0)


def test_a_permanent_failure_is_the_last_one(claims, monque, jobs):
    monque.now("a")
    document = one(claims)
    claims.end([(document, claims.failed(document, "never", permanent=True))])
    assert (jobs.find_one()["status"], jobs.find_one()["failCount"]) == ("failed", 1)


def test_what_recurs_is_the_same_document_again_due_after_now(claims, monque, jobs, time):
    made = monque.schedule("0 4 * * *", "a", timezone="Asia/Kolkata")
    time.at = made["nextRunAt"] + timedelta(days=3, seconds=5)
    document = one(claims)
    failed = claims.failed(document, "first it fails")
    claims.end([(document, failed)])
    time.pass_by(60)
    document = one(claims)
    assert (document["failCount"], document["repeatInterval"]) == (1, "0 4 * * *")
    claims.end([(document, claims.succeeded(document))])
    after = jobs.find_one()
    assert (after["_id"], after["status"], after["failCount"]) == (made["_id"], "pending", 0)
    assert "failReason" not in after
    # No catch-up: the next due time after now, in its own zone.
    assert after["nextRunAt"] == made["nextRunAt"] + timedelta(days=4)
    assert after["nextRunAt"].strftime("%H:%M") == "22:30"


def test_a_zone_that_no_document_names_is_that_of_the_settings(jobs, monque, time):
    made = monque.schedule("0 4 * * *", "a")
    time.at = made["nextRunAt"] + timedelta(seconds=5)
    claims = claims_of(jobs, time, "ours", Rules(**{**_fields(RULES), "timezone": "Asia/Kolkata"}))
    document = one(claims)
    claims.end([(document, claims.succeeded(document))])
    assert jobs.find_one()["nextRunAt"].strftime("%H:%M") == "22:30"


def _fields(rules):
    return {name: getattr(rules, name) for name in rules.__struct_fields__}


@pytest.mark.parametrize("fields", [{"repeatInterval": "* * * * * *"}, {"repeatInterval": "0 0 * * *", "timezone": "Mars/Crater"}])
def test_a_rule_that_cant_be_read_here_is_left_to_the_library(claims, monque, jobs, fields):
    made = monque.now("a")
    jobs.update_one({"_id": made["_id"]}, {"$set": fields})
    monque.now("a")
    assert len(claims.claim(ROOMS, 5, ())) == 1
    assert list(claims.unreadable) == [made["_id"]]
    assert jobs.find_one({"_id": made["_id"]})["status"] == "pending"


def test_only_the_owner_ends_a_claim(jobs, monque, time):
    ours, theirs = claims_of(jobs, time, "ours"), claims_of(jobs, time, "theirs")
    made = monque.now("a")
    document = one(ours)
    jobs.update_one({"_id": made["_id"]}, {"$set": {"status": "pending"}, "$unset": {"claimedBy": "", "lockedAt": ""}})
    one(theirs)
    assert ours.end([(document, ours.succeeded(document))]) == {made["_id"]}
    assert jobs.find_one()["claimedBy"] == "theirs"


def test_an_earlier_claim_of_the_same_owner_ends_nothing(claims, monque, jobs):
    made = monque.now("a")
    first = one(claims)
    jobs.update_one({"_id": made["_id"]}, {"$set": {"status": "pending"}, "$unset": {"claimedBy": "", "lockedAt": ""}})
    second = one(claims)
    assert claims.end([(first, claims.failed(first, "late"))]) == {made["_id"]}
    assert claims.end([(second, claims.succeeded(second))]) == set()
    assert jobs.find_one()["status"] == "completed"


def test_an_end_whose_answer_was_lost_can_be_repeated(claims, monque, jobs):
    monque.now("a")
    document = one(claims)
    end = claims.failed(document, "once")
    assert claims.end([(document, end)]) == claims.end([(document, end)]) == set()
    assert jobs.find_one()["failCount"] == 1


def test_a_heartbeat_renews_the_lock_too_and_says_what_was_lost(claims, monque, jobs, time):
    kept, lost = monque.now("a"), monque.now("a")
    claims.claim(ROOMS, 2, ())
    monque.delete(lost)
    time.pass_by(30)
    assert claims.beat([kept["_id"], lost["_id"]]) == {lost["_id"]}
    after = jobs.find_one()
    assert after["lockedAt"] == after["lastHeartbeat"] == after["updatedAt"] == time.at


def test_a_claim_that_nobody_renewed_is_given_back_after_the_lock_timeout(jobs, monque, time):
    ours, theirs = claims_of(jobs, time, "ours"), claims_of(jobs, time, "theirs")
    made = monque.now("a")
    one(theirs)
    time.pass_by(60)
    assert ours.sweep() == 0
    time.pass_by(0.001)
    assert ours.sweep() == 1
    after = jobs.find_one()
    assert (after["status"], after["failCount"]) == ("pending", 0)
    assert not after.keys() & {"lockedAt", "claimedBy", "lastHeartbeat"}
    assert one(ours)["_id"] == made["_id"]


def test_what_has_ended_is_never_recovered_and_a_lock_in_the_future_only_after_it(claims, monque, jobs, time):
    long_ago = time.at - timedelta(days=1)
    for status in ("completed", "failed", "cancelled", "pending"):
        jobs.update_one({"_id": monque.now("a")["_id"]}, {"$set": {"status": status, "lockedAt": long_ago}})
    ahead = monque.now("a")
    jobs.update_one({"_id": ahead["_id"]}, {"$set": {"status": "processing", "claimedBy": "n", "lockedAt": time.at + timedelta(hours=1)}})
    time.pass_by(3600)
    assert claims.sweep() == 0
    time.pass_by(61)
    assert claims.sweep() == 1
    assert [each["_id"] for each in jobs.find({"status": "pending", "lockedAt": None})] == [ahead["_id"]]


def test_a_lease_that_lives_is_left_to_its_owner(claims, monque, jobs, time):
    made = monque.now("a")
    live = {
        "status": "processing",
        "claimedBy": "n",
        "lockedAt": time.at - timedelta(days=1),
        "leaseExpiresAt": time.at + timedelta(seconds=5),
    }
    jobs.update_one({"_id": made["_id"]}, {"$set": live})
    assert claims.sweep() == 0
    time.pass_by(6)
    assert claims.sweep() == 1


def test_a_checkpoint_is_kept_for_the_next_attempt_and_removed_by_success(claims, monque, jobs, time):
    monque.now("a")
    document = one(claims)
    assert claims.keep(document["_id"], '{"at":3}') is True
    claims.end([(document, claims.failed(document, "no"))])
    time.pass_by(3600)
    document = one(claims)
    assert document["rotaCheckpoint"] == '{"at":3}'
    claims.end([(document, claims.succeeded(document))])
    assert "rotaCheckpoint" not in jobs.find_one()
    assert claims.keep(document["_id"], "1") is False


def test_what_is_given_back_counts_nothing(claims, monque, jobs, time):
    made = monque.now("a")
    document = one(claims)
    claims.end([(document, claims.given_back())])
    after = jobs.find_one()
    assert (after["status"], after["failCount"], after["nextRunAt"]) == ("pending", 0, made["nextRunAt"])
    document = one(claims)
    claims.end([(document, claims.given_back(90))])
    assert jobs.find_one()["nextRunAt"] == time.at + timedelta(seconds=90)
