"""The caller's own transaction: one opened here, or one on a connection of the caller's, borrowed for one verb and given back as it was.

What comes as `transaction=` is a psycopg connection, or something that has one: a SQLAlchemy session or connection, Django's
connection. Neither library is imported here; they are known by what they can do. Nothing of ours stays on such a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from rota.errors import StoreUnusable, TransactionMisuse
from rota.stores.postgres.address import Address
from rota.stores.postgres.connection import PLANS, silence
from rota.stores.postgres.db import Db, register, texts
from rota.stores.postgres.errors import translated

ADAPTERS = AdaptersMap(psycopg.adapters)
register(ADAPTERS)
READ_COMMITTED = frozenset({b"read committed", b"read uncommitted"})
T = TypeVar("T")
TAKEN = (
    "transaction= takes what `with rota.transaction() as tx` gave, a psycopg Connection or AsyncConnection, "
    "a SQLAlchemy Session or Connection whose driver is psycopg, or Django's connection on psycopg 3"
)
ASYNC = "is asynchronous: give it to `await rota.aenqueue(...)`"


class Lent(Db):
    """A connection in a transaction that lasts as long as its caller likes: whatever it locks stays locked."""

    __slots__ = ("isolated",)

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        """Wrap an open connection."""
        super().__init__(raw)
        self.isolated = False
        """Its statements see one moment, not what others have committed since."""

    def change(self, name: str, /, **values: Any) -> int:
        """Run a named statement and return how many rows it changed."""
        if name == "clock_reset":
            # A turn that claims at this priority would wait for the row. The clock goes on from where it is, and order is kept.
            return 0
        return super().change(name, **values)


class Guest(Lent):
    """The caller's own connection, with a cursor of ours."""

    __slots__ = ()
    # A prepared statement would stay in the caller's session.
    prepares = False

    def __init__(self, raw: Any, cursor: Any) -> None:
        """Wrap it for one verb, with a cursor that waits for its answers."""
        self.raw = raw
        self._cursor = cursor
        self.isolated = False

    def _listens(self) -> bool:
        """Say whether the next statement can be said. On an event loop one that was broken off may be on its way out: it is waited for."""
        on_its_way = isinstance(self._cursor, _CursorOnLoop) and self.raw.info.transaction_status == pq.TransactionStatus.ACTIVE
        return on_its_way or super()._listens()

    def ask(self, text: str) -> list[bytes]:
        """Run a text of several commands; return the row that the second of them gives, as the server wrote it."""
        self.execute(text)
        self._cursor.nextset()
        result = self._cursor.pgresult
        assert result is not None  # noqa: S101 - our own text gives it
        return [result.get_value(0, column) or b"" for column in range(result.nfields)]


class _Cursor(psycopg.RawCursor[tuple[Any, ...]]):
    """Reads and writes values as we do, whatever the connection has registered."""

    __slots__ = ()

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


class _AsyncCursor(psycopg.AsyncRawCursor[tuple[Any, ...]]):
    __slots__ = ()

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


class _CursorOnLoop:
    """As much of a cursor as statements need."""

    def __init__(self, raw: psycopg.AsyncConnection[Any], wait: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._cursor = _AsyncCursor(raw, row_factory=tuple_row)
        self._wait = wait
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, text: str, values: Sequence[Any] | None = None, *, prepare: bool) -> _CursorOnLoop:
        self._wait(self._execute(text, values, prepare=prepare))
        return self

    async def _execute(self, text: str, values: Sequence[Any] | None, *, prepare: bool) -> None:
        await self._cursor.execute(text, values, prepare=prepare)
        self._rows = await self._cursor.fetchall() if self._cursor.description else []

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def nextset(self) -> bool | None:
        return self._cursor.nextset()

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @property
    def pgresult(self) -> PGresult | None:
        return self._cursor.pgresult


