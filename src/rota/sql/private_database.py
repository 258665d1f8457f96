"""The private database that a query runs in: in memory, with the tables of sys, and with nothing that a query could harm."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from rota.errors import SqlError
from rota.model.settings import Settings
from rota.sql.catalog import TABLES, Table
from rota.sql.errors import SqlForbiddenError, SqlLimitError, SqlReadOnlyError, SqlSyntaxError
from rota.sql.interruption import CANCELLED, is_stopped
from rota.sql.query_errors import forbidden_function, not_in_sys, query_error
from rota.sql.result import Notice, Result
from rota.sql.virtual import Elsewhere, Module, Rows

Params = Sequence[Any] | Mapping[str, Any]
PROGRESS_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the clock: about a millisecond."""
LIMITS = {
    apsw.SQLITE_LIMIT_SQL_LENGTH: 1_000_000,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 200,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    apsw.SQLITE_LIMIT_VARIABLE_NUMBER: 1000,
    apsw.SQLITE_LIMIT_ATTACHED: 1,
}
FUNCTIONS = frozenset({
    "abs", "avg", "cast", "ceil", "ceiling", "char", "coalesce", "concat", "concat_ws", "count", "cume_dist", "current_date",
    "current_time", "current_timestamp", "date", "datetime", "dense_rank", "exp", "first_value", "floor", "format", "glob",
    "group_concat", "hex", "if", "ifnull", "iif", "instr", "json", "json_array", "json_array_length", "json_each", "json_extract",
    "json_group_array", "json_group_object", "json_object", "json_quote", "json_tree", "json_type", "json_valid", "julianday", "lag",
    "last_value", "lead", "length", "like", "ln", "log", "log10", "log2", "lower", "ltrim", "max", "median", "min", "mod", "nth_value",
    "ntile", "nullif", "octet_length", "percent_rank", "percentile", "percentile_cont", "percentile_disc", "pi", "pow", "power", "printf",
    "quote", "rank", "replace", "round", "row_number", "rtrim", "sign", "sqrt", "strftime", "string_agg", "substr", "substring", "sum",
    "time", "timediff", "total", "trim", "trunc", "typeof", "unhex", "unicode", "unixepoch", "upper", "->", "->>",
})  # fmt: skip
"""All that a query may call: nothing that reads files, makes large values, or tells about the process."""
JSON_TABLES = frozenset({"json_each", "json_tree"})
_ACTIONS = {name: value for name, value in apsw.mapping_authorizer_function.items() if isinstance(name, str)}
WRITES = frozenset(value for name, value in _ACTIONS.items() if name.startswith(("SQLITE_CREATE", "SQLITE_DROP"))) | {
    apsw.SQLITE_INSERT,
    apsw.SQLITE_UPDATE,
    apsw.SQLITE_DELETE,
    apsw.SQLITE_ALTER_TABLE,
}


