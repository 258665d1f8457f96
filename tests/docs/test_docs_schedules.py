"""The page about schedules says what the model does: two nights, every fate, every option, every setting."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from rota import Settings
from rota.engine.trigger import QUIET
from rota.model.schedule_options import OPTIONS, TAKEN
from rota.model.schedules import Fate, Kind, Timing, lattice_of
from rota.model.values import SECOND, instant
from rota.model.words import in_words
from tests.docs.pages import page, rows

GUIDE = page("docs/guide/schedules.md")
BERLIN = ZoneInfo("Europe/Berlin")
NIGHTS = {
    "Berlin, 29 March 2026": datetime(2026, 3, 29, tzinfo=BERLIN),
    "Berlin, 25 October 2026": datetime(2026, 10, 25, tzinfo=BERLIN),
}


def _night(heading):
    _, _, after = GUIDE.partition(f"{heading}, from midnight to 05:00")
    return [row for row in rows(after.partition("\n\n")[2].partition("\n\n")[0]) if row[0].startswith("`")]


@pytest.mark.parametrize(("heading", "row"), [(heading, row) for heading in NIGHTS for row in _night(heading)], ids=str)
def test_the_tables_of_the_two_nights_are_what_fires(heading, row):
    cron, local, utc, remark = row
    midnight = NIGHTS[heading]
    lattice = lattice_of(Timing(kind=Kind.CRON, cron=cron.strip("`"), timezone="Europe/Berlin"))
    points = list(lattice.points(instant(midnight) - 1, instant(midnight.replace(hour=5)) - 1))
    real = [datetime.fromtimestamp(point.at / SECOND, UTC) for point in points if not point.gap]
    assert re.findall(r"\d\d:\d\d", utc) == [f"{at:%H:%M}" for at in real]
    assert re.findall(r"\d\d:\d\d", local) == [f"{at.astimezone(BERLIN):%H:%M}" for at in real]
    assert ("SKIPPED_DST_GAP" in remark) == any(point.gap for point in points)


def test_both_nights_are_shown():
    assert [len(_night(heading)) for heading in NIGHTS] == [4, 3]


def test_the_words_beside_cron_every_and_at_are_those_that_are_said():
    said = {row[0].strip("`"): row[2].strip('"') for row in rows(GUIDE) if row[0].endswith('"`') and "=" in row[0]}
    at = instant(datetime.fromisoformat("2026-06-01T09:00:00+02:00"))
    assert said == {
        'cron="0 9 * * MON-FRI"': in_words(Timing(kind=Kind.CRON, cron="0 9 * * MON-FRI")),
        'every="15m"': in_words(Timing(kind=Kind.EVERY, interval=15 * 60 * SECOND)),
        'at="2026-06-01T09:00:00+02:00"': in_words(Timing(kind=Kind.AT, at=at)),
    }


def test_every_fate_stands_there_and_says_whether_it_is_warned_of():
    table = {row[0]: row[2] for row in rows(GUIDE) if row[0] in set(Fate)}
    assert table.pop(Fate.FIRED) == "if that is a dead letter"
    assert table.pop(Fate.OVERDUE) == "no worker is there to"
    assert table == {fate: "" if fate in QUIET else "yes" for fate in Fate if fate not in {Fate.FIRED, Fate.OVERDUE}}


def test_every_option_of_a_schedule_stands_in_the_reference():
    section = page("docs/reference/python.md").partition("\n### Schedules\n")[2].partition("\n#### ")[0]
    named = {name for row in rows(section) for name in re.findall(r"`(\w+)`", row[0])}
    assert named | {"template"} == set(OPTIONS)


def test_the_options_of_the_decorator_are_named():
    section = GUIDE.partition("### In the decorator")[2].partition("\n## ")[0]
    assert set(TAKEN) <= set(re.findall(r"`(\w+)`", section))


def test_the_settings_of_schedules_stand_with_their_defaults():
    shown = {row[0].strip("`"): row[1] for row in rows(GUIDE.partition("## Limits and settings")[2])}
    plain = Settings()
    assert shown == {
        "schedule_grace": f"{plain.schedule_grace:g} s",
        "schedule_batch": f"{plain.schedule_batch:,}",
        "catch_up_max": f"{plain.catch_up_max:,}",
        "catch_up_rate": plain.catch_up_rate or "none",
        "dependency_wait": f"{plain.dependency_wait / 86_400:g} day",
        "calendar_max": f"{plain.calendar_max:,}",
        "forecast_max": f"{plain.forecast_max:,}",
        "forecast_simulated_max": f"{plain.forecast_simulated_max:,}",
    }
