"""MCP over HTTP: one route, stateless. The app that has the route says who the caller is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from rota.app import Rota
from rota.model.gate import Actor
from rota.surfaces.mcp import MISSING

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

ACTOR = "rota.mcp.actor"
"""The key of a request's scope under which its actor is kept."""


class Endpoint:
    """Answers requests to `/mcp`."""

    def __init__(self, rota: Rota, admit: Callable[[Request], Actor], *, body_max: int) -> None:
        """Take the Rota that is served, the function that returns the actor of a request or refuses it, and the largest body in bytes."""
        self._rota = rota
        self._admit = admit
        self._body_max = body_max
        self._server: Server[Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope[ACTOR] = await run_in_threadpool(self._admit, Request(scope))
        if scope["method"] != "POST":
            # A stateless server has nothing to send unasked, and no session to delete.
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, "send JSON-RPC messages with POST", {"Allow": "POST"})
        server = await run_in_threadpool(self._made)
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415 - imported when it is used

        # A manager for each request: nothing outlives it, so that there is nothing to close with the app.
        manager = StreamableHTTPSessionManager(server, stateless=True, json_response=True, max_request_body_size=self._body_max)
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    def _made(self) -> Server[Any]:
        if self._server is None:
            if find_spec("mcp") is None:
                raise HTTPException(HTTPStatus.NOT_IMPLEMENTED, MISSING)
            from rota.surfaces.mcp.server import Threads, make_server  # noqa: PLC0415 - a second that nobody else needs

            # The package logs the start and the end of every manager, here of every request.
            logging.getLogger("mcp.server.streamable_http_manager").setLevel(logging.WARNING)
            self._server = make_server(self._rota, lambda context: context.request.scope[ACTOR], Threads())
        return self._server
