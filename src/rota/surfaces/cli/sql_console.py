"""The prompt of `rota sql`: statements over several lines, a history, completion, and commands that begin with a backslash."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from rota.errors import InvalidOption, RotaError
from rota.sql.catalog import TABLES
from rota.sql.tokens import TokenKind, tokens_of
from rota.surfaces.cli.exits import show_refusal
from rota.surfaces.cli.output import Table, plain, span
from rota.surfaces.cli.session import store_name
from rota.surfaces.cli.sql import META, run_script, text_of
from rota.surfaces.cli.sql_history import History
from rota.surfaces.cli.sql_view import View

if TYPE_CHECKING:
    from rota.app import Rota

HELP = r"""\d           list the tables of sys
\d TABLE     list the columns of a table
\x           show each column on a line of its own, or as a table again
\timing      show how long each statement takes, or stop showing it
\i FILE      run the statements of a file
\?           show this
\q           end; so does Ctrl-D

A statement ends with a semicolon, and may have several lines. Ctrl-C cancels it.
SHOW JOBS; SELECT * FROM sys.job_runs LIMIT 10; FORECAST FOR 1 DAY;"""


class Console:
    """One session at a prompt."""

    def __init__(self, rota: Rota, view: View) -> None:
        """Take whose statements they are, and how results are shown."""
        self._rota = rota
        self._view = view
        self._times = False
        self._over = False

    def prompt(self) -> None:
        """Ask for statements until the person ends."""
        typer.echo(f"{store_name(self._rota)}  \\? shows help, \\q or Ctrl-D ends")
        history = History()
        history.load()
        while not self._over:
            try:
                text = _asked()
            except EOFError:
                typer.echo()
                return
            except KeyboardInterrupt:
                typer.echo()
                continue
            history.add(text)
            self._do(text)

    def _do(self, text: str) -> None:
        began = time.monotonic()
        try:
            if text.startswith(META):
                self.command(text)
            else:
                run_script(self._rota, self._view, text)
        except (RotaError, typer.BadParameter) as error:
            # What is refused ends the statement, not the session.
            show_refusal(error if isinstance(error, RotaError) else InvalidOption(str(error)))
        except KeyboardInterrupt:
            typer.echo("\ncancelled", err=True)
        if self._times and not text.startswith(META):
            typer.echo(f"took {span(time.monotonic() - began)}")

    def command(self, text: str) -> None:
        """Carry out a command that begins with a backslash."""
        word, _, rest = text.rstrip("; \t").partition(" ")
        argument = rest.strip()
        match word:
            case "\\d":
                _describe(argument)
            case "\\x":
                self._view.expanded = not self._view.expanded
                typer.echo(f"expanded display is {'on' if self._view.expanded else 'off'}")
            case "\\timing":
                self._times = not self._times
                typer.echo(f"timing is {'on' if self._times else 'off'}")
            case "\\i" if argument:
                run_script(self._rota, self._view, text_of(argument))
            case "\\?" | "\\h":
                typer.echo(HELP)
            case "\\q" | "\\quit":
                self._over = True
            case _:
                raise InvalidOption(f"{plain(text)[:60]!r} is not a command: \\? lists them")


def _asked() -> str:
    """Return what a person typed: a statement up to its semicolon, or a command."""
    lines: list[str] = []
    while True:
        lines.append(input("rota-> " if lines else "rota=> "))
        text = "\n".join(lines).strip()
        if text.startswith(META) or is_complete(text):
            return text
        if not text:
            lines.clear()


def is_complete(text: str) -> bool:
    """Say whether a text ends with a semicolon that ends a statement: one in a string, a name or a comment does not."""
    tokens = tokens_of(text)[:-1]
    if tokens and tokens[-1].kind is TokenKind.BAD:
        # What is open at its end may be closed by the next line.
        return False
    return bool(tokens) and tokens[-1].text == ";" and tokens[-1].kind is TokenKind.MARK


def _describe(name: str) -> None:
    """List the tables of sys, or the columns of one."""
    if not name:
        tables = Table("table", "what", soft=["what"])
        for table in TABLES.values():
            tables.add_row(f"sys.{table.name}", table.what)
        return tables.show()
    found = TABLES.get(name.removeprefix("sys.").lower())
    if found is None:
        raise InvalidOption(f"there is no table {plain(name)[:60]!r}: \\d lists them")
    columns = Table("column", "type", "what", soft=["what"])
    for column in found.columns:
        columns.add_row(column.name, column.type.value[0], column.what)
    return columns.show()