class Lending:
    """What is done to a connection on its way in and out. All of it is LOCAL: should a way out be missed, the transaction's end is one."""

    def __init__(self, where: Address, *, wait_s: float, place: Callable[[], tuple[str, str]]) -> None:
        """Take where the store is, how long its locks are waited for, and how it says so itself: see `place` in server.sql."""
        self.where = where
        self._place = place
        self._own: tuple[str, str] | None = None
        self._settings = PLANS | {"search_path": where.search_path, "lock_timeout": f"{max(1, round(wait_s * 1000))}ms"}
        usable = f"coalesce(has_schema_privilege(to_regnamespace('{where.schema}'), 'USAGE'), false)::text, current_user"
        state = "current_setting('transaction_isolation'), current_setting('transaction_read_only')"
        old = ", ".join(f"current_setting('{name}')" for name in self._settings)
        new = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in self._settings.items())
        self._in = f"SAVEPOINT rota_part; {texts()['place'].rstrip('; ')}, {usable}, {state}, {old}; SELECT {new}; "

    def enter(self, guest: Guest, lock: str) -> list[bytes]:
        """Set a savepoint, set up and lock, in one round trip; return the settings as they were."""
        database, started, usable, role, isolation, read_only, *before = guest.ask(self._in + lock)
        self._check_place(database.decode(), started.decode())
        if usable != b"true":
            raise StoreUnusable(
                f"role {role.decode()!r} of the caller's connection may not use schema {self.where.schema!r} of {self.where.shown}: "
                f"let its owner run what `rota grants {role.decode()} --kind submitter` prints"
            )
        if read_only == b"on":
            raise TransactionMisuse("this transaction is READ ONLY: enqueue in one that may write")
        guest.isolated = isolation not in READ_COMMITTED
        return before

    def leave(self, guest: Guest, before: list[bytes], *, hint: bool) -> None:
        """Set the settings back, send the hint, which goes with the caller's commit, and give the savepoint up; in one round trip."""
        escape = pq.Escaping(guest.raw.pgconn).escape_literal
        back = ", ".join(
            f"set_config('{name}', {escape(value).decode()}, true)" for name, value in zip(self._settings, before, strict=True)
        )
        notify = f"NOTIFY {self.where.schema_quoted}; " if hint else ""
        guest.execute(f"{notify}SELECT {back}; RELEASE rota_part")

    def _check_place(self, *found: str) -> None:
        if found == self._own:
            return
        # Asked anew: a server that was restarted has another moment.
        self._own = self._place()
        if found != self._own:
            which = f"database {found[0]!r}" if found[0] != self._own[0] else f"a database {found[0]!r} of another server"
            raise TransactionMisuse(
                f"this connection is to {which}, and jobs are kept in {self.where.shown}: give one to that, or leave transaction= out"
            )


