"""The face of Monque: documents are read strictly, shown as they were, and taken over once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import Actor, Backoff, Context, PermanentError, Rota, Settings, Status
from rota.compat import monque_import
from rota.compat.faces import monque_document, monque_schedule
from rota.errors import (
    InvalidImport,
    InvalidSchedule,
    OrganizationUnavailable,
    PermissionDenied,
    QueueFull,
    StoreUnavailable,
    UnknownTemplate,
)
from rota.faces.extended_json import object_id, plain
from rota.faces.monque import job_id_of, read_document
from rota.model.definitions import Organization, OrganizationState
from rota.model.gate import SYSTEM, Right, Role
from rota.operation import Ask
from tests.faces.documents import FAILED, NAMES, PENDING, PROCESSING, RECURRING, SAMPLES, changed
from tests.support.clock import ManualClock
from tests.support.runs import run_of


def completed(number=0):
    return changed(PENDING, _id=f"done-{number}", status="completed")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2025, 12, 16, 12, 0, tzinfo=UTC))


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def heir(rota: Rota, ran: list[str]) -> Rota:
    """A Rota that has handlers for everything in the samples."""
    for name in NAMES:
        rota.job(name=name, max_retries=9, backoff=Backoff(base=60, jitter=0))(lambda ctx, _name=name, **data: ran.append(_name))
    return rota


def only(rota: Rota, name: str):
    """The one chain of this name."""
    (root,) = {job.root_id for job in rota.jobs.list(job_type=name)}
    return rota.jobs.attempts(root)


# ---- reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", SAMPLES, ids=NAMES)
def test_the_samples_are_read(document):
    found = read_document(document)
    assert (found.name, found.status, found.fail_count) == (document["name"], document["status"], document["failCount"])
    assert (found.unique_key, found.repeat_interval) == (document.get("uniqueKey"), document.get("repeatInterval"))
    assert found.params == document["data"]
    assert found.unknown == ()


@pytest.mark.parametrize(
    "form",
    [
        {"$date": "2025-12-16T10:30:00.000Z"},
        {"$date": "2025-12-16T11:30:00+01:00"},
        {"$date": {"$numberLong": "1765881000000"}},
        {"$date": 1765881000000},
        "2025-12-16T10:30:00Z",
        "2025-12-16T10:30:00.000+00:00",
    ],
)
def test_a_time_may_be_written_in_each_of_its_forms(form):
    assert read_document(changed(PENDING, nextRunAt=form)).next_run_at == 1_765_881_000_000_000


@pytest.mark.parametrize("form", [3, 3.0, {"$numberInt": "3"}, {"$numberLong": "3"}, {"$numberDouble": "3.0"}])
def test_a_count_may_be_written_in_each_of_its_forms(form):
    assert read_document(changed(PENDING, failCount=form)).fail_count == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"_id": ...}, "_id is missing"),
        ({"name": ...}, "name is missing: give a text"),
        ({"name": "  "}, 'name is "  ": give a text that is not empty'),
        ({"name": 3}, "name is 3"),
        ({"data": ...}, "data is missing"),
        ({"data": {"x": {"$date": "yesterday"}}}, "data has"),
        ({"status": "running"}, 'status is "running": give one of pending, processing, completed, failed, cancelled'),
        ({"timezone": "Europe/Berln"}, "timezone 'Europe/Berln' is not an IANA name"),
        ({"timezone": 3}, "timezone is 3"),
        ({"priority": 1.5}, "priority is 1.5: use a whole number"),
        ({"priority": "high"}, 'priority is "high": use a whole number'),
        ({"priority": True}, "priority is true: use a whole number"),
        ({"status": ...}, "status is missing"),
        ({"nextRunAt": ...}, "nextRunAt is missing"),
        ({"nextRunAt": "2025-12-16T10:30:00"}, "nextRunAt is .* which is no time: .* with its zone"),
        ({"nextRunAt": {"$date": "soon"}}, "nextRunAt is .* which is no time"),
        ({"nextRunAt": True}, "nextRunAt is true, which is no time"),
        ({"nextRunAt": {"$date": {"$numberLong": "-1"}}}, "between the years 1970 and 9999"),
        ({"createdAt": None}, "createdAt is missing"),
        ({"failCount": -1}, "failCount is -1: give a whole number, 0 or more"),
        ({"failCount": 1.5}, "failCount is 1.5"),
        ({"failCount": True}, "failCount is true"),
        ({"failCount": ...}, "failCount is missing"),
        ({"failCount": float("nan")}, "failCount is"),
        ({"failCount": float("inf")}, "failCount is"),
        ({"failCount": 2**70}, "failCount is 1180591620717411303424"),
        ({"failCount": {"$numberDouble": "Infinity"}}, "failCount has"),
        ({"failReason": 3}, "failReason is 3"),
        ({"repeatInterval": "every day"}, "repeatInterval is .* five fields"),
        ({"uniqueKey": ""}, 'uniqueKey is "": give a text that is not empty'),
    ],
)
def test_what_is_wrong_with_a_document_is_named(fields, words):
    with pytest.raises(InvalidImport, match=words):
        read_document(changed(PENDING, **fields))


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_what_is_no_document_is_refused(value):
    with pytest.raises(InvalidImport, match="is not a document"):
        read_document(value)


def test_extended_json_inside_data_becomes_plain():
    data = {
        "id": {"$oid": "6760a1234567890abcdef123"},
        "at": {"$date": {"$numberLong": "1765881000123"}},
        "n": [{"$numberLong": "9007199254740993"}, {"$numberDouble": "1.5"}, {"$numberDecimal": "0.10"}],
        "blob": {"$binary": {"base64": "aGk=", "subType": "00"}},
        "none": {"$undefined": True},
        "kept": {"$custom": 1, "other": 2},
    }
    assert read_document(changed(PENDING, data=data)).params == {
        "id": "6760a1234567890abcdef123",
        "at": "2025-12-16T10:30:00.123Z",
        "n": [9007199254740993, 1.5, "0.10"],
        "blob": "aGk=",
        "none": None,
        "kept": {"$custom": 1, "other": 2},
    }


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_plain_json_stays_as_it_is(value):
    def has_typed(each):
        if isinstance(each, dict):
            return any(name.startswith("$") for name in each) or any(map(has_typed, each.values()))
        return isinstance(each, list) and any(map(has_typed, each))

    if not has_typed(value):
        assert plain(value) == value


@given(st.text(min_size=1), st.integers(0, 253_402_300_799_000), st.sampled_from(["default", "acme"]))
def test_the_id_of_a_document_is_a_uuid_7_of_its_time_and_always_the_same(text, milliseconds, organization):
    document = read_document(changed(PENDING, _id=text, createdAt={"$date": {"$numberLong": str(milliseconds)}}))
    found = job_id_of(document, organization)
    assert (len(found), found[12], found[16]) == (32, "7", found[16])
    assert found[16] in "89ab"
    assert int(found[:12], 16) == milliseconds
    assert found == job_id_of(document, organization)
    assert found != job_id_of(document, "another")


def test_both_forms_of_an_object_id_mean_the_same_document():
    bare = read_document(changed(PENDING, _id="6760a1234567890abcdef123"))
    assert job_id_of(bare, "default") == job_id_of(read_document(PENDING), "default")


# ---- taking over ---------------------------------------------------------------------------------------------------------


def test_a_waiting_one_waits_for_its_time_and_then_runs(heir: Rota, clock: ManualClock, ran):
    report = heir.store.import_monque([changed(RECURRING, repeatInterval=...)])
    (job,) = only(heir, "daily-report")
    assert (report.waiting, report.schedules) == (1, {})
    assert (job.status, job.params, job.created_at.hour, job.number) == ("PENDING", {"reportType": "sales"}, 8, "JOB-2025-00001")
    heir.turn()
    assert ran == []
    clock.advance(hours=12)
    heir.turn()
    assert ran == ["daily-report"]


def test_one_that_recurs_becomes_a_schedule_and_no_job_before_its_time(heir: Rota, clock: ManualClock, ran):
    report = heir.store.import_monque([RECURRING])
    assert (report.documents, report.waiting, report.schedules) == (1, 0, {"daily-report": "0 0 * * *"})
    (schedule,) = heir.schedules.list()
    assert (schedule.name, schedule.template, schedule.cron, schedule.timezone) == ("daily-report", "daily-report", "0 0 * * *", "UTC")
    assert (schedule.params, schedule.next_at) == ({"reportType": "sales"}, datetime(2025, 12, 17, tzinfo=UTC))
    heir.turn()
    assert (ran, heir.jobs.list()) == ([], [])
    for _ in range(2):
        clock.advance(days=1)
        heir.turn()
    assert ran == ["daily-report"] * 2
    assert [job.due_at.day for job in heir.jobs.list(schedule="daily-report")] == [18, 17]


def test_one_that_recurs_is_first_due_when_it_was_there(heir: Rota, clock: ManualClock, ran):
    later = changed(RECURRING, repeatInterval="0 * * * *", nextRunAt={"$date": "2025-12-20T06:00:00.000Z"})
    between = changed(later, _id="between", nextRunAt={"$date": "2025-12-20T06:30:00.000Z"})
    heir.store.import_monque([later, between])
    assert [each.next_at.hour for each in heir.schedules.list()] == [6, 7]
    clock.advance(days=3)
    heir.turn()
    assert ran == []


def test_one_that_recurs_and_is_overdue_runs_once_at_once(heir: Rota, clock: ManualClock, ran):
    heir.store.import_monque([changed(RECURRING, repeatInterval="*/5 * * * *", nextRunAt={"$date": "2025-11-01T00:00:00.000Z"})])
    heir.turn()
    assert ran == ["daily-report"]
    assert [each.fate for each in heir.schedules.occurrences()] == ["FIRED", "COALESCED"]
    clock.advance(minutes=5)
    heir.turn()
    assert ran == ["daily-report"] * 2


@pytest.mark.parametrize(
    "document",
    [
        changed(RECURRING, failCount=2, failReason="no line", nextRunAt={"$date": "2025-12-16T12:30:00.000Z"}),
        changed(RECURRING, status="processing", lockedAt=RECURRING["createdAt"]),
    ],
    ids=["waits for its retry", "was being processed"],
)
def test_what_was_under_way_of_one_that_recurs_goes_on_and_its_schedule_knows_it(heir: Rota, clock: ManualClock, ran, document):
    report = heir.store.import_monque([document])
    assert (report.waiting + report.recovered, report.schedules) == (1, {"daily-report": "0 0 * * *"})
    assert [job.status for job in only(heir, "daily-report")] == ["FAILED", "PENDING"]
    assert len(heir.jobs.list(schedule="daily-report")) == 2
    assert heir.schedules.get("daily-report").next_at == datetime(2025, 12, 17, tzinfo=UTC)
    clock.advance(hours=11)
    heir.turn()
    clock.advance(days=1)
    heir.turn()
    assert ran == ["daily-report"] * 2
    assert heir.store.import_monque([document]).already == 1


def test_one_that_failed_for_good_recurs_no_more(heir: Rota):
    report = heir.store.import_monque([changed(RECURRING, status="failed", failCount=10, failReason="no line")])
    assert (report.dead, report.schedules, heir.schedules.list()) == (1, {}, [])
    assert monque_document(Ask(heir._session, None, Right.READ), heir.jobs.list()[0].id)["repeatInterval"] == "0 0 * * *"


def test_schedules_are_called_after_keys_or_names_and_told_apart(heir: Rota):
    heir.schedules.create("daily-report", "send-email", every="1h", enabled=False)
    documents = [changed(RECURRING, _id=number, uniqueKey=key) for number, key in enumerate(["eu", ..., ..., "eu", "x" * 300, "a\nb"])]
    names = ["eu", "daily-report-2", "daily-report-3", "eu-2", "daily-report-4", "daily-report-5"]
    assert list(heir.store.import_monque(documents, dry_run=True).schedules) == names
    assert len(heir.schedules.list()) == 1
    assert list(heir.store.import_monque(documents).schedules) == names
    again = heir.store.import_monque(documents)
    assert (again.already, again.schedules, len(heir.schedules.list())) == (6, {}, 7)


def test_a_schedule_that_was_deleted_here_does_not_come_back(heir: Rota):
    heir.store.import_monque([RECURRING])
    heir.schedules.delete("daily-report")
    assert heir.store.import_monque([RECURRING]).already == 1
    assert heir.schedules.list() == []


def test_a_name_that_is_taken_meanwhile_is_passed_by(heir: Rota, monkeypatch):
    add = monque_import.added

    def late(session, new, who):
        monkeypatch.undo()
        heir.schedules.create(new.name, "send-email", every="1h")
        return add(session, new, who)

    monkeypatch.setattr(monque_import, "added", late)
    assert heir.store.import_monque([RECURRING]).schedules == {"daily-report-2": "0 0 * * *"}


def test_an_interval_that_can_not_be_read_is_named_with_its_line(heir: Rota):
    bad = changed(RECURRING, _id=2, repeatInterval="0 25 * * *")
    with pytest.raises(InvalidImport, match=r"^line 2: repeatInterval is .*hour 25 is out of range 0-23") as refused:
        heir.store.import_monque([json.dumps(RECURRING), json.dumps(bad)])
    assert refused.value.line == 2
    assert heir.schedules.list() == []
    assert heir.store.import_monque([json.dumps(RECURRING), json.dumps(bad)], skip_bad=True).bad_count == 1
    assert len(heir.schedules.list()) == 1


def test_one_that_is_overdue_runs_at_once(heir: Rota, ran):
    heir.store.import_monque([PENDING])
    heir.turn()
    assert ran == ["send-email"]


def test_one_that_had_failed_goes_on_with_its_budget_and_still_says_why(rota: Rota, clock: ManualClock):
    @rota.job(name="send-email", max_retries=4, backoff=Backoff(base=60, jitter=0))
    def fails(**data):
        raise ConnectionError("still no line")

    rota.store.import_monque([changed(PENDING, failCount=3, failReason="no line")])
    first, second = only(rota, "send-email")
    assert (first.status, second.status, second.failures) == ("FAILED", "PENDING", 3)
    assert run_of(rota, first.id).error == "no line"
    for _ in range(3):
        clock.advance(hours=1)
        rota.turn()
    assert [job.status for job in only(rota, "send-email")] == ["FAILED", "FAILED", "DEAD_LETTER"]


def test_one_that_was_being_processed_counts_a_crash_and_waits_now_with_its_key(heir: Rota, ran):
    report = heir.store.import_monque([PROCESSING])
    first, second = only(heir, "sync-user")
    assert report.recovered == 1
    assert (first.status, first.error_type, second.crashes, second.failures) == ("FAILED", "crash", 1, 0)
    assert run_of(heir, first.id).error == "Scheduler crash recovery"
    assert first.started_at == datetime(2025, 12, 16, 10, 30, 1, tzinfo=UTC)
    again = heir.enqueue("sync-user", {"userId": "other"}, unique_key="sync-user-123")
    assert (again.existing, again.id) == (True, second.id)
    heir.turn()
    assert ran == ["sync-user"]


def test_one_that_may_not_be_entered_twice_is_dead_after_being_processed(rota: Rota):
    rota.job(name="sync-user", max_retries=0)(lambda **data: None)
    rota.store.import_monque([PROCESSING])
    (job,) = only(rota, "sync-user")
    assert (job.status, job.error_type) == ("DEAD_LETTER", "crash")


def test_a_failed_one_is_a_dead_letter_that_can_be_retried_by_hand(heir: Rota, ran):
    report = heir.store.import_monque([FAILED])
    (job,) = only(heir, "process-payment")
    assert report.dead == 1
    assert (job.status, job.failures, job.finished_at) == ("DEAD_LETTER", 9, datetime(2025, 12, 16, 11, 0, tzinfo=UTC))
    assert run_of(heir, job.id).error == "Payment gateway timeout after 10 attempts"
    heir.turn()
    assert ran == []
    heir.jobs.retry(job.id)
    heir.turn()
    assert ran == ["process-payment"]


def test_completed_ones_are_left_out_and_counted_or_kept_as_history(heir: Rota):
    assert heir.store.import_monque([completed(), completed(1)]).left_out == 2
    assert heir.jobs.list() == []
    report = heir.store.import_monque([completed(), completed(1)], with_completed=True)
    assert (report.completed, report.left_out) == (2, 0)
    assert {job.status for job in heir.jobs.list()} == {Status.COMPLETED}


def test_a_cancelled_document_refuses_no_file_and_is_cancelled_without_a_run(heir: Rota, ran):
    cancelled = changed(PENDING, _id="c", status="cancelled", uniqueKey="k", updatedAt={"$date": "2025-12-16T11:00:00.000Z"})
    heir.enqueue("send-email", unique_key="k", run_at=timedelta(days=1))
    report = heir.store.import_monque([cancelled, FAILED])
    assert (report.documents, report.cancelled, report.dead, report.bad_count) == (2, 1, 1, 0)
    (job,) = heir.jobs.list(job_type="send-email", status="CANCELLED")
    assert (job.started_at, job.finished_at, run_of(heir, job.id)) == (None, datetime(2025, 12, 16, 11, 0, tzinfo=UTC), None)
    assert heir.explain(job.id).summary.endswith("cancelled before it was imported")
    shown = monque_document(Ask(heir._session, None, Right.READ), job.id)
    assert (shown["status"], shown["uniqueKey"], shown["_id"]) == ("cancelled", "k", "c")
    assert heir.store.import_monque([cancelled, FAILED]).already == 2
    heir.turn()
    assert ran == []
    heir.jobs.retry(job.id)
    heir.turn()
    assert ran == ["send-email"]


def test_a_cancelled_document_calls_no_webhook(heir: Rota):
    heir.webhooks.create("https://example.org/hook", events=["run.cancelled"])
    heir.store.import_monque([changed(PENDING, status="cancelled")])
    assert heir.webhooks.deliveries() == []
    heir.jobs.cancel(heir.enqueue("send-email", run_at=timedelta(days=1)).id)
    assert [each.event for each in heir.webhooks.deliveries()] == ["run.cancelled"]


def test_a_document_with_a_zone_is_due_by_it(heir: Rota, clock: ManualClock):
    berlin = changed(RECURRING, repeatInterval="0 9 * * *", timezone="Europe/Berlin", nextRunAt={"$date": "2025-12-17T08:00:00.000Z"})
    report = heir.store.import_monque([berlin])
    assert (report.schedules, report.zone_assumed, report.unknown_fields) == ({"daily-report": "0 9 * * *"}, [], [])
    schedule = heir.schedules.get("daily-report")
    assert (schedule.timezone, schedule.next_at) == ("Europe/Berlin", datetime(2025, 12, 17, 8, 0, tzinfo=UTC))
    clock.advance(days=1)
    heir.turn()
    (job,) = heir.jobs.list()
    shown = monque_document(Ask(heir._session, None, Right.READ), job.id)
    assert (job.due_at.hour, shown["repeatInterval"], shown["timezone"]) == (8, "0 9 * * *", "Europe/Berlin")


def test_documents_without_a_zone_take_the_one_that_is_passed_and_are_listed(heir: Rota):
    zoned = changed(RECURRING, _id=2, uniqueKey="zoned", timezone="Asia/Tokyo")
    report = heir.store.import_monque([RECURRING, zoned], timezone="America/New_York")
    assert report.zone_assumed == ["daily-report"]
    assert {each.name: each.timezone for each in heir.schedules.list()} == {"daily-report": "America/New_York", "zoned": "Asia/Tokyo"}


def test_a_zone_that_is_not_one_is_refused_before_anything_is_written(heir: Rota):
    with pytest.raises(InvalidSchedule, match="timezone 'Berlin' is not an IANA name"):
        heir.store.import_monque([RECURRING], timezone="Berlin")
    assert heir.schedules.list() == []


@pytest.mark.parametrize(("there", "here"), [(80, 80), (0, 0), (-5, 0), (1000, 100), ({"$numberInt": "7"}, 7)])
def test_a_priority_is_kept(heir: Rota, there, here):
    heir.store.import_monque([changed(PENDING, priority=there), changed(RECURRING, priority=there)])
    (job,) = heir.jobs.list()
    assert (job.priority, heir.schedules.get("daily-report").priority) == (here, here)
    assert monque_document(Ask(heir._session, None, Right.READ), job.id)["priority"] == (7 if isinstance(there, dict) else there)


def test_templates_that_are_made_have_the_retries_that_are_passed(rota: Rota):
    rota.store.import_monque([RECURRING], make_templates=True, max_retries=9)
    assert rota.templates.get("daily-report").max_retries == 9


def test_templates_that_are_made_have_the_delays_of_the_library(rota: Rota):
    rota.store.import_monque([RECURRING], make_templates=True)
    assert rota.templates.get("daily-report").backoff == Backoff(base=2, factor=2, cap=86_400, jitter=0.25)


def test_importing_twice_adds_nothing_whatever_has_happened_meanwhile(heir: Rota):
    everything = [*SAMPLES, completed()]
    heir.store.import_monque(everything, with_completed=True)
    heir.turn()
    before = heir.jobs.list(limit=100)
    report = heir.store.import_monque(everything, with_completed=True)
    assert (report.documents, report.already) == (5, 5)
    assert (report.waiting, report.recovered, report.dead, report.completed, report.schedules) == (0, 0, 0, 0, {})
    assert heir.jobs.list(limit=100) == before


def test_a_live_job_that_holds_the_key_keeps_a_waiting_one_out(heir: Rota):
    heir.enqueue("sync-user", unique_key="sync-user-123")
    report = heir.store.import_monque([PROCESSING])
    assert (report.key_taken, report.recovered) == (1, 0)
    assert len(only(heir, "sync-user")) == 1


def test_max_retries_can_be_given_for_all(heir: Rota):
    heir.store.import_monque([PENDING], max_retries=2)
    assert only(heir, "send-email")[0].max_retries == 2


def test_data_that_is_no_object_is_one_param(rota: Rota):
    seen = []
    rota.job(name="send-email")(lambda data=None: seen.append(data))
    rota.store.import_monque([changed(PENDING, _id=1, data=[1, 2]), changed(PENDING, _id=2, data="x"), changed(PENDING, _id=3, data=None)])
    rota.turn()
    assert seen == [[1, 2], "x", None]
    shown = [monque_document(Ask(rota._session, None, Right.READ), job.id)["data"] for job in reversed(rota.jobs.list())]
    assert shown == [[1, 2], "x", None]


@pytest.mark.parametrize("document", [PENDING, changed(PENDING, uniqueKey="k"), changed(PENDING, failCount=3, failReason="no line")])
def test_a_waiting_document_comes_back_as_it_was(heir: Rota, document):
    heir.store.import_monque([document])
    (root,) = {job.root_id for job in heir.jobs.list()}
    shown = monque_document(Ask(heir._session, None, Right.READ), root)
    if document["failCount"]:
        shown["updatedAt"] = document["updatedAt"]  # the retry was made by the import
    assert shown == document


def test_a_job_that_a_schedule_made_shows_its_interval_where_monque_has_words_for_it(heir: Rota, clock: ManualClock):
    heir.store.import_monque([RECURRING])
    heir.schedules.create("every", "send-email", every="1d")
    heir.schedules.create("abroad", "sync-user", cron="0 0 * * *", timezone="Asia/Tokyo")
    clock.advance(days=1)
    heir.turn()
    shown = {job.job_type: monque_document(Ask(heir._session, None, Right.READ), job.id) for job in heir.jobs.list()}
    assert shown["daily-report"]["repeatInterval"] == "0 0 * * *"
    assert (shown["daily-report"]["data"], shown["daily-report"]["status"]) == ({"reportType": "sales"}, "completed")
    assert "repeatInterval" not in shown["send-email"]
    assert (shown["sync-user"]["repeatInterval"], shown["sync-user"]["timezone"]) == ("0 0 * * *", "Asia/Tokyo")
    heir.schedules.delete("daily-report")
    assert (
        monque_document(Ask(heir._session, None, Right.READ), heir.jobs.list(job_type="daily-report")[0].id)["repeatInterval"]
        == "0 0 * * *"
    )


def test_a_failed_document_comes_back_with_its_count_and_reason(heir: Rota):
    heir.store.import_monque([FAILED])
    shown = monque_document(Ask(heir._session, None, Right.READ), only(heir, "process-payment")[0].id)
    assert shown == FAILED
    heir.jobs.retry(only(heir, "process-payment")[0].id)
    heir.turn()
    again = monque_document(Ask(heir._session, None, Right.READ), only(heir, "process-payment")[0].id)
    assert (again["status"], again["nextRunAt"]) == ("completed", {"$date": "2025-12-16T12:00:00.000Z"})


def test_a_completed_document_comes_back_as_it_was(heir: Rota):
    document = changed(FAILED, status="completed", failCount=2, failReason=...)
    heir.store.import_monque([document], with_completed=True)
    assert monque_document(Ask(heir._session, None, Right.READ), only(heir, "process-payment")[0].id) == document


def test_jobs_of_our_own_have_a_document_too(rota: Rota, clock: ManualClock):
    seen = []

    @rota.job(max_retries=0)
    def work(ctx: Context, fail: bool = False):
        seen.append(monque_document(Ask(rota._session, None, Right.READ), ctx.root_id))
        if fail:
            raise PermanentError("no")

    bad = rota.enqueue("work", {"fail": True}, unique_key="k")
    good = rota.enqueue("work", run_at=timedelta(hours=1))
    assert monque_document(Ask(rota._session, None, Right.READ), good.id)["nextRunAt"] == {"$date": "2025-12-16T13:00:00.000Z"}
    rota.turn()
    shown = monque_document(Ask(rota._session, None, Right.READ), bad.id)
    assert (seen[0]["status"], seen[0]["lockedAt"]) == ("processing", {"$date": "2025-12-16T12:00:00.000Z"})
    assert (shown["_id"], shown["status"], shown["failCount"], shown["failReason"]) == (
        object_id(rota.jobs.get(bad).root_id),
        "failed",
        1,
        "PermanentError: no",
    )
    assert (shown["uniqueKey"], shown["lockedAt"]) == ("k", None)
    rota.jobs.cancel(good.id, reason="not today")
    cancelled = monque_document(Ask(rota._session, None, Right.READ), good.id)
    assert (cancelled["status"], cancelled["failReason"], cancelled["failCount"]) == ("cancelled", "not today", 0)


# ---- what can't be taken -------------------------------------------------------------------------------------------------


def test_one_bad_document_keeps_everything_out_and_is_named(heir: Rota):
    lines = [json.dumps(PENDING), "", "{not json", json.dumps(FAILED)]
    with pytest.raises(InvalidImport, match="line 3: not JSON") as refused:
        heir.store.import_monque(lines)
    assert refused.value.line == 3
    assert heir.jobs.list() == []


def test_bad_documents_can_be_left_out(heir: Rota):
    lines = [json.dumps(PENDING), json.dumps(changed(FAILED, failCount=-1)), "[]", json.dumps(RECURRING)]
    report = heir.store.import_monque(lines, skip_bad=True)
    assert (report.documents, report.waiting, len(report.schedules), report.bad_count) == (4, 1, 1, 2)
    assert [(bad.line, bad.why.split(":")[0]) for bad in report.bad] == [(2, "line 2"), (3, "line 3")]


def test_names_without_a_template_are_refused_together(rota: Rota):
    rota.job(name="send-email")(lambda **data: None)
    with pytest.raises(UnknownTemplate, match=r"'daily-report' \(first on item 2\), 'sync-user' \(first on item 3\).*--make-templates"):
        rota.store.import_monque([*SAMPLES[:3]])
    assert rota.jobs.list() == []


def test_with_skip_bad_a_name_without_a_template_is_a_bad_document(rota: Rota):
    rota.job(name="send-email")(lambda **data: None)
    report = rota.store.import_monque(SAMPLES, skip_bad=True)
    assert (report.waiting, report.bad_count) == (1, 3)


def test_templates_can_be_made_for_names_that_have_none(rota: Rota):
    report = rota.store.import_monque(SAMPLES, make_templates=True)
    assert report.templates_made == NAMES
    assert rota.store.import_monque(SAMPLES, make_templates=True).templates_made == []
    ran = []
    rota.job(name="send-email")(lambda **data: ran.append(data))
    rota.turn()
    assert ran == [PENDING["data"]]


def test_params_that_the_handler_does_not_take_are_bad(rota: Rota):
    rota.job(name="send-email")(lambda to: None)
    with pytest.raises(InvalidImport, match=r"item 1: .*no parameter"):
        rota.store.import_monque([PENDING])


def test_a_payload_over_the_limit_is_bad(heir: Rota):
    with pytest.raises(InvalidImport, match="item 1: params take"):
        heir.store.import_monque([changed(PENDING, data={"x": "y" * 2_000_000})])


def test_a_dry_run_says_what_would_happen_and_writes_nothing(rota: Rota, heir: Rota):
    heir.store.import_monque([PENDING])
    before = heir.jobs.list()
    report = heir.store.import_monque([*SAMPLES, completed()], dry_run=True)
    assert (report.waiting, report.recovered, report.dead, report.left_out, report.already) == (0, 1, 1, 1, 1)
    assert (report.schedules, heir.schedules.list()) == ({"daily-report": "0 0 * * *"}, [])
    assert report.dry_run
    assert heir.jobs.list() == before
    assert rota.store.import_monque([changed(PENDING, name="new")], dry_run=True, make_templates=True).templates_made == ["new"]
    with pytest.raises(UnknownTemplate):
        rota.enqueue("new")


def test_fields_that_are_not_known_are_named(heir: Rota):
    assert heir.store.import_monque([changed(PENDING, claimedBy="x", heartbeat=1)]).unknown_fields == ["claimedBy", "heartbeat"]


def test_a_text_with_a_nul_does_not_spoil_the_import(heir: Rota):
    heir.store.import_monque([changed(FAILED, failReason="a\0b", data={"x": "c\0d"})])
    (job,) = only(heir, "process-payment")
    assert run_of(heir, job.id).error == "a\\0b"
    assert job.params == {"x": "c\0d"}


def test_a_full_queue_refuses_a_chunk_and_the_import_can_go_on_later(heir: Rota, clock: ManualClock):
    store = heir._session.open().store
    store.put_organization(Organization(name="small", display_name="Small", max_queued=0), actor=SYSTEM, now=clock.now())
    overdue = changed(PENDING, nextRunAt=PENDING["createdAt"])
    with pytest.raises(QueueFull):
        heir.store.import_monque([overdue], organization="small")
    assert heir.jobs.list() == []


def test_an_import_that_was_interrupted_goes_on_when_it_is_repeated(tmp_path, clock: ManualClock, monkeypatch):
    rota = Rota(tmp_path / "small.db", clock=clock, settings=Settings(bulk_chunk=3))
    documents = [changed(SAMPLES[number % 4], _id=f"n{number}", uniqueKey=f"k{number}") for number in range(10)]
    store = rota._session.open().store
    whole, calls = store.adopt, []

    def torn(jobs, **fields):
        calls.append(len(jobs))
        if len(calls) == 3:
            raise StoreUnavailable("the disk is full")
        return whole(jobs, **fields)

    monkeypatch.setattr(store, "adopt", torn)
    with pytest.raises(StoreUnavailable):
        rota.store.import_monque(documents, make_templates=True)
    report = rota.store.import_monque(documents)
    assert (report.already, report.waiting + report.recovered + report.dead, list(report.schedules)) == (6, 3, ["k9"])
    assert len({job.root_id for job in rota.jobs.list(limit=100)}) == 7
    assert [each.name for each in rota.schedules.list()] == ["k1", "k5", "k9"]
    rota.close()


# ---- who may -------------------------------------------------------------------------------------------------------------


def test_an_admin_imports_into_its_own_organization_and_a_user_nowhere(heir: Rota, clock: ManualClock):
    store = heir._session.open().store
    store.put_organization(Organization(name="acme", display_name="Acme"), actor=SYSTEM, now=clock.now())
    with pytest.raises(PermissionDenied):
        heir.acting_as(Actor("bob", "acme", Role.USER)).store.import_monque([PENDING])
    with pytest.raises(PermissionDenied):
        heir.acting_as(Actor("ann", "acme", Role.ADMIN)).store.import_monque([PENDING], organization="default")
    with pytest.raises(PermissionDenied):
        heir.acting_as(Actor("ann", "acme", Role.ADMIN)).store.import_monque([PENDING], make_templates=True)
    heir.acting_as(Actor("ann", "acme", Role.ADMIN)).store.import_monque([PENDING])
    (job,) = only(heir, "send-email")
    assert (job.organization, job.owner) == ("acme", "ann")
    heir.store.import_monque([PENDING])
    assert {each.organization for each in heir.jobs.list()} == {"acme", "default"}
    store.set_organization_state("acme", OrganizationState.SUSPENDED, actor=SYSTEM, now=clock.now())
    with pytest.raises(OrganizationUnavailable):
        heir.store.import_monque([PENDING], organization="acme")


# ---- where they come from ------------------------------------------------------------------------------------------------


def test_a_file_may_have_one_document_a_line_or_be_an_array(heir: Rota, tmp_path):
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(b"\xef\xbb\xbf" + "\n\n".join(map(json.dumps, SAMPLES)).encode() + b"\r\n")
    array = tmp_path / "array.json"
    array.write_text(json.dumps(SAMPLES, indent=1))
    assert heir.store.import_monque(lines).documents == 4
    assert heir.store.import_monque(str(array)).already == 4


def test_an_array_names_the_item_that_is_bad(heir: Rota, tmp_path):
    array = tmp_path / "array.json"
    array.write_text(json.dumps([PENDING, 3]))
    with pytest.raises(InvalidImport, match="item 2: 3 is not a document"):
        heir.store.import_monque(array)
    array.write_text(json.dumps([PENDING])[:-1])
    with pytest.raises(InvalidImport, match="begins as a JSON array and can't be read as one"):
        heir.store.import_monque(array)


def test_a_file_that_is_not_there_or_too_deep_is_refused(heir: Rota, tmp_path):
    with pytest.raises(InvalidImport, match=r"nowhere.jsonl can't be read: No such file"):
        heir.store.import_monque(tmp_path / "nowhere.jsonl")
    deep = tmp_path / "deep.jsonl"
    deep.write_text('{"data":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(InvalidImport, match="line 1: nested too deeply"):
        heir.store.import_monque(deep)


def test_a_long_file_is_taken_in_chunks_and_tells_how_far_it_is(heir: Rota, tmp_path):
    file = tmp_path / "many.jsonl"
    file.write_text("\n".join(json.dumps(changed(PENDING, _id=f"n{number}")) for number in range(2500)))
    told = []
    report = heir.store.import_monque(file, progress=lambda *news: told.append(news))
    assert report.waiting == 2500
    assert [news for news in told if news[0] == "importing"] == [("importing", done, 2500) for done in (1000, 2000, 2500)]
    assert told[:3] == [("checking", 1000, None), ("checking", 2000, None), ("checking", 2500, 2500)]


# ---- types, and schedules ------------------------------------------------------------------------------------------------


def test_types_that_json_lacks_are_text_for_the_handler_and_come_back_as_they_were(heir: Rota, ran):
    data = {"at": {"$date": "2026-01-02T03:04:05.678Z"}, "who": {"$oid": "6760a1234567890abcdef123"}, "sum": {"$numberDecimal": "12.30"}}
    heir.store.import_monque([changed(PENDING, data=data)])
    (job,) = only(heir, "send-email")
    assert job.params == {"at": "2026-01-02T03:04:05.678Z", "who": "6760a1234567890abcdef123", "sum": "12.30"}
    assert monque_document(ask(heir), job.id)["data"] == data
    heir.jobs.update(job.id, params=job.params | {"sum": "13"})
    assert monque_document(ask(heir), job.id)["data"]["sum"] == "13"


def test_a_schedule_without_a_job_is_a_pending_document(heir: Rota):
    heir.schedule("nightly", "daily-report", cron="0 2 * * *", timezone="Europe/Berlin", params={"reportType": "sales"}, priority=70)
    shown = monque_schedule(ask(heir), "nightly")
    assert shown == {
        "_id": shown["_id"],
        "name": "daily-report",
        "data": {"reportType": "sales"},
        "status": "pending",
        "nextRunAt": {"$date": "2025-12-17T01:00:00.000Z"},
        "lockedAt": None,
        "failCount": 0,
        "repeatInterval": "0 2 * * *",
        "timezone": "Europe/Berlin",
        "priority": 70,
        "uniqueKey": "nightly",
        "createdAt": {"$date": "2025-12-16T12:00:00.000Z"},
        "updatedAt": {"$date": "2025-12-16T12:00:00.000Z"},
    }
    assert len(shown["_id"]["$oid"]) == 24
    assert read_document(shown).is_only_due
    heir.schedules.pause("nightly")
    assert monque_schedule(ask(heir), "nightly")["status"] == "cancelled"


def ask(rota: Rota) -> Ask:
    return Ask(rota._session, None, Right.READ)
