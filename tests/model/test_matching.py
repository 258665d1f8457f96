"""The matcher: it agrees with every ledger that is right, and finds whatever is wrong with one."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.model.fates import Fated, plan
from rota.model.matching import WITH_JOB, Matched, match
from rota.model.schedules import Calendar, CatchUp, Fate, Kind, Overlap, Schedule, ScheduleState, Timing
from rota.model.states import Status
from rota.model.values import SECOND, Instant, Job, dashed, instant, moment
from tests.support.proof import size

HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
START = instant(datetime(2026, 3, 27, 12, tzinfo=UTC))


class Row(msgspec.Struct, kw_only=True):
    due_at: Instant
    last_due_at: Instant
    count: int
    fate: Fate
    job_id: str | None = None


class Kept:
    """A ledger as a scheduler keeps it, by `plan`, and the jobs that came of it."""

    def __init__(self, **timing) -> None:
        given = {"kind": Kind.CRON, "cron": "30 */2 * * *", "timezone": "Europe/Berlin"} | timing
        self.schedule = Schedule(
            id="s", name="s", organization="default", template="t", timing=Timing(**given), cursor_at=START, updated_at=moment(START)
        )
        self.calendar: Calendar | None = None
        self.rows: list[Row] = []
        self.jobs: list[Job] = []

    def turn(self, now: Instant) -> Kept:
        if self.schedule.state is ScheduleState.DISABLED:
            return self  # Nobody looks at it.
        planned = plan(self.schedule, now, calendar=self.calendar)
        for fated in planned.rows:
            self.rows.append(self._row(fated))
        self.schedule = msgspec.structs.replace(self.schedule, cursor_at=planned.cursor_at)
        return self

    def set(self, **fields) -> Kept:
        self.schedule = msgspec.structs.replace(self.schedule, **fields)
        return self

    def _row(self, fated: Fated) -> Row:
        job_id = f"{len(self.jobs) + 1:032x}" if fated.fate is Fate.FIRED else None
        if job_id is not None:
            self.jobs.append(job(job_id, fated.due_at))
        return Row(due_at=fated.due_at, last_due_at=fated.last_due_at, count=fated.count, fate=fated.fate, job_id=job_id)

    def match(self, **options) -> Matched:
        return match(self.schedule, self.rows, self.jobs, **options)


def job(job_id: str, due_at: Instant | None, retry_of: str | None = None) -> Job:
    return Job(
        id=dashed(job_id),
        number="JOB-2026-00001",
        status=Status.COMPLETED,
        job_type="t",
        organization="default",
        priority=50,
        position=100,
        attempt=1 if retry_of is None else 2,
        root_id=dashed(job_id),
        created_at=datetime(2026, 3, 27, tzinfo=UTC),
        retry_of=retry_of,
        due_at=moment(due_at),
    )


def two_days() -> Kept:
    """Every two hours, looked at every half hour; a night in which the clock jumps over 02:30."""
    kept = Kept()
    for step in range(1, 97):
        kept.turn(START + step * HOUR // 2)
    return kept


def whats(found: Matched) -> list[str]:
    return [problem.what for problem in found.problems]


def test_a_ledger_that_is_right_matches():
    found = two_days().match()
    assert (found.ok, found.due, found.matched) == (True, 24, 24)


def test_spans_match_with_days_of_a_calendar_inside_them():
    kept = Kept(cron="0 9 * * *", timezone="UTC")
    kept.calendar = Calendar(name="off", days=frozenset({date(2026, 3, 29), date(2026, 3, 30), date(2026, 4, 3)}))
    kept.set(calendar="off").turn(START + 10 * DAY)
    assert [(row.fate, row.count) for row in kept.rows] == [
        (Fate.COALESCED, 6),
        (Fate.SKIPPED_CALENDAR, 2),
        (Fate.SKIPPED_CALENDAR, 1),
        (Fate.FIRED, 1),
    ]
    assert (kept.match().due, kept.match().problems) == (10, ())
    kept.rows[0].count = 7
    assert whats(kept.match()) == ["COALESCED counts 7, and only 6 are there"]


def test_a_skipped_0230_and_a_real_0330_of_one_night_are_two_due_times():
    kept = Kept(cron="30 2,3 * * *").turn(START + DAY).turn(START + 2 * DAY)
    gap, real = [row for row in kept.rows if row.due_at == instant(datetime(2026, 3, 29, 1, 30, tzinfo=UTC))]
    assert {gap.fate, real.fate} == {Fate.SKIPPED_DST_GAP, Fate.FIRED}
    assert kept.match().ok
    kept.rows.remove(gap if gap.fate is Fate.SKIPPED_DST_GAP else real)
    assert whats(kept.match()) == ["the clock jumped over it, and no row says so"]


def test_a_due_time_without_a_fate_is_found():
    kept = two_days()
    lost = kept.rows.pop(7)
    kept.jobs = [each for each in kept.jobs if each.id != dashed(lost.job_id or "")]
    found = kept.match()
    assert [(problem.due_at, problem.what) for problem in found.problems] == [(lost.due_at, "it has no fate")]
    assert (found.due, found.matched) == (24, 23)


def test_a_month_without_any_fate_is_one_problem():
    kept = Kept(cron="* * * * *")
    kept.set(cursor_at=START + 30 * DAY)
    assert whats(kept.match()) == ["43200 due times from here on have no fate"]


def test_a_due_time_with_two_fates_is_found():
    kept = two_days()
    row = kept.rows[7]
    kept.rows.append(Row(due_at=row.due_at, last_due_at=row.due_at, count=1, fate=Fate.MISSED))
    assert whats(kept.match()) == ["it has two fates: FIRED and MISSED"]


def test_a_due_time_that_fired_twice_is_found():
    kept = two_days()
    kept.jobs.append(job("f" * 32, kept.rows[3].due_at))
    assert [what[:14] for what in whats(kept.match())] == ["it fired twice"]


def test_a_job_without_its_row_and_a_row_without_its_job_are_found():
    kept = two_days()
    gone = kept.jobs.pop(4)
    kept.rows[9].fate, kept.rows[9].job_id = Fate.MISSED, None
    assert whats(kept.match()) == [
        f"it fired, and its job {gone.id} is not there",
        f"job {dashed(f'{10:032x}')} was made of it, and no row says so",
    ]


def test_a_job_of_another_due_time_is_found():
    kept = two_days()
    kept.rows[3].job_id, kept.rows[4].job_id = kept.rows[4].job_id, kept.rows[3].job_id
    assert [what[-27:] for what in whats(kept.match())] == ["belongs to another due time"] * 2


def test_a_fate_of_no_due_time_is_found():
    kept = two_days()
    kept.rows.append(Row(due_at=START + 1, last_due_at=START + 1, count=1, fate=Fate.MISSED))
    assert whats(kept.match()) == ["it has a fate, and is no due time of this schedule"]


def test_a_job_of_no_due_time_is_found_and_may_be_accounted_for():
    kept = two_days()
    kept.rows.append(Row(due_at=START + 1, last_due_at=START + 1, count=1, fate=Fate.FIRED, job_id="c" * 32))
    kept.jobs.append(job("c" * 32, START + 1))
    found = kept.match()
    assert [problem.stray for problem in found.problems] == ["c" * 32]
    assert (found.due, found.matched, found.without(lambda _: False)) == (25, 24, found)
    assert (found.without(lambda _: True).ok, found.without(lambda _: True).matched) == (True, 25)


def test_retries_and_jobs_fired_by_hand_need_no_row():
    kept = two_days()
    kept.jobs += [job("e" * 32, None), job("d" * 32, kept.rows[2].due_at, retry_of=kept.jobs[2].id)]
    assert kept.match().ok


def test_one_that_was_given_up_keeps_its_job():
    kept = two_days()
    kept.rows[5].fate = Fate.SKIPPED_DEPENDENCY
    assert kept.match().ok


def test_what_is_older_than_the_last_edit_is_not_held_against_the_definition_of_now():
    kept = two_days()
    edited = kept.schedule.cursor_at
    timing = msgspec.structs.replace(kept.schedule.timing, cron="15 * * * *")
    kept.set(timing=timing, updated_at=moment(edited), version=2)
    for step in range(1, 25):
        kept.turn(edited + step * HOUR)
    assert (kept.match().ok, kept.match().due) == (True, 24 + 24)
    kept.rows.pop(30)
    kept.rows[3].job_id = None
    assert {what[:28] for what in whats(kept.match())} == {
        "it has no fate",
        "it fired, and its row names ",
        "job 00000000-0000-0000-0000-",
    }


def test_what_retention_may_have_removed_is_not_missed():
    kept = two_days()
    forgotten = kept.rows[8].due_at
    kept.jobs, kept.rows = kept.jobs[8:], kept.rows[4:]
    assert not kept.match().ok
    assert kept.match(forgotten_before=forgotten).ok


def test_only_the_window_that_was_asked_for_is_looked_at():
    kept = two_days()
    kept.rows.pop(2)
    kept.rows.pop()
    low, high = kept.rows[4].due_at, kept.rows[-1].due_at
    found = kept.match(since=low, until=high)
    assert (found.ok, found.due) == (True, len(kept.rows) - 5)


def test_what_lies_beyond_the_cursor_is_not_asked_for():
    kept = two_days()
    kept.set(cursor_at=START + DAY)
    assert (kept.match().ok, kept.match().due) == (True, 12)


def test_an_at_of_the_very_moment_it_was_made_is_due():
    kept = Kept(kind=Kind.AT, cron=None, timezone="UTC", at=START).set(cursor_at=START - 1)
    kept.turn(START)
    assert (kept.match().ok, kept.match().due) == (True, 1)
    kept.rows.clear()
    assert not kept.match().ok


def test_a_span_that_reaches_out_of_the_window_is_no_problem():
    kept = Kept(cron="0 * * * *", timezone="UTC").set(state=ScheduleState.PAUSED).turn(START + 5 * DAY)
    assert kept.match(since=START + DAY, until=START + 2 * DAY).problems == ()


TIMINGS = st.sampled_from(
    [
        {"cron": "0 * * * *", "timezone": "UTC"},
        {"cron": "30 2,3 * * *"},
        {"cron": "*/20 1-4 * * *", "timezone": "America/New_York"},
        {"kind": Kind.EVERY, "cron": None, "interval": 5400 * SECOND, "starts_at": START, "timezone": "UTC"},
        {"kind": Kind.AT, "cron": None, "at": START + 30 * HOUR, "timezone": "UTC"},
    ]
)


@st.composite
def ledgers(draw: st.DrawFn) -> Kept:
    """Ledgers of schedules that were looked at now and then, paused and edited now and then."""
    kept = Kept(**draw(TIMINGS))
    kept.set(
        catch_up=draw(st.sampled_from(CatchUp)), overlap=Overlap.ALLOW, catch_up_count=draw(st.sampled_from([None, 2])), calendar="off"
    )
    days = draw(st.sets(st.integers(0, 8), max_size=4))
    kept.calendar = Calendar(name="off", days=frozenset(date(2026, 3, 27) + timedelta(days=day) for day in days))
    now = START
    for hours in draw(st.lists(st.integers(1, 40), min_size=1, max_size=8)):
        now += hours * HOUR
        kept.turn(now)
        if draw(st.integers(0, 5)) == 0:
            kept.set(state=draw(st.sampled_from(ScheduleState)), cursor_at=now, updated_at=moment(now), version=2)
    return kept


@pytest.mark.prove
@settings(max_examples=size(100, prove=5000), deadline=None)
@given(ledgers())
def test_every_ledger_that_plan_writes_matches(kept: Kept):
    found = kept.match()
    assert found.problems == ()
    assert found.due == found.matched == sum(row.count for row in kept.rows)


@pytest.mark.prove
@settings(max_examples=size(100, prove=5000), deadline=None)
@given(ledgers(), st.integers(0, 2**32))
def test_whatever_is_done_to_a_ledger_since_the_last_edit_is_found(kept: Kept, seed: int):
    rng = Random(seed)
    edited = instant(kept.schedule.updated_at or datetime(1970, 1, 1, tzinfo=UTC))
    recent = [row for row in kept.rows if row.due_at > edited]
    if not recent:
        return
    row = rng.choice(recent)
    match rng.choice(["lose", "double", "count", "shift", "job"]):
        case "lose":
            kept.rows.remove(row)
        case "double":
            kept.rows.append(msgspec.structs.replace(row))
        case "count":
            row.count += 1
        case "shift":
            row.due_at += SECOND
        case _:
            if row.fate not in WITH_JOB:
                return
            kept.jobs = [each for each in kept.jobs if each.id != dashed(row.job_id or "")]
    assert not kept.match().ok


@pytest.mark.parametrize(("count", "last"), [(0, START + HOUR), (2, START + HOUR), (1, START + 2 * HOUR)])
def test_a_row_that_contradicts_itself_is_found(count, last):
    kept = Kept(cron="0 * * * *", timezone="UTC").turn(START + HOUR)
    kept.set(cursor_at=START + 3 * HOUR)
    kept.rows[0].count, kept.rows[0].last_due_at = count, last
    assert any("that can't be" in what for what in whats(kept.match()))
