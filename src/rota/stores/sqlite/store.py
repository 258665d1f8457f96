"""The SQLite store: one file, several processes, full durability. The verbs' SQL is in the modules beside this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rota.errors import NotFound, StoreError, TransactionMisuse
from rota.model.settings import Settings
from rota.model.values import (
    Actor,
    Claimed,
    Enqueued,
    Group,
    Instant,
    Job,
    NewRow,
    Run,
    Stats,
    Template,
    WorkerInfo,
    dashed,
)
from rota.ports.store import Ending, Held, NewGroup, Peek, Reservation, Turn, Turned, Where
from rota.stores.sqlite import definitions, forking, groups, migrate, queue, reads, recovery, turn, verbs
from rota.stores.sqlite.connection import Db, Readers, check_path, check_sqlite_version, open_connection, translated
from rota.stores.sqlite.transaction import Transaction
from rota.stores.sqlite.writer import Writer

T = TypeVar("T")
_numbers = msgspec.json.Decoder(tuple[int, ...])


class SqliteStore:
    """Implements `rota.ports.store.Store` on one file."""

    def __init__(self, path: str | Path, settings: Settings, *, vfs: str | None = None) -> None:
        """Open the file, making it if it is not there. `vfs` is for tests that break the disk."""
        check_sqlite_version()
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{self.path}"
        check_path(self.path)
        self._open = partial(
            open_connection,
            self.path,
            synchronous=settings.synchronous,
            wal_pages=settings.wal_pages,
            vfs=vfs,
            check=partial(migrate.version_of, path=self.path),
        )
        self._writer = Writer(self._open, busy_timeout_s=settings.busy_timeout, path=self.path)
        self._readers = Readers(self._open)
        self._watcher: Db | None = None
        self._watching = threading.Lock()
        self._seen = 0
        self._closed = False
        forking.watch(self)

    # ---- life -------------------------------------------------------------------------------------------------

    def migrate(self, *, now: Instant) -> None:
        """Bring the schema up to date."""
        del now
        with self._readers.take() as db:
            current = migrate.version_of(db, self.path)
        if current < migrate.latest():
            self._write(lambda db: migrate.migrate(db, self.path))

    def close(self) -> None:
        """Close every connection."""
        if self._closed:
            return
        self._closed = True
        self._readers.close()
        self._stop_watching()
        self._writer.close()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Let go of every connection while the block lasts: see `forking`."""
        if self._closed or self._writer.owned:
            # A fork in the middle of the caller's own transaction: that connection can't be closed.
            yield
            return
        with self._writer.still(), self._readers.still(), self._watching:
            self._stop_watching()
            yield

    def _stop_watching(self) -> None:
        if self._watcher is not None:
            self._watcher.raw.close()
            self._watcher = None
            # Each connection counts for itself: what the next one says first is news.
            self._seen = 0

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
        with translated(self.path), self._writer.transaction() as db:
            handle = Transaction(self, db)
            try:
                yield handle
            finally:
                handle.db = None

    # ---- the queue --------------------------------------------------------------------------------------------

    def enqueue(self, rows: Sequence[NewRow], *, now: Instant, definitions: int | None = None, transaction: Any = None) -> list[Enqueued]:
        """Add jobs, all or none."""
        if transaction is None:
            if len(rows) == 1 and definitions is not None and not self._closed:
                added = self._writer.at_once(lambda db: queue.add_at_once(db, rows[0], now, definitions))
                if added is not None:
                    return [added]
            return self._write(lambda db: queue.enqueue(db, rows, now, definitions))
        # A savepoint: a caller who catches the refusal and goes on keeps nothing of a batch that was refused.
        with self._of(transaction) as db, transaction.savepoint():
            return queue.enqueue(db, rows, now, definitions)

    def turn(self, turn_: Turn) -> Turned:
        """Make one turn."""
        return self._write(lambda db: turn.turn(db, turn_), patient=True)

    def peek(self, *, types: tuple[str, ...], worker_id: str) -> Peek:
        """Look whether a turn is worth its commit."""
        with self._readers.take() as db:
            due = [earliest for _, earliest in db.rows("due_priorities")]
            expiry = db.value("next_expiry")
            return Peek(
                ready=bool(db.value("is_ready", types=msgspec.json.encode(types).decode())) or db.row("active_reservation") is not None,
                next_due=min(due + ([expiry] if expiry is not None else []), default=None),
                cancelling=_numbers.decode(db.value("cancelling", worker_id=bytes.fromhex(worker_id))),
                definitions=db.value("definitions_version"),
            )

    def holding(self, worker_id: str) -> list[Claimed]:
        """Return what a worker holds."""
        with self._readers.take() as db:
            return recovery.holding(db, worker_id)

    def cancel(self, job_id: str, *, actor: Actor, now: Instant, reason: str | None = None) -> Job:
        """Cancel a chain."""
        return self._verb(lambda db: verbs.cancel(db, job_id, actor, now, reason))

    def change(
        self,
        job_id: str,
        *,
        actor: Actor,
        now: Instant,
        priority: int | None = None,
        params: str | None = None,
        run_at: Instant | None = None,
    ) -> Job:
        """Change a waiting job."""
        return self._verb(lambda db: verbs.change(db, job_id, actor, now, priority=priority, params=params, run_at=run_at))

    def move(
        self, job_id: str, *, actor: Actor, now: Instant, before: str | None = None, after: str | None = None, front: bool = False
    ) -> Job:
        """Reorder a QUEUED job."""
        return self._verb(lambda db: verbs.move(db, job_id, actor, now, before=before, after=after, front=front))

    def retry(self, job_id: str, *, new_id: str, actor: Actor, now: Instant) -> Job:
        """Add a successor to an ended chain."""
        return self._verb(lambda db: verbs.retry(db, job_id, new_id, actor, now))

    # ---- groups -----------------------------------------------------------------------------------------------

    def add_group(self, group: NewGroup, *, actor: Actor, now: Instant) -> Group:
        """Make a group."""
        self._write(lambda db: groups.add_group(db, group, actor, now))
        return self._group(group.group_id)

    def cancel_group(self, group_id: str, *, actor: Actor, now: Instant) -> Group:
        """Cancel a group's chains."""
        self._write(lambda db: groups.cancel_group(db, group_id, actor, now))
        return self._group(group_id)

    def group(self, group_id: str) -> Group | None:
        """Return a group."""
        with self._readers.take() as db:
            return groups.read_group(db, group_id)

    def groups(self, *, limit: int) -> list[Group]:
        """Return the newest groups."""
        with self._readers.take() as db:
            found = (groups.read_group(db, row[0]) for row in db.rows("groups", limit=limit))
            return [group for group in found if group is not None]

    # ---- direct execution -------------------------------------------------------------------------------------

    def reserve(
        self, row: NewRow, *, reservation_id: str, reserved_by: str, worker_id: str, now: Instant, expires_at: Instant
    ) -> Reservation | None:
        """Make a direct job and its reservation."""
        return self._write(
            lambda db: recovery.reserve(
                db, row, now, reservation_id=reservation_id, reserved_by=reserved_by, worker_id=worker_id, expires_at=expires_at
            )
        )

    def reservation(self) -> Reservation | None:
        """Return the ACTIVE reservation."""
        with self._readers.take() as db:
            return turn.active_reservation(db)

    def give_up(self, reservation_id: str, *, now: Instant, stop_running: bool) -> bool:
        """End a reservation and its job."""
        return self._write(lambda db: recovery.give_up(db, reservation_id, now, stop_running=stop_running))

    def give_up_waiting(self, reservation_id: str, *, now: Instant) -> bool:
        """Give up a direct execution that has not started."""
        return self._write(lambda db: recovery.give_up_waiting(db, reservation_id, now))

    # ---- workers and recovery ---------------------------------------------------------------------------------

    def register(self, worker_id: str, *, host: str, kind: str, job_types: Sequence[str], now: Instant) -> None:
        """Record a worker."""
        types = msgspec.json.encode(list(job_types)).decode()
        self._write(lambda db: db.change("register", worker_id=worker_id, host=host, kind=kind, job_types=types, now=now))

    def beat(self, worker_id: str, *, job_types: Sequence[str]) -> None:
        """Advance a worker's beat."""
        types = msgspec.json.encode(list(job_types)).decode()
        self._write(lambda db: db.change("beat", worker_id=worker_id, job_types=types))

    def stopping(self, worker_id: str, *, now: Instant) -> None:
        """Record the beginning of a shutdown."""
        self._write(lambda db: db.change("stopping", worker_id=worker_id, now=now))

    def end_worker(self, worker_id: str, *, now: Instant) -> None:
        """Record the end of a worker."""
        self._write(lambda db: db.change("end_worker", worker_id=worker_id, now=now))

    def workers(self, *, live: bool = True) -> list[WorkerInfo]:
        """Return workers."""
        with self._readers.take() as db:
            return recovery.workers(db, ended=not live)

    def held_by(self, worker_id: str, *, limit: int) -> list[Held]:
        """Return what a lost worker held."""
        with self._readers.take() as db:
            return recovery.held_by(db, worker_id, limit)

    def repair(self, *, since: Instant) -> list[Held]:
        """Return attempts that lack their successor."""
        with self._readers.take() as db:
            return recovery.failed_without_successor(db, since)

    def recover(self, endings: Sequence[Ending], held: Sequence[Held], *, now: Instant) -> int:
        """Write recovery's moves."""
        return self._write(lambda db: recovery.recover(db, endings, held, now))

    def add_successors(self, endings: Sequence[Ending], *, now: Instant) -> int:
        """Give failed attempts the successors they lack."""
        return self._write(lambda db: recovery.add_successors(db, endings, now))

    def recovered(self, *, now: Instant) -> Instant:
        """Record a finished recovery."""

        def work(db: Db) -> Instant:
            before = db.value("recovered_at")
            db.change("set_recovered_at", now=now)
            return int(before)

        return self._write(work)

    # ---- definitions ------------------------------------------------------------------------------------------

    def definitions(self) -> int:
        """Return the version of the definitions."""
        with self._readers.take() as db:
            return int(db.value("definitions_version"))

    def put_templates(self, templates: Sequence[Template], *, actor: Actor, now: Instant) -> None:
        """Make or update templates."""
        self._write(lambda db: definitions.put_templates(db, templates, actor, now))

    def templates(self) -> list[Template]:
        """Return every template."""
        with self._readers.take() as db:
            return definitions.templates(db)

    def pause(self, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
        """Begin a pause."""
        self._write(lambda db: definitions.pause(db, kind, name, actor, now))

    def resume(self, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
        """End a pause and give back what it parked."""
        self._write(lambda db: definitions.resume(db, kind, name, actor, now))

    def pauses(self) -> list[tuple[str, str]]:
        """Return what is paused."""
        with self._readers.take() as db:
            return [(row[0], row[1]) for row in db.rows("pauses")]

    # ---- reads ------------------------------------------------------------------------------------------------

    def job(self, job_id: str, *, transaction: Any = None) -> Job | None:
        """Return one job."""
        with self._readers.take() if transaction is None else self._of(transaction) as db:
            row = db.row("job", job_id=job_id)
            return None if row is None else reads.job_from(row)

    def by_number(self, number: int) -> Job | None:
        """Return a job by its number."""
        with self._readers.take() as db:
            row = db.row("job_by_number", number=number)
            return None if row is None else reads.job_from(row)

    def chain(self, job_id: str) -> list[Job]:
        """Return a chain, first to tail."""
        with self._readers.take() as db:
            return [reads.job_from(row) for row in db.rows("chain", job_id=job_id)]

    def run(self, job_id: str) -> Run | None:
        """Return a job's run."""
        with self._readers.take() as db:
            row = db.row("run", job_id=job_id)
            return None if row is None else reads.run_from(job_id, row)

    def find(self, where: Where, *, limit: int, before: int | None = None) -> list[tuple[int, Job]]:
        """Return a page of jobs."""
        with self._readers.take() as db:
            return reads.find(db, where, limit, before)

    def queue(self, *, limit: int) -> list[Job]:
        """Return the queue in its order."""
        with self._readers.take() as db:
            return reads.queue(db, limit)

    def ahead(self, job_id: str) -> int:
        """Return how many stand before a job."""
        with self._readers.take() as db:
            return int(db.value("ahead", job_id=job_id))

    def blockers(self, job_id: str) -> list[Job]:
        """Return the live jobs that a job waits for."""
        with self._readers.take() as db:
            return [reads.job_from(row) for row in db.rows("blockers", job_id=job_id)]

    def stats(self, *, now: Instant) -> Stats:
        """Return counts and ages."""
        with self._readers.take() as db:
            return reads.stats(db, now)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _write(self, work: Callable[[Db], T], *, patient: bool = False) -> T:
        if self._closed:
            raise StoreError(f"{self.path} is closed")
        return self._writer.run(work, patient=patient)

    @contextmanager
    def _of(self, transaction: Any) -> Iterator[Db]:
        """Lend the connection of the caller's own transaction."""
        if not isinstance(transaction, Transaction) or transaction.store is not self:
            raise TransactionMisuse("transaction= takes what `with rota.transaction() as tx` gave, of the same Rota")
        with translated(self.path):
            yield transaction.open_db()

    def _verb(self, work: Callable[[Db], str]) -> Job:
        job_id = self._write(work)
        job = self.job(job_id)
        if job is None:
            raise NotFound(f"{dashed(job_id)} was removed meanwhile")
        return job

    def _group(self, group_id: str) -> Group:
        group = self.group(group_id)
        if group is None:
            raise NotFound(f"there is no group {dashed(group_id)} in this store")
        return group
