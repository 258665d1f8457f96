"""Virtual tables of a query's private database: each passes on to the store what it can of a WHERE and an ORDER BY.

What is passed on is a hint. More rows may come than were asked for, never fewer, and SQLite checks every condition again: so no answer
depends on how a store compares. A row has the same rowid, or key, in every scan: SQLite may take one query apart into several scans of a
table and keep each row once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Protocol

import apsw
import msgspec

from rota.model.gate import Scope
from rota.ports.scan import Bound, Compares, Order
from rota.sql.catalog import Column, Table, Type
from rota.sql.query_errors import not_in_sys

COMPARES = {
    apsw.SQLITE_INDEX_CONSTRAINT_EQ: Compares.EQUAL,
    apsw.SQLITE_INDEX_CONSTRAINT_GT: Compares.LEAST,
    apsw.SQLITE_INDEX_CONSTRAINT_GE: Compares.LEAST,
    apsw.SQLITE_INDEX_CONSTRAINT_LT: Compares.MOST,
    apsw.SQLITE_INDEX_CONSTRAINT_LE: Compares.MOST,
}
ALL_ROWS = 1e6
"""The cost of a scan of everything, in rows; what is passed on makes it less."""
SHARE = {Compares.EQUAL: 1000.0, Compares.LEAST: 3.0, Compares.MOST: 3.0}
ONE_ROW_SHARE = 1e6
WHOSE = ("organization_id", "owner", "schedule_id")
"""The sources that say whose a row with guarded columns is."""


class Rows(Protocol):
    """Where the tables of one query get their rows from."""

    def scan(self, table: Table, sources: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a table, inside what the actor may read."""

    def orders(self, table: Table) -> frozenset[Order]:
        """Return the orders that the store has of a table."""

    def changeable(self) -> Scope | None:
        """Return the jobs whose guarded columns are shown to the actor; None: none of them."""

    def setting(self, column: Column) -> Any:
        """Return what holds where the value of a column is NULL; None: that."""


class ScanPlan(msgspec.Struct, frozen=True):
    """One way to scan a table, as SQLite keeps it: a text."""

    compared: tuple[tuple[int, Compares], ...]
    order: tuple[int, bool] | None
    used: tuple[int, ...]


class Module:
    """Makes the tables."""

    def __init__(self, database: Any) -> None:
        """Take the database: `tables` are what is made, `rows` those of the query that is running."""
        self.database = database

    def Create(self, _db: apsw.Connection, _module: str, _schema: str, name: str, *_: Any) -> tuple[str, VirtualTable]:  # noqa: N802
        """Declare a table."""
        table = self.database.tables[name]
        columns = [f"{column.name} {column.type.declared}" for column in table.columns]
        if not table.number:
            return f"CREATE TABLE x ({', '.join(columns)}, PRIMARY KEY ({', '.join(table.key)})) WITHOUT ROWID", VirtualTable(self, table)
        return f"CREATE TABLE x ({', '.join(columns)})", VirtualTable(self, table)

    Connect = Create


class Elsewhere:
    """Makes tables of the names of sys in the main schema, which refuse every query with the name that is meant."""

    def __init__(self, database: Any, name: str = "") -> None:
        """Take the database; a table has a name."""
        self._database = database
        self._name = name

    def Create(self, _db: apsw.Connection, _module: str, _schema: str, name: str, *_: Any) -> tuple[str, Elsewhere]:  # noqa: N802
        """Declare a table."""
        columns = ", ".join(column.name for column in self._database.tables[name].columns)
        return f"CREATE TABLE x ({columns})", Elsewhere(self._database, name)

    Connect = Create

    def BestIndexObject(self, _info: apsw.IndexInfo) -> bool:  # noqa: N802 - apsw's own name
        """Refuse the query."""
        raise not_in_sys(self._name, self._database.tables, self._database.text)

    def Disconnect(self) -> None:  # noqa: N802 - apsw's own name
        """Hold nothing."""

    Destroy = Disconnect


class VirtualTable:
    """One table."""

    def __init__(self, module: Module, table: Table) -> None:
        """Take its description."""
        self.database = module.database
        self.table = table

    def BestIndexObject(self, info: apsw.IndexInfo) -> bool:  # noqa: N802 - apsw's own name
        """Choose what is passed on to the store."""
        columns = self.table.columns
        compared: list[tuple[int, Compares]] = []
        cost = ALL_ROWS
        for index in range(info.nConstraint):
            place, compares = info.get_aConstraint_iColumn(index), COMPARES.get(info.get_aConstraint_op(index))
            if compares is None or place < 0 or not info.get_aConstraint_usable(index):
                continue
            column = columns[place]
            if _passes(column, compares, info.get_aConstraint_collation(index)):
                compared.append((place, compares))
                info.set_aConstraintUsage_argvIndex(index, len(compared))
                is_key = compares is Compares.EQUAL and column.sources[0] in {"job_id", self.table.number}
                cost /= ONE_ROW_SHARE if is_key else SHARE[compares]
        order = self._order(info)
        info.orderByConsumed = order is not None
        used = tuple(sorted(place for place in info.colUsed if place < len(columns)))
        info.idxStr = msgspec.json.encode(ScanPlan(tuple(compared), order, used)).decode()
        info.estimatedCost = max(cost, 1.0)
        info.estimatedRows = max(int(cost), 1)
        return True

    def _order(self, info: apsw.IndexInfo) -> tuple[int, bool] | None:
        if info.nOrderBy != 1:
            return None
        place, descending = info.get_aOrderBy_iColumn(0), bool(info.get_aOrderBy_desc(0))
        column = self.table.columns[place] if place >= 0 else None
        if column is None or not column.ordered or Order(column.sources[0], descending) not in self.database.rows.orders(self.table):
            return None
        return place, descending

    def Open(self) -> VirtualCursor:  # noqa: N802 - apsw's own name
        """Begin a scan."""
        return VirtualCursor(self)

    def Disconnect(self) -> None:  # noqa: N802 - apsw's own name
        """Hold nothing."""

    Destroy = Disconnect


