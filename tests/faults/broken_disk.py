"""A disk that fails where it is told to: an apsw VFS over the real one, which counts every write, sync and truncate."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import apsw


class Op(NamedTuple):
    """One change of one file, as the disk saw it."""

    file: str
    kind: str
    offset: int = 0
    data: bytes = b""


class Fault(NamedTuple):
    """What goes wrong, from which operation on, and for how many of them; only in the log, if so wished."""

    kind: str
    at: int
    count: int = 1
    log_writes_only: bool = False

    def hits(self, number: int, op: Op) -> bool:
        if self.log_writes_only and not (op.kind == "write" and op.file.endswith("-wal")):
            return False
        return self.at <= number < self.at + self.count


class BrokenDisk(apsw.VFS):
    """Give its name to SqliteStore as `vfs`. Without a fault it only counts and keeps a log."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fault: Fault | None = None
        self.count = 0
        self.fired = 0
        self.log: list[Op] | None = None
        super().__init__(name, "")

    def xOpen(self, name, flags):  # noqa: N802 - SQLite's own name
        return _File(self, name, flags)

    def meets(self, op: Op, torn: Callable[[], None]) -> None:
        """Count an operation; fail it if its turn has come."""
        self.count += 1
        if self.fault is not None and self.fault.hits(self.count, op):
            self.fired += 1
            if self.fault.kind in {"torn", "torn crash"}:
                torn()
            if self.fault.kind.endswith("crash"):
                os._exit(77)
            raise _errors[self.fault.kind](f"made to fail: {op.kind} of {op.file}")
        if self.log is not None:
            self.log.append(op)


_errors = {"ioerr": apsw.IOError, "torn": apsw.IOError, "full": apsw.FullError}


class _File(apsw.VFSFile):
    def __init__(self, disk: BrokenDisk, name, flags) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        self._name = path.rpartition("/")[2]
        super().__init__("", name, flags)

    def xWrite(self, data, offset):  # noqa: N802
        def half() -> None:
            super(_File, self).xWrite(data[: len(data) // 2], offset)

        self._disk.meets(Op(self._name, "write", offset, bytes(data)), half)
        super().xWrite(data, offset)

    def xSync(self, flags):  # noqa: N802
        self._disk.meets(Op(self._name, "sync"), lambda: None)
        super().xSync(flags)

    def xTruncate(self, size):  # noqa: N802
        self._disk.meets(Op(self._name, "truncate", size), lambda: None)
        super().xTruncate(size)
