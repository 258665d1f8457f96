"""A line to a MongoDB server that loses answers: the server has done what it was asked, and nobody hears of it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

READ_BYTES = 1 << 16


class LossyLine:
    """Listens on loopback and passes on what it gets, to one server and back.

    `lose` cuts the line at the answers to the next few commits. The driver meets a server whose connection broke.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._to_lose = 0
        self.lost = 0
        """How many answers were lost."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def lose(self, answers: int) -> None:
        """Lose the answers to this many commits."""
        with self._lock:
            self._to_lose = answers

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._server))
                except OSError:
                    near.close()
                    continue
                commits: list[bool] = []
                threading.Thread(target=self._ask, args=(near, far, commits), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near, commits), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket, commits: list[bool]) -> None:
        with suppress(OSError):
            while data := near.recv(READ_BYTES):
                if b"commitTransaction" in data:
                    commits.append(True)
                far.sendall(data)
        _cut(near, far)

    def _answer(self, far: socket.socket, near: socket.socket, commits: list[bool]) -> None:
        with suppress(OSError):
            while data := far.recv(READ_BYTES):
                if commits:
                    commits.clear()
                    if self._loses():
                        break
                near.sendall(data)
        _cut(near, far)

    def _loses(self) -> bool:
        with self._lock:
            if not self._to_lose:
                return False
            self._to_lose -= 1
            self.lost += 1
            return True


def _cut(*lines: socket.socket) -> None:
    for line in lines:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        line.close()
