"""In a handler process: what handlers and the programs they start print goes to the log of the run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from itertools import chain
from threading import RLock
from typing import TextIO

from rota.executors.attempt import RunLog

LEVEL = "OUTPUT"
CHUNK = 65_536
LINE_MAX = 8_192
"""A longer line is kept in pieces."""
DRAIN_MAX = 32
"""Chunks read at most at the end of a run: a program left behind may never stop printing."""


class Capture:
    """Holds descriptors 1 and 2 by a pipe. What is printed while no handler runs goes where it would have gone."""

    def __init__(self) -> None:
        """Take over standard output and error, for the life of the process."""
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        self._home = os.dup(2)
        self._lock = RLock()
        self._log: RunLog | None = None
        self._partial = b""
        self._out, self._err = _stream(1), _stream(2)
        self._take_over()

    def begin(self, log: RunLog) -> None:
        """Let a run have what is printed from now on, whatever the run before did to the streams."""
        with self._lock:
            self.drain()
            self._log = log
        self._take_over()

    def end(self) -> None:
        """Give the run everything it printed, then take it back."""
        for stream in (sys.stdout, sys.stderr, self._out, self._err):
            with contextlib.suppress(Exception):
                stream.flush()
        with self._lock:
            self.drain()
            if self._partial:
                self._keep(b"\n")
            self._log = None

    def drain(self) -> None:
        """Move what is in the pipe to the log."""
        with self._lock:
            for _ in range(DRAIN_MAX):
                try:
                    data = os.read(self.reader, CHUNK)
                except OSError:
                    return
                self._keep(data)

    def give_back(self) -> None:
        """Let the process print as it was started, for its last words."""
        os.dup2(self._home, 1)
        os.dup2(self._home, 2)

    def _keep(self, data: bytes) -> None:
        if self._log is None:
            with contextlib.suppress(OSError):
                os.write(self._home, data)
            return
        if self._log.is_closed():
            # Nothing more is kept, so the bytes are not looked at: the pipe is only emptied, so that the handler does not block.
            self._partial = b""
            return
        *lines, rest = (self._partial + data).split(b"\n")
        *pieces, self._partial = pieces_of(rest)
        for piece in chain(chain.from_iterable(map(pieces_of, lines)), pieces):
            if self._log.is_closed():
                break
            self._log.write(LEVEL, piece.decode(errors="backslashreplace"))

    def _take_over(self) -> None:
        os.dup2(self._writer, 1)
        os.dup2(self._writer, 2)
        self._out = _stream(1) if self._out.closed else self._out
        self._err = _stream(2) if self._err.closed else self._err
        sys.stdout, sys.stderr = self._out, self._err


def pieces_of(line: bytes) -> Iterator[bytes]:
    """Cut a line into pieces of LINE_MAX bytes at most, none of which ends inside a character."""
    start = 0
    while len(line) - start > LINE_MAX:
        end = _boundary(line, start + LINE_MAX)
        yield line[start:end]
        start = end
    yield line[start:]


def _boundary(data: bytes, end: int) -> int:
    """Return where the character that `end` is inside of begins; `end` itself if it is between two, or if this is not UTF-8."""
    for begin in range(end, end - 4, -1):
        if data[begin] & 0b1100_0000 != 0b1000_0000:
            return begin
    return end


def _stream(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
