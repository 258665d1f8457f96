"""A tool for queries: statements of SQL that only read, with answers small enough for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from rota.app import Rota
from rota.errors import SqlError, StoreError
from rota.model.checks import whole
from rota.model.shapes import Shape

ROWS = 100
ROWS_MAX = 1000
BYTES_MAX = 200_000
"""Size of the rows of one answer as JSON."""
TEXT_MAX = 2000
"""Characters of one value."""


class QueryRows(msgspec.Struct, frozen=True):
    """The answer to one statement."""

    tag: str
    columns: Sequence[str]
    rows: list[list[Any]]
    count: int
    """How many rows the statement has returned."""
    cut: bool
    """There are more rows, or longer values, than are here."""
    notices: list[str]


class QueryAnswer(msgspec.Struct, frozen=True):
    """The answers to the statements of a script."""

    results: list[QueryRows]


def sql_query(
    rota: Rota,
    ask: None,  # noqa: ARG001 - operations have an Ask in this place; the gate is asked by `Rota.sql`
    sql: Annotated[str, Shape("SELECT, SHOW, EXPLAIN, PLAN or FORECAST, with semicolons between statements.", "SHOW JOBS")],
    params: Annotated[Mapping[str, Any] | None, Shape("The values of :name in a query.", {"state": "FAILED"})] = None,
    *,
    limit: Annotated[int, Shape("Rows of each result, at most.", 20)] = ROWS,
) -> QueryAnswer:
    """Run SQL statements that only read: queries over the tables of sys, SHOW, EXPLAIN, PLAN and FORECAST.

    The tables are sys.jobs, sys.job_runs, sys.queue, sys.history, sys.occurrences, sys.performance and others: `SELECT * FROM sys.jobs
    LIMIT 1` shows the columns of one. `cut` says that there are more rows than were returned, or longer values: ask for less.
    """
    from rota.sql.run import refuse_changes  # noqa: PLC0415 - few clients ask for it

    whole("limit", limit, least=1, most=ROWS_MAX)
    refuse_changes(sql)
    try:
        found = rota.sql(sql, params)
    except SqlError as error:
        # What is wrong with the store is told by the log only.
        if isinstance(error.__cause__, StoreError):
            raise error.__cause__ from None
        raise
    room = Room(BYTES_MAX)
    return QueryAnswer([room.taken(result, limit) for result in found])


class Room:
    """What is left of the size of an answer."""

    def __init__(self, size: int) -> None:
        """Take how many bytes there are."""
        self._left = size

    def taken(self, result: Any, limit: int) -> QueryRows:
        """Return as many rows of a result as there is room for."""
        rows: list[list[Any]] = []
        is_cut = result.truncated
        for row in result.rows[:limit]:
            shown = [_short(value) for value in row]
            is_cut = is_cut or shown != list(row)
            self._left -= len(msgspec.json.encode(shown))
            if self._left < 0:
                break
            rows.append(shown)
        count = len(result.rows)
        notices = [notice.message for notice in result.notices]
        return QueryRows(result.tag, result.columns, rows, count, is_cut or len(rows) < count, notices)


def _short(value: Any) -> Any:
    return f"{value[:TEXT_MAX]}…" if isinstance(value, str) and len(value) > TEXT_MAX else value
