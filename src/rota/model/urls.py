"""Addresses of stores, and what of one may be shown: never a password."""

from __future__ import annotations

import re

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_STORE = re.compile(r"postgres|mongodb", re.IGNORECASE)
_PASSWORD = re.compile(r"://[^/?#@:\s]*:[^@\s]+@|[?&](\w*password|\w*secret\w*)=[^&\s]", re.IGNORECASE)
_END = re.compile(r"[:/?#@]")
_PLACE = re.compile(r"^[^/?]*")


class StoreUrl(str):
    """The text of an address as the driver needs it; wherever it is shown or logged, its password is left out."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return what may be shown, in quotes."""
        return repr(shown(self))

    def __str__(self) -> str:
        """Return what may be shown."""
        return shown(self)

    def __format__(self, how: str) -> str:
        """Return what may be shown."""
        return format(shown(self), how)


def shown(url: str) -> str:
    """Return an address without its password and options. A path is shown as it is."""
    scheme, found, rest = url.partition("://")
    if not found or scheme == "sqlite":
        return url[:]  # a plain text, whatever kind was given
    if is_ambiguous(url):
        return f"{scheme}://{_END.split(rest, maxsplit=1)[0]}@…"
    before, at, place = rest.rpartition("@")
    return f"{scheme}://{before.partition(':')[0]}{at}{place.partition('?')[0]}"


def is_ambiguous(url: str) -> bool:
    """Say whether an @ stands where it may be part of a password that is not percent-encoded: who reads on would show a piece of it."""
    rest = url.partition("://")[2]
    return rest.count("@") > 1 or "@" in _PLACE.sub("", rest)


def has_password(text: str) -> bool:
    """Say whether the address of a store, with a password, stands in a text."""
    return any(_STORE.match(found) and _PASSWORD.search(found) for found in _URL.findall(text))


def hide(text: str) -> str:
    """Return a text in which addresses that hold a password are shown without it."""
    return _URL.sub(lambda match: shown(match[0]) if _PASSWORD.search(match[0]) else match[0], text)
