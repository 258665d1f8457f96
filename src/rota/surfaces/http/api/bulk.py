"""Jobs by the thousand: a JSON array, or one job a line, read as it comes and written chunk by chunk."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from itertools import chain, islice
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from rota import errors
from rota.app import Rota
from rota.model.call import NewJob
from rota.model.gate import Actor
from rota.surfaces.http.api.endpoint import route
from rota.surfaces.http.api.jobs import NEW_JOB, SUBMITTING, BulkJobIn, Taken, options_of
from rota.surfaces.http.api.requests import (
    JSON,
    KEY,
    NAME_MAX,
    REPLAYED,
    Creation,
    body_type,
    encode,
    has_twins,
    in_body,
    key_of,
    refuse_query,
    refuse_twins,
    wrong,
)
from rota.surfaces.http.api.results import Answer
from rota.surfaces.http.openapi import gives, query, refuses, shape
from rota.surfaces.http.problems import problem, status_of
from rota.surfaces.http.streams import Held

LINES = "application/x-ndjson"
IDS_MAX = 10_000
"""Ids that an answer has room for."""
LINE_MAX = 32 * 1024 * 1024
"""The longest line: more than the largest params may take."""
MARGIN_S = 1.0
"""How much longer than a body may take a thread waits for it: the loop itself says first that it took too long."""

_decoder = msgspec.json.Decoder(BulkJobIn)
_lines = msgspec.json.Encoder().encode_lines
_array = msgspec.json.Decoder(list[msgspec.Raw])
BODY = {
    JSON: {"schema": {"type": "array", "items": shape(BulkJobIn)}, "example": [NEW_JOB, NEW_JOB]},
    LINES: {"schema": {"type": "string"}, "example": '{"name": "send_email", "params": {"to": "ada@example.com"}}\n{"name": "clean_up"}\n'},
}


@route(
    "jobs.create_many",
    "Jobs",
    "POST /jobs/bulk",
    parameters=[query("organization", {"type": "string", "maxLength": NAME_MAX}, "Another than your own: for system managers."), KEY],
    content=BODY,
    responses={**gives(Taken), **refuses(*SUBMITTING)},
)
async def create_many(request: Request) -> Response:
    """Create many jobs: an array, or one a line (`application/x-ndjson`), which is read as it comes, however many there are.

    They are written in chunks, in their order. If one is bad, those before it are accepted: the problem says which it is (`item`) and
    how many were `accepted`. With an `Idempotency-Key` there may be as many as one chunk holds (setting `bulk_chunk`), without unique
    keys of their own.
    """
    refuse_query(request, "organization")
    organization, idempotency_key = request.query_params.get("organization"), key_of(request)
    if organization is not None and len(organization) > NAME_MAX:
        raise errors.InvalidOption(f"query.organization: it has {len(organization):,} characters: use at most {NAME_MAX}")
    kind = body_type(request, JSON, LINES)
    state = request.app.state
    who: Actor = await state.intake.do(lambda: state.door.who(request))
    with state.streams.holding(request, who, asyncio.Event()) as held:
        items: Items = (
            Whole(held, await request.body())
            if kind == JSON
            else Streamed(held, request.stream(), asyncio.get_running_loop(), patience_s=state.rota.settings.http_patience)
        )
        call = _Call(state.rota.acting_as(who), who, items, organization)
        answer: Response = await state.intake.do_long(call.take if idempotency_key is None else lambda: call.take_once(idempotency_key))
        return answer


class Items(ABC):
    """The jobs of a request. What can't be read ends them; `error` says what it was, `seen` how many came before it."""

    def __init__(self, held: Held) -> None:
        """Begin with none; take the request's key, without which no more are accepted."""
        self._held = held
        self.seen = 0
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[BulkJobIn]:
        """Go through them, once."""
        try:
            for jobs in self._parts():
                for job in jobs:
                    if self._held.refused is not None:
                        raise self._held.refused
                    yield job
                    self.seen += 1
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.error = wrong(error, f"item {self.seen}")
        except (HTTPException, errors.RotaError) as error:
            self.error = error

    @abstractmethod
    def _parts(self) -> Iterator[Iterator[BulkJobIn]]:
        """Return them as they come, some at a time."""


