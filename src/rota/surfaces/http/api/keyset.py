"""Pages of lists that are whole in memory: a page goes on after the last one of the page before it, whatever came or went meanwhile."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Query

from rota.errors import InvalidOption
from rota.surfaces.http.answers import page

T = TypeVar("T")

PLACE = Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=2)]
Limit = Annotated[int, Query(ge=1, le=1000, description="Items of this page, at most.")]
Cursor = Annotated[str | None, Query(max_length=4096, description="`next` of the page before this one.")]


def seal(place: object) -> str:
    """Return a place in a list as a text that can stand in a URL."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def unseal(cursor: str, kind: Any) -> Any:
    """Return the place that a cursor means, or refuse it: only what we gave comes back."""
    try:
        text = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidOption(f"cursor={cursor[:40]!r} is none of ours: give `next` of the page before, or leave it out") from None


def cut(items: Iterable[T], key: Callable[[T], tuple[str, ...]], *, limit: int, cursor: str | None) -> dict[str, Any]:
    """Return one page of what is sorted by these keys."""
    after = None if cursor is None else unseal(cursor, PLACE)
    left = [each for each in items if after is None or key(each) > after]
    shown = left[:limit]
    return page(shown, seal(key(shown[-1])) if len(left) > limit else None)
