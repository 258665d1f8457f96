"""A receiver of webhooks on loopback: it answers as it is told to, also badly, and remembers what came."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook

from tests.support.pace import patient


class Received:
    """One message as it came."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path = path
        self.headers = headers
        self.body = body
        self.at = time.monotonic()

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def key(self) -> str:
        return self.headers["webhook-id"]

    def verify(self, secret: str) -> None:
        """Raise unless it was signed with this."""
        Webhook(secret).verify(self.body, self.headers)


class Receiver:
    """How it answers depends on the path: /200, /500, /hang, /drip, /close, /redirect; /script takes one answer after the other."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.script: list[int] = []
        self.let_go = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if len(body) < int(self.headers["content-length"]):
                    # Whoever sent it was killed half-way: no receiver takes that for a message.
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append(Received(self.path, headers, body))
                with suppress(OSError):
                    receiver._answer(self)

            def do_GET(self) -> None:
                receiver.received.append(Received(f"GET {self.path}", {name.lower(): value for name, value in self.headers.items()}, b"{}"))
                with suppress(OSError):
                    receiver._answer(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        match handler.path:
            case "/hang":
                self.let_go.wait(patient(60))
            case "/close":
                handler.connection.shutdown(socket.SHUT_RDWR)
            case "/drip":
                for each in b"HTTP/1.1 200 OK\r\n" + b"X-Slow: " + b"x" * 10_000:
                    if self.let_go.wait(0.02):
                        return
                    handler.wfile.write(bytes([each]))
            case "/long":
                handler.send_response(200)
                handler.end_headers()
                while not self.let_go.is_set():
                    handler.wfile.write(b"x" * 65_536)
            case "/redirect":
                handler.send_response(302)
                handler.send_header("Location", self.url("/200"))
                handler.end_headers()
            case "/script":
                handler.send_response(self.script.pop(0) if self.script else 200)
                handler.end_headers()
            case path:
                handler.send_response(int(path[1:4]))
                handler.end_headers()

    def url(self, path: str = "/200", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self._server.server_port}{path}"

    def to(self, path: str) -> list[Received]:
        return [each for each in self.received if each.path == path]

    def close(self) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    try:
        yield receiver
    finally:
        receiver.close()
