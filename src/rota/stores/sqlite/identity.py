"""The file that a store was opened on, and whether it is still the one at its path."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import apsw

from rota.errors import AnswerLost, StoreFileLost

_stat = os.stat  # at each commit and each read, where a Path would take longer
REMEDY = "put the file back where it was, with its -wal file, or restart this process if the change is meant"


class Identity:
    """The device and inode of one store's file, taken when its first connection is opened.

    SQLite keeps writing to a file that was deleted or renamed, and in WAL mode it does not look: each commit does so here.
    """

    __slots__ = ("_device", "_inode", "_path")

    def __init__(self, path: Path) -> None:
        """Know nothing yet."""
        self._path = os.fspath(path)
        self._device = self._inode = -1

    def opened(self, open_one: Callable[[], apsw.Connection]) -> apsw.Connection:
        """Open a connection, and make sure that it is one to this file."""
        known = self._inode != -1
        if known:
            self.check()
        before = self._at_path()
        connection = open_one()
        try:
            # SQLite compares its own descriptor with the path. So no exchange between the two looks goes unnoticed.
            if before is None or self._at_path() != before or Moved(connection)():
                raise self.lost()
            if known:
                self.check()
        except BaseException:
            connection.close()
            raise
        self._device, self._inode = before
        return connection

    def check(self) -> None:
        """Raise if the file at the path is another one, or none."""
        try:
            found = _stat(self._path)
        except OSError:
            raise self.lost() from None
        if found.st_ino != self._inode or found.st_dev != self._device:
            raise self.lost()

    def lost(self, *, committed: bool = False) -> StoreFileLost | AnswerLost:
        """Return the error for a file that is lost; `committed` says that the write was made before this was noticed."""
        what = "another file is at its path now" if os.path.exists(self._path) else "it was deleted or renamed"  # noqa: PTH110 - a text
        if committed:
            return AnswerLost(
                f"the store's file {self._path} was lost during this write: {what}. The write is only in the file that was moved"
                f" away: {REMEDY} and repeat the call"
            )
        return StoreFileLost(f"the store's file {self._path} is not the one that was opened: {what}. Nothing was written: {REMEDY}")

    def _at_path(self) -> tuple[int, int] | None:
        try:
            found = _stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


class Moved:
    """Asks SQLite whether the file that a connection has open is still at its path. For one thread at a time.

    This takes a quarter of the time of a look from Python, but sees only inodes, and no change of a symbolic link.
    """

    __slots__ = ("_address", "_answer", "_ask")

    def __init__(self, connection: apsw.Connection) -> None:
        """Ask this connection."""
        self._answer = ctypes.c_int(0)
        self._address = ctypes.addressof(self._answer)
        self._ask = connection.file_control

    def __call__(self) -> bool:
        """Say whether it is another file that is there now, or none."""
        self._ask("main", apsw.SQLITE_FCNTL_HAS_MOVED, self._address)
        return self._answer.value != 0
