"""The PostgreSQL store: any number of workers on any number of machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from psycopg import errors

from rota.errors import StoreBusy, TransactionMisuse
from rota.model.findings import Finding
from rota.model.values import Enqueued, Instant, NewRow
from rota.ports.store import DefinitionsChanged
from rota.stores.postgres.base import TRIES, Base, Handle
from rota.stores.postgres.checkup import checkup
from rota.stores.postgres.errors import translated
from rota.stores.relational import intake, queue
from rota.stores.relational.base import Hold
from rota.stores.relational.store import RelationalStore


class PostgresStore(Base, RelationalStore):
    """Implements `rota.ports.store.Store` on one schema of one database."""

    def checkup(self, *, now: Instant, machine: Callable[[], Instant], full: bool) -> list[Finding]:
        """Look at the server, and at what is ours in it."""
        del full  # nothing here takes long
        with self._reading() as db:
            return checkup(db, self.address, self._settings, now, machine=machine)

    def enqueue(self, rows: Sequence[NewRow], *, now: Instant, definitions: int | None = None, transaction: Any = None) -> list[Enqueued]:
        """Add jobs, all or none; in the caller's own transaction without keeping others waiting until it ends, where that can be."""
        if transaction is None:
            return super().enqueue(rows, now=now, definitions=definitions)
        handle = self.join(transaction)
        with translated(self.address):
            for left in reversed(range(TRIES)):
                try:
                    return self._enqueue_lent(handle, rows, now=now, definitions=definitions)
                except errors.UniqueViolation:
                    # Another who had the same id or key in hand has committed meanwhile: now it can be seen.
                    if not left:
                        raise
        raise AssertionError

    def _enqueue_lent(self, handle: Handle, rows: Sequence[NewRow], *, now: Instant, definitions: int | None) -> list[Enqueued]:
        with self._lent(handle, Hold.DOOR if all(map(queue.stands_alone, rows)) else Hold.ALL) as db:
            if db.isolated and not all(map(queue.is_plain, rows)):
                raise TransactionMisuse(
                    "this transaction sees the moment of its first statement (REPEATABLE READ or SERIALIZABLE), and a job with a key, "
                    "parents or limits must see what others have done since: enqueue it in a READ COMMITTED one, or after the commit"
                )
            try:
                return intake.enqueue(db, rows, now, definitions)
            except DefinitionsChanged:
                if db.isolated and self.definitions() == definitions:
                    raise StoreBusy(
                        "templates or organizations have changed since this transaction's first statement: begin it again"
                    ) from None
                raise
