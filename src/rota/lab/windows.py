"""Windows of time, as callers give them."""

from __future__ import annotations

from datetime import datetime

from rota.errors import InvalidOption
from rota.lab.forecasts import at
from rota.model.values import LATEST, SECOND, Instant, instant

HOURS = 24.0
DAY_US = 86_400 * SECOND
DAYS_MAX = 36_525
FURTHEST = LATEST - 400 * DAY_US
"""Windows end before the calendar does."""


def window(now: Instant, hours: float | None, start: datetime | None, end: datetime | None) -> tuple[Instant, Instant]:
    """Return the moments after which, and up to which, a window reaches."""
    after = now if start is None else instant_of("start", start)
    if end is not None and hours is not None:
        raise InvalidOption(f"hours={hours!r} and end are both given: pass one of them")
    if end is not None:
        until = instant_of("end", end)
    else:
        length = HOURS if hours is None else hours
        if isinstance(length, bool) or not 0 < length <= DAYS_MAX * 24:
            raise InvalidOption(f"hours={hours!r} is not allowed: use more than 0, at most a hundred years")
        until = min(FURTHEST, after + round(length * 3600 * SECOND))
    if until <= after:
        raise InvalidOption(f"the window ends at {at(until).isoformat()}, which is not after its start, {at(after).isoformat()}")
    return after, until


def instant_of(name: str, moment: datetime) -> Instant:
    """Return an aware datetime as an instant, or refuse it."""
    if getattr(moment, "tzinfo", None) is None:
        raise InvalidOption(f"{name}={moment!r} is not allowed: use a datetime with a time zone")
    found = instant(moment)
    if not DAY_US <= found <= FURTHEST:
        raise InvalidOption(f"{name}={moment.isoformat()} is out of range: use a moment between the years 1970 and 9998")
    return found
