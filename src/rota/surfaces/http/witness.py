"""Sees every request: gives it an id, counts it and, if the settings say so, writes a line about it. Never what stands in its query."""

from __future__ import annotations

import logging
import random
import re
import time
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.surfaces.asked import request_id
from rota.surfaces.http.metrics import METHODS, OTHER, Meters

log = logging.getLogger("rota.http.access")

HEADER = "x-request-id"
PATH_MAX = 200
_chance = random.Random()  # noqa: S311 - a name to find a request by, no secret; the system's own chance costs a switch of threads
_GOOD = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Witness:
    """The outermost part of the app."""

    def __init__(self, app: ASGIApp, *, meters: Meters, logs: bool) -> None:
        """Take where requests are counted, and whether a line is written about each."""
        self._app = app
        self._meters = meters
        self._logs = logs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; it is answered for us when its answer begins, so that a stream is not counted by its length."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, seconds = time.perf_counter(), 0, 0.0
        token = request_id.set(name_of(scope))

        async def noted(message: Message) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status, seconds = message["status"], time.perf_counter() - start
                MutableHeaders(scope=message).setdefault(HEADER, str(request_id.get()))
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            self._told(scope, status or 500, seconds or time.perf_counter() - start)
            request_id.reset(token)

    def _told(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else OTHER
        # By its pattern: a path may hold anything.
        route = str(getattr(scope.get("route"), "path", OTHER))
        self._meters.answered(method, route, status, seconds)
        if not self._logs or not log.isEnabledFor(logging.INFO):
            return
        client = scope.get("client")
        # Quoted: a path may hold what would begin a line of its own, or steer a terminal.
        path = quote(scope["path"], safe="/:@-._~")[:PATH_MAX]
        request = {
            "method": method,
            "path": path,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 3),
            "client": client[0] if client else None,
        }
        log.info("%s %s %d in %.1f ms", method, path, status, seconds * 1000, extra={"request": request})


def name_of(scope: Scope) -> str:
    """Return the id that a request came with, if it is a decent one, else one of our own."""
    given = Headers(scope=scope).get(HEADER, "")
    return given if _GOOD.fullmatch(given) else f"{_chance.getrandbits(64):016x}"
