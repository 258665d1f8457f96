"""A client of server-sent events as plain as can be, and a server to listen to."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from rota import Rota
from rota.surfaces.http.serving import Address, Server
from tests.support.pace import patient

API = "/api/v1"


class Told(NamedTuple):
    """One event as it came over the wire."""

    type: str
    id: str
    data: Any


class Ear:
    """One open stream."""

    def __init__(self, port: int, path: str, secret: str, *, room: int | None = None, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patient(10))
        if room is not None:
            self._connection.sock = socket.socket()
            self._connection.sock.settimeout(10)
            self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            self._connection.sock.connect(("127.0.0.1", port))
        self._connection.request("GET", API + path, headers={"Authorization": f"Bearer {secret}", **headers})
        self.answer = self._connection.getresponse()
        self.comments: list[str] = []
        self.last_id = ""
        self.ended = False

    def next(self) -> Told | None:
        """Return the next event; None at the end of the stream."""
        fields: dict[str, str] = {}
        while True:
            raw = self.answer.readline()
            if not raw:
                self.ended = True
                return None
            line = raw.decode().rstrip("\n")
            if line.startswith(":"):
                self.comments.append(line[1:].strip())
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            else:
                self.last_id = fields.get("id", self.last_id)
                if "data" in fields:
                    return Told(fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"]))
                fields = {}

    def until(self, *types: str, within: float = 10.0) -> Told:
        """Return the next event of one of these types."""
        end = time.monotonic() + patient(within)
        while time.monotonic() < end:
            told = self.next()
            assert told is not None, f"the stream ended: {self.comments}"
            if told.type in types:
                return told
        raise AssertionError(f"no {types} within {within:g} s")

    def rest(self) -> list[Told]:
        """Return everything up to the end of the stream."""
        return list(iter(self.next, None))

    def close(self) -> None:
        """Hang up."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self.answer.close()
        self._connection.close()


class Served:
    """A Rota behind a real server."""

    def __init__(self, rota: Rota, room: int | None = None) -> None:
        self.rota = rota
        address = Address("127.0.0.1", 0)
        if room is not None:
            for each in address.sockets:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        self.server = Server(rota, address)
        self.secret = rota.tokens.create("all", permits=("read", "submit", "operate", "manage")).secret
        self._ears: list[Ear] = []

    @property
    def port(self) -> int:
        return self.server.address.port

    def listen(self, path: str = "/events", secret: str | None = None, *, room: int | None = None, **headers: str) -> Ear:
        """Open a stream; `room` is what the system takes of it, in bytes, before the client reads."""
        ear = Ear(self.port, path, secret or self.secret, room=room, **headers)
        self._ears.append(ear)
        return ear

    def close(self) -> None:
        for ear in self._ears:
            ear.close()
        self.server.stop()


@contextmanager
def served(rota: Rota, *, room: int | None = None) -> Iterator[Served]:
    """Serve a Rota for the time of a block; `room` is what the system takes of an answer, in bytes, before it is read."""
    made = Served(rota, room)
    made.server.start()
    try:
        yield made
    finally:
        made.close()
