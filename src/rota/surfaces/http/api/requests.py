"""Bodies and addresses of requests, read strictly: JSON as its RFC has it, no name twice, and nothing that is not asked for."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from rota.errors import NotFound, UnknownParent
from rota.model.ordering import PRIORITIES

T = TypeVar("T")
JSON = "application/json"
NAME_MAX = 255
ID_MAX = 64
TEXT = r"^[^\x00]*$"
"""No store can look for NUL."""

PRIORITY = {
    "pattern": "^(" + "|".join("".join(f"[{letter.upper()}{letter}]" for letter in word) for word in PRIORITIES) + ")$",
    "description": "0 to 100, or one of `" + "`, `".join(PRIORITIES) + "`, in any letter case.",
}
"""What the OpenAPI document says of a priority. `priority_of` checks it, with the same words as in Python and on the command line."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MAX, pattern=TEXT)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_MAX, description="The job's id, or its number.")]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class BadRequest(HTTPException):
    """A body that can't be read at all."""

    def __init__(self, detail: str) -> None:
        """Say why."""
        super().__init__(400, detail)


# ---- bodies --------------------------------------------------------------------------------------------------------


async def json_body(request: Request) -> bytes:
    """Return the body of a request, if its type is JSON."""
    refuse_other(media_type(request), JSON)
    return await request.body()


def media_type(request: Request) -> str:
    """Return the type of a request's body; without a header it is JSON."""
    return request.headers.get("content-type", JSON).partition(";")[0].strip().lower()


def refuse_other(given: str, *wanted: str) -> None:
    """Refuse a body of another type."""
    if given not in wanted:
        raise HTTPException(415, f"{given[:100]!r} is not read here: send {' or '.join(wanted)}")


def read(body: bytes, kind: type[T]) -> T:
    """Return a body as a value. 400 for what is no JSON, 422 with the place for what is no such value."""
    try:
        value: T = _decoders[kind].decode(body or b"{}")
        if has_twins(body, encode(value)):
            refuse_twins(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise wrong(error) from None
    return value


def needed(body: bytes) -> bytes:
    """Return a body that must be there: who means everything says so."""
    if not body.strip():
        raise BadRequest("body is missing: send the filters, or {} for everything")
    return body


@contextmanager
def in_body() -> Iterator[None]:
    """Let what a body names and is not there be a wrong value (422): the address itself is right."""
    try:
        yield
    except NotFound as error:
        unknown = UnknownParent(str(error))
        unknown.item, unknown.accepted = error.item, error.accepted
        raise unknown from None


def wrong(error: Exception, at: str = "body") -> HTTPException:
    """Return the refusal of a body that is no JSON, or that has a value of the wrong type at some place."""
    if isinstance(error, msgspec.ValidationError):
        words, _, place = str(error).partition(" - at ")
        where = place.strip("`").lstrip("$")
        return HTTPException(422, f"{at}{where}: {words}")
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return BadRequest(f"{at} is not JSON: {reason}")


encode = msgspec.json.Encoder().encode


class _Decoders(dict[Any, msgspec.json.Decoder[Any]]):
    """One for each kind of body, made when it first comes."""

    def __missing__(self, kind: Any) -> msgspec.json.Decoder[Any]:
        made = self[kind] = msgspec.json.Decoder(kind)
        return made


_decoders = _Decoders()
_BARE_ZONE = re.compile(rb':\d\d(?:\.\d+)?[+-]\d{4}"')
"""The end of a moment such as 2026-03-01T09:00:00+0100."""


def has_twins(body: bytes, again: bytes) -> bool:
    """Say whether a name may stand twice in one object, which decoding does not tell: something is lost when it is written again.

    Every name is followed by a colon, so what is lost shows in their number, unless one is hidden as an escape, or made up for: a moment
    whose zone has no colon is written again with one.
    """
    hidden = b"\\u003" in body or b"\\u002" in body or _BARE_ZONE.search(body) is not None
    return hidden or body.count(b":") != again.count(b":")


def refuse_twins(body: bytes) -> None:
    """Look closely, which takes long, and refuse a name that stands twice in one object."""
    try:
        json.loads(body or b"{}", object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"body is not JSON: {error}") from None


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Counted once: an object may have millions of names.
        twin = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise BadRequest(f"{twin[:100]!r} stands twice in one object: say it once")
    return found


# ---- the address ---------------------------------------------------------------------------------------------------


def refuse_query(request: Request, *known: str) -> None:
    """Refuse a parameter in the address that a route does not have: a mistyped filter would match everything."""
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
        raise HTTPException(422, f"query.{unknown[:100]}: there is no such parameter; {takes}")
