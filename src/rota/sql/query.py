"""SELECT over sys.*: the query runs in a private database in memory, whose tables are virtual and hold nothing of their own.

Rows come through `Store.snapshot` alone, inside what the gate lets the actor read, and all of one statement are of one moment. The
private database has no other table, no file, and only the functions that are listed here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from rota.errors import PermissionDenied, RotaError
from rota.model.gate import Right
from rota.ports.scan import Bound, Order, Snapshot
from rota.sql.catalog import TABLES, Column, Table
from rota.sql.errors import SqlDeniedError, SqlError, SqlForbiddenError, SqlLimitError, SqlQueryError, SqlReadOnlyError, SqlSyntaxError
from rota.sql.query_errors import only_sys, query_error
from rota.sql.reports import report
from rota.sql.result import Notice, Result
from rota.sql.virtual import Module

if TYPE_CHECKING:
    from rota.model.gate import Scope
    from rota.operation import Ask

PROGRESS_STEPS = 10_000
SQL_LENGTH_MAX = 1_000_000
LIMITS = {
    apsw.SQLITE_LIMIT_SQL_LENGTH: SQL_LENGTH_MAX,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 200,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    apsw.SQLITE_LIMIT_VARIABLE_NUMBER: 1000,
    apsw.SQLITE_LIMIT_ATTACHED: 1,
}
FUNCTIONS = frozenset(
    """
    abs avg cast ceil ceiling char coalesce concat concat_ws count cume_dist current_date current_time current_timestamp date datetime
    dense_rank exp first_value floor format glob group_concat hex ifnull iif if instr json json_array json_array_length json_each
    json_error_position json_extract json_group_array json_group_object json_object json_quote json_tree json_type json_valid
    julianday lag last_value lead length like ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif octet_length
    percent_rank percentile percentile_cont percentile_disc pi pow power printf quote rank replace round row_number rtrim sign
    sqrt strftime string_agg substr substring subtype sum time timediff total trim trunc typeof unhex unicode unixepoch unistr upper -> ->>
    """.split()
)
"""All that a query may call: nothing that reads files, makes large values, or tells about the process."""
JSON_TABLES = frozenset({"json_each", "json_tree"})
WRITES = frozenset({apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE, apsw.SQLITE_ALTER_TABLE, apsw.SQLITE_REINDEX}) | {
    value for name, value in apsw.mapping_authorizer_function.items() if isinstance(name, str) and name.startswith(("SQLITE_CREATE", "SQLITE_DROP"))
}
Params = Sequence[Any] | Mapping[str, Any]


def select(ask: Ask, text: str, params: Params = ()) -> Result:
    """Return the rows of one query over sys.*, at most as many as the settings allow."""
    settings = ask.settings
    end = time.monotonic() + settings.sql_timeout
    with _engines.lent(settings.sql_running, end, settings.sql_timeout) as engine:
        try:
            with ask.store.snapshot(timeout_s=max(0.001, end - time.monotonic())) as snapshot:
                return engine.run(ScopedRows(ask, snapshot), text, params, end)
        except (apsw.Error, RotaError) as error:
            if isinstance(error, SqlError) or time.monotonic() < end:
                raise
            raise _late(settings.sql_timeout) from error


def _late(timeout_s: float) -> SqlLimitError:
    return SqlLimitError(f"the query took longer than {timeout_s:g} s: ask for less, or raise the setting sql_timeout")


def may_change(ask: Ask) -> Scope | None:
    """Return the jobs whose bodies the actor may see, because it may change them; None: none of them."""
    try:
        return ask.also(Right.SCHEDULE).scope
    except PermissionDenied:
        return None


class ScopedRows:
    """The rows of one query: of one moment, inside what its actor may read."""

    def __init__(self, ask: Ask, snapshot: Snapshot) -> None:
        """Take who asks."""
        self._ask = ask
        self._snapshot = snapshot
        self._scopes: dict[Right, Scope] = {}

    def scan(self, table: Table, sources: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a table."""
        if not table.relation:
            return report(self._ask.also(table.right), table.name, sources) if self._scope(table) else iter(())
        return self._snapshot.scan(table.relation, sources, bounds=bounds, order=order, scope=self._scope(table))

    def orders(self, table: Table) -> frozenset[Order]:
        """Return the orders that the store has of a table."""
        return self._snapshot.orders(table.relation) if table.relation else frozenset()

    def shows(self, table: Table) -> bool:
        """Say whether guarded columns are shown: where the actor may change all that it may read here."""
        reach = may_change(self._ask)
        return reach is not None and reach in {self._scope(table), type(reach)()}

    def setting(self, column: Column) -> Any:
        """Return what holds where the value of a column is NULL."""
        return int(getattr(self._ask.settings, column.setting)) if column.setting else None

    def _scope(self, table: Table) -> Scope:
        """Ask the gate, once for each right."""
        if table.right not in self._scopes:
            try:
                self._scopes[table.right] = self._ask.also(table.right).scope
            except PermissionDenied as denied:
                raise SqlDeniedError(f"sys.{table.name} can't be read: {denied}") from denied
        return self._scopes[table.right]