class PrivateDatabase:
    """A database with the tables of sys. For one query at a time."""

    def __init__(self, tables: Mapping[str, Table] = TABLES) -> None:
        """Make the tables, then allow nothing but queries."""
        self.tables = tables
        self.rows: Rows | None = None
        """Where the tables get their rows from, while a query runs."""
        self.text = ""
        self._end = 0.0
        self._refusal: SqlError | None = None
        self._statements = 0
        self._columns: tuple[str, ...] = ()
        self._raw = apsw.Connection(":memory:")
        self._add_tables()
        for limit, value in LIMITS.items():
            self._raw.limit(limit, value)
        for option in (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, apsw.SQLITE_DBCONFIG_DQS_DML, apsw.SQLITE_DBCONFIG_DQS_DDL):
            self._raw.config(option, 0)
        self._raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        self._raw.authorizer = self._allow
        self._raw.set_progress_handler(lambda: time.monotonic() > self._end or is_stopped(), PROGRESS_STEPS)
        self._raw.exec_trace = self._begin

    @property
    def is_spoilt(self) -> bool:
        """Whether something was refused that may have made SQLite read its schema anew, which is not allowed any more."""
        return self._refusal is not None

    def close(self) -> None:
        """Let go of its memory now: its tables and it refer to each other."""
        self._raw.close(force=True)

    def _add_tables(self) -> None:
        raw = self._raw
        raw.create_collation("uuid", compare_ids)
        raw.create_module("rota", Module(self), use_bestindex_object=True, read_only=True)  # type: ignore[arg-type] # apsw's protocol asks for methods that are optional
        raw.create_module("elsewhere", Elsewhere(self), use_bestindex_object=True, read_only=True)  # type: ignore[arg-type] # as above
        raw.execute("ATTACH ':memory:' AS sys")
        for name in self.tables:
            raw.execute(f"CREATE VIRTUAL TABLE sys.{name} USING rota")
            # A name without sys. is refused with the name that is meant.
            raw.execute(f"CREATE VIRTUAL TABLE main.{name} USING elsewhere")

    def answer(self, rows: Rows, text: str, params: Params, *, settings: Settings, end: float) -> Result:
        """Answer one query, until a moment of the monotonic clock."""
        self.rows, self.text, self._end, self._refusal, self._statements = rows, text, end, None, 0
        self._raw.limit(apsw.SQLITE_LIMIT_LENGTH, settings.sql_bytes_max)
        cursor = self._raw.cursor()
        try:
            cursor.execute(text, dict(params) if isinstance(params, Mapping) else tuple(params))
            return self._result(cursor, settings)
        except (apsw.Error, KeyError, TypeError, OverflowError, UnicodeError) as error:
            raise self._reason(error, text, settings) from error
        finally:
            cursor.close(force=True)
            self.rows = None

    def _reason(self, error: Exception, text: str, settings: Settings) -> SqlError:
        if self._refusal is not None:
            return self._refusal
        if isinstance(error, apsw.InterruptError):
            return SqlLimitError(CANCELLED) if is_stopped() else too_late(settings)
        return query_error(error, text, self.tables)

    def _result(self, cursor: apsw.Cursor, settings: Settings) -> Result:
        """Read rows up to the limits."""
        rows: list[tuple[Any, ...]] = []
        size, truncated = 0, False
        for row in cursor:
            size += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
            truncated = len(rows) == settings.sql_rows_max or size > settings.sql_bytes_max
            if truncated:
                break
            rows.append(row)
        reason = f"only the first {len(rows):,} rows are shown: see the settings sql_rows_max and sql_bytes_max"
        return Result(f"SELECT {len(rows)}", self._columns, tuple(rows), (Notice(reason, "01004"),) if truncated else (), truncated)

    def _begin(self, cursor: apsw.Cursor, _text: str, _bindings: Any) -> bool:
        """Refuse a second statement before it is executed; remember the columns, which an answer without rows has too."""
        self._statements += 1
        if self._statements > 1:
            raise SqlSyntaxError("expected one query; found several statements")
        if cursor.is_explain:
            raise SqlForbiddenError("EXPLAIN of a query is not possible here")
        self._columns = tuple(column[0] for column in cursor.get_description())
        return True

    def _allow(self, action: int, first: str | None, second: str | None, schema: str | None, _view: str | None) -> int:
        """Allow queries over sys and the functions that are listed; remember why anything else is refused."""
        if action in {apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE}:
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_READ and self._may_read(str(first), schema):
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION and str(second).lower() in FUNCTIONS:
            return apsw.SQLITE_OK
        self._refusal = self._refusal or self._refused(action, first, second)
        return apsw.SQLITE_DENY

    def _may_read(self, table: str, schema: str | None) -> bool:
        if table.lower().startswith(("sqlite_", "pragma_")):
            return False
        # Without a schema it is a subquery, or a table of main, which refuses by itself: see `Elsewhere`.
        return schema is None or (schema in {"sys", "main"} and table in self.tables) or (schema == "main" and table in JSON_TABLES)

    def _refused(self, action: int, first: str | None, second: str | None) -> SqlError:
        if action == apsw.SQLITE_FUNCTION:
            return forbidden_function(str(second), self.text)
        if action == apsw.SQLITE_READ:
            return not_in_sys(str(first), self.tables, self.text)
        if action in WRITES:
            return SqlReadOnlyError("the tables of sys can only be read")
        return SqlForbiddenError("only queries over sys are possible here")


def too_late(settings: Settings) -> SqlLimitError:
    """Return the error of a query that takes too long."""
    return SqlLimitError(f"the query took longer than {settings.sql_timeout:g} s: ask for less, or raise the setting sql_timeout")


def compare_ids(first: str, second: str) -> int:
    """Compare ids however they are written; what is not an id compares as text."""
    left, right = _canonical(first), _canonical(second)
    return (left > right) - (left < right)


def _canonical(text: str) -> str:
    digits = text.replace("-", "").lower() if len(text) in {32, 36} else ""
    return digits if len(digits) == 32 and not digits.strip("0123456789abcdef") else text


class PrivateDatabases:
    """The private databases of this process, and how many queries run."""

    def __init__(self) -> None:
        """Have none."""
        self._change = threading.Condition()
        self._idle: list[PrivateDatabase] = []
        self._running = 0

    @contextmanager
    def lent(self, settings: Settings, end: float) -> Iterator[PrivateDatabase]:
        """Lend one for a query, as soon as few enough are running."""
        most = settings.sql_running
        with self._change:
            if not self._change.wait_for(lambda: self._running < most, timeout=max(0.0, end - time.monotonic())):
                busy = f"{most} queries have been running in this process for {settings.sql_timeout:g} s"
                raise SqlLimitError(f"{busy}: try again, or raise the setting sql_running", sqlstate="53300")
            self._running += 1
            database = self._idle.pop() if self._idle else None
        try:
            database = database or PrivateDatabase()
            yield database
        finally:
            with self._change:
                self._running -= 1
                if database is not None and not database.is_spoilt:
                    self._idle.append(database)
                self._change.notify()
            if database is not None and database.is_spoilt:
                database.close()


class _Process:
    """The private databases of the process that asks: a forked child has its own, because those of its parent may be in use."""

    def __init__(self) -> None:
        self.databases = PrivateDatabases()
        self._inherited: list[PrivateDatabases] = []
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self._inherited.append(self.databases)
        self.databases = PrivateDatabases()


process = _Process()
