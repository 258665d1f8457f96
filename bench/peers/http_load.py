"""Asks a server over plain sockets, many connections from one process, and says how many answers came: it costs less than the server."""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time

PAYLOAD = {"name": "noop", "params": {"text": "x" * 80}}


def request(path: str, token: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    if token:
        head += f"Authorization: Bearer {token}\r\n"
    return head.encode() + b"\r\n" + body


class Connection:
    """One connection with one request under way."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.came = b""
        self.asked_at = 0.0

    def ask(self, text: bytes) -> None:
        self.asked_at = time.perf_counter()
        self.socket.sendall(text)

    def answered(self) -> bytes | None:
        """Read what has come; return the answer's first line when it is whole."""
        self.came += self.socket.recv(65536)
        head, end, body = self.came.partition(b"\r\n\r\n")
        if not end:
            return None
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return None
        self.came = b""
        return head.partition(b"\r\n")[0]


def single(port: int, token: str, connections: int, seconds: float) -> dict[str, object]:
    """Make jobs one by one on so many connections for so long."""
    text = request("/api/v1/jobs", token, json.dumps(PAYLOAD).encode())
    chooser = selectors.DefaultSelector()
    for _ in range(connections):
        connection = Connection(port)
        chooser.register(connection.socket, selectors.EVENT_READ, connection)
        connection.ask(text)
    begun, delays = time.perf_counter(), []
    while (now := time.perf_counter()) < begun + seconds:
        for key, _ in chooser.select(1.0):
            line = key.data.answered()
            if line is None:
                continue
            if b" 201 " not in line:
                raise SystemExit(f"not 201 but {line!r}: {key.data.came[:300]!r}")
            delays.append(time.perf_counter() - key.data.asked_at)
            key.data.ask(text)
    delays.sort()
    if not delays:
        raise SystemExit("no answer came")
    return {"rate": len(delays) / (now - begun), "p50_ms": delays[len(delays) // 2] * 1e3, "p99_ms": delays[len(delays) * 99 // 100] * 1e3}


def bulk(port: int, token: str, jobs: int) -> dict[str, object]:
    """Make many jobs with one request, a line each."""
    text = request("/api/v1/jobs/bulk", token, (json.dumps(PAYLOAD).encode() + b"\n") * jobs, "application/x-ndjson")
    connection = Connection(port)
    begun = time.perf_counter()
    connection.ask(text)
    while (line := connection.answered()) is None:
        pass
    if b" 200 " not in line:
        raise SystemExit(f"not 200 but {line!r}")
    return {"rate": jobs / (time.perf_counter() - begun)}


if __name__ == "__main__":
    command, port, token, *rest = sys.argv[1:]
    token = token.removeprefix("-")
    answer = bulk(int(port), token, int(rest[0])) if command == "bulk" else single(int(port), token, int(rest[0]), float(rest[1]))
    print(json.dumps(answer))