def _passes(column: Column, compares: Compares, collation: str) -> bool:
    """Say whether a comparison is passed on. Under a collation of the query's own, other texts are equal than the store thinks."""
    if column.push is None or (compares is not Compares.EQUAL and not column.ranges):
        return False
    return column.type is not Type.TEXT or collation == "BINARY"


@lru_cache(1000)
def _plan(text: str) -> ScanPlan:
    return msgspec.json.decode(text, type=ScanPlan)


class VirtualCursor:
    """One scan: the row it is at."""

    __slots__ = ("_getters", "_number", "_row", "_rows", "_table")

    def __init__(self, table: VirtualTable) -> None:
        """Take the table; `Filter` begins."""
        self._table = table
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self._row: tuple[Any, ...] | None = None
        self._getters: dict[int, Any] = {}
        self._number = 0

    def Filter(self, _number: int, text: str, values: tuple[Any, ...]) -> None:  # noqa: N802 - apsw's own name
        """Begin, with the values of what is passed on."""
        self.Close()
        table, rows, plan = self._table.table, self._table.database.rows, _plan(text)
        bounds = list(table.fixed)
        for (place, compares), value in zip(plan.compared, values, strict=True):
            column = table.columns[place]
            bound = None if value is None or column.push is None else column.push(column.sources[0], compares, value)
            if bound is not None:
                bounds.append(bound)
        used = [(place, table.columns[place]) for place in plan.used]
        keys = (table.number,) if table.number else ()
        is_guarded = any(column.guarded for _, column in used)
        whose = WHOSE if is_guarded else ()
        sources = tuple(dict.fromkeys([*keys, *(source for _, column in used for source in column.sources), *whose])) or _first(table)
        self._getters = {place: _getter(column, sources, rows.setting(column)) for place, column in used}
        if is_guarded:
            shown = _is_inside(rows.changeable(), sources)
            self._getters |= {place: _guarded(self._getters[place], shown) for place, column in used if column.guarded}
        order = None if plan.order is None else Order(table.columns[plan.order[0]].sources[0], plan.order[1])
        self._rows = rows.scan(table, sources, tuple(bounds), order)
        self._row = next(self._rows, None)

    def Eof(self) -> bool:  # noqa: N802 - apsw's own name
        """Say whether there is no row left."""
        return self._row is None

    def Next(self) -> None:  # noqa: N802 - apsw's own name
        """Go to the next row."""
        self._row = next(self._rows, None)

    def Rowid(self) -> int:  # noqa: N802 - apsw's own name
        """Return the number of the row, the same in every scan."""
        assert self._row is not None  # noqa: S101 - SQLite asks at a row only
        number: int = self._row[0]
        return number

    def Column(self, place: int) -> Any:  # noqa: N802 - apsw's own name
        """Return a value of the row."""
        return self.Rowid() if place < 0 else self._getters[place](self._row)

    def Close(self) -> None:  # noqa: N802 - apsw's own name
        """End the scan."""
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()
        self._rows = iter(())


def _first(table: Table) -> tuple[str, ...]:
    return table.columns[0].sources[:1]


def _is_inside(scope: Scope | None, sources: tuple[str, ...]) -> Callable[[tuple[Any, ...]], bool]:
    """Return what says whether a row is inside a scope."""
    organization, owner, schedule_id = (sources.index(source) for source in WHOSE)
    return lambda row: scope is not None and scope.holds(row[organization], row[owner], row[schedule_id])


def _guarded(getter: Any, shown: Callable[[tuple[Any, ...]], bool]) -> Any:
    """Return what takes a value from a row that the actor may change; NULL of any other."""
    return lambda row: getter(row) if shown(row) else None


def _getter(column: Column, sources: tuple[str, ...], usual: Any) -> Any:
    """Return what takes the value of a column from a row."""
    shown, places = column.shown, [sources.index(source) for source in column.sources]
    first = places[0]
    if shown is None:
        return lambda row: row[first]
    if len(places) == 1:
        return lambda row: shown(row[first])
    if usual is None:
        return lambda row: shown(*[row[place] for place in places])
    return lambda row: usual if (value := shown(*[row[place] for place in places])) is None else value
