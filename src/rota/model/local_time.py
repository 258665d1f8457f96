"""Local time: how the surfaces for people write moments in one zone, and read those that name none.

Sentences of the engine, and reasons in the store, write a moment as ISO 8601 in UTC (`written`). A surface for people shows each of
them in its own zone (`localized`), so that a page or a table has one clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, tzinfo

import msgspec

from rota.errors import InvalidOption

_WRITTEN = re.compile(r"(?<![\w.:-])\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z(?!\w|:\S)")
_LIKE = re.compile(r"\d{4}-\d\d-\d\d")


class Reading(msgspec.Struct, frozen=True):
    """A moment that somebody typed."""

    at: datetime
    """In UTC."""
    note: str = ""
    """What has to be said about it: that the clock shows it twice."""


def written(at: datetime) -> str:
    """Return a moment for a sentence: ISO 8601 in UTC, to the second."""
    return f"{in_zone(at, UTC):%Y-%m-%dT%H:%M:%S}Z"


def shown(at: datetime, zone: tzinfo, *, milliseconds: bool = False) -> str:
    """Return a moment for people: 2026-11-15 09:30:00 CET."""
    local = in_zone(at, zone)
    part = f".{local.microsecond // 1000:03d}" if milliseconds else ""
    return f"{local:%Y-%m-%d %H:%M:%S}{part} {local:%Z}"


def localized(text: str, zone: tzinfo, show: Callable[[datetime, tzinfo], str] = shown) -> str:
    """Return a sentence with its moments as the clocks of a zone show them."""
    if "Z" not in text:
        return text

    def again(found: re.Match[str]) -> str:
        try:
            return show(datetime.fromisoformat(found[0]), zone)
        except ValueError:
            return found[0]

    return _WRITTEN.sub(again, text)


def length_text(seconds: float) -> str:
    """Return how long something takes, in at most two units: 0.4 s, 12 s, 49 m 19 s, 2 h 05 m, 3 d 4 h."""
    whole = round(max(0.0, seconds))
    if whole < 60:
        return f"{max(0.0, round(seconds, 1)):g} s" if seconds < 9.95 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def start_of(day: date, zone: tzinfo) -> datetime:
    """Return the first moment of a day of a zone, also where its midnight is skipped or comes twice."""
    return datetime.fromtimestamp(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp(), UTC)


def in_zone(at: datetime, zone: tzinfo) -> datetime:
    """Return a moment in a zone; in UTC where the calendar of the zone has ended."""
    try:
        return at.astimezone(zone)
    except OverflowError:
        return at.astimezone(UTC)


def field_text(at: datetime, zone: tzinfo) -> str:
    """Return a moment as a field of a form holds it: the time of a zone, without its name."""
    return f"{in_zone(at, zone):%Y-%m-%dT%H:%M:%S}"


def read_moment(text: str, zone: tzinfo, *, day: bool = False) -> Reading:
    """Read an ISO 8601 moment; one without an offset is a time of the zone, and with `day` a date is its midnight.

    A time that the zone's clock skips is refused. Of one that it shows twice the first is taken, as schedules do, with a note.
    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidOption(f"{text[:40]!r} is not a moment: use 2026-08-01T09:00 for a time of {zone}, or 2026-08-01T09:00Z") from None
    if at.tzinfo is None and not day and _LIKE.fullmatch(text.strip()):
        raise InvalidOption(f"{text!r} is a day without a time: use for example {text.strip()}T09:00")
    try:
        return Reading(at.astimezone(UTC)) if at.tzinfo is not None else _of_zone(at, zone)
    except OverflowError:
        raise InvalidOption(f"{text[:40]!r} is beyond the years 1 to 9999 in UTC") from None


def _of_zone(at: datetime, zone: tzinfo) -> Reading:
    first, second = at.replace(tzinfo=zone, fold=0), at.replace(tzinfo=zone, fold=1)
    if first.utcoffset() == second.utcoffset():
        return Reading(first.astimezone(UTC))
    before, after = first.astimezone(UTC).astimezone(zone), second.astimezone(UTC).astimezone(zone)
    if before.replace(tzinfo=None) != at:
        # `before` counts on with the clock as it was, and `after` back with the clock as it is then.
        near = " or ".join(f"{each:%Y-%m-%dT%H:%M}" for each in sorted((before, after)))
        raise InvalidOption(f"{at:%Y-%m-%dT%H:%M:%S} does not exist in {zone}: clocks are set forward over it. Use {near}")
    note = f"{at:%Y-%m-%d %H:%M} comes twice in {zone}, where clocks are set back; the first is taken: {first:%H:%M %Z}"
    return Reading(first.astimezone(UTC), note)
