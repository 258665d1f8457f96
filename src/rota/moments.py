"""Moments in the past, as people give them."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.errors import InvalidOption
from rota.model.checks import seconds
from rota.model.values import SECOND, Instant, instant


def ago(name: str, given: datetime | timedelta, now: Instant) -> Instant:
    """Return the moment that an aware datetime names, or that was so long ago."""
    if isinstance(given, timedelta):
        return now - round(seconds(name, given.total_seconds()) * SECOND)
    if getattr(given, "tzinfo", None) is None:
        raise InvalidOption(f"{name}={given!r} is not allowed: give a datetime with a time zone, or a timedelta for how long ago")
    return instant(given)


def age_us(name: str, given: timedelta | float) -> Instant:
    """Return an age given in seconds or as a timedelta, in microseconds."""
    length = given.total_seconds() if isinstance(given, timedelta) else given
    return round(seconds(name, length) * SECOND)