class Engine:
    """A private database with the tables of sys. For one query at a time."""

    def __init__(self, tables: Mapping[str, Table] = TABLES) -> None:
        """Make the tables, then allow nothing but queries."""
        self.tables = tables
        self.rows: Any = None
        self._end = 0.0
        self._refusal: SqlError | None = None
        self._statements = 0
        self._columns: tuple[str, ...] = ()
        self._raw = raw = apsw.Connection(":memory:")
        raw.create_collation("uuid", _compare_ids)
        raw.create_module("rota", Module(self), use_bestindex_object=True, iVersion=3, read_only=True)  # type: ignore[arg-type] # apsw's own protocol has more methods
        raw.create_module("elsewhere", _Elsewhere(self), use_bestindex_object=True, iVersion=3, read_only=True)  # type: ignore[arg-type] # as above
        raw.execute("ATTACH ':memory:' AS sys")
        for name in tables:
            raw.execute(f"CREATE VIRTUAL TABLE sys.{name} USING rota")
            # A name without sys. is refused with the name that is meant.
            raw.execute(f"CREATE VIRTUAL TABLE main.{name} USING elsewhere")
        for limit, value in LIMITS.items():
            raw.limit(limit, value)
        raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        raw.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        raw.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        raw.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
        raw.authorizer = self._allow
        raw.set_progress_handler(lambda: time.monotonic() > self._end, PROGRESS_STEPS)
        raw.exec_trace = self._begin

    def run(self, rows: Any, text: str, params: Params, end: float) -> Result:
        """Answer one query."""
        settings = rows._ask.settings  # noqa: SLF001
        self.rows, self._end, self._refusal, self._statements = rows, end, None, 0
        self._raw.limit(apsw.SQLITE_LIMIT_LENGTH, settings.sql_bytes_max)
        cursor = self._raw.cursor()
        try:
            cursor.execute(text, _bindings(params))
            return _result(cursor, self._columns, settings.sql_rows_max, settings.sql_bytes_max)
        except apsw.InterruptError as error:
            raise _late(settings.sql_timeout) from error
        except (apsw.Error, apsw.BindingsError, KeyError, TypeError, OverflowError) as error:
            raise self._refusal or query_error(error, text, self.tables) from error
        finally:
            cursor.close(force=True)
            self.rows = None

    def _begin(self, cursor: apsw.Cursor, _text: str, _bindings: Any) -> bool:
        self._statements += 1
        if self._statements > 1 or cursor.is_explain:
            reason = "expected one query; found several statements" if self._statements > 1 else "EXPLAIN of a query is not possible here"
            raise SqlSyntaxError(reason)
        self._columns = tuple(column[0] for column in cursor.get_description())
        return True

    def _allow(self, action: int, first: str | None, second: str | None, schema: str | None, _view: str | None) -> int:
        """Allow queries over sys and the functions that are listed; remember why anything else is refused."""
        refusal: SqlError
        if action in {apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE}:
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_READ and self._may_read(str(first), schema):
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION and str(second).lower() in FUNCTIONS:
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION:
            refusal = SqlForbiddenError(f"{second} is not among the functions that may be used here", sqlstate="42501")
        elif action == apsw.SQLITE_READ:
            refusal = SqlQueryError(only_sys(str(first), self.tables), sqlstate="42P01")
        elif action in WRITES:
            refusal = SqlReadOnlyError("the tables of sys can only be read")
        else:
            refusal = SqlForbiddenError("only queries over sys are possible here")
        self._refusal = self._refusal or refusal
        return apsw.SQLITE_DENY

    def _may_read(self, table: str, schema: str | None) -> bool:
        if table.lower().startswith(("sqlite_", "pragma_")):
            return False
        # Without a schema it is a subquery, or a table that its own module refuses: see `_Elsewhere`.
        return schema is None or (schema == "sys" and table in self.tables) or (schema == "main" and (table in JSON_TABLES or table in self.tables))