class Whole(Items):
    """An array. It is held as it came, and each job read when its turn comes."""

    def __init__(self, held: Held, body: bytes) -> None:
        """Take the array."""
        super().__init__(held)
        self._body = body

    def _parts(self) -> Iterator[Iterator[BulkJobIn]]:
        try:
            found = _array.decode(self._body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise wrong(error) from None
        yield (_job(bytes(each)) for each in found)


class Streamed(Items):
    """Lines, pulled from the client when they are needed: who sends faster than can be written has to wait."""

    def __init__(self, held: Held, stream: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop, *, patience_s: float) -> None:
        """Take the body, the loop on which it comes, and how long the whole of it may take."""
        super().__init__(held)
        self._stream = stream
        self._loop = loop
        self._patience_s = patience_s

    def _parts(self) -> Iterator[Iterator[BulkJobIn]]:
        begun: list[bytes] = []
        length = 0
        while (part := self._next()) is not None:
            head, newline, rest = part.rpartition(b"\n")
            if not newline:
                length += len(part)
                if length > LINE_MAX:
                    raise HTTPException(413, f"item {self.seen} is over {LINE_MAX:,} bytes")
                begun.append(part)
                continue
            yield _jobs(b"".join([*begun, head]))
            begun, length = [rest], len(rest)
        yield _jobs(b"".join(begun))

    def _next(self) -> bytes | None:
        """Wait for more, on a thread; None at the end."""
        try:
            # Bounded: a loop that ends with the server may take this up and never answer, and the process waits for its threads.
            return asyncio.run_coroutine_threadsafe(self._pull(), self._loop).result(self._patience_s + MARGIN_S)
        except ClientDisconnect:
            raise HTTPException(400, "the body ended too early") from None
        except TimeoutError:
            raise HTTPException(408, "the body did not come in time") from None

    async def _pull(self) -> bytes | None:
        part, lost = asyncio.ensure_future(anext(self._stream, None)), asyncio.create_task(self._held.lost.wait())
        await asyncio.wait([part, lost], return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if self._held.refused is not None:
            part.cancel()
            raise self._held.refused
        return await part


def _jobs(lines: bytes) -> Iterator[BulkJobIn]:
    """Read whole lines: all at once if all are well, else one by one as far as they are."""
    try:
        found = _decoder.decode_lines(lines)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if found is not None and not has_twins(lines, _lines(found)):
        return iter(found)
    return (_job(each) for each in lines.splitlines() if each.strip())


def _job(text: bytes) -> BulkJobIn:
    job = _decoder.decode(text)
    if has_twins(text, encode(job)):
        refuse_twins(text)
    return job


class _Call(msgspec.Struct, frozen=True, eq=False):
    """One request for many."""

    rota: Rota
    """As the caller uses it."""
    who: Actor
    items: Items
    organization: str | None

    def take(self) -> Response:
        new = (_new(job) for job in self.items)
        first = list(islice(new, IDS_MAX))
        # Ids are kept for what has a length: while there may be more to come, it has none.
        rest = next(new, None) if len(first) == IDS_MAX else None
        return self._enqueue(first if rest is None else chain(first, [rest], new))

    def take_once(self, key: str) -> Response:
        """Take what may have been taken before."""
        most = self.rota.settings.bulk_chunk
        jobs = list(islice(self.items, most + 1))
        self._refuse_unkeyable(jobs, most)
        said = repr(self.organization).encode() + _lines(jobs)
        request = Creation(self.who, "bulk", key, said)
        ids = request.ids(self.rota.now)
        before = request.made(self.rota, ids)
        year = self.rota.now.year if before is None or before.id == ids[0] else self.rota.now.year - 1
        new = [_new(job, job_id=request.id(year, place), meta=request.meta) for place, job in enumerate(jobs)]
        answer = self._enqueue(new, once=True)
        if before is not None:
            answer.headers.update(REPLAYED)
        return answer

    def _refuse_unkeyable(self, jobs: list[BulkJobIn], most: int) -> None:
        if self.items.error is not None:
            raise self.items.error
        if len(jobs) > most:
            raise errors.InvalidOption(f"a request with an Idempotency-Key may have {most:,} jobs (setting bulk_chunk): send more in parts")
        place = next((place for place, job in enumerate(jobs) if job.unique_key is not None), None)
        if place is not None:
            raise errors.InvalidOption(f"item {place} has a unique_key, which does what the Idempotency-Key would: give one or the other")

    def _enqueue(self, new: Any, *, once: bool = False) -> Response:
        with in_body():
            found = self.rota.enqueue_many(new, organization=self.organization)
        error = self.items.error
        if error is not None:
            return self._bad(error, found.accepted)
        ids = list(found.ids) if isinstance(new, list) else None
        if once:
            # What is there already was made by this request.
            return Answer(Taken(accepted=found.accepted + found.existing, existing=0, ids=ids))
        return Answer(Taken(accepted=found.accepted, existing=found.existing, ids=ids))

    def _bad(self, error: Exception, accepted: int) -> Response:
        status, words = 422, "it can't be read"
        place = self.items.seen
        if isinstance(error, errors.RotaError):
            return problem(status_of(error), error.code, f"{error} ({accepted:,} jobs were accepted)", item=place, accepted=accepted)
        if isinstance(error, HTTPException):
            status, words = error.status_code, error.detail
        code = {400: "bad_request", 408: "too_slow", 413: "body_too_large"}.get(status, "invalid_request")
        return problem(status, code, f"{words} ({accepted:,} jobs before it were accepted)", item=place, accepted=accepted)


def _new(job: BulkJobIn, **more: Any) -> Any:
    """Return a job as `enqueue_many` takes it: most have nothing but a name and params, and go the shortest way."""
    options = options_of(job)
    if not options and not more:
        return (job.name, job.params)
    return NewJob(name=job.name, params=job.params, **options, **more)
