"""Pages of lists: a cursor says where the next page begins, of which list, and nothing to anybody else."""

from __future__ import annotations

import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any

from fastapi import Query

from rota.errors import InvalidOption
from rota.results import Page
from rota.surfaces.http.answers import Answer

PAGE_MAX = 1000
_CHECK_BYTES = 6
_PLACE_BYTES = 8

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="How many at most.")]
Cursor = Annotated[
    str | None,
    Query(max_length=100, description="The `next` of the page before this one, asked for with the same filters.", examples=[None]),
]


class Paged:
    """One list: its name and its filters. A cursor of another list, or of the same with other filters, is refused."""

    def __init__(self, name: str, **filters: Any) -> None:
        """Take what makes this list what it is."""
        said = sorted((name, str(value)) for name, value in filters.items() if value is not None)
        self._salt = repr((name, said)).encode()

    def place(self, cursor: str | None) -> int | None:
        """Return where a cursor points to."""
        if cursor is None:
            return None
        try:
            raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        except (binascii.Error, ValueError):
            raw = b""
        place, check = raw[:_PLACE_BYTES], raw[_PLACE_BYTES:]
        if len(place) != _PLACE_BYTES or check != self._check(place) or cursor != _text(raw) or int.from_bytes(place, signed=True) < 1:
            raise InvalidOption(f"cursor {cursor[:100]!r} is none of this list: give the `next` of a page, with the same filters")
        return int.from_bytes(place)

    def cursor(self, place: int | None) -> str | None:
        """Return the cursor of a place."""
        if place is None:
            return None
        raw = place.to_bytes(_PLACE_BYTES)
        return _text(raw + self._check(raw))

    def answer(self, found: Page[Any]) -> Answer:
        """Return a page as an answer."""
        return Answer({"items": list(found), "next": self.cursor(found.next)})

    def _check(self, place: bytes) -> bytes:
        # No secret: a cursor opens nothing that the filters would not. It only has to show a mistake.
        return hashlib.blake2b(self._salt + place, digest_size=_CHECK_BYTES).digest()


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
