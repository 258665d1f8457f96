"""The ledger: one fate for every due time, in as few rows as tell it; read in pages, taken back where the clock was wrong."""

from datetime import UTC, date, datetime

import pytest

from rota.model.decide import Completed, Failed, Skipped
from rota.model.definitions import Organization
from rota.model.gate import Scope
from rota.model.schedules import Calendar, CatchUp, Fate, Overlap, ScheduleState
from rota.model.values import SECOND, instant
from rota.ports.schedules import Ledger, cursor_of
from rota.ports.store import Where
from rota.stores.verbs import ledger
from tests.stores.desk import ANNA, START
from tests.stores.timekeeper import Timekeeper

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.fixture
def desk(store):
    return Timekeeper(store)


def at(text):
    return instant(datetime.fromisoformat(text).replace(tzinfo=UTC))


def told(desk, schedule_id=None):
    """The ledger in minutes since the start."""
    return [(row.fate, (row.due_at - START) // MINUTE, (row.last_due_at - START) // MINUTE, row.count) for row in desk.rows(schedule_id)]


# ---- rows --------------------------------------------------------------------------------------------------------------


def test_a_month_of_downtime_is_two_rows(desk):
    desk.schedule()
    desk.pass_time(30 * 86_400)
    assert told(desk) == [("COALESCED", 1, 43_199, 43_199), ("FIRED", 43_200, 43_200, 1)]


def test_a_month_of_downtime_of_many_minute_schedules_writes_a_handful_of_rows_each(desk):
    made = [desk.schedule(f"s{index}", cron="* * * * *", catch_up=list(CatchUp)[index % 3], overlap=Overlap.QUEUE) for index in range(30)]
    desk.advance(30 * 86_400)
    while desk.fire(limit=10).unfinished:
        pass
    rows = desk.rows()
    assert len([row for row in rows if row.fate is not Fate.FIRED]) == 30
    by_schedule = {each.id: 0 for each in made}
    for row in rows:
        by_schedule[row.schedule_id] += row.count
    assert set(by_schedule.values()) == {43_200}


def test_schedules_are_left_for_the_next_transaction_once_one_has_made_many_jobs(desk, monkeypatch):
    monkeypatch.setattr(ledger, "JOBS_MAX", 10)
    made = [desk.schedule(f"s{index}", cron="* * * * *", catch_up=CatchUp.ALL, overlap=Overlap.ALLOW) for index in range(3)]
    desk.advance(600)
    unfinished = [desk.fire(limit=100).unfinished for _ in range(3)]
    assert unfinished == [True, True, False]
    assert {each.id: len(desk.rows(each.id)) for each in made} == {each.id: 10 for each in made}


def test_a_month_of_pause_is_one_row_however_often_it_is_looked_at(desk):
    desk.schedule(state=ScheduleState.PAUSED)
    for seconds in (60, 600, 61, 86_400, 29 * 86_400):
        desk.pass_time(seconds)
    assert told(desk) == [("SKIPPED_PAUSED", 1, 43_212, 43_212)]


def test_rows_of_another_fate_or_reason_begin_a_new_span(desk):
    schedule = desk.schedule(state=ScheduleState.PAUSED)
    desk.pass_time(120)
    desk.change(schedule.id, state=ScheduleState.ENABLED, catch_up=CatchUp.NONE)
    desk.pass_time(60)
    desk.pass_time(600)
    assert told(desk) == [("SKIPPED_PAUSED", 1, 2, 2), ("FIRED", 3, 3, 1), ("MISSED", 4, 12, 9), ("FIRED", 13, 13, 1)]


def test_a_skipped_half_past_two_and_a_real_half_past_three_of_one_night_are_two_rows(desk):
    desk.now = at("2026-03-28T12:00")
    schedule = desk.schedule(cron="30 2,3 * * *", timezone="Europe/Berlin")
    for _ in range(24):
        desk.pass_time(3600)
    rows = desk.rows()
    # 02:30 was jumped over: it would have been the very moment that is 03:30.
    assert [(row.fate, row.due_at) for row in rows] == [("FIRED", at("2026-03-29T01:30")), ("SKIPPED_DST_GAP", at("2026-03-29T01:30"))]
    assert rows[1].reason == "the clock of Europe/Berlin jumped over it"
    assert [row for page in (1, 2) for row in pages(desk, page, Ledger(schedule_id=schedule.id))] == rows[::-1] * 2


def test_days_off_are_rows_of_their_own_and_are_not_counted_twice(desk):
    days = Calendar(name="off", days=frozenset({date(2026, 3, 2), date(2026, 3, 3), date(2026, 3, 5)}))
    desk.store.put_calendar(days, organization="default", actor=ANNA, now=desk.now)
    desk.schedule(cron="0 * * * *", calendar="off")
    desk.pass_time(6 * 86_400)
    assert [(row.fate, row.count) for row in desk.rows()] == [
        ("COALESCED", 6 * 24 - 72 - 1),
        ("SKIPPED_CALENDAR", 48),
        ("SKIPPED_CALENDAR", 24),
        ("FIRED", 1),
    ]


def test_a_row_tells_how_the_chain_of_its_job_stands(desk):
    desk.schedule(overlap=Overlap.ALLOW)
    states = []
    for outcome in (Completed(None), Skipped("x"), Failed("x", permanent=True), None):
        desk.pass_time(60)
        if outcome is not None:
            desk.run_to(outcome)
        row = desk.rows()[-1]
        states.append((row.status, row.ran))
    assert states == [("COMPLETED", True), ("SKIPPED", False), ("DEAD_LETTER", False), ("QUEUED", None)]


def test_a_retried_chain_is_told_by_its_tail(desk):
    desk.schedule()
    desk.pass_time(60)
    desk.run_to(Failed("x"))
    assert (desk.rows()[0].status, desk.rows()[0].ran) == ("PENDING", None)
    desk.advance(60)
    desk.run_to(Completed(None))
    assert (desk.rows()[0].status, desk.rows()[0].ran) == ("COMPLETED", True)


# ---- reading -----------------------------------------------------------------------------------------------------------


def pages(desk, limit, ledger=Ledger()):  # noqa: B008 - a value that nobody changes
    found = desk.store.occurrences(ledger, limit=limit)
    every = list(found)
    while found:
        found = desk.store.occurrences(ledger, limit=limit, before=cursor_of(found[-1]))
        every += found
    return every


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_pages_are_complete_and_in_order_latest_first(desk, limit):
    for name in "abc":
        desk.schedule(name, state=ScheduleState.PAUSED if name == "c" else ScheduleState.ENABLED)
    for _ in range(5):
        desk.pass_time(60)
        desk.pass_time(180)
    found = pages(desk, limit)
    assert found == desk.rows()[::-1]
    assert [row.due_at for row in found] == sorted((row.due_at for row in found), reverse=True)
    assert len({cursor_of(row) for row in found}) == len(found) > 10


def test_pages_are_stable_while_rows_are_written(desk):
    schedule = desk.schedule()
    for _ in range(10):
        desk.pass_time(60)
    before = desk.rows(schedule.id)[::-1]
    first = desk.store.occurrences(Ledger(schedule_id=schedule.id), limit=4)
    desk.pass_time(300)
    rest = desk.store.occurrences(Ledger(schedule_id=schedule.id), limit=100, before=cursor_of(first[-1]))
    assert first + rest == before


def test_filters_are_by_schedule_organization_owner_fate_and_time(desk):
    desk.store.put_organization(Organization(name="acme", display_name="Acme"), actor=ANNA, now=desk.now)
    mine = desk.schedule("mine", created_by="bert")
    desk.schedule("theirs", organization="acme", state=ScheduleState.PAUSED)
    desk.pass_time(60)
    desk.pass_time(180)
    count = lambda **filters: len(desk.rows(**filters))  # noqa: E731
    assert count() == 4
    assert {row.schedule for row in desk.rows(organization="acme")} == {"theirs"}
    assert {row.schedule for row in desk.rows(scope=Scope("default"))} == {"mine"}
    assert count(scope=Scope("default", "bert")) == 3
    assert count(scope=Scope("default", "anna")) == 0
    assert count(scope=Scope("default"), organization="acme") == 0
    assert count(schedule_id=mine.id, scope=Scope("acme")) == 0
    assert [row.fate for row in desk.rows(fates=(Fate.COALESCED, Fate.SKIPPED_PAUSED), schedule_id=mine.id)] == ["COALESCED"]
    # A span is found by any of its own due times; `until` is not included.
    assert count(schedule_id=mine.id, since=START + 3 * MINUTE) == 2
    assert count(schedule_id=mine.id, since=START + 4 * MINUTE) == 1
    assert count(schedule_id=mine.id, until=START + 2 * MINUTE) == 1
    assert count(schedule_id=mine.id, until=START + 2 * MINUTE + 1) == 2


def test_what_did_not_run_is_every_fate_but_a_chain_that_completed_or_is_under_way(desk):
    schedule = desk.schedule(overlap=Overlap.ALLOW)
    ends = [Completed(None), Skipped("x"), None, Failed("x")]
    for end in ends:
        desk.pass_time(60)
        if end is not None:
            desk.run_to(end)
    desk.change(schedule.id, state=ScheduleState.PAUSED)
    desk.pass_time(60)
    assert [(row.fate, row.status) for row in desk.rows(not_ran=True)] == [("FIRED", "SKIPPED"), ("SKIPPED_PAUSED", None)]
    assert pages(desk, 1, Ledger(not_ran=True)) == desk.rows(not_ran=True)[::-1]


# ---- a clock that was wrong --------------------------------------------------------------------------------------------


def test_fates_of_times_that_have_not_come_are_taken_back_and_what_fired_stays(desk):
    schedule = desk.schedule()
    desk.pass_time(60)
    desk.pass_time(4 * 365 * 86_400)
    ahead = desk.rows()[-1]
    desk.now = START + 2 * MINUTE + SECOND
    desk.fire()
    assert told(desk)[:2] == [("FIRED", 1, 1, 1), ("COALESCED", 2, 2, 1)]
    assert (len(desk.rows()), desk.rows()[-1], desk.read(schedule.id).next_at) == (3, ahead, START + 3 * MINUTE)
    desk.pass_time(60)
    assert desk.decided[-1].already == (ahead.due_at,)


def test_what_fired_ahead_of_its_time_does_not_fire_again_when_it_comes(desk):
    desk.schedule()
    desk.pass_time(600)
    desk.now = START + 5 * MINUTE
    for _ in range(8):
        desk.pass_time(60)
    fired = [row for row in desk.rows() if row.fate is Fate.FIRED]
    assert sum(row.count for row in desk.rows()) == 13
    assert len({row.due_at for row in fired}) == len(fired)
    assert [job.due_at for _, job in desk.store.find(Where(), limit=100)] != []
    assert len(desk.store.find(Where(), limit=100)) == len(fired)


def test_a_span_that_reaches_over_now_is_cut_there(desk):
    schedule = desk.schedule(state=ScheduleState.PAUSED)
    desk.pass_time(100 * 60)
    desk.now = START + 10 * MINUTE + SECOND
    desk.fire()
    assert told(desk) == [("SKIPPED_PAUSED", 1, 10, 10)]
    desk.pass_time(60)
    assert told(desk) == [("SKIPPED_PAUSED", 1, 11, 11)]
    assert desk.read(schedule.id).next_at == START + 12 * MINUTE


def test_a_span_over_days_off_is_cut_to_what_is_its_own(desk):
    days = Calendar(name="off", days=frozenset({date(2026, 3, 2)}))
    desk.store.put_calendar(days, organization="default", actor=ANNA, now=desk.now)
    desk.schedule(cron="0 * * * *", calendar="off")
    desk.pass_time(5 * 86_400)
    desk.now = START + 40 * HOUR + SECOND
    desk.fire()
    assert [(row.fate, row.count) for row in desk.rows()] == [("COALESCED", 11 + 5), ("SKIPPED_CALENDAR", 24), ("FIRED", 1)]


def test_a_clock_set_back_a_little_is_no_matter(desk):
    schedule = desk.schedule(interval=10 * SECOND, state=ScheduleState.PAUSED)
    desk.pass_time(100)
    before = desk.rows(), desk.read(schedule.id)
    desk.now -= 50 * SECOND
    desk.fire()
    assert (desk.rows(), desk.read(schedule.id)) == before
    desk.pass_time(60)
    assert [(row.fate, row.count) for row in desk.rows()] == [("SKIPPED_PAUSED", 11)]


def test_an_edit_while_the_clock_is_a_little_behind_gives_no_due_time_two_fates(desk):
    schedule = desk.schedule(interval=10 * SECOND, state=ScheduleState.PAUSED)
    desk.pass_time(40)
    desk.now -= 25 * SECOND
    desk.change(schedule.id, state=ScheduleState.ENABLED)
    desk.pass_time(30)
    assert [(row.fate, row.count) for row in desk.rows()] == [("SKIPPED_PAUSED", 1), ("COALESCED", 2), ("FIRED", 1)]


def test_an_edit_while_the_clock_is_a_little_behind_fires_nothing_again(desk):
    schedule = desk.schedule(interval=10 * SECOND)
    for _ in range(4):
        desk.pass_time(10)
    desk.now -= 25 * SECOND
    desk.change(schedule.id, description="x")
    for _ in range(4):
        desk.pass_time(10)
    assert [(row.fate, row.count) for row in desk.rows()] == [("FIRED", 1)] * 5
    assert len(desk.store.find(Where(), limit=100)) == 5


@pytest.mark.parametrize("state", list(ScheduleState))
def test_an_edit_while_the_clock_is_far_behind_gives_no_due_time_two_fates(desk, state):
    schedule = desk.schedule(catch_up=CatchUp.NONE)
    desk.pass_time(30 * 60 + 30)
    desk.now = START + 10 * MINUTE + SECOND
    desk.change(schedule.id, state=state, description="x")
    desk.change(schedule.id, state=ScheduleState.ENABLED, description="y")
    for _ in range(30):
        desk.pass_time(60)
    rows = desk.rows()
    assert sum(row.count for row in rows) == 40
    assert len({row.due_at for row in rows}) == len(rows)


def test_one_given_up_for_a_dependency_ahead_of_its_time_is_not_made_again(desk):
    desk.schedule("parent", state=ScheduleState.DISABLED)
    child = desk.schedule("child", depends_on=("parent",), overlap=Overlap.ALLOW)
    for _ in range(5):
        desk.pass_time(60)
    assert [row.fate for row in desk.rows(child.id)] == ["SKIPPED_DEPENDENCY"] * 4 + ["FIRED"]
    desk.now -= 4 * MINUTE
    for _ in range(6):
        desk.pass_time(60)
    assert [(row.fate, row.count) for row in desk.rows(child.id)] == [("SKIPPED_DEPENDENCY", 1)] * 6 + [("FIRED", 1)]
    assert len(desk.store.find(Where(), limit=100)) == 7


# ---- retention ---------------------------------------------------------------------------------------------------------


def purge(desk, limit=100):
    cursor, batches = None, 0
    while True:
        cursor = desk.store.purge(before=desk.now - 30 * DAY, limit=limit, now=desk.now, dry_run=False, cursor=cursor).cursor
        batches += 1
        if cursor is None:
            return batches


def hours(desk, count):
    """Let so many hours pass, in each of which what fired runs to its end."""
    for _ in range(count):
        desk.pass_time(3600)
        while some := desk.claim(50):
            desk.done(*some)


def test_old_rows_go_when_their_jobs_are_gone_and_the_newest_stays(desk):
    schedule = desk.schedule(interval=HOUR)
    hours(desk, 5)
    desk.advance(29 * 86_400)
    purge(desk)
    assert len(desk.rows()) == 5
    desk.change(schedule.id, state=ScheduleState.DISABLED)
    newest = desk.rows()[-1]
    desk.advance(60 * 86_400)
    purge(desk)
    assert [(row.fate, row.due_at) for row in desk.rows()] == [(newest.fate, newest.due_at)]


def test_a_row_stays_as_long_as_its_job(desk):
    desk.schedule(interval=HOUR, overlap=Overlap.ALLOW)
    desk.pass_time(3600)
    waits = desk.rows()[0].job_id
    desk.pass_time(3600)
    hours(desk, 0)
    kept = desk.claim(1)
    assert kept[0].job_id == waits
    desk.done(*desk.claim(5))
    desk.pass_time(40 * 86_400)
    purge(desk)
    assert desk.rows()[0].job_id == waits
    desk.done(*kept)
    desk.advance(40 * 86_400)
    purge(desk)
    assert waits not in {row.job_id for row in desk.rows()}


def test_a_span_goes_when_its_last_due_time_is_old(desk):
    schedule = desk.schedule(state=ScheduleState.PAUSED)
    desk.pass_time(40 * 86_400)
    desk.change(schedule.id, state=ScheduleState.ENABLED)
    hours(desk, 2)
    purge(desk)
    assert desk.rows()[0].fate is Fate.SKIPPED_PAUSED
    desk.advance(31 * 86_400)
    purge(desk)
    assert {row.fate for row in desk.rows()} == {"FIRED"}


def test_rows_are_forgotten_a_bounded_number_at_a_time(desk):
    for index in range(12):
        schedule = desk.schedule(f"s{index}", state=ScheduleState.PAUSED)
        desk.pass_time(60)
        desk.drop(schedule.id)
    desk.advance(40 * 86_400)
    assert purge(desk, limit=5) >= 3
    assert desk.rows() == []


def test_a_dropped_schedule_of_which_nothing_is_left_is_forgotten(desk):
    gone, stays = desk.schedule("gone", interval=HOUR), desk.schedule("stays", interval=HOUR, state=ScheduleState.DISABLED)
    desk.pass_time(3600)
    desk.drop(gone.id)
    live = desk.claim_one()
    desk.advance(40 * 86_400)
    purge(desk)
    assert (desk.store.schedule(gone.id) is not None, len(desk.rows(gone.id))) == (True, 1)
    desk.done(live)
    purge(desk)
    assert desk.store.schedule(gone.id) is not None
    desk.advance(40 * 86_400)
    purge(desk)
    assert (desk.store.schedule(gone.id), desk.rows()) == (None, [])
    assert desk.store.schedule(stays.id) is not None


def test_a_dropped_schedule_that_somebody_still_waits_for_is_kept(desk):
    parent = desk.schedule("parent", state=ScheduleState.DISABLED)
    child = desk.schedule("child", at=START + HOUR, depends_on=("parent",))
    desk.pass_time(3600)
    desk.drop(child.id)
    desk.drop(parent.id)
    desk.now += 50 * DAY
    purge(desk)
    assert desk.store.schedule(parent.id) is not None
    desk.fire()
    assert desk.rows(child.id)[0].reason == "parent did not complete in time"
    desk.now += 50 * DAY
    purge(desk)
    purge(desk)
    assert (desk.store.schedule(parent.id), desk.store.schedule(child.id)) == (None, None)


def test_counting_what_would_go_forgets_nothing(desk):
    schedule = desk.schedule(state=ScheduleState.PAUSED)
    desk.pass_time(60)
    desk.drop(schedule.id)
    desk.advance(40 * 86_400)
    desk.store.purge(before=desk.now - 30 * DAY, limit=5, now=desk.now, dry_run=True)
    assert len(desk.rows()) == 1
