"""Looking ahead: the same fates that `plan` gives, in one line of time, bounded, with what waits and what queues."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import count

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.model.fates import plan
from rota.model.forecast import Ahead, Jumps, Seen, compare, count_by_hour, list_due, look_ahead, per_hour
from rota.model.prospects import Outcomes, Prospect, dues
from rota.model.schedules import Calendar, CatchUp, Fate, Kind, Overlap, Schedule, ScheduleState, Timing, lattice_of
from rota.model.values import SECOND, Instant, instant, moment
from tests.support.proof import size

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
START = instant(datetime(2026, 3, 27, 12, tzinfo=UTC))
IDS = count()


def prospect(name: str = "s", *, calendar: Calendar | None = None, **fields) -> Prospect:
    around = {key: fields.pop(key) for key in ("refused", "already", "since", "completed_at") if key in fields}
    said = {key: fields.pop(key) for key in ("depends_on", "state") if key in fields}
    timing = Timing(**({"kind": Kind.CRON, "cron": "0 * * * *"} | fields))
    schedule = Schedule(id=f"{next(IDS)}", name=name, organization="default", template="t", timing=timing, **said)
    return Prospect(schedule=schedule, calendar=calendar, **({"since": START} | around))


def ahead(*prospects: Prospect, hours: float = 24, most: int = 1000, skipped: bool = False, wait: Instant = HOUR) -> Ahead:
    until = START + round(hours * HOUR)
    table = list_due(prospects, START, until, most=most, skipped=skipped)
    return look_ahead(prospects, table, outcomes=Outcomes(prospects, wait=wait, most=most), foresee=lambda *_: None, skipped=skipped)


def told(found: Ahead) -> list[str]:
    return [f"{item.prospect.schedule.name} {moment(item.due_at):%d %H:%M} {item.fate}" for item in found.items]


def ready(found: Ahead, name: str) -> list[str]:
    items = [item for item in found.items if item.prospect.schedule.name == name]
    return [f"{moment(item.due_at):%H:%M} {item.fate} {moment(item.starts_at or item.due_at):%H:%M}" for item in items]


def test_schedules_come_in_one_line_and_those_of_one_moment_in_the_order_given():
    found = ahead(prospect("b"), prospect("a", cron="*/30 * * * *"), hours=1)
    assert told(found) == ["a 27 12:30 FIRED", "b 27 13:00 FIRED", "a 27 13:00 FIRED"]


def test_the_start_of_a_window_is_left_out_and_its_end_is_in():
    assert told(ahead(prospect(), hours=2)) == ["s 27 13:00 FIRED", "s 27 14:00 FIRED"]


def test_what_does_not_run_is_left_out_unless_it_is_asked_for():
    off = Calendar(name="off", days=frozenset({date(2026, 3, 28)}))
    all_of_them = [
        prospect("paused", cron="0 1 * * *", state=ScheduleState.PAUSED),
        prospect("off", cron="0 2 * * *", calendar=off),
        prospect("gap", cron="30 2 * * *", timezone="Europe/Berlin"),
        prospect("refused", cron="0 3 * * *", refused="no such template"),
        prospect("disabled", state=ScheduleState.DISABLED),
    ]
    assert told(ahead(*all_of_them, hours=39)) == ["gap 28 01:30 FIRED", "off 29 02:00 FIRED"]
    assert told(ahead(*all_of_them, hours=39, skipped=True)) == [
        "paused 28 01:00 SKIPPED_PAUSED",
        "gap 28 01:30 FIRED",
        "off 28 02:00 SKIPPED_CALENDAR",
        "refused 28 03:00 REFUSED",
        "paused 29 01:00 SKIPPED_PAUSED",
        "gap 29 01:30 SKIPPED_DST_GAP",
        "off 29 02:00 FIRED",
        "refused 29 03:00 REFUSED",
    ]


def test_what_fired_when_the_clock_was_ahead_does_not_fire_again():
    found = ahead(prospect(already=frozenset({START + 2 * HOUR})), hours=3)
    assert told(found) == ["s 27 13:00 FIRED", "s 27 15:00 FIRED"]


def test_a_thousand_minute_schedules_are_bounded_and_not_walked_to_their_end():
    many = [prospect(f"{number}", cron="* * * * *") for number in range(1000)]
    found = ahead(*many, hours=24 * 365 * 50, most=5000)
    assert (len(found.items), found.cut) == (5000, True)
    assert found.items[-1].due_at == START + 5 * MINUTE


def test_exactly_as_many_as_the_bound_are_not_cut():
    assert (len(ahead(prospect(), hours=5, most=5).items), ahead(prospect(), hours=5, most=5).cut) == (5, False)
    assert ahead(prospect(), hours=5, most=4).cut


def test_years_of_excluded_days_are_passed_over():
    days = frozenset(date(2026, 3, 27) + timedelta(days=number) for number in range(3000))
    found = ahead(
        prospect(kind=Kind.EVERY, interval=SECOND, starts_at=START, calendar=Calendar(name="off", days=days)), hours=24 * 3000, most=5
    )
    assert (found.items[0].due_at, found.cut) == (instant(datetime(2034, 6, 13, tzinfo=UTC)), True)


# ---- waiting for other schedules ------------------------------------------------------------------------------------


def test_who_depends_on_an_earlier_or_simultaneous_due_time_runs_at_once():
    parent, child = prospect("p", cron="0,30 * * * *"), prospect("c", depends_on=("p",))
    assert ready(ahead(parent, child, hours=2), "c") == ["13:00 FIRED 13:00", "14:00 FIRED 14:00"]


def test_who_depends_on_a_later_due_time_waits_for_it():
    parent, child = prospect("p", cron="20 */2 * * *"), prospect("c", depends_on=("p",))
    assert ready(ahead(parent, child, hours=4, skipped=True), "c") == [
        "13:00 FIRED 13:00",
        "14:00 FIRED 14:20",
        "15:00 FIRED 15:00",
        "16:00 FIRED 16:20",
    ]


def test_who_waits_until_its_own_next_due_time_is_given_up():
    parent, child = prospect("p", cron="0 */3 * * *"), prospect("c", cron="30 * * * *", depends_on=("p",))
    assert ready(ahead(parent, child, hours=4, skipped=True), "c") == [
        "12:30 SKIPPED_DEPENDENCY 12:30",
        "13:30 SKIPPED_DEPENDENCY 13:30",
        "14:30 FIRED 15:00",
        "15:30 FIRED 15:30",
    ]


def test_a_last_due_time_waits_as_long_as_the_setting_says():
    parent, child = prospect("p"), prospect("c", kind=Kind.AT, cron=None, at=START + MINUTE, depends_on=("p",))
    parent = msgspec.structs.replace(parent, since=START)
    assert ready(ahead(parent, child, wait=HOUR), "c") == ["12:01 FIRED 13:00"]
    assert ready(ahead(parent, child, wait=30 * MINUTE, skipped=True), "c") == ["12:01 SKIPPED_DEPENDENCY 12:01"]


def test_what_completed_before_the_window_counts():
    child = prospect("c", cron="0 0 * * *", depends_on=("p",))
    lost = prospect("p", cron="0 0 1 1 *")
    assert ready(ahead(lost, child, skipped=True), "c") == ["00:00 SKIPPED_DEPENDENCY 00:00"]
    assert ready(ahead(msgspec.structs.replace(lost, completed_at=START - HOUR), child), "c") == ["00:00 FIRED 00:00"]
    assert ready(ahead(msgspec.structs.replace(lost, completed_at=START - DAY), child), "c") == []


def test_who_is_paused_disabled_or_refused_lets_nobody_run():
    child = prospect("c", depends_on=("p",))
    for fields in ({"state": ScheduleState.PAUSED}, {"state": ScheduleState.DISABLED}, {"refused": "no"}):
        assert ready(ahead(prospect("p", **fields), child), "c") == []


def test_who_waits_makes_others_wait():
    first = prospect("a", cron="40 * * * *")
    second = prospect("b", cron="20 */2 * * *", depends_on=("a",))
    third = prospect("c", cron="30 * * * *", depends_on=("b",))
    found = ahead(first, second, third, hours=4, skipped=True)
    assert ready(found, "b") == ["12:20 FIRED 12:40", "14:20 FIRED 14:20"]
    assert ready(found, "c") == ["12:30 FIRED 12:40", "13:30 FIRED 13:30", "14:30 FIRED 14:30", "15:30 FIRED 16:20"]


def test_a_search_without_end_is_cut():
    never = prospect("n", kind=Kind.EVERY, interval=SECOND, starts_at=START, depends_on=("d",))
    child = prospect("c", cron="0 0 1 1 *", depends_on=("n",))
    found = ahead(prospect("d", state=ScheduleState.PAUSED), child, never, hours=24 * 365)
    assert (found.items, found.cut) == ([], True)


# ---- clocks that jump -----------------------------------------------------------------------------------------------


def test_jumps_of_the_zones_that_are_followed_are_told():
    berlin, kolkata = prospect(timezone="Europe/Berlin"), prospect(timezone="Asia/Kolkata")
    odd = prospect(timezone="Australia/Lord_Howe")
    every = prospect(kind=Kind.EVERY, cron=None, interval=HOUR, starts_at=START, timezone="America/New_York")
    jumps = Jumps([berlin, kolkata, odd, every], START, START + 10 * DAY)
    assert [jump.words() for jump in jumps.inside()] == [
        "the clock of Europe/Berlin goes from UTC+1 to UTC+2 at 2026-03-29T01:00:00Z",
        "the clock of Australia/Lord_Howe goes from UTC+11 to UTC+10:30 at 2026-04-04T15:00:00Z",
    ]
    assert [jumps.near(berlin, START + at * HOUR) is not None for at in (0, 24, 60, 72)] == [False, True, True, False]
    assert jumps.near(every, START + DAY) is None


# ---- what a simulation says -----------------------------------------------------------------------------------------


def test_what_a_simulation_says_of_a_due_time_counts_and_else_the_definitions():
    one, other = prospect("one"), prospect("other", depends_on=("one",))
    said = {
        (one.schedule.id, START + HOUR): Seen(fate=Fate.SKIPPED_OVERLAP),
        (other.schedule.id, START + HOUR): Seen(fate=Fate.FIRED, starts_at=START + HOUR + MINUTE),
    }
    table = list_due([one, other], START, START + 2 * HOUR, most=10)
    outcomes = Outcomes([one, other], wait=HOUR, most=10)
    found = look_ahead([one, other], table, outcomes=outcomes, foresee=lambda *key: said.get(key), skipped=True)
    assert told(found)[0] == "one 27 13:00 SKIPPED_OVERLAP"
    assert ready(found, "other") == ["13:00 FIRED 13:01", "14:00 FIRED 14:00"]
    assert told(look_ahead([one, other], table, outcomes=outcomes, foresee=lambda *key: said.get(key)))[0] == "other 27 13:00 FIRED"


# ---- by the hour ----------------------------------------------------------------------------------------------------


def test_density_counts_by_the_hour():
    assert per_hour([START, START + MINUTE, START + 3 * HOUR]) == [(START, 2), (START + 3 * HOUR, 1)]
    assert per_hour([]) == []


def test_hours_are_counted_without_a_walk_over_their_due_times():
    many = [prospect(f"{number}", kind=Kind.EVERY, cron=None, interval=SECOND, starts_at=START - number) for number in range(100)]
    found = count_by_hour(many, START, START + DAY)
    assert (len(found.begins), found.counts[:2], found.counts[-1]) == (25, (100 * 3600 - 1, 100 * 3600), 1)
    assert sum(found.counts) == sum(found.by_schedule) == 100 * 86_400


def test_hours_count_nothing_that_does_not_run():
    off = Calendar(name="off", days=frozenset({date(2026, 3, 28)}))
    some = [
        prospect("off", calendar=off),
        prospect("paused", state=ScheduleState.PAUSED),
        prospect("disabled", state=ScheduleState.DISABLED),
        prospect("refused", refused="no"),
        prospect("already", already=frozenset({START + HOUR, START + HOUR + 1})),
    ]
    assert count_by_hour(some, START, START + DAY).by_schedule == (11, 0, 0, 0, 23)


# ---- what a change would do -----------------------------------------------------------------------------------------


def test_a_change_is_told_by_what_comes_and_goes():
    change = compare(prospect(cron="0 9,12 * * *"), prospect(cron="0 12,15 * * *"), START, START + DAY, most=100)
    assert [f"{moment(at):%d %H}" for at in change.added] == ["27 15"]
    assert [f"{moment(at):%d %H}" for at in change.removed] == ["28 09"]
    assert (change.kept, change.until) == (1, START + DAY)


def test_a_change_of_more_than_can_be_told_ends_where_both_are_complete():
    change = compare(prospect(cron="* * * * *"), prospect(), START, START + DAY, most=100)
    assert (change.until, len(change.removed), change.kept) == (START + 101 * MINUTE - 1, 99, 1)


# ---- against the one function that decides --------------------------------------------------------------------------

TIMINGS = st.sampled_from(
    [
        {"cron": "0 * * * *"},
        {"cron": "30 2,3 * * *", "timezone": "Europe/Berlin"},
        {"cron": "*/20 1-4 * * SAT,SUN", "timezone": "America/New_York"},
        {"cron": "0 0 29 3 *", "timezone": "America/Sao_Paulo"},
        {"kind": Kind.EVERY, "cron": None, "interval": 5400 * SECOND, "starts_at": START + HOUR, "ends_at": START + 3 * DAY},
        {"kind": Kind.AT, "cron": None, "at": START + 30 * HOUR},
    ]
)


@pytest.mark.prove
@settings(max_examples=size(100, prove=5000), deadline=None)
@given(TIMINGS, st.sampled_from(ScheduleState), st.sets(st.integers(-1, 6), max_size=4), st.integers(1, 120))
def test_what_is_foreseen_is_what_plan_gives_at_each_due_time(fields, state, days, hours):
    off = Calendar(name="off", days=frozenset(date(2026, 3, 27) + timedelta(days=day) for day in days))
    looked = prospect(calendar=off, state=state, **fields)
    schedule = msgspec.structs.replace(
        looked.schedule, cursor_at=START, calendar="off", catch_up=CatchUp.ALL, overlap=Overlap.ALLOW, catch_up_count=10_000
    )
    until = START + hours * HOUR
    found: list[tuple[Instant, Fate]] = []
    now = START
    while now < until:
        now = min(until, lattice_of(schedule.timing).next(now) or until)
        planned = plan(schedule, now, calendar=off)
        for row in planned.rows:
            found += [(row.due_at, row.fate)]
            assert row.count == 1
        schedule = msgspec.structs.replace(schedule, cursor_at=planned.cursor_at)
    assert [(due.at, due.fate) for due in dues(looked, START, until, skipped=True)] == sorted(found, key=_order)
    assert [due.at for due in dues(looked, START, until)] == [at for at, fate in found if fate is Fate.FIRED]


@settings(max_examples=200, deadline=None)
@given(TIMINGS, st.sets(st.integers(-1, 6), max_size=4), st.integers(0, 50 * 3600 * 10**6), st.integers(1, 100 * 3600 * 10**6))
def test_hours_count_what_a_walk_would(fields, days, begins, length):
    off = Calendar(name="off", days=frozenset(date(2026, 3, 27) + timedelta(days=day) for day in days))
    looked, after = prospect(calendar=off, **fields), START + begins
    found = count_by_hour([looked, looked], after, after + length)
    walked = dict(per_hour([due.at for due in dues(looked, after, after + length)]))
    assert dict(zip(found.begins, found.counts, strict=True)) == {begin: 2 * walked.get(begin, 0) for begin in found.begins}
    assert set(walked) <= set(found.begins)


def _order(pair: tuple[Instant, Fate]) -> tuple[Instant, bool]:
    return pair[0], pair[1] is not Fate.SKIPPED_DST_GAP


@pytest.mark.parametrize("skipped", [False, True])
def test_a_disabled_schedule_has_nothing_to_come(skipped):
    assert list(dues(prospect(state=ScheduleState.DISABLED), START, START + DAY, skipped=skipped)) == []
