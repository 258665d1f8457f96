"""Holds the write lock of a SQLite store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock of a file, as another program may."""
    with closing(apsw.Connection(str(path))) as file:
        file.set_busy_timeout(20_000)
        file.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            file.execute("ROLLBACK")
