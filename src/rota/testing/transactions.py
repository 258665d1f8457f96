"""Transactions of the program's own database, recorded: a job enqueued in one is there once that is committed.

The store of a test is a file, and the transaction belongs to another database. So a new row is tried on the store, for its refusals, and
taken back; it is written when the library tells of the commit. SQLAlchemy and Django are known by what they can do, and not imported
unless one of their objects was given.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from rota.errors import TransactionMisuse
from rota.model.values import Enqueued, Instant, Job, NewRow
from rota.ports.store import Store

TAKEN = (
    "here transaction= takes what `with rota.transaction() as tx` gave, a Session or Connection of SQLAlchemy, or Django's connection; "
    "this is {}. For others let the test use a PostgreSQL: testing.use(app, store='postgresql://…')"
)
NOT_COMMITTED = 0
"""The number of a job whose transaction is open."""


class Held(msgspec.Struct):
    """A row that waits for the commit of its transaction."""

    row: NewRow
    now: Instant
    within: tuple[object, ...] = ()
    """The savepoints that it was enqueued in."""


class Recorder:
    """Lets the store of a test take part in transactions of other databases."""

    def __init__(self, store: Store) -> None:
        """Put itself in front of the three verbs that take a transaction."""
        self._store = store
        self._join, self._enqueue, self._job = store.join, store.enqueue, store.job
        self._open: dict[int, tuple[object, _Recorded]] = {}
        for verb in ("join", "enqueue", "job"):
            setattr(store, verb, getattr(self, verb))

    def count(self) -> int:
        """Return how many jobs wait for a commit."""
        return sum(len(transaction.held()) for _, transaction in self._open.values())

    def join(self, given: Any) -> Any:
        """Return the handle on a transaction."""
        if isinstance(given, _Recorded):
            return given
        subject = _subject(given)
        if subject is None:
            return self._own(given)
        known = self._open.get(id(subject))
        if known is None:
            # The subject is kept with it: its id is not given to another one meanwhile.
            known = self._open[id(subject)] = (subject, _transaction_of(subject, self._write))
        known[1].begin()
        return known[1]

    def _own(self, given: Any) -> Any:
        try:
            return self._join(given)
        except TransactionMisuse:
            kind = type(given)
            raise TransactionMisuse(TAKEN.format(f"{kind.__module__}.{kind.__qualname__}")) from None

    def enqueue(self, rows: Sequence[NewRow], *, now: Instant, transaction: Any = None, **options: Any) -> list[Enqueued]:
        """Enqueue, or try to and hold the rows until the commit."""
        if not isinstance(transaction, _Recorded):
            return self._enqueue(rows, now=now, transaction=transaction, **options)
        options.pop("place", None)
        with self._tried(transaction) as tx:
            enqueued = self._enqueue([copy.copy(row) for row in rows], now=now, transaction=tx, **options)
        for row, written in zip(rows, enqueued, strict=True):
            if not written.existing:
                transaction.hold(row, now)
                written.number = NOT_COMMITTED
        return enqueued

    def job(self, job_id: str, *, transaction: Any = None) -> Job | None:
        """Return a job, as the transaction sees it."""
        if not isinstance(transaction, _Recorded):
            return self._job(job_id, transaction=transaction)
        with self._tried(transaction) as tx:
            return self._job(job_id, transaction=tx)

    def close(self) -> None:
        """Listen to nobody any more."""
        for _, transaction in self._open.values():
            transaction.close()

    @contextmanager
    def _tried(self, transaction: _Recorded) -> Iterator[Any]:
        """Lend the store with the rows of a transaction in it, and take all of it back."""
        try:
            with self._store.transaction() as tx:
                for held in transaction.held():
                    self._enqueue([copy.copy(held.row)], now=held.now, transaction=tx)
                yield tx
                raise _TakeBack
        except _TakeBack:
            pass

    def _write(self, held: Held) -> None:
        self._enqueue([held.row], now=held.now)


class _TakeBack(Exception):  # noqa: N818 - how a block is left without a commit
    """Raised to undo what was tried."""


class _Recorded:
    """The transactions of one session or connection: what is enqueued in the open one is held until it is committed."""

    def __init__(self, subject: Any, write: Callable[[Held], None]) -> None:
        self.subject = subject
        self._write = write
        self._rows: list[Held] = []

    def begin(self) -> None:
        """Have a transaction open, as the library itself does with the first statement."""

    def held(self) -> list[Held]:
        """Return the rows of the transaction that is open."""
        return self._rows

    def hold(self, row: NewRow, now: Instant) -> None:
        """Take a row of the transaction that is open."""
        self._rows.append(Held(row, now))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Take back what the block enqueues if it raises."""
        mark = len(self._rows)
        try:
            yield
        except BaseException:
            del self._rows[mark:]
            raise

    def stop(self) -> None:
        """Let what is under way end by itself: nothing in it waits."""

    def close(self) -> None:
        """Listen no more."""

    def _commit(self) -> None:
        rows, self._rows = self._rows, []
        for held in rows:
            self._write(held)


