"""SELECT over sys.*: the query runs in a private database in memory, whose tables are virtual and hold nothing of their own.

Rows come through `Store.snapshot` alone, inside what the gate lets the actor read, and all of one statement are of one moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from rota.errors import PermissionDenied, StoreError
from rota.model.gate import Right, Scope
from rota.operation import Ask
from rota.ports.scan import Bound, Order, Snapshot
from rota.sql.catalog import Column, Table
from rota.sql.errors import SqlDeniedError
from rota.sql.private_database import Params, process, too_late
from rota.sql.reports import report
from rota.sql.result import Result

if TYPE_CHECKING:
    from rota.engine.driver import Driver

STEP_S_MIN = 0.001
PACE_ROWS, PACE_S, PAUSE_S_MAX = 16, 0.0005, 0.05
"""Rows between two looks at the clock, how long a query computes between two pauses, and the longest of these."""


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


class Pace:
    """Has a query pause while a worker of its process has jobs: both would want the interpreter at the same time."""

    def __init__(self, drivers: Sequence[Driver], share: float) -> None:
        """Take the workers of the process, and the share of its time that a query computes beside them."""
        self._drivers = drivers
        self._rest = (1 - share) / share
        self._since = time.perf_counter()

    def rows(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Return the same rows, with pauses between them."""
        for place, row in enumerate(rows):
            if not place % PACE_ROWS:
                self._pause()
            yield row

    def _pause(self) -> None:
        worked_s = time.perf_counter() - self._since
        if worked_s < PACE_S:
            return
        if any(driver.worker.holding for driver in self._drivers):
            time.sleep(min(PAUSE_S_MAX, worked_s * self._rest))
        self._since = time.perf_counter()


class ScopedRows:
    """The rows of one query: of one moment, inside what its actor may read."""

    def __init__(self, ask: Ask, snapshot: Snapshot) -> None:
        """Take who asks."""
        self._ask = ask
        self._snapshot = snapshot
        self._asks: dict[Right, Ask] = {}
        self._pace = Pace(ask.session.drivers, ask.settings.sql_share)

    def scan(self, table: Table, sources: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a table."""
        ask = self._permitted(table)
        if not table.relation:
            return report(ask, table.name, sources)
        rows = self._snapshot.scan(table.relation, sources, bounds=bounds, order=order, scope=ask.scope)
        return self._pace.rows(rows)

    def orders(self, table: Table) -> frozenset[Order]:
        """Return the orders that the store has of a table."""
        return self._snapshot.orders(table.relation) if table.relation else frozenset()

    def changeable(self) -> Scope | None:
        """Return the jobs whose guarded columns are shown: those that the actor may change."""
        return may_change(self._ask)

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
