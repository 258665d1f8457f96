"""What a verb costs in steps of SQLite's machine: the same on every computer, however slow or busy it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from rota.stores.sqlite import SqliteStore


class Steps:
    """Steps and statements since the count began."""

    def __init__(self) -> None:
        self.statements = 0
        self.steps = 0

    def add(self, event: dict[str, Any]) -> None:
        self.statements += 1
        self.steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


@contextmanager
def counted(store: SqliteStore) -> Iterator[Steps]:
    """Count what the store's writer does in the block."""
    raw, found = store._writer._db.raw, Steps()
    raw.trace_v2(apsw.SQLITE_TRACE_PROFILE, found.add)
    try:
        yield found
    finally:
        raw.trace_v2(0, None)
