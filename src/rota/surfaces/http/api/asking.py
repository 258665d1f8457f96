"""What a request says, read strictly: JSON is what its RFC allows and no more, and nothing that is said is left unread."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, HTTPException, Query, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Query as InQuery
from fastapi.routing import APIRoute
from pydantic import AfterValidator, AwareDatetime, BeforeValidator
from starlette.routing import Match, Route
from starlette.types import Scope

from rota.errors import NotFound, UnknownParent
from rota.model.ordering import PRIORITIES
from rota.surfaces.http.describing import REF

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
NameQuery = Annotated[str | None, Query(max_length=NAME_MAX, pattern=TEXT)]


class BadRequest(HTTPException):
    """What came can't be read at all."""

    def __init__(self, detail: str) -> None:
        """Say why."""
        super().__init__(400, detail)


# ---- bodies --------------------------------------------------------------------------------------------------------


async def raw(request: Request) -> bytes:
    """Return the body of a request, if it is said to be JSON."""
    refuse_other(media_type(request), JSON)
    return await request.body()


Raw = Annotated[bytes, Depends(raw)]


def media_type(request: Request) -> str:
    """Return what kind of body a request has; what says nothing is JSON."""
    return request.headers.get("content-type", JSON).partition(";")[0].strip().lower()


def refuse_other(given: str, *wanted: str) -> None:
    """Refuse a body of another kind."""
    if given not in wanted:
        raise HTTPException(415, f"{given[:100]!r} is not read here: send {' or '.join(wanted)}")


def takes(kind: type, *, required: bool = True) -> dict[str, Any]:
    """Return what the OpenAPI document says of a body that `read` will read."""
    content = {JSON: {"schema": {"$ref": REF.format(name=kind.__name__)}}}
    return {"requestBody": {"required": required, "content": content}}


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
    """Return a body that has to be there: who means everything says so."""
    if not body.strip():
        raise BadRequest("body is missing: give what is meant, or {} for everything")
    return body


@contextmanager
def in_body() -> Iterator[None]:
    """Let what a body names and is not there be a wrong value (422): the address itself is right."""
    try:
        yield
    except NotFound as error:
        told = UnknownParent(str(error))
        told.item, told.accepted = error.item, error.accepted
        raise told from None


def wrong(error: Exception, at: str = "body") -> Exception:
    """Return what is said of a body that can't be taken: it is no JSON, or (at which place) not what it should be."""
    if isinstance(error, msgspec.ValidationError):
        words, _, place = str(error).partition(" - at ")
        where = place.strip("`").lstrip("$")
        return RequestValidationError([{"loc": (at + where,), "msg": words, "type": "value_error"}])
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


async def only_known(request: Request) -> None:
    """Refuse a parameter in the address that the route does not have: a mistyped filter would match everything."""
    if not request.scope["query_string"]:
        return
    route = request.scope["route"]
    known = _query_of(route) if isinstance(route, APIRoute) else frozenset()
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        takes_ = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
        raise RequestValidationError(
            [{"loc": ("query", unknown[0][:100]), "msg": f"there is no such parameter; {takes_}", "type": "extra"}]
        )


def _query_of(route: APIRoute) -> frozenset[str]:
    fields: Iterable[Any] = get_flat_params(route.dependant)
    return frozenset(field.alias for field in fields if isinstance(field.field_info, InQuery))


class Swift(Route):
    """A shorter way to an operation that reads its request itself: what FastAPI looks at before each call costs as much as a job.

    It takes one method and one path and leaves everything else to the routes behind it, of which one describes the same operation.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Say whether a request is for this operation, and no more than that."""
        if scope["path"] == self.path and scope["type"] == "http" and scope["method"] in (self.methods or ()):
            return Match.FULL, {"endpoint": self.endpoint, "path_params": {}, "route": self}
        return Match.NONE, {}


STRICT = [Depends(only_known)]
"""What every router of the API depends on."""


def _as_text(given: object) -> object:
    """Refuse a number, which would be taken for seconds since 1970."""
    if isinstance(given, str) and given.strip().lstrip("+-").replace(".", "", 1).isdecimal():
        raise ValueError("this is a number: give a moment such as 2026-03-01T09:00:00Z")
    return given


def _in_utc(given: datetime) -> datetime:
    try:
        return given.astimezone(UTC)
    except OverflowError:
        raise ValueError("this moment is outside the years 1 to 9999") from None


MomentQuery = Annotated[AwareDatetime, BeforeValidator(_as_text), AfterValidator(_in_utc)]
