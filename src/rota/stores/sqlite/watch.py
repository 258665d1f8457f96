"""A hint from the kernel that the write-ahead log was written to, by whichever process (inotify, on Linux)."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path

IN_MODIFY = 0x2
IN_IGNORED = 0x8000
EVENT = struct.Struct("iIII")
READ_BYTES = 65_536


class LogWatch:
    """Implements `rota.ports.wakeup.Wakeup` on one write-ahead log. Where inotify can't be had it gives no hints."""

    echoes = True

    def __init__(self, database: Path) -> None:
        """Prepare; the log is watched from the first wait on."""
        self._log = os.fsencode(f"{database}-wal")
        self._libc = _libc()
        self._fd = -1 if self._libc is None else self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watching = False

    def fileno(self) -> int | None:
        """Return the descriptor, watching the log anew if it was deleted and made again."""
        if self._fd < 0 or self._libc is None:
            return None
        if not self._watching:
            self._watching = self._libc.inotify_add_watch(self._fd, self._log, IN_MODIFY) >= 0
        return self._fd if self._watching else None

    def drain(self) -> None:
        """Read the events; all they say is that there may be something."""
        with suppress(BlockingIOError):
            while events := os.read(self._fd, READ_BYTES):
                self._look_at(events)

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _look_at(self, events: bytes) -> None:
        start = 0
        while start < len(events):
            _, mask, _, length = EVENT.unpack_from(events, start)
            if mask & IN_IGNORED:
                self._watching = False
            start += EVENT.size + length


def _libc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.inotify_init1.argtypes = [ctypes.c_int]
        libc.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
    except (OSError, AttributeError):
        return None
    return libc
