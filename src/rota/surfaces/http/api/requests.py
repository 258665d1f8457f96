"""Bodies, addresses and idempotency keys of requests, read strictly: JSON as its RFC has it, no name twice, nothing unasked for."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from rota.app import Rota
from rota.errors import NotFound, UnknownParent
from rota.model.gate import Actor
from rota.model.ordering import PRIORITIES
from rota.model.values import Job, dashed
from rota.surfaces.http.openapi import header

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


def body_type(request: Request, *wanted: str) -> str:
    """Return the type of a request's body, JSON if it does not say; refuse a body of another type than those wanted."""
    given = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if given not in wanted:
        raise HTTPException(415, f"{given[:100]!r} is not read here: send {' or '.join(wanted)}")
    return given


def read(body: bytes, kind: type[T]) -> T:
    """Return a body as a value. 400 for what is no JSON, 422 with the place for what is no such value."""
    try:
        decoder = _decoders.get(kind) or _decoders.setdefault(kind, msgspec.json.Decoder(kind))
        value: T = decoder.decode(body or b"{}")
        if has_twins(body, encode(value)):
            refuse_twins(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise wrong(error) from None
    return value


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


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
"""One for each kind of body, made when it first comes."""
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


# ---- idempotency keys ------------------------------------------------------------------------------------------------
#
# A request that creates something may come twice, and creates it once. A key needs no table of its own: the ids of what it makes follow
# from the actor and the key, so that the store finds what is there already, whoever was quicker; and each job keeps a digest of the body
# that asked for it, so that another body is noticed.

REPLAYED = {"Idempotency-Replayed": "true"}
REMEMBERED = timedelta(hours=24)
KEY_MAX = 255
_META = "request"
_YEAR_MS = 365 * 86_400_000
_STEPS = 1 << 20
"""Ids that follow from one key, at most."""

KEY = header(
    "Idempotency-Key",
    "A text of your own, a new one for each thing to create. The same request again, with the same key, creates nothing.",
    "8e03978e-40d5-43dd-bc93-6894a57f9324",
    minLength=1,
    maxLength=KEY_MAX,
)
"""What the OpenAPI document says of the header."""


def key_of(request: Request) -> str | None:
    """Return the key of a request that may come again."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= KEY_MAX:
        raise HTTPException(422, f"header.Idempotency-Key: it has {len(key)} characters: give 1 to {KEY_MAX}")
    return key


class Creation(msgspec.Struct, frozen=True):
    """A request that creates something and may come again: who asks, under which key, for what."""

    who: Actor
    kind: str
    key: str
    body: bytes

    @property
    def meta(self) -> dict[str, Any]:
        """What each job keeps of the request that made it."""
        return {_META: hashlib.blake2b(self.body, digest_size=16).hexdigest()}

    @property
    def reader(self) -> Actor:
        """Who may see what this request has made: its actor, also with a token that may only submit."""
        return msgspec.structs.replace(self.who, operations=None)

    def ids(self, now: datetime) -> list[str]:
        """Return the ids that may have been given to the first thing that this request made; the first is for a new one.

        They lie inside the year, so that a job's number tells the right one. A request that comes again over New Year's Eve finds
        what was made in the old year.
        """
        years = [now.year]
        if (now - REMEMBERED).year != now.year:
            years.append(now.year - 1)
        return [self.id(year) for year in years]

    def id(self, year: int, step: int = 0) -> str:
        """Return the id of the thing at this step of the request; they ascend."""
        said = repr((self.kind, self.who.organization, self.who.name, self.key)).encode()
        chance = int.from_bytes(hashlib.blake2b(said, digest_size=16).digest())
        begin_ms = round(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000)
        rest = (chance & ((1 << 62) - 1) & ~(_STEPS - 1)) | step
        first, middle = begin_ms + (chance >> 76) % _YEAR_MS, (chance >> 62) & 0xFFF
        return dashed(f"{first:012x}7{middle:03x}{(0b10 << 62) | rest:016x}")

    def refuse_other(self, job: Job) -> None:
        """Refuse a key that was used for another body."""
        if (job.meta or {}).get(_META) != self.meta[_META]:
            raise HTTPException(422, f"Idempotency-Key {self.key[:100]!r} was used for another request already: give a new one")

    def made(self, rota: Rota, ids: list[str]) -> Job | None:
        """Return the job that this request has made before, if it has."""
        for job_id in ids:
            try:
                job = rota.acting_as(self.reader).jobs.get(job_id)
            except NotFound:
                continue
            self.refuse_other(job)
            return job
        return None
