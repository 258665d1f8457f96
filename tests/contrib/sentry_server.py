"""A Sentry on loopback, as far as an SDK sees it: it takes envelopes, and keeps the events in them."""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SentryServer:
    """Listens from the beginning; `events` are in the order of their arrival."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                server.events += events_of(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.dsn = f"http://key@127.0.0.1:{self._server.server_address[1]}/1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def events_of(envelope: bytes) -> list[dict[str, Any]]:
    """Return the events of an envelope: a header, then for each item its own and its payload."""
    _, _, rest = envelope.partition(b"\n")
    events = []
    while rest.strip():
        header, _, rest = rest.partition(b"\n")
        item = json.loads(header)
        length = item.get("length", rest.find(b"\n") if b"\n" in rest else len(rest))
        payload, rest = rest[:length], rest[length + 1 :]
        if item["type"] == "event":
            events.append(json.loads(payload))
    return events
