"""The caller's own transaction on the store's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rota.errors import TransactionMisuse
from rota.stores.postgres.guest import Lent
from rota.stores.postgres.session import silence


class Transaction:
    """Statements of the caller's own, and jobs, that are committed together or not at all."""

    def __init__(self, store: object, db: Lent) -> None:
        """Wrap the connection for the time of the block."""
        self.store = store
        self.db: Lent | None = db

    def execute(self, statement: str, bindings: Any = None) -> Any:
        """Run SQL of the caller's own in this transaction, with psycopg's placeholders."""
        raw = self.open_db().raw
        # How long the caller's own statements take is not known here.
        with silence(raw, None):
            return raw.execute(statement, bindings)

    def executemany(self, statement: str, bindings: Any) -> None:
        """Run SQL of the caller's own once for each set of bindings."""
        raw = self.open_db().raw
        with silence(raw, None):
            raw.cursor().executemany(statement, bindings)

    def savepoint(self) -> AbstractContextManager[None]:
        """Undo what is written in the block, and only that, if it raises."""
        return self.open_db().savepoint()

    @contextmanager
    def lent(self, lock: str, *, hint: bool) -> Iterator[Lent]:
        """Lend the connection for one verb; undo the verb, and only that, if it fails. The hint goes with every commit of ours."""
        del hint
        db = self.open_db()
        with db.savepoint():
            if lock:
                db.execute(lock)
            yield db

    def stop(self) -> None:
        """Let what is under way end by itself."""

    def open_db(self) -> Lent:
        """Return the connection while the block lasts."""
        if self.db is None:
            raise TransactionMisuse("this transaction is over: it ends with its `with` block")
        return self.db
