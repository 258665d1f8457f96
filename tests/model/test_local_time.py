"""Moments as people read and type them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from rota.errors import InvalidOption
from rota.model.local_time import length_text, localized, read_moment, shown, start_of, written

BERLIN = ZoneInfo("Europe/Berlin")
LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def test_a_sentence_has_its_moments_in_the_zone_and_the_rest_as_it_is():
    text = "due at 2026-11-16T05:27:40Z (2026-07-16T05:27:40.123Z), not 2026-11-16T05:27Z, x2026-11-16T05:27:40Z or 2026-13-16T05:27:40Z"
    assert localized(text, BERLIN) == (
        "due at 2026-11-16 06:27:40 CET (2026-07-16 07:27:40 CEST), not 2026-11-16T05:27Z, x2026-11-16T05:27:40Z or 2026-13-16T05:27:40Z"
    )


def test_the_end_of_the_calendar_is_shown_in_utc():
    assert written(LAST) == "9999-12-31T23:59:59Z"
    assert shown(LAST, ZoneInfo("Pacific/Kiritimati")) == "9999-12-31 23:59:59 UTC"


@pytest.mark.parametrize(
    ("zone", "day", "starts"),
    [
        ("Europe/Berlin", date(2026, 10, 25), "2026-10-24T22:00:00Z"),
        ("America/Havana", date(2026, 3, 8), "2026-03-08T05:00:00Z"),
        ("America/Havana", date(2026, 11, 1), "2026-11-01T04:00:00Z"),
    ],
    ids=["plain", "midnight is skipped", "midnight comes twice"],
)
def test_a_day_begins_at_its_first_moment(zone: str, day: date, starts: str):
    assert written(start_of(day, ZoneInfo(zone))) == starts


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0 s"),
        (5, "5 s"),
        (3.42, "3.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.7, "1 m 00 s"),
        (2959, "49 m 19 s"),
        (7500, "2 h 05 m"),
        (273_600, "3 d 4 h"),
    ],
)
def test_lengths_are_for_people(seconds: float, words: str):
    assert length_text(seconds) == words


def test_a_day_is_its_first_moment_where_a_day_is_enough():
    assert written(read_moment("2026-11-16", BERLIN, day=True).at) == "2026-11-15T23:00:00Z"
    with pytest.raises(InvalidOption, match="is a day without a time"):
        read_moment("2026-11-16", BERLIN)
