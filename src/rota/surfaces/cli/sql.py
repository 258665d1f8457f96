"""`rota sql`: statements from the command line, a file, a pipe, or a prompt."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rota.errors import SqlError
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption, params_of, value_of
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.surfaces.cli.sql_view import View

T = TypeVar("T")
META = "\\"
"""What a command of the prompt begins with."""


def sql(
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="A file of statements; - reads standard input.")] = None,
    *,
    texts: Annotated[list[str] | None, typer.Option("-c", "--command", metavar="SQL", help="Run these statements. Repeatable.")] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option("-p", "--param", metavar="NAME=VALUE", help="The value of :NAME; what is JSON is taken as JSON, else as text."),
    ] = None,
    values: Annotated[list[str] | None, typer.Option("--value", metavar="VALUE", help="The value of the next ?, read like -p.")] = None,
    atomic: Annotated[bool, typer.Option("--atomic", help="Carry out all statements or none.")] = False,
    expanded: Annotated[bool, typer.Option("-x", "--expanded", help="Show each column of a row on a line of its own.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print rows as CSV, with a line of column names.")] = False,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    r"""Run SQL statements and show their results; without a statement, prompt for them.

    A script is read whole before its first statement is executed, and stops at the first that fails. At the prompt a statement ends
    with a semicolon, Ctrl-C cancels it, \? shows the other commands, and \q or Ctrl-D ends.
    """
    if as_csv and as_json:
        raise typer.BadParameter("use --csv or --json, not both")
    scripts = _scripts(file, texts)
    params = _params(pairs, values)
    if params is not None and (not scripts or any(text.startswith(META) for text in scripts)):
        raise typer.BadParameter("-p and --value are for statements: use them with -c, a file or -")
    with session(store, app=app) as rota:
        from rota.surfaces.cli.sql_view import View  # noqa: PLC0415 - a page of help needs none

        view = View(form="json" if as_json else "csv" if as_csv else "table", expanded=expanded)
        acting = rota.acting_as(actor())
        if not scripts:
            from rota.surfaces.cli.sql_console import Console  # noqa: PLC0415 - only of a prompt

            return Console(acting, view).prompt()
        for text in scripts:
            if text.startswith(META):
                from rota.surfaces.cli.sql_console import Console  # noqa: PLC0415 - as above

                Console(acting, view).command(text)
            else:
                run_script(acting, view, text, params, atomic=atomic)
    return None


def _scripts(file: str | None, texts: Sequence[str] | None) -> list[str]:
    """Return what is to be run; nothing: a person is to be asked."""
    if file is not None and texts:
        raise typer.BadParameter("use -c or a file, not both")
    if texts:
        given = [text.strip() for text in texts]
        # Statements of several options are one script: it is read whole before anything is executed.
        return given if any(text.startswith(META) for text in given) else [";\n".join(given)]
    if file is None and sys.stdin.isatty():
        return []
    return [text_of(file or "-")]


def text_of(file: str) -> str:
    """Return the text of a file, or of standard input."""
    try:
        data = typer.get_binary_stream("stdin").read() if file == "-" else Path(file).expanduser().read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file!r} can't be read: {error}", param_hint="FILE") from None


def _params(pairs: Sequence[str] | None, values: Sequence[str] | None) -> Mapping[str, Any] | Sequence[Any] | None:
    if pairs and values:
        raise typer.BadParameter("use -p for :name or --value for ?, not both")
    return [value_of(value) for value in values] if values else params_of(None, pairs)


def run_script(
    acting: Rota, view: View, text: str, params: Mapping[str, Any] | Sequence[Any] | None = None, *, atomic: bool = False
) -> None:
    """Run statements and show each result as soon as it is there; Ctrl-C interrupts the one that runs, and no further one begins."""
    from rota.sql.excerpt import excerpt  # noqa: PLC0415 - a page of help needs none
    from rota.sql.run import steps  # noqa: PLC0415 - as above

    try:
        if atomic:
            for result in interruptible(lambda: acting.sql(text, params, atomic=True)):
                view.show(result)
            return
        results = steps(acting, text, params)
        while (step := interruptible(lambda: next(results, None))) is not None:
            view.show(step)
    except SqlError as error:
        error.excerpt = excerpt(text, error)
        raise


def interruptible(work: Callable[[], T]) -> T:
    """Do work of statements on another thread, and stop it at Ctrl-C: no write is torn, and nothing is left half-read."""
    from rota.sql.interruption import stopped_by  # noqa: PLC0415 - as above

    stop = threading.Event()
    done: Future[T] = Future()

    def run() -> None:
        try:
            with stopped_by(stop):
                done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
            done.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name="rota-sql", daemon=True).start()
    try:
        return done.result()
    except KeyboardInterrupt:
        stop.set()
        done.exception()
        raise
