"""What a request may cost before anybody looks at it: a body of bounded size, read as it comes, within a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.surfaces.http.problems import OWN, problem

LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
SLOW = HTTPStatus.REQUEST_TIMEOUT
UNKNOWN_MAX = 65_536
"""Bytes that are read from anybody: who sends more must have come in. Bodies are held in memory, those of strangers too."""
Admit = Callable[[Request], object]


class BodyLimit:
    """Refuses bodies over the limit, also those that did not say how long they are, those of strangers, and those that take too long."""

    def __init__(self, app: ASGIApp, *, most: int, patience_s: float, admit: Admit | None = None) -> None:
        """Take the limit in bytes, how long a whole body may take, and what refuses those who may not send a large one."""
        self._app = app
        self.most = most
        self.patience_s = patience_s
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and int(said[:20]) > self.most:
            await problem(LARGE, OWN[LARGE], _too_large(self.most))(scope, receive, send)
            return
        await self._app(scope, _Body(self, scope, receive).receive, send)

    async def refuse_stranger(self, scope: Scope) -> None:
        """Refuse who may not send a large body."""
        if self._admit is not None:
            await run_in_threadpool(self._admit, Request(scope))


class _Body:
    """One body, as it comes. What it raises is an answer already: the app passes it on as it is."""

    def __init__(self, limit: BodyLimit, scope: Scope, receive: Receive) -> None:
        self._limit = limit
        self._scope = scope
        self._receive = receive
        self._until = asyncio.get_running_loop().time() + limit.patience_s
        self._seen = 0
        self._admitted = False
        self._whole = False

    async def receive(self) -> Message:
        """Return the next part. After the last one there is only the client's going to wait for, and that may take long."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            detail = f"the body did not come within {self._limit.patience_s:g} s: send it faster, or in parts"
            raise HTTPException(SLOW, detail, {"Connection": "close"}) from None
        self._seen += len(message.get("body", b""))
        if self._seen > self._limit.most:
            raise HTTPException(LARGE, _too_large(self._limit.most))
        if self._seen > UNKNOWN_MAX and not self._admitted:
            await self._limit.refuse_stranger(self._scope)
            self._admitted = True
        self._whole = not message.get("more_body", False)
        return message


def _too_large(most: int) -> str:
    return f"the body is over {most:,} bytes: send less, or in parts"