class _OfSession(_Recorded):
    """A session of SQLAlchemy."""

    def __init__(self, subject: Any, write: Callable[[Held], None]) -> None:
        from sqlalchemy import event  # noqa: PLC0415 - the caller has it

        super().__init__(subject, write)
        self._event = event
        event.listen(subject, "after_commit", self._committed)
        event.listen(subject, "after_soft_rollback", self._rolled_back)

    def begin(self) -> None:
        """Begin, unless that was done."""
        if not self.subject.in_transaction():
            self.subject.begin()

    def hold(self, row: NewRow, now: Instant) -> None:
        """Take a row, with the savepoints around it."""
        within, transaction = [], self.subject.get_nested_transaction()
        while transaction is not None:
            within.append(transaction)
            transaction = transaction.parent
        self._rows.append(Held(row, now, tuple(within)))

    def close(self) -> None:
        """Listen no more."""
        self._event.remove(self.subject, "after_commit", self._committed)
        self._event.remove(self.subject, "after_soft_rollback", self._rolled_back)

    def _committed(self, session: Any) -> None:
        if not session.in_nested_transaction():
            self._commit()

    def _rolled_back(self, session: Any, previous: Any) -> None:  # noqa: ARG002 - as SQLAlchemy calls it
        nested = getattr(previous, "nested", False)
        self._rows = [held for held in self._rows if nested and previous not in held.within]


class _OfConnection(_Recorded):
    """A connection of SQLAlchemy."""

    def __init__(self, subject: Any, write: Callable[[Held], None]) -> None:
        from sqlalchemy import event  # noqa: PLC0415 - the caller has it

        super().__init__(subject, write)
        self._event = event
        self._marks: dict[str, int] = {}
        self._heard: dict[str, Callable[..., object]] = {
            "commit": lambda _: self._commit(),
            "rollback": lambda _: self._rows.clear(),
            "before_execute": self._marked,
            "rollback_savepoint": self._returned,
        }
        for name, function in self._heard.items():
            event.listen(subject, name, function)

    def begin(self) -> None:
        """Begin, unless that was done."""
        if not self.subject.in_transaction():
            self.subject.begin()

    def close(self) -> None:
        """Listen no more."""
        for name, function in self._heard.items():
            self._event.remove(self.subject, name, function)

    def _marked(self, _connection: Any, statement: Any, *_: Any) -> None:
        # The event `savepoint` comes before the savepoint has a name.
        if type(statement).__name__ == "SavepointClause":
            self._marks[statement.ident] = len(self._rows)

    def _returned(self, _connection: Any, name: str, _context: Any) -> None:
        # One that was set before the first row was enqueued is not known: it is before all of them.
        del self._rows[self._marks.get(name, 0) :]


class _OfDjango(_Recorded):
    """A connection of Django, which keeps what is to be done after a commit itself."""

    def begin(self) -> None:
        """Refuse a connection that is in no transaction."""
        if not self.subject.in_atomic_block:
            raise TransactionMisuse(
                "this connection is in no transaction, so there is nothing that a job could be committed with: "
                "enqueue inside `with transaction.atomic():`, or leave transaction= out"
            )

    def held(self) -> list[Held]:
        """Return the rows that Django has not dropped with a rollback."""
        return [work.held for work in self._works()]

    def hold(self, row: NewRow, now: Instant) -> None:
        """Let Django write the row after the commit."""
        self.subject.on_commit(_AfterCommit(Held(row, now), self._write))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Take back what the block enqueues if it raises."""
        before = self._works()
        try:
            yield
        except BaseException:
            kept = self.subject.run_on_commit
            kept[:] = [item for item in kept if not isinstance(item[1], _AfterCommit) or item[1] in before]
            raise

    def _works(self) -> list[_AfterCommit]:
        return [function for _, function, *_ in self.subject.run_on_commit if isinstance(function, _AfterCommit)]


class _AfterCommit:
    """What Django is to do after a commit: write a row."""

    def __init__(self, held: Held, write: Callable[[Held], None]) -> None:
        self.held = held
        self._write = write

    def __call__(self) -> None:
        """Write the row."""
        self._write(self.held)


def _subject(given: Any) -> Any:
    """Return the session or connection whose commit counts; None for what is none of a library that is known."""
    if hasattr(given, "registry") and hasattr(given, "get_bind"):
        given = given.registry()  # a scoped session: the one of this thread or task
    given = getattr(given, "sync_session", None) or getattr(given, "sync_connection", None) or given
    known = any(hasattr(given, name) for name in ("get_bind", "exec_driver_sql", "ensure_connection"))
    return given if known else None


def _transaction_of(subject: Any, write: Callable[[Held], None]) -> _Recorded:
    kind = _OfSession if hasattr(subject, "get_bind") else _OfConnection if hasattr(subject, "exec_driver_sql") else _OfDjango
    return kind(subject, write)
