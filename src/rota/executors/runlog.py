"""The log of one run: a file made on its first line and cut at its bound. Logging never fails a handler."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock

from rota.executors.text import clean
from rota.model.settings import Settings
from rota.model.values import Instant, log_path, moment
from rota.ports.clock import Clock
from rota.ports.files import make_folder, open_file


class RunLog:
    """Lines of one run, appended to `log_path(log_dir, run_id)`. Thread-safe."""

    __slots__ = ("_clock", "_closed", "_fd", "_limit", "_lock", "_settings", "_size", "before", "path")

    def __init__(self, log_dir: str | None, run_id: str, *, clock: Clock, settings: Settings) -> None:
        """Keep nothing if there is no directory."""
        self.path = None if log_dir is None else log_path(log_dir, run_id)
        self.before: Callable[[], None] | None = None
        """Called before a line of the handler's own, to let printed output go first."""
        self._clock = clock
        self._limit = settings.log_max
        self._settings = settings
        self._lock = RLock()
        self._fd: int | None = None
        self._size = 0
        self._closed = self.path is None

    def is_closed(self) -> bool:
        """Say whether every later line is dropped: the log was cut at its bound, can't be written or is over."""
        return self._closed

    def line(self, level: str, text: str) -> None:
        """Write a line of the handler's own."""
        if self.before is not None:
            self.before()
        self.write(level, text)

    def write(self, level: str, text: str) -> None:
        """Write one line; a text of several is indented from its second on, so that entries can be told apart."""
        with self._lock:
            if self._closed:
                return
            stamp = timestamp(self._clock.now())
            data = f"{stamp} {level} {clean(text)}".replace("\n", "\n    ").encode() + b"\n"
            last = f"{stamp} WARNING the log was cut here: it is over {self._limit} bytes (setting log_max)\n".encode()
            if self._size + len(data) + len(last) > self._limit:
                data, self._closed = last, True
            if self._size + len(data) <= self._limit:
                self._append(data)

    def close(self) -> str | None:
        """Drop every later line; return the path if anything was written."""
        with self._lock:
            self._closed = True
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
        return self.path if self._size else None

    def _append(self, data: bytes) -> None:
        try:
            if self._fd is None:
                self._fd = self._open()
            os.write(self._fd, data)
        except OSError:
            self._closed = True
        else:
            self._size += len(data)

    def _open(self) -> int:
        path = self.path or os.devnull
        make_folder(os.path.dirname(path), mode=self._settings.folder_mode)  # noqa: PTH120 - see `log_path`
        return open_file(path, os.O_WRONLY | os.O_APPEND, mode=self._settings.file_mode)


def timestamp(at: Instant) -> str:
    """Return an instant as a line begins: 2026-11-15T04:25:59.123456Z."""
    return f"{moment(at):%Y-%m-%dT%H:%M:%S.%fZ}"
