"""What a request may cost before anybody looks at it: a body of bounded size, read as it comes, within a bounded time."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.surfaces.http.problems import OWN, problem

LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
SLOW = HTTPStatus.REQUEST_TIMEOUT


class BodyLimit:
    """Refuses bodies over the limit, also those that did not say how long they are, and those that take too long to come."""

    def __init__(self, app: ASGIApp, *, most: int, patience_s: float) -> None:
        """Take the limit in bytes, and how long a whole body may take."""
        self._app = app
        self._most = most
        self._patience_s = patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and int(said[:20]) > self._most:
            await problem(LARGE, OWN[LARGE], _too_large(self._most))(scope, receive, send)
            return
        await self._app(scope, _Body(receive, self._most, self._patience_s).receive, send)


class _Body:
    """One body, as it comes. What it raises is an answer already: the app passes it on as it is."""

    def __init__(self, receive: Receive, most: int, patience_s: float) -> None:
        self._receive = receive
        self._most = most
        self._patience_s = patience_s
        self._until = asyncio.get_running_loop().time() + patience_s
        self._seen = 0
        self._whole = False

    async def receive(self) -> Message:
        """Return the next part. After the last one there is only the client's going to wait for, and that may take long."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            detail = f"the body did not come within {self._patience_s:g} s: send it faster, or in parts"
            raise HTTPException(SLOW, detail, {"Connection": "close"}) from None
        self._seen += len(message.get("body", b""))
        if self._seen > self._most:
            raise HTTPException(LARGE, _too_large(self._most))
        self._whole = not message.get("more_body", False)
        return message


def _too_large(most: int) -> str:
    return f"the body is over {most:,} bytes: send less, or in parts"
