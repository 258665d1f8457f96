"""Cursors: a text that stands for a place in one list, as its reader filtered it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from rota import wire
from rota.errors import InvalidOption

CURSOR_MAX = 4096
PAGE_MAX = 1000
"""Items of one page, at most."""
_CHECK_BYTES = 6


class Cursors:
    """The cursors of one list: a cursor of another list, or of the same list with other filters, is refused."""

    def __init__(self, name: str, filters: Mapping[str, Any]) -> None:
        """Take the list's name and its filters."""
        self._salt = repr((name, sorted((name, str(value)) for name, value in filters.items() if value is not None))).encode()

    def seal(self, place: object) -> str:
        """Return the cursor of a place."""
        return wire.seal((self._check(place), place))

    def unseal(self, cursor: str, kind: Any) -> Any:
        """Return the place of a cursor."""
        try:
            check, place = wire.unseal(cursor[:CURSOR_MAX], tuple[str, kind])
        except InvalidOption:
            check, place = "", None
        if not check or check != self._check(place):
            raise InvalidOption(f"cursor {cursor[:100]!r} is not of this list: pass `next` of the previous page, with the same filters")
        return place

    def _check(self, place: object) -> str:
        # No secret: a cursor opens nothing that the filters would not. It only has to show a mistake.
        return hashlib.blake2b(self._salt + msgspec.json.encode(place), digest_size=_CHECK_BYTES).hexdigest()


Key = Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=2)]
"""The place in a list that is whole in memory: the key that it is sorted by."""
