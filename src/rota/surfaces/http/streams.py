"""Streams of server-sent events: answers that stay open. Each costs a task and a bounded queue, and no thread.

A stream ends when what it is about has ended, when whoever opened it may not have it any more, when the server stops, and when its
client does not read: nothing here waits for one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.admission import NOBODY
from rota.app import Rota
from rota.engine.event_feed import Batch, Listener, Over
from rota.errors import PermissionDenied, RotaError, StoreError, Unauthenticated
from rota.live import LogTail, follow_log, listen
from rota.model.gate import Actor, Right
from rota.operation import ask_for
from rota.surfaces.http.access import Door

log = logging.getLogger("rota.http")

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Proxies must pass each event on as it comes."""
RETRY = b"retry: 2000\n\n"
SEND_S = 60.0
"""How long a client may take to read what is sent, where the server is more patient than ours is (setting http_patience)."""
PIECE_BYTES = 65_536
"""What is sent at once: more than that would wait in memory for a client who does not read."""
LOG_S = 0.5
"""How often a log that is followed is looked at."""
CLOSING_S = 0.2
CHECK_S = 0.5
"""How often the keys of open answers are asked about: an answer ends within a second after its key was revoked."""
LAST_S = 0.2
CHANGED = "what you may see has changed: come back"
OVER = "over"
"""The id of the last event of a chain: who comes back with it is told to stay away (204)."""
_encode = msgspec.json.Encoder().encode


class Held:
    """An answer that stays open, and the key that opened it."""

    def __init__(self, key: bytes, who: Actor, bell: asyncio.Event) -> None:
        """Take the digest of the key, the actor that it stood for, and what is rung when the answer has to be looked at."""
        self.key = key
        self.who = who
        self.bell = bell
        self.lost = asyncio.Event()
        """Set when the key opens nothing any more, or opens something else."""
        self.refused: RotaError | None = None
        """Why, from then on."""

    def judge(self, who: Actor | None) -> None:
        """End the answer, unless its key stands for the same actor as before."""
        if who == self.who or self.refused is not None:
            return
        self.refused = Unauthenticated(NOBODY) if who is None else PermissionDenied(CHANGED)
        self.lost.set()
        self.bell.set()


class Streams:
    """Everything that stays open in one app: all of it ends with the server, and each answer with the key that opened it."""

    def __init__(self, door: Door, closing: threading.Event) -> None:
        """Take what knows their keys, and the flag that is set when the server stops."""
        self._door = door
        self._closing = closing
        self._held: set[Held] = set()
        self._watches: list[asyncio.Task[None]] = []
        self.going_back = asyncio.Lock()
        """Held by who is told again what happened before: those who come with it wait here, and not on threads that others need."""

    @property
    def closing(self) -> bool:
        """Say whether the server stops."""
        return self._closing.is_set()

    @contextmanager
    def holding(self, request: Request, who: Actor, bell: asyncio.Event) -> Iterator[Held]:
        """Watch over an answer as long as the block lasts; ring its bell when the server stops, and when its key is lost."""
        held = Held(self._door.key(request), who, bell)
        self._held.add(held)
        if not self._watches:
            loop = asyncio.get_running_loop()
            self._watches = [loop.create_task(self._watch_server()), loop.create_task(self._watch_keys())]
        try:
            yield held
        finally:
            self._held.discard(held)
            if not self._held:
                for watch in self._watches:
                    watch.cancel()
                self._watches = []

    async def _watch_server(self) -> None:
        """Look at the flag as long as anything is open: one timer for all of it."""
        while not self.closing:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(CLOSING_S)
        for held in self._held:
            held.bell.set()

    async def _watch_keys(self) -> None:
        """Ask about the keys of all open answers at once, in a thread of its own: neither a stream nor a slow request delays it."""
        away = False
        while True:
            await asyncio.sleep(CHECK_S)
            # Only these are judged: an answer that begins during the check was not asked about.
            asked = list(self._held)
            try:
                found = await asyncio.to_thread(self._door.admission.still_admitted, {held.key for held in asked})
            except StoreError as error:
                if not away:
                    log.warning("could not check the tokens of open streams (%s); retrying every %g s", error, CHECK_S)
                away = True
                continue
            away = False
            for held in asked:
                held.judge(found.get(held.key))


