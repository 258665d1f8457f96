"""The caller's own transaction on the store's file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import apsw

from rota.errors import TransactionMisuse
from rota.stores.sqlite.connection import Db, translated


class Transaction:
    """Statements of the caller's own, and jobs, that are committed together or not at all."""

    def __init__(self, store: object, db: Db) -> None:
        """Wrap the connection for the time of the block."""
        self.store = store
        self.db: Db | None = db
        self._cursors: WeakSet[apsw.Cursor] = WeakSet()

    def execute(self, statement: str, bindings: Any = ()) -> Any:
        """Run SQL of the caller's own in this transaction."""
        with translated():
            return self._lent(self.open_db().raw.execute(statement, bindings))

    def executemany(self, statement: str, bindings: Any) -> Any:
        """Run SQL of the caller's own once for each set of bindings."""
        with translated():
            return self._lent(self.open_db().raw.executemany(statement, bindings))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what is written in the block, and only that, if it raises."""
        with translated(), self.open_db().savepoint():
            yield

    def stop(self) -> None:
        """Let what is under way end by itself: nothing in it waits."""

    def open_db(self) -> Db:
        """Return the connection while the block lasts, and the transaction with it."""
        if self.db is None:
            raise TransactionMisuse("this transaction is over: it ends with its `with` block")
        if not self.db.raw.in_transaction:
            # Whatever came now would be a transaction of its own.
            raise TransactionMisuse("this transaction was undone by an error in it, or ended by SQL of its own: leave its `with` block")
        return self.db

    def close(self) -> None:
        """End the use of the connection. A statement that was not read to its end would keep it from committing, or in the past."""
        self.db = None
        for cursor in list(self._cursors):
            cursor.close(force=True)

    def _lent(self, cursor: apsw.Cursor) -> apsw.Cursor:
        self._cursors.add(cursor)
        return cursor
