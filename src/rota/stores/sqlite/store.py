"""The SQLite store: one file, several processes, full durability."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import apsw

from rota.errors import StoreError, StoreUnavailable, TransactionMisuse
from rota.model.findings import Finding
from rota.model.ordering import GAP
from rota.model.settings import Settings
from rota.model.values import Enqueued, Instant, NewRow
from rota.ports.files import make_file
from rota.ports.places import Place
from rota.ports.transactions import inside
from rota.stores import permissions
from rota.stores.permissions import HOLD_LOG_LOCKS, READ_ALL
from rota.stores.sqlite import forking, migrate
from rota.stores.sqlite.checkup import checkup
from rota.stores.sqlite.connection import Identity, Readers, check_path, check_sqlite_version, open_connection, translated
from rota.stores.sqlite.db import Db, statement
from rota.stores.sqlite.writer import Writer
from rota.stores.verbs.db import refuse_moved
from rota.stores.verbs.store import Hold, VerbStore

T = TypeVar("T")

PLACES = (
    *("job_id", "params", "definitions", "organization_id", "priority", "gap", "template_id", "job_type", "origin", "run_at"),
    *("expires_at", "unique_key", "owner", "max_retries", "max_crashes", "backoff", "timeout", "executor", "meta", "lane", "now"),
)
"""What `insert_job_at_once` takes, in its order: that of `at_once_values`."""


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


class SqliteStore(VerbStore):
    """Implements `rota.ports.store.Store` on one file: a writer, readers, and a watcher of what others commit."""

    def __init__(self, path: str | Path, settings: Settings, *, vfs: str | None = None) -> None:
        """Open the file, making it if it is not there. `vfs` is for tests that break the disk."""
        check_sqlite_version()
        self.path = Path(path).absolute()
        self._settings = settings
        self.url = f"sqlite:///{self.path}"
        self.workers_folder = self.path.with_name(f"{self.path.name}.workers")
        self.log_dir = settings.log_dir or f"{self.path}.logs"
        check_path(self.path)
        if not self.path.exists():
            try:
                make_file(self.path.resolve(), mode=settings.file_mode)
            except OSError as error:
                raise StoreUnavailable(f"{self.path} could not be created: {error}. See disk space and permissions") from error
        self._identity = Identity(self.path)
        connect = partial(
            open_connection,
            self.path,
            synchronous=settings.synchronous,
            wal_pages=settings.wal_pages,
            vfs=vfs,
            check=partial(migrate.version_of, path=self.path),
        )
        self._open = partial(self._identity.opened, connect)
        self._writer = Writer(self._open, busy_timeout_s=settings.busy_timeout, path=self.path, identity=self._identity)
        self._readers = Readers(self._open, self._identity.check)
        self._watcher: Db | None = None
        self._watching = threading.Lock()
        self._seen = 0
        self._closed = False
        forking.stores.add(self)

    # ---- life -------------------------------------------------------------------------------------------------

    def migrate(self, *, now: Instant) -> None:
        """Bring the schema up to date."""
        del now
        with self._readers.take() as db:
            current = migrate.version_of(db, self.path)
            if current:
                refuse_moved(db, str(self.path))
        if current < migrate.latest():
            self._write(lambda db: migrate.migrate(db, self.path))

    def close(self) -> None:
        """Close every connection."""
        if self._closed:
            return
        self._closed = True
        self._readers.close()
        if self._watcher is not None:
            self._watcher.raw.close()
        self._writer.end()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Let go of every connection while the block lasts: see `forking`."""
        if self._closed or self._writer.owned:
            # A fork in the middle of the caller's own transaction: that connection can't be closed.
            yield
            return
        with self._writer.still(), self._readers.still(), self._watching:
            if self._watcher is not None:
                self._watcher.raw.close()
                self._watcher = None
                # Each connection counts for itself: what the next one says first is news.
                self._seen = 0
            yield

    def changed(self) -> bool:
        """Say whether another connection has committed since the last call."""
        with translated(self.path), self._watching:
            if self._closed:
                raise StoreError(f"{self.path} is closed")
            if self._watcher is None:
                self._watcher = Db(self._open())
            version = self._watcher.raw.pragma("data_version")
        if version == self._seen:
            return False
        self._seen = version
        return True

    def transacting(self) -> bool:
        """Say whether this thread is inside its own transaction."""
        return self._writer.owned

    def crowd(self, *, crowded: bool) -> None:
        """Tell whether other processes write to this file: then each commit leaves them a gap."""
        self._writer.crowded = crowded

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open the caller's own transaction."""
        with translated(self.path, self._identity.check), self._writer.transaction() as db, inside(self.url):
            handle = Transaction(self, db)
            try:
                yield handle
                handle.open_db()
            finally:
                handle.close()

    def join(self, transaction: Any) -> Transaction:
        """Return the handle on the caller's transaction, which must be of this store."""
        if not isinstance(transaction, Transaction) or transaction.store is not self:
            raise TransactionMisuse("transaction= takes what `with rota.transaction() as tx` gave, of the same Rota")
        return transaction

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

    # ---- the queue --------------------------------------------------------------------------------------------

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
            given = at_once_values(rows[0], now, definitions)
            added = None if given is None else self._writer.at_once(partial(_add, rows[0], given))
            if added is not None:
                return [added]
        return super().enqueue(rows, now=now, definitions=definitions, transaction=transaction, place=place)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _write(self, work: Callable[[Db], T], *, hold: Hold = Hold.ALL, patient: bool = False, long: bool = False) -> T:
        del hold, long
        if self._closed:
            raise StoreError(f"{self.path} is closed")
        return self._writer.run(work, patient=patient)

    def _reading(self, *, long: bool = False) -> AbstractContextManager[Db]:
        del long
        return self._readers.take()

    @contextmanager
    def _of(self, transaction: Any) -> Iterator[Db]:
        """Lend the connection of the caller's own transaction."""
        with translated(self.path):
            yield self.join(transaction).open_db()


def at_once_values(row: NewRow, now: Instant, definitions: int) -> tuple[Any, ...] | None:
    """Return what the statement takes for one job; None for one that needs a second look."""
    if row.run_at > now or not row.lane or row.tags is not None or row.webhook is not None or row.depends_on or row.is_tied:
        return None
    policy, template_id = row.policy, row.template_id
    return (
        bytes.fromhex(row.job_id),
        row.params,
        definitions,
        row.organization_id,
        policy.priority,
        GAP,
        None if template_id is None else bytes.fromhex(template_id),
        row.job_type,
        row.origin,
        row.run_at,
        row.expires_at,
        row.unique_key,
        row.owner,
        policy.max_retries,
        policy.max_crashes,
        policy.backoff,
        policy.timeout,
        policy.executor,
        row.meta,
        row.lane,
        now,
    )


def _add(row: NewRow, given: tuple[Any, ...], db: Db) -> Enqueued | None:
    """Write a job by the one statement; None, and nothing is written, where something needs a second look."""
    # While a statement writes nobody else does: whoever has its key already has committed, and the index refuses it.
    try:
        number, position = db.add_at_once(statement("insert_job_at_once").text, given)
    except db.conflict:
        # The gate is shut, or it is there already: the way that looks at each will say.
        return None
    return Enqueued(row.job_id, row.job_id, number, "QUEUED", position, existing=False)