class _Elsewhere:
    """Tables of the names of sys in the main schema: refused, with a hint."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def Create(self, _db: apsw.Connection, _module: str, _schema: str, name: str, *_: Any) -> tuple[str, _Elsewhere]:  # noqa: N802
        columns = ", ".join(column.name for column in self._engine.tables[name].columns)
        table = _Elsewhere(self._engine)
        table.name = name  # type: ignore[attr-defined]
        return f"CREATE TABLE x ({columns})", table

    Connect = Create

    def BestIndexObject(self, _info: apsw.IndexInfo) -> bool:  # noqa: N802
        raise SqlQueryError(only_sys(self.name, self._engine.tables), sqlstate="42P01")  # type: ignore[attr-defined]

    def Disconnect(self) -> None:  # noqa: N802
        """Hold nothing."""

    Destroy = Disconnect


def _compare_ids(first: str, second: str) -> int:
    """Compare ids however they are written; what is not an id compares as text."""
    left, right = _canonical(first), _canonical(second)
    return (left > right) - (left < right)


def _canonical(text: str) -> str:
    plain = text.replace("-", "").lower() if len(text) in {32, 36} else ""
    if len(plain) != 32 or not all(character in "0123456789abcdef" for character in plain):
        return text
    return plain


def _bindings(params: Params) -> Any:
    if isinstance(params, Mapping):
        return dict(params)
    return tuple(params)


def _result(cursor: apsw.Cursor, columns: tuple[str, ...], rows_max: int, bytes_max: int) -> Result:
    """Read rows up to the limits."""
    rows: list[tuple[Any, ...]] = []
    size, truncated = 0, False
    for row in cursor:
        size += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        truncated = len(rows) == rows_max or size > bytes_max
        if truncated:
            break
        rows.append(row)
    notices = (Notice(f"only the first {len(rows):,} rows are shown: settings sql_rows_max and sql_bytes_max", "01004"),) if truncated else ()
    return Result(f"SELECT {len(rows)}", columns, tuple(rows), notices, truncated)


class Engines:
    """The private databases of this process, and how many queries run."""

    def __init__(self) -> None:
        """Have none."""
        self._change = threading.Condition()
        self._idle: list[Engine] = []
        self._running = 0

    @contextmanager
    def lent(self, most: int, end: float, timeout_s: float) -> Iterator[Engine]:
        """Lend one for a query, as soon as fewer than `most` are running."""
        with self._change:
            if not self._change.wait_for(lambda: self._running < most, timeout=max(0.0, end - time.monotonic())):
                raise SqlLimitError(
                    f"{most} queries have been running in this process for {timeout_s:g} s: ask again, or raise the setting sql_running",
                    sqlstate="53300",
                )
            self._running += 1
            engine = self._idle.pop() if self._idle else None
        try:
            engine = engine or Engine()
            yield engine
        finally:
            with self._change:
                self._running -= 1
                if engine is not None:
                    self._idle.append(engine)
                self._change.notify()

    def forget(self) -> None:
        """Begin anew in a forked child: its parent's may be in use."""
        _inherited.append(self._idle)
        self.__init__()  # type: ignore[misc]


_inherited: list[object] = []
_engines = Engines()
os.register_at_fork(after_in_child=lambda: _engines.forget())
