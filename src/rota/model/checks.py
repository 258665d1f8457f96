"""Refusals that many options share: each names the value and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable

from rota.errors import InvalidName, InvalidOption

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
