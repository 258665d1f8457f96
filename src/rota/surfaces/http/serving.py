"""The server: uvicorn on a thread of its own, in a process that may also run a worker. It starts or says why not, and stops in time."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import threading
from ipaddress import ip_address
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from rota.app import Rota
from rota.errors import InvalidOption, Refused
from rota.model.settings import Settings, root_path
from rota.surfaces.http.api.verbs import LocalWorker
from rota.surfaces.http.app import make_app
from rota.surfaces.http.middleware import Hosts

log = logging.getLogger("rota.http")

STOP_S = 3.0
"""How long requests may finish when the server stops. Streams are told to end, so this is for slow clients only."""
START_S = 30.0
BACKLOG = 1024
"""Connections that wait to be taken."""
WHY = {
    errno.EADDRINUSE: "is in use by another program: stop that, or give another port with --port or $ROTA_HTTP_PORT",
    errno.EACCES: "may not be used by this user: give a port from 1024 on with --port or $ROTA_HTTP_PORT",
    errno.EADDRNOTAVAIL: "is no address of this machine: give one with --host or $ROTA_HTTP_HOST",
}


class Address:
    """Where a server listens: bound when it is made, so that what is wrong with it is known before anything starts."""

    def __init__(self, host: str, port: int) -> None:
        """Bind every address that the name stands for, all to one port."""
        self.sockets: list[socket.socket] = []
        self.port = port
        """The port it is, also where any was asked for."""
        try:
            for family, place in _places(host, port):
                self.sockets.append(_bound(family, (place, self.port)))
                self.port = int(self.sockets[0].getsockname()[1])
        except OSError as error:
            self.close()
            why = WHY.get(error.errno or 0, f"can't be listened on: {error.strerror or error}")
            raise Refused(f"{_shown(host)}:{port} {why}") from None
        places = [ip_address(each.getsockname()[0].partition("%")[0]) for each in self.sockets]
        self.local = all(place.is_loopback for place in places)
        """Whether only this machine can reach it."""
        self.url = f"http://{'127.0.0.1' if places[0].is_unspecified else _shown(host)}:{self.port}"
        """How a browser on this machine names it."""

    def close(self) -> None:
        """Let go of it."""
        for each in self.sockets:
            each.close()


class Server:
    """Serves one Rota over HTTP."""

    def __init__(self, rota: Rota, address: Address, root: str | None = None) -> None:
        """Take what is served, where, and below which path: else the setting's."""
        self.address = address
        root = root_path(rota.settings.http_root_path if root is None else root, "root_path")
        self.url = f"{address.url}{root}"
        """The address of the first page."""
        # Where others may come, also the name of this machine: it leads to no stranger's page.
        own = [] if address.local else [os.uname().nodename]
        self._app = make_app(rota, hosts=Hosts([*rota.settings.http_hosts.split(","), rota.settings.http_host, *own]))
        self._server = _Uvicorn(_config(_Below(self._app, root) if root else self._app, rota.settings))
        self._thread = threading.Thread(target=self._run, name="rota-http", daemon=True)
        self._failure: BaseException | None = None

    @property
    def running(self) -> bool:
        """Say whether it listens."""
        return self._thread.is_alive()

    def show(self, worker: LocalWorker) -> None:
        """Let people stop and start the worker of this process through the door."""
        self._app.state.worker = worker

    def start(self) -> None:
        """Begin to listen; return when it does."""
        self._thread.start()
        if not self._server.up.wait(START_S) or self._failure is not None:
            self.stop()
            raise Refused(f"the HTTP server did not start: {self._failure or f'nothing happened within {START_S:g} s'}")

    def stop(self, *, grace_s: float = STOP_S) -> None:
        """Take no more requests, end the streams, let the rest finish within the grace period, and return."""
        self._app.state.closing.set()
        self._server.config.timeout_graceful_shutdown = max(1, round(grace_s))
        self._server.should_exit = True
        self._thread.join(grace_s + 1.0)
        if self._thread.is_alive():
            log.warning("a request did not end within %g s and was left behind", grace_s)
        self.address.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=self.address.sockets)
        except (Exception, SystemExit) as error:
            self._failure = error
            log.exception("the HTTP server failed")
        finally:
            self._server.up.set()


class _Below:
    """Serves an app below a path, whether the proxy in front of it takes the path off or leaves it."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self._app, self._root = app, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            below = path if path == self._root or path.startswith(f"{self._root}/") else f"{self._root}{path}"
            scope = {**scope, "root_path": self._root, "path": below}
        await self._app(scope, receive, send)


class _Uvicorn(uvicorn.Server):
    """Says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets=sockets)
        self.up.set()


class _Strict(h11.Connection):
    """Refuses a request whose end is told in two ways, and with it all that follows on its connection.

    A proxy in front may believe the other of the two: what it takes for a body would be a request here (RFC 9112, section 6.3).
    """

    def next_event(self) -> Any:
        """Return the next event; raise for such a request, which the server answers with 400 and a closed connection."""
        event = super().next_event()
        if isinstance(event, h11.Request) and {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
            raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding together")
        return event


class _Impatient(H11Protocol):
    """Closes a connection whose next request does not come whole, up to the end of its headers, in time, or that reads no answer."""

    patience_s = 30.0
    _waiting: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """Begin to wait for a client who does not read: there is no room for more."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.patience_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: it reads."""
        _stop(self._unread)
        super().resume_writing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        # Nothing has come yet, so the connection can still be exchanged.
        self.conn = _Strict(h11.SERVER, self.conn._max_incomplete_event_size)  # noqa: SLF001 - as uvicorn was told
        self._wait()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        _stop(self._waiting)
        _stop(self._unread)
        super().connection_lost(exc)

    def _wait(self) -> None:
        _stop(self._waiting)
        self._waiting = self.loop.call_later(self.patience_s, self._give_up)

    def _give_up(self) -> None:
        cycle: Any = self.cycle
        if (cycle is None or cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _config(app: Any, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=type("Impatient", (_Impatient,), {"patience_s": settings.http_patience}),
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        # What clients do wrong is no news, and they could fill a disk with it; what the app does wrong, `Middleware` logs.
        log_level=logging.CRITICAL,
        access_log=False,
        backlog=BACKLOG,
        server_header=False,
        proxy_headers=bool(settings.http_proxies),
        forwarded_allow_ips=settings.http_proxies,
        limit_concurrency=settings.http_connections,
    )


def _places(host: str, port: int) -> list[tuple[int, str]]:
    """Return the addresses that a name stands for, each with its family."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise InvalidOption(f"http_host={host!r} is no address and no name of one: give for example 127.0.0.1") from None
    return list(dict.fromkeys((int(family), str(place[0])) for family, _, _, _, place in found))


def _bound(family: int, place: tuple[str, int]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The IPv4 side is bound by itself, or not at all.
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(place)
        # From here on it is ours: two that are only bound don't notice each other.
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
