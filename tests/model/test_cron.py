"""Cron expressions: what they name, what is refused, and when that is in zones whose clocks jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo, available_timezones

import pytest

from rota.errors import InvalidSchedule
from rota.model.cron import Cron, day_runs, due_times, gaps, next_due, read_cron
from rota.model.zones import YEAR_S, _jumps_of_year, offset_at, spans, zone_of
from tests.support.proof import size

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp())


def between(expression: str, zone: str, after: str, until: str) -> list[str]:
    """Due times as people of the zone read them; what the clock jumped over is marked."""
    found = due_times(read_cron(expression), zone_of(zone), at(after), at(until))
    shown = [(datetime.fromtimestamp(due.at, zone_of(zone)), due.gap) for due in found]
    return [f"{moment:%m-%d %H:%M%z}{' gap' if gap else ''}" for moment, gap in shown]


# ---- fields ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("0 9 * * *", "2026-01-01 09:00"),
        ("*/15 * * * *", "2026-01-01 00:15"),
        ("5,35 * * * *", "2026-01-01 00:05"),
        ("10-20/5 3 * * *", "2026-01-01 03:10"),
        ("0 0 * JUN *", "2026-06-01 00:00"),
        ("0 0 * * SAT", "2026-01-03 00:00"),
        ("0 0 * * 7", "2026-01-04 00:00"),
        ("0 0 * * 0", "2026-01-04 00:00"),
        ("0 0 * * sun", "2026-01-04 00:00"),
        ("0 0 L * *", "2026-01-31 00:00"),
        ("0 0 LW * *", "2026-01-30 00:00"),
        ("0 0 * * MON#2", "2026-01-12 00:00"),
        ("0 0 * * 5L", "2026-01-30 00:00"),
        ("0 0 * * FRIL", "2026-01-30 00:00"),
        ("30-30/15 0 * * *", "2026-01-01 00:30"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("@hourly", "2026-01-01 01:00"),
        ("@daily", "2026-01-02 00:00"),
        ("@midnight", "2026-01-02 00:00"),
        ("@weekly", "2026-01-04 00:00"),
        ("@monthly", "2026-02-01 00:00"),
        ("@yearly", "2027-01-01 00:00"),
        ("@annually", "2027-01-01 00:00"),
    ],
)
def test_an_expression_names_its_first_time(expression, first):
    found = next_due(read_cron(expression), zone_of("UTC"), at("2026-01-01T00:00:00+00:00"))
    assert found is not None
    assert f"{datetime.fromtimestamp(found, UTC):%Y-%m-%d %H:%M}" == first


def test_where_both_day_fields_are_restricted_either_is_enough():
    days = between("0 0 13 * FRI", "UTC", "2026-02-01T00:00:00+00:00", "2026-02-28T00:00:00+00:00")
    assert [day[:5] for day in days] == ["02-06", "02-13", "02-20", "02-27"]
    assert len(between("0 0 10 * FRI", "UTC", "2026-02-01T00:00:00+00:00", "2026-02-28T00:00:00+00:00")) == 5


def test_where_one_day_field_is_a_star_the_other_decides():
    days = between("0 0 */2 * FRI", "UTC", "2026-02-01T00:00:00+00:00", "2026-02-28T00:00:00+00:00")
    assert [day[:5] for day in days] == ["02-13", "02-27"]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("61 * * * *", "minute 61 is out of range 0-59"),
        ("* 24 * * *", "hour 24 is out of range 0-23"),
        ("0 0 0 * *", "day of month 0 is out of range 1-31"),
        ("0 0 * 13 *", "month 13 is out of range 1-12"),
        ("0 0 * * 8", "day of week 8 is out of range 0-7"),
        ("0 0 * FOO *", "month 'FOO' is not understood: give 1-12, or JAN to DEC"),
        ("*/0 * * * *", r"minute '\*/0' has a step of '0'"),
        ("0 */x * * *", r"hour '\*/X' has a step of 'X'"),
        ("0 0 * * FRI-MON", "day of week 'FRI-MON' runs backwards"),
        ("0 0 30 2 *", "none of its months has such a day"),
        ("0 0 31 4,6 *", "none of its months has such a day"),
        ("0 9 * *", "has 4 fields: give five"),
        ("0 0 9 * * *", "has 6 fields: give five"),
        ("", "is not a cron expression"),
        ("@fortnightly", "is not one of @hourly"),
        ("0 0 * * MON#6", "day of week 'MON#6' is not understood"),
        ("0 0 * * MON#2/2", "day of week 'MON#2/2' has a step, which 'MON#2' can't have"),
        ("0 0 * * FRIL/2", "day of week '5L/2' has a step, which '5L' can't have"),
        ("\u0663 * * * *", "minute '\u0663' is not understood: give 0-59"),
        ("1" * 5000 + " * * * *", "minute .* is not understood: give 0-59"),
        ("*/" + "1" * 5000 + " * * * *", "minute .* has a step of"),
    ],
)
def test_a_bad_expression_is_refused_naming_field_value_and_what_is_allowed(expression, words):
    with pytest.raises(InvalidSchedule, match=words):
        read_cron(expression)


@pytest.mark.parametrize(
    ("expression", "plain"),
    [
        ("5-5/15 * * * *", "5 * * * *"),
        ("0 12-12/4 * * *", "0 12 * * *"),
        ("0 0 11-11/2,20 * *", "0 0 11,20 * *"),
        ("0 0 * 4-APR/3 *", "0 0 * 4 *"),
        ("0 0 * * MON-MON/4", "0 0 * * MON"),
    ],
)
def test_a_range_of_one_with_a_step_is_that_one(expression, plain):
    found, single = read_cron(expression), read_cron(plain)
    assert (found.times, found.plain) == (single.times, plain)
    days = [datetime(2026, 1, 1, tzinfo=UTC).date() + timedelta(days=day) for day in range(365)]
    assert [found.on(day) for day in days] == [single.on(day) for day in days]


def test_a_day_that_comes_once_in_decades_is_found():
    # A February with five Sundays: a leap year that begins its February on one.
    found = next_due(read_cron("0 0 * 2 SUN#5"), zone_of("UTC"), at("2026-01-01T00:00:00+00:00"))
    assert found == at("2032-02-29T00:00:00+00:00")


# ---- clocks that jump ----------------------------------------------------------------------------------------------------


def test_a_time_in_the_spring_gap_does_not_happen_and_is_told():
    assert between("30 2 * * *", BERLIN, "2026-03-28T00:00:00+01:00", "2026-03-31T00:00:00+02:00") == [
        "03-28 02:30+0100",
        "03-29 03:30+0200 gap",
        "03-30 02:30+0200",
    ]


def test_a_skipped_half_past_two_and_a_real_half_past_three_are_two():
    night = between("30 2,3 * * *", BERLIN, "2026-03-29T00:00:00+01:00", "2026-03-29T12:00:00+02:00")
    assert sorted(night) == ["03-29 03:30+0200", "03-29 03:30+0200 gap"]


def test_a_time_that_comes_twice_in_autumn_happens_once_at_the_first():
    assert between("30 2 * * *", BERLIN, "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00") == ["10-25 02:30+0200"]
    assert between("30 1 * * *", NEW_YORK, "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00") == ["11-01 01:30-0400"]


def test_a_star_in_the_hour_field_keeps_its_beat_through_both_hours():
    assert between("0 * * * *", BERLIN, "2026-10-25T00:30:00+02:00", "2026-10-25T04:00:00+01:00") == [
        "10-25 01:00+0200",
        "10-25 02:00+0200",
        "10-25 02:00+0100",
        "10-25 03:00+0100",
        "10-25 04:00+0100",
    ]
    assert between("0 * * * *", BERLIN, "2026-03-29T00:30:00+01:00", "2026-03-29T04:00:00+02:00") == [
        "03-29 01:00+0100",
        "03-29 03:00+0200",
        "03-29 04:00+0200",
    ]


def test_a_day_that_a_zone_left_out_is_a_gap():
    # Samoa went from the 29th to the 31st of December 2011.
    assert between("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00:00-10:00", "2012-01-01T00:00:00+14:00") == [
        "12-29 09:00-1000",
        "12-31 09:00+1400 gap",
        "12-31 09:00+1400",
    ]


def test_a_midnight_that_is_jumped_over_is_a_gap():
    night = between("0 0 * * *", "Asia/Beirut", "2026-03-28T12:00:00+02:00", "2026-03-30T12:00:00+03:00")
    assert night == ["03-29 01:00+0300 gap", "03-30 00:00+0300"]


# ---- against a walk minute by minute ---------------------------------------------------------------------------------------

EXPRESSIONS = (
    "30 2 * * *",
    "*/15 * * * *",
    "0 */2 * * *",
    "15,45 1-3 * * *",
    "0 0 * * *",
    "59 23 * * *",
    "*/7 0-23 * * *",
    "30 1 L * *",
    "0 3 * * SUN",
)


def walked(cron: Cron, zone: ZoneInfo, after: int, until: int) -> list[tuple[int, bool]]:
    """Due times found by looking at each minute's wall clock, one after the other."""
    found: list[tuple[int, bool]] = []
    seen: set[datetime] = set()
    before: datetime | None = None
    for minute in range(after // 60 * 60, until + 1, 60):
        wall = datetime.fromtimestamp(minute, zone).replace(tzinfo=None, fold=0)
        if before is not None and not cron.cadence:
            missed, step = before + timedelta(minutes=1), 0
            while missed < wall:
                if names(cron, missed):
                    found.append((minute + 60 * step, True))
                missed, step = missed + timedelta(minutes=1), step + 1
        if names(cron, wall) and (cron.cadence or wall not in seen):
            found.append((minute, False))
        seen.add(wall)
        before = wall
    return sorted(due for due in found if after < due[0] <= until)


def names(cron: Cron, wall: datetime) -> bool:
    return wall.minute in cron.fields.minutes and wall.hour in cron.fields.hours and wall.second == 0 and cron.on(wall.date())


ODD_ZONES = (
    "Africa/Casablanca",
    "America/New_York",
    "Antarctica/Troll",
    "Asia/Gaza",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Pacific/Apia",
)
"""They jump by half an hour, by a day or two hours, backwards in summer, or four times a year."""


def jumps(zone: ZoneInfo) -> list[int]:
    """The jumps of twenty years."""
    first, last = at("2015-01-01T00:00:00+00:00"), at("2035-01-01T00:00:00+00:00")
    return [jump for year in range(first // YEAR_S, last // YEAR_S + 1) for jump in _jumps_of_year(zone, year) if first <= jump < last]


def different_zones(step: int) -> list[ZoneInfo]:
    """One zone for each way of jumping, of the odd ones and every so manieth other: most names are other names of the same clock."""
    by_clock: dict[tuple[tuple[int, int], ...], ZoneInfo] = {}
    for name in [*ODD_ZONES, *sorted(available_timezones())[::step]]:
        zone = zone_of(name)
        by_clock.setdefault(tuple((jump, offset_at(zone, jump)) for jump in jumps(zone)), zone)
    return list(by_clock.values())


@pytest.mark.prove
def test_every_jump_of_a_zone_in_twenty_years_agrees_with_a_walk_minute_by_minute():
    chance = Random(1)
    looked_at = 0
    for zone in different_zones(size(12, prove=1)):
        for jump in jumps(zone):
            cron = read_cron(chance.choice(EXPRESSIONS))
            after, until = jump - chance.randrange(7_200, 14_400), jump + chance.randrange(7_200, 14_400)
            ours = [(due.at, due.gap) for due in due_times(cron, zone, after, until)]
            assert sorted(ours) == walked(cron, zone, after, until), (zone.key, cron.text, after, until)
            assert [due for due, _ in ours] == sorted(due for due, _ in ours)
            assert [due for due, gap in ours if gap] == list(gaps(cron, zone, after, until))
            looked_at += 1
    assert looked_at > size(300, prove=1000)


def test_runs_of_days_and_the_next_one_agree_with_the_walk_over_each():
    chance = Random(4)
    zones = [zone_of(name) for name in ("UTC", BERLIN, NEW_YORK, "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca")]
    for _ in range(300):
        cron, zone = read_cron(chance.choice(EXPRESSIONS)), chance.choice(zones)
        after = chance.randrange(at("2011-01-01T00:00:00+00:00"), at("2030-01-01T00:00:00+00:00"))
        until = after + chance.randrange(90 * 86_400)
        each = [due.at for due in due_times(cron, zone, after, until) if not due.gap]
        runs = list(day_runs(cron, zone, after, until))
        assert sum(run.count for run in runs) == len(each)
        if each:
            assert (runs[0].first, runs[-1].last) == (each[0], each[-1])
            assert next_due(cron, zone, after) == each[0]


# ---- zones ----------------------------------------------------------------------------------------------------------------


def test_spans_cover_a_stretch_without_a_hole_and_each_has_one_offset():
    zone = zone_of(BERLIN)
    found = list(spans(zone, at("2026-01-01T00:00:00+00:00"), at("2027-01-01T00:00:00+00:00")))
    assert [span.offset // 3600 for span in found] == [1, 2, 1]
    assert all(one.end == other.start for one, other in pairwise(found))
    assert all(offset_at(zone, span.start) == offset_at(zone, span.end - 1) == span.offset for span in found)


@pytest.mark.parametrize("name", ["", "Berlin", "Europe/Nowhere", "../etc/passwd", "/etc/passwd"])
def test_a_zone_that_is_none_is_refused_with_what_is_near(name):
    with pytest.raises(InvalidSchedule, match="is not an IANA name"):
        zone_of(name)


def test_a_zone_that_is_nearly_right_is_told():
    with pytest.raises(InvalidSchedule, match="Europe/Berlin"):
        zone_of("berlin")
