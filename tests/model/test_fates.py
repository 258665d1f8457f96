"""What becomes of due times: every one gets exactly one fate, whatever the schedule and however late the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from random import Random

import msgspec
import pytest

from rota.errors import InvalidSchedule
from rota.model.fates import Plan, plan
from rota.model.schedules import Calendar, CatchUp, Fate, Kind, Overlap, Schedule, ScheduleState, Timing, check, lattice_of
from rota.model.values import SECOND, Instant, instant
from rota.model.zones import zone_of

HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
START = instant(datetime(2026, 3, 1, tzinfo=UTC))


def daily(**fields) -> Schedule:
    timing = Timing(kind=Kind.CRON, cron="0 9 * * *")
    return Schedule(**({"id": "s", "name": "s", "organization": "default", "template": "t", "timing": timing, "cursor_at": START} | fields))


def told(planned: Plan) -> list[tuple[str, str, int]]:
    return [(f"{datetime.fromtimestamp(row.due_at / SECOND, UTC):%m-%d %H:%M}", str(row.fate), row.count) for row in planned.rows]


def test_one_due_time_fires():
    assert told(plan(daily(), START + 9 * HOUR)) == [("03-01 09:00", "FIRED", 1)]


def test_nothing_due_moves_only_the_cursor():
    planned = plan(daily(), START + HOUR)
    assert (planned.rows, planned.cursor_at, planned.next_at) == ((), START + HOUR, START + 9 * HOUR)


def test_last_fires_the_latest_and_coalesces_the_rest_into_one_row():
    assert told(plan(daily(), START + 5 * DAY)) == [("03-01 09:00", "COALESCED", 4), ("03-05 09:00", "FIRED", 1)]


def test_none_fires_only_what_is_on_time():
    schedule = daily(catch_up=CatchUp.NONE)
    assert told(plan(schedule, START + 4 * DAY + 9 * HOUR)) == [("03-01 09:00", "MISSED", 4), ("03-05 09:00", "FIRED", 1)]
    assert told(plan(schedule, START + 5 * DAY)) == [("03-01 09:00", "MISSED", 5)]


def test_all_fires_every_one_up_to_a_number_and_a_lateness():
    schedule = daily(catch_up=CatchUp.ALL, overlap=Overlap.QUEUE)
    assert [row[1] for row in told(plan(schedule, START + 5 * DAY))] == ["FIRED"] * 5
    assert told(plan(msgspec.structs.replace(schedule, catch_up_count=2), START + 5 * DAY)) == [
        ("03-01 09:00", "MISSED", 3),
        ("03-04 09:00", "FIRED", 1),
        ("03-05 09:00", "FIRED", 1),
    ]
    assert told(plan(msgspec.structs.replace(schedule, catch_up_lateness=40 * HOUR), START + 5 * DAY))[0] == ("03-01 09:00", "MISSED", 3)


def test_what_is_too_late_is_missed():
    assert told(plan(daily(catch_up_lateness=HOUR), START + 5 * DAY)) == [("03-01 09:00", "MISSED", 5)]


def test_a_paused_schedule_skips_and_a_disabled_one_has_nothing_to_skip():
    assert told(plan(daily(state=ScheduleState.PAUSED), START + 5 * DAY)) == [("03-01 09:00", "SKIPPED_PAUSED", 5)]
    disabled = plan(daily(state=ScheduleState.DISABLED), START + 5 * DAY)
    assert (disabled.rows, disabled.next_at) == ((), None)


def test_excluded_days_are_told_apart():
    calendar = Calendar(name="feasts", days=frozenset({date(2026, 3, 2), date(2026, 3, 3), date(2026, 3, 5)}))
    assert told(plan(daily(calendar="feasts"), START + 6 * DAY, calendar=calendar)) == [
        ("03-01 09:00", "COALESCED", 2),
        ("03-02 09:00", "SKIPPED_CALENDAR", 2),
        ("03-05 09:00", "SKIPPED_CALENDAR", 1),
        ("03-06 09:00", "FIRED", 1),
    ]


def test_what_fired_when_the_clock_was_ahead_does_not_fire_again():
    already = frozenset({START + 2 * DAY + 9 * HOUR, START + 4 * DAY + 9 * HOUR})
    assert told(plan(daily(), START + 5 * DAY, already=already)) == [("03-01 09:00", "COALESCED", 2), ("03-04 09:00", "FIRED", 1)]


def test_a_month_of_downtime_of_a_minute_schedule_is_a_handful_of_rows():
    every_minute = daily(timing=Timing(kind=Kind.CRON, cron="* * * * *", timezone="Europe/Berlin"))
    planned = plan(every_minute, START + 31 * DAY)
    assert [(row.fate, row.count) for row in planned.rows] == [(Fate.COALESCED, 31 * 1440 - 1), (Fate.FIRED, 1)]


def test_an_interval_is_anchored_and_does_not_drift():
    timing = Timing(kind=Kind.EVERY, interval=10 * SECOND, starts_at=START + 3 * SECOND)
    planned = plan(daily(timing=timing), START + 27 * SECOND)
    assert [(row.due_at - START) / SECOND for row in planned.rows] == [3, 23]
    assert planned.next_at == START + 33 * SECOND


def test_a_moment_is_due_once_also_late():
    timing = Timing(kind=Kind.AT, at=START + HOUR)
    assert told(plan(daily(timing=timing), START + 3 * DAY)) == [("03-01 01:00", "FIRED", 1)]
    assert plan(daily(timing=timing), START + 3 * DAY).next_at is None


def test_bounds_are_kept():
    timing = Timing(kind=Kind.CRON, cron="0 9 * * *", starts_at=START + 2 * DAY, ends_at=START + 3 * DAY + 9 * HOUR)
    planned = plan(daily(timing=timing, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW), START + 9 * DAY)
    assert [row[0] for row in told(planned)] == ["03-03 09:00", "03-04 09:00"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"catch_up": CatchUp.ALL}, 'catch_up="all" with overlap="skip"'),
        ({"timing": Timing(kind=Kind.EVERY, interval=SECOND // 2, starts_at=START)}, "every=0.5 s is not allowed"),
        ({"timing": Timing(kind=Kind.CRON, cron="0 9 * * *", starts_at=START, ends_at=START - 1)}, "is before"),
        ({"timing": Timing(kind=Kind.CRON, cron="0 9 * * *", timezone="Mars")}, "timezone 'Mars'"),
        ({"timing": Timing(kind=Kind.CRON, cron="0 25 * * *")}, "hour 25 is out of range"),
    ],
)
def test_what_can_not_be_is_refused(fields, words):
    with pytest.raises(InvalidSchedule, match=words):
        check(daily(**fields))


# ---- every due time, one fate --------------------------------------------------------------------------------------------


def any_schedule(chance: Random) -> tuple[Schedule, Calendar]:
    start = instant(datetime(2026, chance.choice([3, 6, 10, 11]), chance.randrange(1, 29), tzinfo=UTC))
    kind = chance.choice(list(Kind))
    timing = Timing(
        kind=kind,
        cron=chance.choice(["30 2 * * *", "*/15 * * * *", "0 */2 * * *", "0 0 * * *", "* * * * *", "15 10 * * MON"]),
        at=start + chance.randrange(5 * 86_400) * SECOND,
        interval=chance.choice([60, 777, 3600, 86_400]) * SECOND,
        timezone=chance.choice(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut"]),
        starts_at=start + chance.randrange(-9, 9) * HOUR if kind is Kind.EVERY or chance.random() < 0.2 else None,
        ends_at=start + chance.randrange(9, 90) * HOUR if chance.random() < 0.2 else None,
    )
    schedule = daily(
        timing=timing,
        cursor_at=start,
        calendar="c",
        catch_up=chance.choice(list(CatchUp)),
        catch_up_count=chance.choice([None, 3]),
        catch_up_lateness=chance.choice([None, 2 * HOUR]),
        overlap=Overlap.ALLOW,
        state=chance.choice([ScheduleState.ENABLED] * 3 + [ScheduleState.PAUSED]),
    )
    days = frozenset(date(2026, 3, 1) + timedelta(days=chance.randrange(280)) for _ in range(chance.choice([0, 40])))
    return schedule, Calendar(name="c", days=days)


def day_in(zone: str, at: Instant) -> date:
    return datetime.fromtimestamp(at // SECOND, zone_of(zone)).date()


@pytest.mark.parametrize("seed", range(300))
def test_every_due_time_has_exactly_one_fate_however_the_clock_goes_on(seed):
    chance = Random(seed)
    schedule, calendar = any_schedule(chance)
    lattice, now, end = lattice_of(schedule.timing), schedule.cursor_at, schedule.cursor_at + 10 * DAY
    while now < end:
        now = min(end, now + chance.choice([60, 3600, 40_000, 400_000]) * SECOND)
        planned = plan(schedule, now, calendar=calendar)
        points = list(lattice.points(schedule.cursor_at, now))
        due = {point.at for point in points}
        assert sum(row.count for row in planned.rows) == len(points)
        assert all(row.due_at in due and row.last_due_at in due for row in planned.rows)
        assert sum(row.fate is Fate.SKIPPED_DST_GAP for row in planned.rows) == sum(point.gap for point in points)
        off = sum(not point.gap and day_in(schedule.timing.timezone, point.at) in calendar.days for point in points)
        assert sum(row.count for row in planned.rows if row.fate is Fate.SKIPPED_CALENDAR) == off
        assert planned.cursor_at == now
        schedule = msgspec.structs.replace(schedule, cursor_at=now)
