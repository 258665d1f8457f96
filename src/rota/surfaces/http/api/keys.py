"""Idempotency keys: a request that creates something may come twice, and creates it once.

A key needs no table of its own. The ids of what it makes follow from the actor and the key, so that the store finds what is there
already, whoever was quicker; and each job keeps a digest of the body that asked for it, so that another body is noticed.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest

from rota.app import Rota
from rota.errors import NotFound
from rota.model.gate import Actor
from rota.model.values import Job, dashed
from rota.surfaces.http.access import answered

REPLAYED = {"Idempotency-Replayed": "true"}
REMEMBERED = timedelta(hours=24)
KEY_MAX = 255
_META = "request"
_YEAR_MS = 365 * 86_400_000
_STEPS = 1 << 20
"""Ids that follow from one key, at most."""

KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A text of your own, a new one for each thing to create. The same request again, with the same key, creates nothing.",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_MAX},
    "example": "8e03978e-40d5-43dd-bc93-6894a57f9324",
}
"""What the OpenAPI document says of the header."""


def key_of(request: HttpRequest) -> str | None:
    """Return the key of a request that may come again."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= KEY_MAX:
        raise HTTPException(422, f"header.Idempotency-Key: it has {len(key)} characters: give 1 to {KEY_MAX}")
    return key


class Request(msgspec.Struct, frozen=True):
    """A create that may come again: who asks, under which key, for what."""

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
        return answered(self.who)

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


def made(rota: Rota, request: Request, ids: list[str]) -> Job | None:
    """Return the job that this request has made before, if it has."""
    for job_id in ids:
        try:
            job = rota.acting_as(request.reader).jobs.get(job_id)
        except NotFound:
            continue
        request.refuse_other(job)
        return job
    return None
