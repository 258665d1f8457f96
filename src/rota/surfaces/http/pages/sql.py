"""The page for SQL: an editor, the tables of sys beside it, and results as tables, charts or CSV.

An address only fills the editor: statements run when the form is sent, with its own word.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import Annotated, Any

import msgspec
from markupsafe import Markup
from msgspec import Meta
from starlette.responses import Response

from rota.errors import InvalidOption, RotaError, SqlError
from rota.model.gate import Right
from rota.sql.catalog import TABLES
from rota.sql.excerpt import excerpt
from rota.sql.parser import parse_script
from rota.sql.result import Result
from rota.sql.run import READING, refuse_changes, steps
from rota.sql.syntax import DropJob
from rota.surfaces.http import problems
from rota.surfaces.http.pages.context import Visit
from rota.surfaces.http.pages.routes import page
from rota.surfaces.http.pages.sql_chart import Chart, chart_of

FIELD = "sql"
ROWS_MAX = 1000
"""Rows of a result that the page shows; its CSV has all."""
CELL_MAX = 2000
"""Characters of a value that the page shows; its CSV has all."""
EXAMPLES = {
    "Jobs by next run": "SELECT job_name, state, schedule_kind, next_run_time_ts\n  FROM sys.jobs\n ORDER BY next_run_time",
    "Runs by state": "SELECT state, count(*) AS runs\n  FROM sys.job_runs\n GROUP BY state",
    "Failures by type": (
        "SELECT job_type, count(*) AS failed\n  FROM sys.history\n WHERE status = 'DEAD_LETTER'\n GROUP BY job_type\n ORDER BY failed DESC"
    ),
    "Average run by job": (
        "SELECT job_name, avg(completed_at - started_at) AS average_ms, count(*) AS runs\n"
        "  FROM sys.job_runs\n WHERE completed_at IS NOT NULL\n GROUP BY job_name\n ORDER BY average_ms DESC"
    ),
    "The next day": "FORECAST FOR 1 DAY",
    "What waits": "SELECT queue, job_type, count(*) AS waiting\n  FROM sys.queue\n WHERE status = 'QUEUED'\n GROUP BY queue, job_type",
}

Script = Annotated[str, Meta(max_length=20_000)]


class Shown(msgspec.Struct, frozen=True):
    """A result as the page shows it."""

    result: Result
    rows: tuple[tuple[Any, ...], ...]
    numbers: frozenset[int]
    """The places of columns of numbers."""
    chart: Chart | None
    picture: Markup | None


@page("GET /sql")
def show(visit: Visit, sql: Script = "") -> Response:
    """Show the editor, filled with what the address says. Nothing is run."""
    visit.must(Right.READ)
    return _page(visit, sql)


@page("POST /sql", script=FIELD)
def run(visit: Visit) -> Response:
    """Run what the form says, and show the results, or send them as CSV. If a statement fails, the results before it are shown."""
    visit.must(Right.READ)
    text = visit.form.get(FIELD, "").replace("\r\n", "\n")
    results: list[Shown] = []
    try:
        if visit.form.get("as") == "csv":
            refuse_changes(text)
            return _csv(visit.rota.sql(text))
        _ask_about_drops(visit, text)
        for number, result in enumerate(steps(visit.rota, text), 1):
            results.append(_shown(visit, result, number))
        return _page(visit, text, results=results, reads=_reads(text))
    except (SqlError, InvalidOption) as error:
        return _page(visit, text, results=results or None, error=error)


def _page(visit: Visit, text: str, *, results: list[Shown] | None = None, reads: bool = False, error: RotaError | None = None) -> Response:
    refused: dict[str, Any] = {}
    status = 200
    if error is not None:
        answer = problems.of(error, store=visit.rota.store.url)
        refused, status = msgspec.json.decode(bytes(answer.body)), answer.status_code
        refused["excerpt"] = excerpt(text, error) if isinstance(error, SqlError) else ""
    return visit.page(
        "sql.html",
        status=status,
        text=text,
        tables=TABLES.values(),
        examples=EXAMPLES,
        results=results,
        reads=reads,
        refused=refused,
        rows_max=ROWS_MAX,
        cell_max=CELL_MAX,
    )


def _reads(text: str) -> bool:
    return all(type(parsed.statement) in READING for parsed in parse_script(text))


def _ask_about_drops(visit: Visit, text: str) -> None:
    """Ask once before a job is dropped together with its history."""
    names = [
        str(each.statement.name) for each in parse_script(text) if isinstance(each.statement, DropJob) and not each.statement.keep_history
    ]
    if names:
        visit.must(Right.DROP_JOBS)
        visit.sure(f"Drop {', '.join(names[:5])}{' and others' if len(names) > 5 else ''}? The history goes with it.", "Run the statements")


def _shown(visit: Visit, result: Result, number: int) -> Shown:
    rows = result.rows[:ROWS_MAX]
    numbers = frozenset(place for place in range(len(result.columns)) if any(_is_number(row[place]) for row in rows))
    chart = chart_of(result, visit.zone)
    return Shown(result, rows, numbers, chart, None if chart is None else chart.draw(number))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _csv(results: list[Result]) -> Response:
    """Return the rows of the results, one below the other, for a file."""
    text = io.StringIO()
    writer = csv.writer(text)
    for place, result in enumerate(each for each in results if each.columns):
        if place:
            text.write("\r\n")
        writer.writerow(result.columns)
        writer.writerows([["" if value is None else _plain(value) for value in row] for row in result.rows])
    return Response(text.getvalue(), media_type="text/csv", headers={"Content-Disposition": 'attachment; filename="rota.csv"'})


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value) if isinstance(value, datetime | bytes) else value
