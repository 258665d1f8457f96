"""Results of statements on a terminal or in a pipe: as a table, one column a line, CSV or JSON."""

from __future__ import annotations

import csv
import io
import sys
from datetime import datetime
from typing import Any, Literal

import msgspec
import typer

from rota.sql.result import Result
from rota.surfaces.cli.output import HEADING_LEAST, NARROW_GAP, Table, clock_time, console, counted, escaped, plain, sentence, show_json

Form = Literal["table", "csv", "json"]


class View(msgspec.Struct):
    """How results are shown; a person at a prompt changes it."""

    form: Form = "table"
    expanded: bool = False
    """Each column on a line of its own."""
    _shown: int = 0

    def show(self, result: Result) -> None:
        """Print one result; what is to be known about it goes to stderr."""
        if self.form == "json":
            return show_json(result)
        if self.form == "csv":
            self._csv(result)
        else:
            self._table(result)
        for notice in result.notices:
            typer.echo(f"notice: {plain(sentence(notice.message))}", err=True)
        self._shown += 1
        return None

    def _csv(self, result: Result) -> None:
        if not result.columns:
            return
        if self._shown:
            typer.echo()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows([[_machine(value) for value in row] for row in result.rows])
        # As bytes: a text would lose what could steer a terminal, also where there is none.
        typer.echo(plain(text.getvalue()) if sys.stdout.isatty() else text.getvalue().encode("utf-8", "replace"), nl=False)

    def _table(self, result: Result) -> None:
        if not result.columns:
            typer.echo(result.tag)
            return
        if self.expanded or self._is_too_wide(result):
            _show_expanded(result)
        else:
            _show_rows(result)
        count = len(result.rows)
        word, _, number = result.tag.rpartition(" ")
        typer.echo(f"({counted(count, 'row')})" if word and number.isdecimal() else result.tag)
        typer.echo()

    def _is_too_wide(self, result: Result) -> bool:
        """Say whether a terminal has no room for this many columns, however much of each is cut."""
        return sys.stdout.isatty() and len(result.columns) * (HEADING_LEAST + NARROW_GAP) - NARROW_GAP > console().width


def _show_rows(result: Result) -> None:
    if not result.rows:
        typer.echo("  ".join(map(plain, result.columns)))
        return
    headings = [escaped(name) for name in result.columns]
    numbers = [name for place, name in enumerate(headings) if any(_is_number(row[place]) for row in result.rows)]
    table = Table(*headings, right=numbers, gives=[name for name in headings if name not in numbers] or headings)
    for row in result.rows:
        table.add_row(*map(_person, row))
    table.show()


def _show_expanded(result: Result) -> None:
    width = max(len(plain(name)) for name in result.columns)
    for number, row in enumerate(result.rows, 1):
        typer.echo(f"-[ row {number} ]".ljust(width + 2, "-"))
        for name, value in zip(result.columns, row, strict=True):
            text = plain(_person(value)).replace("\n", "\n" + " " * (width + 3))
            typer.echo(f"{plain(name):<{width}} | {text}".rstrip())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _person(value: Any) -> str:
    """Return a value for people: moments in the zone of the command."""
    return clock_time(value) if isinstance(value, datetime) else str(_machine(value))


def _machine(value: Any) -> Any:
    """Return a value for machines: nothing for NULL, moments as ISO 8601 in UTC, bytes as hexadecimal digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float) else msgspec.to_builtins(value)
