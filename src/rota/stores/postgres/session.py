"""Connections that the store opens itself: a server that stays silent for too long loses them.

A server that is stopped, or whose disk is stuck, still acknowledges every packet: its kernel does. Keepalives and `tcp_user_timeout` see
nothing wrong, so the silence itself is measured. See decision 0041.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

T = TypeVar("T")


class Session(psycopg.Connection[Any]):
    """A connection whose waits end when the server has been silent for `silence_s`; None: they don't."""

    silence_s: float | None = None

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Run one of the driver's exchanges with the server. Everything that the driver waits for goes through here."""
        if self.silence_s is not None:
            gen = self._timed(gen, self.silence_s)
        return super().wait(gen, *args, **options)

    def _timed(self, gen: PQGen[T], silence_s: float) -> Generator[Wait, Ready | int, T]:
        """Pass an exchange on. While nothing moves on the socket the driver asks every 0.1 s, so no watcher and no timer is needed."""
        silent_since: float | None = None
        cut = False
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    silent_since = None
                elif silent_since is None:
                    silent_since = time.monotonic()
                elif cut:
                    self.pgconn.finish()
                elif time.monotonic() - silent_since >= silence_s:
                    # The driver then finds the connection closed, and cleans up as it does after any lost server.
                    self._cut()
                    cut = True
                wanted = gen.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value
        except psycopg.Error as error:
            if not cut:
                raise
            raise psycopg.OperationalError(f"no answer for {silence_s:g} s, so the connection was cut") from error

    def _cut(self) -> None:
        """Close the socket in both directions and keep its descriptor, which is the driver's."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)


@contextmanager
def silence(raw: psycopg.Connection[Any], silence_s: float | None) -> Iterator[None]:
    """Allow the server another silence for a block. A caller's own connection has no limit and gets none."""
    if not isinstance(raw, Session):
        yield
        return
    before, raw.silence_s = raw.silence_s, silence_s
    try:
        yield
    finally:
        raw.silence_s = before
