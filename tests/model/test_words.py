"""Schedules in words."""

import pytest

from rota.model.schedules import Kind, Timing
from rota.model.values import SECOND
from rota.model.words import in_words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 9 * * MON-FRI", "every weekday at 09:00"),
        ("*/15 * * * *", "every 15 minutes"),
        ("* * * * *", "every minute"),
        ("0 * * * *", "every hour"),
        ("7 * * * *", "every hour at 7 past"),
        ("30 2 * * *", "every day at 02:30"),
        ("0 8,20 * * *", "every day at 08:00 and 20:00"),
        ("0 */6 * * *", "every 6 hours"),
        ("0 */1 * * *", "every hour"),
        ("*/5 9-17 * * MON-FRI", "every 5 minutes from 09:00 to 17:59, every weekday"),
        ("0 0 1,15 * *", "on the 1st and 15th of the month at 00:00"),
        ("0 0 L * *", "on the last day of the month at 00:00"),
        ("0 0 LW * *", "on the last weekday of the month at 00:00"),
        ("15 10 * * FRI#2", "on the second Friday of the month at 10:15"),
        ("0 0 * * 5L", "on the last Friday of the month at 00:00"),
        ("0 12 * JAN,JUL SUN", "every Sunday at 12:00 in January and July"),
        ("0 3 * * SAT,SUN", "every Saturday and Sunday at 03:00"),
        ("@daily", "every day at 00:00"),
        ("3-59/7 * 1 * *", "cron 3-59/7 * 1 * *"),
        ("0 0 13 * FRI", "cron 0 0 13 * FRI"),
    ],
)
def test_a_cron_in_words(expression, words):
    timing = Timing(kind=Kind.CRON, cron=expression, timezone="Europe/Berlin")
    assert in_words(timing) == f"{words} Europe/Berlin"


@pytest.mark.parametrize(("seconds", "words"), [(1, "second"), (90, "1 minute 30 seconds"), (300, "5 minutes"), (86_400, "day")])
def test_an_interval_in_words(seconds, words):
    assert in_words(Timing(kind=Kind.EVERY, interval=seconds * SECOND)) == f"every {words}"


def test_a_moment_and_an_end_in_words():
    assert in_words(Timing(kind=Kind.AT, at=0)) == "once, at 1970-01-01T00:00:00Z"
    assert in_words(Timing(kind=Kind.EVERY, interval=60 * SECOND, ends_at=0)) == "every minute, until 1970-01-01T00:00:00Z"
