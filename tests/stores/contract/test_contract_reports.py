"""Reports of due times that did not run: written with their outcome, each once, and for each webhook that wants them."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from rota.model.definitions import Organization
from rota.model.fates import Fated
from rota.model.gate import Scope
from rota.model.reports import ScheduleEvent, ScheduleReport
from rota.model.schedules import Calendar, CatchUp, Fate, OnCompletion, ScheduleState
from rota.model.values import SECOND, instant
from rota.model.webhooks import RUN_EVENTS, USUAL_EVENTS, Event, Webhook
from rota.ports.hooks import Gap
from rota.ports.schedules import Firing
from tests.stores.desk import ANNA, START, outside
from tests.stores.timekeeper import Timekeeper

MINUTE = 60 * SECOND
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
AT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def desk(store):
    return Timekeeper(store)


def hook(desk, **fields) -> str:
    endpoint_id = desk.id()
    values = {"organization": "default", "events": tuple(Event), "created_by": "anna", "created_at": AT, "updated_at": AT}
    webhook = Webhook(id=outside(endpoint_id), url="https://example.com/x", **(values | fields))
    desk.store.add_endpoint(webhook, SECRET, most=10, actor=ANNA, now=desk.now)
    return endpoint_id


def reports(desk) -> list[ScheduleReport]:
    return [each.report for each in desk.store.reports_after(0, limit=10_000)]


def shown(desk) -> list[tuple[str, str, int, int, int]]:
    """Reports with their minutes since the start."""
    return [
        (each.outcome, each.phase, (each.due_at - START) // MINUTE, (each.last_due_at - START) // MINUTE, each.count)
        for each in reports(desk)
    ]


def messages(desk, **options):
    return list(reversed(desk.store.deliveries(limit=10_000, **options)))


# ---- spans -----------------------------------------------------------------------------------------------------------


def test_what_fires_and_what_a_later_due_time_stands_for_is_not_reported(desk):
    desk.schedule()
    desk.pass_time(60)
    desk.pass_time(3600)
    assert {row.fate for row in desk.rows()} == {Fate.FIRED, Fate.COALESCED}
    assert shown(desk) == []


def test_a_span_is_reported_when_it_opens_and_when_it_closes_however_often_it_grows(desk):
    schedule = desk.schedule(state=ScheduleState.PAUSED)
    for _ in range(5):
        desk.pass_time(60)
    assert shown(desk) == [("SKIPPED_PAUSED", "opened", 1, 1, 1)]
    desk.change(schedule.id, state=ScheduleState.ENABLED)
    assert shown(desk) == [("SKIPPED_PAUSED", "opened", 1, 1, 1), ("SKIPPED_PAUSED", "closed", 1, 5, 5)]
    desk.pass_time(60)
    assert len(shown(desk)) == 2


def test_what_was_missed_before_something_fires_is_opened_and_closed_at_once(desk):
    desk.schedule(catch_up=CatchUp.NONE)
    desk.pass_time(600)
    assert shown(desk) == [("MISSED", "opened", 1, 9, 9), ("MISSED", "closed", 1, 9, 9)]


def test_what_was_missed_up_to_now_is_closed_by_the_next_due_time_that_fires(desk):
    desk.schedule(interval=600 * SECOND, catch_up=CatchUp.NONE)
    desk.pass_time(700)
    assert shown(desk) == [("MISSED", "opened", 10, 10, 1)]
    desk.pass_time(600)
    assert shown(desk) == [("MISSED", "opened", 10, 10, 1)]
    desk.pass_time(500)
    assert shown(desk)[1:] == [("MISSED", "closed", 10, 20, 2)]


def test_rows_of_different_outcomes_in_one_look_are_all_reported_and_only_the_newest_stays_open(desk):
    desk.now = instant(datetime(2026, 3, 1, tzinfo=UTC))
    desk.store.put_calendar(Calendar(name="off", days=frozenset({date(2026, 3, 3)})), organization="default", actor=ANNA, now=desk.now)
    desk.schedule(cron="0 12 * * *", calendar="off", catch_up=CatchUp.NONE)
    desk.pass_time(4 * 86_400)
    found = [(each.outcome, each.phase, each.count) for each in reports(desk)]
    assert sorted(found) == [("MISSED", "closed", 3), ("MISSED", "opened", 3), ("SKIPPED_CALENDAR", "opened", 1)]
    desk.pass_time(86_400 / 2)
    assert sorted((each.outcome, each.phase) for each in reports(desk)).count(("SKIPPED_CALENDAR", "closed")) == 1


def test_a_one_time_schedule_closes_its_span_because_nothing_follows(desk):
    desk.schedule(at=START + MINUTE, catch_up=CatchUp.NONE, on_completion=OnCompletion.DROP)
    desk.pass_time(3600)
    assert [(outcome, phase) for outcome, phase, *_ in shown(desk)] == [("MISSED", "opened"), ("MISSED", "closed")]


def test_a_removed_schedule_closes_its_span(desk):
    schedule = desk.schedule(state=ScheduleState.PAUSED)
    desk.pass_time(60)
    desk.drop(schedule.id)
    assert [phase for _, phase, *_ in shown(desk)] == ["opened", "closed"]


def test_a_refusal_is_reported_with_its_reason(desk):
    def refuse(due):
        row = Fated(due_at=START + MINUTE, last_due_at=START + MINUTE, count=1, fate=Fate.REFUSED, reason="no room")
        return Firing(rows=[row], jobs=[], cursor_at=desk.now, next_at=desk.now + MINUTE)

    schedule = desk.schedule()
    desk.pass_time(60, decide=refuse)
    (report,) = reports(desk)
    assert (report.event, report.reason, report.schedule, report.owner) == (ScheduleEvent.REFUSED, "no room", "s", "anna")
    assert report.key == f"{outside(schedule.id)}:{START + MINUTE}:REFUSED:opened"


def test_a_due_time_given_up_for_a_dependency_is_reported(desk):
    desk.schedule("first", state=ScheduleState.PAUSED)
    desk.schedule("second", depends_on=("first",), interval=600 * SECOND)
    desk.pass_time(600)
    desk.pass_time(600)
    found = [(each.event, each.outcome, each.phase) for each in reports(desk) if each.schedule == "second"]
    assert found == [(ScheduleEvent.SKIPPED, "SKIPPED_DEPENDENCY", phase) for phase in ("opened", "closed")]


def test_a_refused_transaction_reports_nothing(desk):
    hook(desk)

    def breaks(due):
        desk.decide(due)
        raise RuntimeError("broken off")

    desk.schedule("a", state=ScheduleState.PAUSED)
    desk.advance(60)
    with pytest.raises(RuntimeError):
        desk.fire(breaks)
    assert shown(desk) == []
    assert messages(desk) == []


# ---- a clock that was wrong --------------------------------------------------------------------------------------------


def test_what_a_wrong_clock_reported_is_never_written_a_second_time(desk):
    hook(desk)
    desk.schedule(catch_up=CatchUp.NONE)
    desk.pass_time(7 * 86_400)
    before = {each.key: each for each in reports(desk)}
    desk.now = START + 30 * SECOND
    desk.fire()
    for _ in range(3):
        desk.pass_time(300)
    after = [each.key for each in reports(desk)]
    assert len(set(after)) == len(after)
    assert [each for each in reports(desk) if each.key in before] == list(before.values())
    keys = [each.key for each in messages(desk)]
    assert len(set(keys)) == len(keys) == len(after)


# ---- messages ----------------------------------------------------------------------------------------------------------


def test_each_report_is_one_message_for_each_webhook_that_wants_it(desk):
    desk.schedule(catch_up=CatchUp.NONE)
    wants, wants_not, other = hook(desk), hook(desk, events=RUN_EVENTS), hook(desk, job_types=("other",))
    desk.pass_time(600)
    found = messages(desk, endpoint_id=wants)
    assert [each.key for each in found] == [each.key for each in reports(desk)]
    assert [(each.event, each.job, each.schedule) for each in found] == [("schedule.missed", None, "s")] * 2
    assert messages(desk, endpoint_id=wants_not) == messages(desk, endpoint_id=other) == []


def test_no_organization_receives_the_reports_of_another(desk):
    desk.store.put_organization(Organization(name="other", display_name="Other"), actor=ANNA, now=desk.now)
    own, others = hook(desk), hook(desk, organization="other")
    desk.schedule(catch_up=CatchUp.NONE)
    desk.pass_time(600)
    assert len(messages(desk, endpoint_id=own)) == 2
    assert messages(desk, endpoint_id=others) == []
    assert messages(desk, scope=Scope("other")) == []


def test_planned_skips_are_sent_to_those_who_ask_for_them(desk):
    usual, asked = hook(desk, events=USUAL_EVENTS), hook(desk, events=(Event.SCHEDULE_SKIPPED_PLANNED,))
    desk.schedule(state=ScheduleState.PAUSED)
    desk.pass_time(60)
    assert messages(desk, endpoint_id=usual) == []
    assert [each.event for each in messages(desk, endpoint_id=asked)] == ["schedule.skipped_planned"]


def test_a_message_is_sent_under_the_key_of_its_report(desk):
    hook(desk)
    desk.schedule(state=ScheduleState.PAUSED)
    desk.pass_time(60)
    (parcel,) = desk.store.take_mail([], now=desk.now, until=desk.now + MINUTE, limit=10, each=10).parcels
    (report,) = reports(desk)
    assert parcel.key == report.key


def test_an_overdue_gap_is_reported_once_whoever_looks(desk):
    hook(desk)
    schedule = desk.schedule()
    gap = Gap(schedule.id, Fated(due_at=START + MINUTE, last_due_at=START + 5 * MINUTE, count=5, fate=Fate.OVERDUE))
    desk.advance(300)
    assert desk.store.report_overdue([gap, Gap(desk.id(), gap.row)], now=desk.now) == 1
    assert desk.store.report_overdue([gap], now=desk.now + MINUTE) == 0
    assert [each.event for each in messages(desk)] == ["schedule.overdue"]


def test_a_gap_that_has_its_outcome_by_now_is_not_reported(desk):
    schedule = desk.schedule()
    gap = Gap(schedule.id, Fated(due_at=START + MINUTE, last_due_at=START + MINUTE, count=1, fate=Fate.OVERDUE))
    desk.pass_time(60)
    assert desk.store.report_overdue([gap], now=desk.now) == 0
    assert reports(desk) == []


# ---- retention ---------------------------------------------------------------------------------------------------------


def test_old_reports_are_removed_but_for_the_newest_and_those_of_gaps_that_last(desk):
    first = desk.schedule("first", state=ScheduleState.PAUSED)
    desk.pass_time(60)
    gap = reports(desk)[0]
    assert desk.store.mail().reported_at is None
    second = desk.schedule("second")
    late = Gap(second.id, Fated(due_at=desk.now + MINUTE, last_due_at=desk.now + MINUTE, count=1, fate=Fate.OVERDUE))
    desk.store.report_overdue([late], now=desk.now)
    desk.change(first.id, state=ScheduleState.ENABLED)
    assert desk.store.mail().reported_at == desk.now
    assert desk.store.forget_reports(before=desk.now, limit=10) == 0
    assert desk.store.forget_reports(before=desk.now + 1, limit=10) == 1
    assert [(each.due_at, each.phase) for each in reports(desk)] == [(late.row.due_at, "opened"), (gap.due_at, "closed")]


def test_reports_are_read_by_number_and_by_moment(desk):
    desk.schedule(catch_up=CatchUp.NONE)
    desk.pass_time(600)
    numbers = [each.report_id for each in desk.store.reports_after(0, limit=10)]
    assert numbers == sorted(numbers)
    assert desk.store.marks().report_id == numbers[-1]
    assert [each.report_id for each in desk.store.reports_after(numbers[0], limit=10)] == numbers[1:]
    assert [each.report_id for each in desk.store.reports_since(desk.now, limit=10)] == numbers
    assert desk.store.reports_since(desk.now + 1, limit=10) == []
