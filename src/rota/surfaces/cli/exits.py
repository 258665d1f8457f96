"""Exit codes, and how an error becomes one.

0    done
1    refused or failed (one line on stderr: `error: … (code)`); with --wait, a chain that ended badly
2    the command line itself is wrong: a word that does not exist, or a value that is not valid
3    nothing of that id, or no store at that path
4    --wait was over before the chain ended
75   a worker was cut off and a handler did not stop (`rota.engine.heartbeat`)
130  Ctrl-C
"""

from __future__ import annotations

from traceback import format_exception

import typer

from rota.errors import InvalidOption, InvalidSchedule, NotFound, RotaError, SqlError, WaitTimeout
from rota.surfaces.cli.output import plain, show_error

FAILED = 1
WRONG = 2
_CODES: tuple[tuple[type[RotaError], int], ...] = (
    (NotFound, 3),
    (WaitTimeout, 4),
    (InvalidOption, WRONG),
    (InvalidSchedule, WRONG),
    (RotaError, FAILED),
)


def show_refusal(error: RotaError) -> None:
    """Say what was refused; of SQL with its SQLSTATE, and the place below it."""
    if not isinstance(error, SqlError):
        show_error(str(error), error.code)
        return
    show_error(str(error), f"{error.code}, SQLSTATE {error.sqlstate}")
    if error.excerpt:
        typer.echo(plain(error.excerpt), err=True)


def report(error: RotaError, *, traceback: bool = False) -> int:
    """Say what was refused, and return the exit code for it."""
    if traceback:
        typer.echo("".join(format_exception(error)), err=True, nl=False)
    show_refusal(error)
    return next(code for kind, code in _CODES if isinstance(error, kind))