class Borrowed:
    """A transaction on a connection of the caller's own."""

    def __init__(self, store: object, given: Any, lending: Lending) -> None:
        """Take what the caller gave; the connection in it is looked up when it is needed."""
        self.store = store
        self._given = given
        self._lending = lending
        self._bridge = Bridge(_loop_of(given), given) if is_async(given) else None
        if hasattr(given, "ensure_connection") and _running_loop() is not None:
            raise TransactionMisuse("Django's connection belongs to its thread: call rota.enqueue inside sync_to_async")

    @contextmanager
    def lent(self, lock: str, *, hint: bool) -> Iterator[Guest]:
        """Lend the connection for one verb, set up as the store's own are; undo the verb, and only that, if it fails."""
        guest = self._guest()
        try:
            before = self._lending.enter(guest, lock)
            yield guest
            self._lending.leave(guest, before, hint=hint)
        except BaseException:
            guest.undo_part()
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what is written in the block, and only that, if it raises."""
        with translated(self._lending.where):
            guest = self._guest()
        with guest.savepoint():
            yield

    def stop(self) -> None:
        """Break off the statement under way on an event loop: it may wait for a lock. The verb is undone then."""
        if self._bridge is not None:
            self._bridge.stop()

    def _guest(self) -> Guest:
        if self._bridge is None:
            raw = connection_of(self._given)
            _check(raw)
            return Guest(raw, _Cursor(raw, row_factory=tuple_row))
        raw_async = self._bridge.run(async_connection_of(self._given))
        _check(raw_async)
        # Its event loop does each statement while the thread of the verb waits.
        return Guest(raw_async, _CursorOnLoop(raw_async, self._bridge.run))


class Bridge:
    """The way from the thread that does a verb to the event loop that its caller's connection lives on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, given: object) -> None:
        """Take the loop, and what to name in a refusal."""
        self._loop = loop
        self._given = given
        self._under_way: Future[Any] | None = None

    def stop(self) -> None:
        """Cancel the piece of work that is under way, if any."""
        if self._under_way is not None:
            self._under_way.cancel()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the loop do a piece of work, and wait for it."""
        if _running_loop() is not None:
            # The loop would wait for itself.
            work.close()
            raise TransactionMisuse(f"{_name(self._given)} {ASYNC}")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._under_way = future
        return future.result()


def is_async(given: Any) -> bool:
    """Say whether what the caller gave is asynchronous."""
    return isinstance(given, psycopg.AsyncConnection) or hasattr(given, "sync_session") or hasattr(given, "sync_connection")


def connection_of(given: Any) -> psycopg.Connection[Any]:
    """Return the psycopg connection of what the caller gave, in the transaction that its owner knows of."""
    found = given
    if hasattr(found, "get_bind"):
        found = found.connection()  # SQLAlchemy: a session's connection
    if hasattr(found, "exec_driver_sql"):
        _refuse_closed(found)
        if not found.in_transaction():
            # SQLAlchemy begins with its own first statement; without one it would see nothing to commit.
            found.exec_driver_sql("SELECT 1")
        found = found.connection
    elif hasattr(found, "ensure_connection"):
        found.ensure_connection()
        found = found.connection
    found = getattr(found, "driver_connection", found)
    if not isinstance(found, psycopg.Connection):
        raise _not_taken(given, found)
    return found


async def async_connection_of(given: Any) -> psycopg.AsyncConnection[Any]:
    """Return the psycopg connection of something asynchronous, as `connection_of` does."""
    found = given
    if hasattr(found, "sync_session"):
        found = await found.connection()
    if hasattr(found, "sync_connection"):
        _refuse_closed(found)
        if not found.in_transaction():
            await found.exec_driver_sql("SELECT 1")
        found = await found.get_raw_connection()
    found = getattr(found, "driver_connection", found)
    if not isinstance(found, psycopg.AsyncConnection):
        raise _not_taken(given, found)
    return found


def _check(raw: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a connection on which nothing could be committed together with a job."""
    status = raw.info.transaction_status
    if raw.closed or status == pq.TransactionStatus.UNKNOWN:
        raise _closed()
    if raw.info.pipeline_status != pq.PipelineStatus.OFF:
        raise TransactionMisuse("this connection is inside a pipeline: enqueue before or after the `with connection.pipeline()` block")
    if raw.info.encoding != "utf-8":
        spoken = raw.info.parameter_status("client_encoding")
        raise TransactionMisuse(f"this connection speaks {spoken}, which can't hold every text: connect with client_encoding=UTF8")
    if status == pq.TransactionStatus.ACTIVE:
        raise TransactionMisuse("this connection is in the middle of a statement, a COPY or another thread's: let that end first")
    if status == pq.TransactionStatus.INERROR:
        raise TransactionMisuse("a statement of this transaction has failed: roll back, to a savepoint or all of it, before you enqueue")
    if status == pq.TransactionStatus.IDLE and raw.autocommit:
        raise TransactionMisuse(
            "this connection is in autocommit mode and in no transaction, so there is nothing that a job could be committed with: "
            "enqueue inside `with connection.transaction():` (Django: `with transaction.atomic():`), or leave transaction= out"
        )


def _refuse_closed(connection: Any) -> None:
    if connection.closed:
        raise _closed()


def _closed() -> TransactionMisuse:
    return TransactionMisuse("this connection is closed: give an open one, inside its transaction")


def _not_taken(given: object, found: object) -> TransactionMisuse:
    inside = "" if found is given else f", which is driven by {_name(found)}"
    return TransactionMisuse(f"{TAKEN}; this is {_name(given)}{inside}")


def _name(given: object) -> str:
    kind = type(given)
    return f"{kind.__module__}.{kind.__qualname__}"


def _loop_of(given: object) -> asyncio.AbstractEventLoop:
    loop = _running_loop()
    if loop is None:
        raise TransactionMisuse(f"{_name(given)} {ASYNC}")
    return loop


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


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
