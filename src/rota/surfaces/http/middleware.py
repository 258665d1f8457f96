"""The layer in front of the app: it names, checks, bounds, counts and logs every request, and no surprise gets past it.

A request has an id, is for a name of this server, and sends a body of bounded size in bounded time. Every answer has strict headers.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.model.settings import Settings
from rota.surfaces.asked import request_id
from rota.surfaces.http.metrics import METHODS, OTHER, Meters
from rota.surfaces.http.problems import OWN, problem, surprise

log = logging.getLogger("rota.http.access")

POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer that does not say otherwise itself."""
LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
SLOW = HTTPStatus.REQUEST_TIMEOUT
UNKNOWN_MAX = 65_536
"""Bytes that are read from anybody: a caller that sends more must be known. Bodies are held in memory, those of strangers too."""
PATH_MAX = 200
ANY = "*"
_ID_HEADER = b"x-request-id"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]{0,5})?")
"""An address in brackets, which is checked on its own, or a name or address without; then a port (RFC 3986, section 3.2)."""
_RAW = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_chance = random.Random()  # noqa: S311 - a name to find a request by, no secret; the system's own chance costs a switch of threads


class Hosts:
    """The names under which an app may be asked for.

    A page of a stranger whose name is made to lead here (DNS rebinding) comes with the stranger's name: that is refused. An address in
    digits can't be made to lead elsewhere, so all of them are good.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Take names beside `localhost`; `*` lets every name in."""
        self._names = {name.strip().lower().rstrip(".") for name in names} - {""} | {"localhost"}

    def holds(self, header: str) -> bool:
        """Say whether a Host header names us."""
        name = header.strip().lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        else:
            name = (name.rpartition(":")[0] if name.count(":") == 1 else name).rstrip(".")
        return ANY in self._names or name in self._names or name.endswith(".localhost") or _is_address(name)


class Body:
    """The body of one request, as it comes. What it raises is an answer already: the app passes it on as it is."""

    def __init__(
        self, scope: Scope, receive: Receive, *, most: int, patience_s: float, admit: Callable[[Request], object] | None = None
    ) -> None:
        """Take the limit in bytes, how long a whole body may take, and what refuses callers that may not send a large one."""
        self._scope = scope
        self._receive = receive
        self._most = most
        self._patience_s = patience_s
        self._admit = admit
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
        if self._seen > UNKNOWN_MAX and self._admit is not None:
            await run_in_threadpool(self._admit, Request(self._scope))
            self._admit = None
        self._whole = not message.get("more_body", False)
        return message


class Middleware:
    """The layer around one app."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        hosts: Hosts | None,
        admit: Callable[[Request], object],
        meters: Meters,
        paths: Mapping[Any, str],
    ) -> None:
        """Take the names that are served (None: any), what refuses strangers, where requests are counted, and the path of each endpoint."""
        self._app = app
        self._hosts = hosts
        self._admit = admit
        self._meters = meters
        self._paths = paths
        self._logs = settings.http_log == "yes"
        self._most = settings.http_body_max
        self._patience_s = settings.http_patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. It counts as answered when its answer begins, so that a stream is not counted by its length."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, seconds = time.perf_counter(), 0, 0.0
        own = next((value for name, value in scope["headers"] if name == _ID_HEADER), b"")
        name = own if _ID.fullmatch(own) else b"%016x" % _chance.getrandbits(64)
        token = request_id.set(name.decode())

        async def begin(message: Message) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status, seconds = message["status"], time.perf_counter() - start
                given = {name for name, _ in message["headers"]}
                more = [each for each in (*_RAW, (_ID_HEADER, name)) if each[0] not in given]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            refused = self._refused(scope)
            if refused is not None:
                await refused(scope, receive, begin)
                return
            body = Body(scope, receive, most=self._most, patience_s=self._patience_s, admit=self._admit)
            await self._app(scope, body.receive, begin)
        except Exception as error:
            answer = surprise(scope["method"], scope["path"], error)
            if status:
                # The connection is closed: half an answer must not look like a whole one.
                raise
            await answer(scope, receive, begin)
        finally:
            self._count(scope, status or 500, seconds or time.perf_counter() - start)
            request_id.reset(token)

    def _refused(self, scope: Scope) -> Response | None:
        """Return the refusal of a request that is for another server, or whose body is too large; None: it is passed on."""
        length = b"0"
        for name, value in scope["headers"]:
            if name == b"host":
                host: str = value.decode("latin-1").strip()
                parts = _HOST.fullmatch(host)
                if parts is None or (parts[1] is not None and not _is_address(parts[1])):
                    detail = f"{host[:100]!r} is not a valid Host header: send a name or an address, and a port if it is not the usual one"
                    return problem(400, OWN[HTTPStatus.BAD_REQUEST], detail, headers={"Connection": "close"})
                if self._hosts is not None and not self._hosts.holds(host):
                    detail = (
                        f"{host[:100]!r} is no name of this server: name it in the setting http_hosts, or use the address that is printed"
                    )
                    return problem(421, OWN[HTTPStatus.MISDIRECTED_REQUEST], detail)
            elif name == b"content-length":
                length = value
        if length.isdigit() and int(length[:20]) > self._most:
            return problem(LARGE, OWN[LARGE], _too_large(self._most))
        return None

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request and, if the settings say so, write a line about it: never what stands in its query."""
        method = scope["method"] if scope["method"] in METHODS else OTHER
        # By its pattern: a path may hold anything.
        route = self._paths.get(scope.get("endpoint"), OTHER)
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


def _too_large(most: int) -> str:
    return f"the body is over {most:,} bytes: send less, or in parts"


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
