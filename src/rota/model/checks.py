"""Refusals that many options share: each names the value and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from rota.errors import InvalidName, InvalidOption
from rota.model.values import LATEST, SECOND, Instant, instant

Word = TypeVar("Word", bound=StrEnum)

CENTURY_S = 36_525 * 86_400
REASON_MAX = 10_000
"""Characters of what somebody says of an act."""


def check_name(name: object, what: str, limit: int) -> None:
    """Refuse names that are empty, too long or not printable."""
    if not isinstance(name, str) or not name.strip():
        article = "an" if what[0] in "aeiou" else "a"
        raise InvalidName(f"{name!r} is not {article} {what} name: give a text of 1 to {limit} characters")
    if len(name) > limit:
        raise InvalidName(f"the {what} name {name[:40] + '…'!r} has {len(name):,} characters; at most {limit} are allowed")
    if not name.isprintable():
        raise InvalidName(f"the {what} name {name!r} has characters that can't be printed")


def guess(word: object, known: Iterable[str]) -> str:
    """Return a question about the known word that is most like this one, with a space before it; "" if none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a refusal needs it

    found = get_close_matches(str(word), list(known), 1, 0.7)
    return f" (did you mean {found[0]!r}?)" if found else ""


def unknown_option(where: str, unknown: str, takes: Iterable[str]) -> InvalidOption:
    """Return the refusal of an option that is not there."""
    names = list(takes)
    return InvalidOption(f"{where} has no option {unknown!r}{guess(unknown, names)}: it takes {', '.join(names)}")


def whole(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return a whole number or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"{least} to {most:,}"
        raise InvalidOption(f"{name}={value!r} is not allowed: give a whole number, {allowed}")
    return value


def seconds(name: str, value: object) -> float:
    """Return seconds or refuse them."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= CENTURY_S:
        raise InvalidOption(f"{name}={value!r} is not allowed: give 0 or more seconds, at most a hundred years")
    return float(value)


def text(name: str, value: object, limit: int) -> str:
    """Return a text or refuse it."""
    if not isinstance(value, str) or len(value) > limit:
        raise InvalidOption(f"{name}={str(value)[:40]!r} is not allowed: give a text of at most {limit:,} characters")
    if "\0" in value or (not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value)):
        raise InvalidOption(f"{name}={value[:40]!r} has characters that can't be kept (NUL, or half of a surrogate pair)")
    return value


def reason(value: object) -> str | None:
    """Return what is said of an act, if anything, or refuse it."""
    return None if value is None else text("reason", value, REASON_MAX)


def line(name: str, value: object, limit: int) -> str:
    """Return a text on one line that says something, or refuse it."""
    found = text(name, value, limit)
    if not found.strip() or not found.isprintable():
        raise InvalidOption(f"{name}={found[:40]!r} is not allowed: give 1 to {limit:,} characters on one line")
    return found


def word_of(kind: type[Word], name: str, value: object) -> Word:
    """Return a word of a fixed set, or refuse it."""
    if not isinstance(value, str) or value not in set(kind):
        raise InvalidOption(f"{name}={value!r} is not one of {', '.join(kind)}")
    return kind(value)


def listed(name: str, value: object) -> list[Any]:
    """Return several names as a list, or refuse a text in their place."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidOption(f"{name}={value!r} is not allowed: give a list of names")
    return list(value)


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


def when(run_at: datetime | timedelta, now: Instant) -> Instant:
    """Return a moment given as an aware datetime or as a time from now."""
    if isinstance(run_at, timedelta):
        at = now + run_at // timedelta(microseconds=1)
        if not 0 <= at <= LATEST:
            raise InvalidOption(f"run_at={run_at} from now is out of range: give a moment between the years 1970 and 9999")
        return at
    if not isinstance(run_at, datetime):
        raise InvalidOption(f"run_at={run_at!r} is not a moment: give an aware datetime, or a timedelta from now")
    if run_at.tzinfo is None:
        raise InvalidOption(f"run_at={run_at.isoformat()} has no time zone: give an aware datetime, such as datetime.now(UTC)")
    at = max(0, instant(run_at))
    if at > LATEST:
        raise InvalidOption(f"run_at={run_at.isoformat()} is out of range: give a moment between the years 1970 and 9999, in UTC")
    return at


def extra(name: str) -> str:
    """Return how a missing part of Rota is installed. It is not on a package index: a package of its name there is a stranger's."""
    return f"install Rota with its extra {name}, in a checkout of Rota: pip install '.[{name}]'"
