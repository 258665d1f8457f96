"""The caller's own connection: how one is known, borrowed for one verb, and given back as it was.

What comes as `transaction=` is a psycopg connection, or something that has one: a SQLAlchemy session or connection, Django's
connection. Neither library is imported here; they are known by what they can do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import pq

from rota.errors import TransactionMisuse
from rota.stores.postgres.errors import translated
from rota.stores.postgres.guest import Guest, guest_of, guest_on_loop
from rota.stores.postgres.lending import Lending

T = TypeVar("T")

TAKEN = (
    "transaction= takes what `with rota.transaction() as tx` gave, a psycopg Connection or AsyncConnection, "
    "a SQLAlchemy Session or Connection whose driver is psycopg, or Django's connection on psycopg 3"
)
ASYNC = "is asynchronous: give it to `await rota.aenqueue(...)`"


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
            return guest_of(raw)
        raw_async = self._bridge.run(async_connection_of(self._given))
        _check(raw_async)
        return guest_on_loop(raw_async, self._bridge.run)


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
