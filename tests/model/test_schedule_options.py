"""What people say of a schedule: what is not a text, or lies beyond the calendar, is refused by name and never by accident."""

from __future__ import annotations

import pytest

from rota.errors import InvalidSchedule
from rota.model.schedule_options import with_options
from rota.model.schedules import Kind, Schedule, Timing
from rota.model.values import SECOND

NOW = 1_780_000_000 * SECOND
PLAIN = Schedule(id="s", name="s", organization="o", template="t", timing=Timing(kind=Kind.CRON))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cron": 5}, "cron=5 is not a text: give five fields"),
        ({"cron": ["0 9 * * *"]}, r"cron=\['0 9 \* \* \*'\] is not a text"),
        ({"cron": b"0 9 * * *"}, "is not a text"),
        ({"cron": "0 9 * * *", "timezone": 1}, "timezone=1 is not a text: give an IANA name"),
        ({"cron": "0 9 * * *", "timezone": ["UTC"]}, r"timezone=\['UTC'\] is not a text"),
        ({"cron": "0 9 * * *", "timezone": b"UTC"}, "is not a text"),
    ],
)
def test_a_rule_or_a_zone_that_is_no_text_is_refused_naming_it(options, words):
    with pytest.raises(InvalidSchedule, match=words):
        with_options(PLAIN, options, NOW)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize(("cron", "starts"), [("0 0 1 1 *", "9999-06-01T00:00:00Z"), ("0 0 * * *", "9999-12-31T23:59:00Z")])
def test_what_is_due_only_after_the_last_day_of_the_calendar_is_never_due(zone, cron, starts):
    with pytest.raises(InvalidSchedule, match="has no due time"):
        with_options(PLAIN, {"cron": cron, "timezone": zone, "starts": starts}, NOW)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Asia/Tokyo", "America/New_York"])
def test_what_is_due_in_the_last_days_of_the_calendar_is_found(zone):
    timing = with_options(PLAIN, {"cron": "* * * * *", "timezone": zone, "starts": "9999-12-30T12:00:00Z"}, NOW).timing
    assert timing.starts_at is not None
