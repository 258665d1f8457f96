"""The SQLite store: one file, several processes, full durability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rota.model.findings import Finding
from rota.model.values import Enqueued, Instant, NewRow
from rota.ports.places import Place
from rota.stores import permissions
from rota.stores.permissions import HOLD_LOG_LOCKS, READ_ALL
from rota.stores.sqlite import lone
from rota.stores.sqlite.base import Base
from rota.stores.sqlite.checkup import checkup
from rota.stores.verbs.store import RelationalStore


class SqliteStore(Base, RelationalStore):
    """Implements `rota.ports.store.Store` on one file."""

    def checkup(self, *, now: Instant, machine: Callable[[], Instant], full: bool) -> list[Finding]:
        """Look at the file."""
        del machine  # it is the store's own
        with self._readers.take() as db:
            return checkup(db, self.path, self._settings, now, full=full, kept=self._kept())

    def fix(self, *, now: Instant) -> list[Finding]:
        """Repair the rows, and close the files to others."""
        return [*self._fix_rows(now=now), *permissions.repair(self._kept(), self._settings)]

    def _kept(self) -> list[permissions.Kept]:
        """Return the files and folders of this store. SQLite keeps its own beside the file that a symbolic link leads to."""
        file = str(self.path.resolve())
        risks = {"": READ_ALL, "-wal": READ_ALL, "-shm": HOLD_LOG_LOCKS, "-journal": READ_ALL, ".promoting": READ_ALL}
        folders = [permissions.locks(str(self.workers_folder)), permissions.logs(self.log_dir, self._settings)]
        return [*(permissions.Kept(f"{file}{ending}", risk) for ending, risk in risks.items()), *folders]

    def enqueue(
        self,
        rows: Sequence[NewRow],
        *,
        now: Instant,
        definitions: int | None = None,
        transaction: Any = None,
        place: Place | None = None,
    ) -> list[Enqueued]:
        """Add jobs, all or none; a lone plain one by one statement that is its own transaction."""
        if transaction is None and len(rows) == 1 and definitions is not None and not self._closed:
            given = lone.values(rows[0], now, definitions)
            added = None if given is None else self._writer.at_once(lambda db: lone.add(db, rows[0], given))
            if added is not None:
                return [added]
        return super().enqueue(rows, now=now, definitions=definitions, transaction=transaction, place=place)
