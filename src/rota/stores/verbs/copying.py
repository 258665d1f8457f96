"""What dialects share when a store is copied as a whole, and the mark that a store was moved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from rota.errors import StoreError
from rota.model.values import WorkerInfo
from rota.ports.copying import Moved, Row, Table
from rota.stores.verbs import reads
from rota.stores.verbs.db import MOVED, Db
from rota.stores.verbs.tables import META

CHANGES = ("INSERT", "UPDATE", "DELETE")
REFUSED = {"workers": ("INSERT", "UPDATE OF beat")}
"""What a store that was moved refuses: all changes, but a worker or a program that has it open may say that it ends."""


class Reading(ABC):
    """Implements what can be asked of any dialect of `rota.ports.copying.Reading` in the same words."""

    def __init__(self, db: Db) -> None:
        """Read through this connection, which is inside a transaction."""
        self._db = db

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        return len(self._db.rows("counters")) if table == META else self._count(table)

    def rows(self, table: Table) -> Iterator[Row]:
        """Go through a table in the order of its key."""
        return iter(sorted(self._db.rows("counters"))) if table == META else self._rows(table)

    @abstractmethod
    def order(self) -> Iterator[Row]:
        """Go through the queue in its order."""

    def workers(self) -> list[WorkerInfo]:
        """Return workers and clients that have not ended."""
        return reads.workers(self._db)

    def direct(self) -> str | None:
        """Return who waits for a direct execution."""
        found = self._db.row("active_reservation")
        return None if found is None else str(found[2])

    @abstractmethod
    def _count(self, table: Table) -> int: ...

    @abstractmethod
    def _rows(self, table: Table) -> Iterator[Row]: ...


def refuse_broken(db: Db, url: str, rules: str = "broken_rules") -> None:
    """Refuse a copy that breaks a rule which nobody watched while it was written."""
    broken = [f"{words} ({count})" for words, count in db.rows(rules) if count]
    if broken:
        raise StoreError(f"{url} would not be whole: {'; '.join(broken)}. Nothing was changed")


def moved_of(db: Db) -> Moved | None:
    """Return the mark of a store that was moved."""
    found = db.row("moved")
    return None if found is None else Moved(found[0], found[1])


def moved_words(moved: Moved) -> str:
    """Return what those are told who have the store open and write to it, as it stands inside SQL's quotes."""
    return f"{MOVED} {moved.to}: give that as the store".replace("'", "''")


def refused_changes(table: str) -> tuple[str, ...]:
    """Return which changes of a table a store refuses that was moved."""
    return REFUSED.get(table, CHANGES)
