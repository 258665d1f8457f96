"""SELECT over sys.*: the query runs in a private database in memory, whose tables are virtual and hold nothing of their own.

Rows come through `Store.snapshot` alone, inside what the gate lets the actor read, and all of one statement are of one moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import apsw

from rota.errors import PermissionDenied, StoreError
from rota.model.gate import EVERYTHING, Right, Scope
from rota.operation import Ask
from rota.ports.scan import Bound, Order, Snapshot
from rota.sql.catalog import Column, Table
from rota.sql.errors import SqlDeniedError
from rota.sql.private_database import Params, process, too_late
from rota.sql.reports import report
from rota.sql.result import Result

STEP_S_MIN = 0.001


def select(ask: Ask, text: str, params: Params = ()) -> Result:
    """Return the rows of one query over sys.*, at most as many as the settings allow."""
    settings = ask.session.current()
    end = time.monotonic() + settings.sql_timeout
    with process.databases.lent(settings, end) as database:
        try:
            with ask.store.snapshot(timeout_s=max(STEP_S_MIN, end - time.monotonic())) as snapshot:
                return database.answer(ScopedRows(ask, snapshot), text, params, settings=settings, end=end)
        except (apsw.Error, StoreError) as error:
            if time.monotonic() < end:
                raise
            raise too_late(settings) from error


def may_change(ask: Ask) -> Scope | None:
    """Return the jobs whose bodies the actor may see, because it may change them; None: none of them."""
    return ask.may(Right.ALTER_JOBS)


class ScopedRows:
    """The rows of one query: of one moment, inside what its actor may read."""

    def __init__(self, ask: Ask, snapshot: Snapshot) -> None:
        """Take who asks."""
        self._ask = ask
        self._snapshot = snapshot
        self._asks: dict[Right, Ask] = {}

    def scan(self, table: Table, sources: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a table."""
        ask = self._permitted(table)
        if not table.relation:
            return report(ask, table.name, sources)
        return self._snapshot.scan(table.relation, sources, bounds=bounds, order=order, scope=ask.scope)

    def orders(self, table: Table) -> frozenset[Order]:
        """Return the orders that the store has of a table."""
        return self._snapshot.orders(table.relation) if table.relation else frozenset()

    def shows(self, table: Table) -> bool:
        """Say whether guarded columns are shown: where the actor may change all that it may read here."""
        reach = may_change(self._ask)
        return reach is not None and reach in {EVERYTHING, self._permitted(table).scope}

    def setting(self, column: Column) -> Any:
        """Return what holds where the value of a column is NULL."""
        return int(getattr(self._ask.settings, column.setting)) if column.setting else None

    def _permitted(self, table: Table) -> Ask:
        """Ask the gate, once for each right."""
        if table.right not in self._asks:
            try:
                self._asks[table.right] = self._ask.also(table.right)
            except PermissionDenied as denied:
                raise SqlDeniedError(f"sys.{table.name} can't be read: {denied}") from denied
        return self._asks[table.right]