class Stream(Response, ABC):
    """An answer that goes on. What it is about is opened when it is sent, so that a refusal is still an answer of its own."""

    media_type = MEDIA_TYPE
    goes_back = False
    """Whether it begins with what happened before: to open it takes long then, and they are opened one by one."""
    pause_s = 3600.0
    """How long to wait at most for what may come."""

    def __init__(self, request: Request, who: Actor) -> None:
        """Take who asks."""
        super().__init__(headers=HEADERS, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._request = request
        self._rota: Rota = request.app.state.rota
        self._who = who
        self._streams: Streams = request.app.state.streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open, and send what comes until it is over."""
        del scope
        loop, bell = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self._streams.going_back if self.goes_back else nullcontext():
                await run_in_threadpool(self.open, partial(_ring, loop, bell))
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with self._streams.holding(self._request, self._who, bell) as held:
                async with asyncio.timeout(None) as limit:
                    gone, cut = loop.create_task(_gone(receive, bell)), loop.create_task(_cut(held, limit))
                    try:
                        await self._pump(send, held, gone)
                    finally:
                        gone.cancel()
                        cut.cancel()
        except TimeoutError:
            # The client does not read. What is there to send it will not see; the server closes the connection.
            return
        finally:
            self.close()

    async def _pump(self, send: Send, held: Held, gone: asyncio.Task[None]) -> None:
        loop, beat_s = asyncio.get_running_loop(), self._rota.settings.events_beat
        sent_s = loop.time()
        await _send(send, RETRY + self.idle())
        while not gone.done():
            held.bell.clear()
            over = self.over or (Over.CLOSED if self._streams.closing else None)
            data = await self.take()
            if held.refused is not None:
                await _send(send, _comment(str(held.refused)))
                break
            now_s = loop.time()
            for piece in data:
                await _send(send, piece)
            if over is not None:
                await _send(send, self.last(over))
                break
            if data:
                sent_s = now_s
            elif now_s - sent_s >= beat_s:
                await _send(send, b": still here\n" + self.idle())
                sent_s = now_s
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self.pause_s, sent_s + beat_s - now_s)):
                    await held.bell.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @abstractmethod
    def open(self, ready: Callable[[], None]) -> None:
        """Begin, on a thread; `ready` is to be called when there is something to take."""

    @abstractmethod
    async def take(self) -> list[bytes]:
        """Return what there is to send."""

    @property
    @abstractmethod
    def over(self) -> str | None:
        """Why nothing more comes; asked before `take`."""

    def idle(self) -> bytes:
        """Return what is sent while nothing happens."""
        return b"\n"

    @abstractmethod
    def last(self, why: str) -> bytes:
        """Return what is sent at the end."""

    def close(self) -> None:
        """Let go of everything."""


class EventStream(Stream):
    """What happens, as it happens."""

    def __init__(self, request: Request, who: Actor, **asked: Any) -> None:
        """Take what `Rota.listen` is asked."""
        super().__init__(request, who)
        self._asked = asked
        self.goes_back = asked.get("after") is not None
        self._listener: Listener | None = None
        self._cursor = ""

    def open(self, ready: Callable[[], None]) -> None:
        """Begin to listen."""
        self._listener = listen(ask_for(self._rota.acting_as(self._who), Right.READ), ready=ready, **self._asked)
        if not self.goes_back:
            self._cursor = self._listener.begun

    async def take(self) -> list[bytes]:
        """Return the events that have come."""
        assert self._listener is not None  # noqa: S101 - it is open
        cursor, batches = self._listener.cursor, self._listener.take()
        if not batches:
            self._cursor = cursor
        return [piece for batch in batches for piece in _pieces(wire(batch))]

    @property
    def over(self) -> str | None:
        """Why nothing more comes."""
        return None if self._listener is None else self._listener.over

    def idle(self) -> bytes:
        """Return where to go on: time passes also where nothing happens."""
        return b"id: %b\n\n" % self._cursor.encode() if self._cursor else b"\n"

    def last(self, why: str) -> bytes:
        """Say why, and to a chain's listener that it need not come back."""
        if why == Over.ENDED:
            return _last(why)
        return _comment(why)

    def close(self) -> None:
        """Listen no longer."""
        if self._listener is not None:
            self._listener.ready = None
            self._listener.close()


class LogStream(Stream):
    """A log as it grows."""

    pause_s = LOG_S

    def __init__(self, request: Request, who: Actor, job_id: str) -> None:
        """Take whose log it is."""
        super().__init__(request, who)
        self._job_id = job_id
        self._tail: LogTail | None = None

    def open(self, ready: Callable[[], None]) -> None:  # noqa: ARG002 - a log is looked at, and rings nothing
        """Find it."""
        self._tail = follow_log(ask_for(self._rota.acting_as(self._who), Right.READ_LOG), self._job_id)

    async def take(self) -> list[bytes]:
        """Return what was written meanwhile."""
        assert self._tail is not None  # noqa: S101 - it is open
        text = await run_in_threadpool(self._tail.read)
        return [b"event: log\ndata: %b\n\n" % _encode({"text": text})] if text else []

    @property
    def over(self) -> str | None:
        """Say that all of it was sent."""
        return "the job has ended" if self._tail is not None and self._tail.over else None

    def last(self, why: str) -> bytes:
        """Say why."""
        return _comment(why) if self.over is None else _last(why)


def wire(batch: Batch) -> bytes:
    """Return a batch as it is sent, made once for all who are told the same."""
    if batch.wire is None:
        batch.wire = b"".join(
            b"id: %b\nevent: %b\ndata: %b\n\n" % (event.id.encode(), event.type.encode(), _encode(msgspec.structs.replace(event, id="")))
            for event in batch.with_ids()
        )
    return batch.wire


def _pieces(data: bytes) -> list[bytes]:
    return [data] if len(data) <= PIECE_BYTES else [data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES)]


async def _send(send: Send, data: bytes) -> None:
    async with asyncio.timeout(SEND_S):
        await send({"type": "http.response.body", "body": data, "more_body": True})


def _last(why: str) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (OVER.encode(), OVER.encode(), _encode({"reason": why}))


def _comment(text: str) -> bytes:
    return b": %b\n\n" % " ".join(text.split()).encode()


async def _cut(held: Held, limit: asyncio.Timeout) -> None:
    """Give an answer whose key is lost a moment to say so: a client who does not read can't keep it open."""
    await held.lost.wait()
    limit.reschedule(asyncio.get_running_loop().time() + LAST_S)


async def _gone(receive: Receive, bell: asyncio.Event) -> None:
    """Wait until the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    bell.set()


def _ring(loop: asyncio.AbstractEventLoop, bell: asyncio.Event) -> None:
    # The loop may be gone already: then so is everybody who waited.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(bell.set)
