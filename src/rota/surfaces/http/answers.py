"""Answers as JSON: the values of the model, written by msgspec, which knows them already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import Response

_encode = msgspec.json.Encoder().encode


class Answer(Response):
    """Any value of ours as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the value as bytes."""
        return _encode(content)


def page(items: Iterable[Any], next_: int | str | None) -> dict[str, Any]:
    """Return one page of a list; `next` is the cursor of the page after it, null if there is none."""
    return {"items": list(items), "next": None if next_ is None else str(next_)}
