"""Named statements on a connection that is the caller's: nothing of ours stays on it, and its ways with rows are not ours."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from rota.stores.postgres.connection import Db
from rota.stores.postgres.values import register

ADAPTERS = AdaptersMap(psycopg.adapters)
register(ADAPTERS)


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
        """Wrap it for one verb: see the functions below."""
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


def guest_of(raw: psycopg.Connection[Any]) -> Guest:
    """Wrap a connection of the caller's."""
    return Guest(raw, _Cursor(raw, row_factory=tuple_row))


def guest_on_loop(raw: psycopg.AsyncConnection[Any], wait: Callable[[Coroutine[Any, Any, None]], None]) -> Guest:
    """Wrap an asynchronous one: its event loop does each statement while the thread of the verb waits."""
    return Guest(raw, _CursorOnLoop(raw, wait))


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
