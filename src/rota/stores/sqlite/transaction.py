"""The caller's own transaction on the store's file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rota.errors import TransactionMisuse
from rota.stores.sqlite.connection import Db, translated


class Transaction:
    """Statements of the caller's own, and jobs, that are committed together or not at all."""

    def __init__(self, store: object, db: Db) -> None:
        """Wrap the connection for the time of the block."""
        self.store = store
        self.db: Db | None = db

    def execute(self, statement: str, bindings: Any = ()) -> Any:
        """Run SQL of the caller's own in this transaction."""
        with translated():
            return self.open_db().raw.execute(statement, bindings)

    def executemany(self, statement: str, bindings: Any) -> Any:
        """Run SQL of the caller's own once for each set of bindings."""
        with translated():
            return self.open_db().raw.executemany(statement, bindings)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what is written in the block, and only that, if it raises."""
        self.execute("SAVEPOINT rota_block")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK TO rota_block")
            raise
        finally:
            self.execute("RELEASE rota_block")

    def stop(self) -> None:
        """Let what is under way end by itself: nothing in it waits."""

    def open_db(self) -> Db:
        """Return the connection while the block lasts."""
        if self.db is None:
            raise TransactionMisuse("this transaction is over: it ends with its `with` block")
        return self.db
