"""Time zones as spans of one offset: where a zone's clock runs evenly, and where it jumps.

Everything about daylight saving follows from these spans; no other module asks a zone for its offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import msgspec

from rota.errors import InvalidSchedule

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

STEP_S = 86_400
"""How far apart offsets are looked at; a jump between two looks is found by halving. No zone jumps and jumps back in a day."""
YEAR_S = 31_556_952
LAST_S = 253_402_214_400
"""As far as jumps are looked for: a day before the year 9999 is over, which zones ahead of UTC end sooner."""


class Span(msgspec.Struct, frozen=True):
    """A stretch of time, in seconds since 1970 UTC, in which the zone's offset is one: [start, end)."""

    start: int
    end: int
    offset: int
    """Local time is UTC plus this."""


def zone_of(name: str) -> ZoneInfo:
    """Return a zone by its IANA name, or refuse it saying what is near."""
    found = known_zone(name)
    if found is not None:
        return found
    raise InvalidSchedule(f"timezone {name!r} is not an IANA name: give for example UTC, Europe/Berlin or America/New_York{_near(name)}")


def known_zone(name: str) -> ZoneInfo | None:
    """Return a zone by its IANA name, None if there is none."""
    try:
        return _zone(name) if name else None
    except (KeyError, ValueError, OSError):
        # A zone that is not there is a KeyError.
        return None


def spans(zone: ZoneInfo, start: int, end: int) -> Iterator[Span]:
    """Go through the spans of a zone that meet [start, end), in order; the first and last are cut there."""
    begun, offset = start, offset_at(zone, start)
    for at in _jumps(zone, start, end):
        yield Span(begun, at, offset)
        begun, offset = at, offset_at(zone, at)
    if begun < end:
        yield Span(begun, end, offset)


def offset_at(zone: ZoneInfo, at: int) -> int:
    """Return how far local time is ahead of UTC at a moment, in seconds."""
    shift = datetime.fromtimestamp(at, zone).utcoffset()
    return 0 if shift is None else shift.days * 86_400 + shift.seconds


def jumps_between(zone: ZoneInfo, start: int, end: int) -> bool:
    """Say whether the zone's clock jumps between two moments."""
    return any(_jumps(zone, start, end))


def _jumps(zone: ZoneInfo, start: int, end: int) -> Iterator[int]:
    """Go through the moments inside (start, end) at which the offset changes."""
    if zone.key == "UTC":
        return
    for year in range(start // YEAR_S, (end - 1) // YEAR_S + 1):
        for at in _jumps_of_year(zone, year):
            if start < at < end:
                yield at


@lru_cache(maxsize=20_000)
def _jumps_of_year(zone: ZoneInfo, year: int) -> tuple[int, ...]:
    """Return the jumps in one stretch of a mean year's length, counted from 1970."""
    first, last = year * YEAR_S, min((year + 1) * YEAR_S, LAST_S)
    found: list[int] = []
    low, before = first, offset_at(zone, first)
    while low < last:
        high = min(low + STEP_S, last)
        if offset_at(zone, high) == before:
            low = high
            continue
        # On from the jump, not from the end of the step: there may be another.
        low = _halve(zone, low, high, before)
        before = offset_at(zone, low)
        found.append(low)
    return tuple(found)


def _halve(zone: ZoneInfo, low: int, high: int, before: int) -> int:
    """Return the first second after `low` at which the offset is no longer what it was."""
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


@cache
def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - a program without schedules has no use for zones

    return ZoneInfo(name)


def _near(name: str) -> str:
    from zoneinfo import available_timezones  # noqa: PLC0415 - only where a name is wrong

    wanted = str(name).lower().replace(" ", "_")
    near = sorted(each for each in available_timezones() if wanted and wanted in each.lower())[:3]
    return f"; {', '.join(near)}?" if near else ""


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
