"""The tree of commands, and how errors become exit codes.

    0    done
    1    refused or failed (one line on stderr: `error: … (code)`); with --wait, a chain that ended badly
    2    the command line itself is wrong
    3    nothing of that id, or no store at that path
    4    --wait was over before the chain ended
    130  Ctrl-C
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from rota.errors import NotFound, RotaError, WaitTimeout
from rota.surfaces.cli import enqueue, groups, jobs, overview, steering, up, verbs
from rota.surfaces.cli.output import show_error

EXIT_CODES: tuple[tuple[type[RotaError], int], ...] = ((NotFound, 3), (WaitTimeout, 4), (RotaError, 1))


class Commands(TyperGroup):
    """The root: turns what Rota refuses into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RotaError as error:
            show_error(str(error), error.code)
            raise typer.Exit(exit_code(error)) from None


def exit_code(error: RotaError) -> int:
    """Return the exit code of an error."""
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


app = typer.Typer(
    cls=Commands,
    name="rota",
    help="A durable job scheduler: one file beside your program on the first day, a fleet when you outgrow it.",
    epilog="Start with `rota up`, then look around with `rota stats`, `rota job list` and `rota job explain 42`.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
up.register(app)
enqueue.register(app)

job_app = typer.Typer(help="Look at jobs and change them.", no_args_is_help=True)
jobs.register(job_app)
verbs.register(job_app)
app.add_typer(job_app, name="job")

group_app = typer.Typer(help="Jobs that belong together, one after the other or all at once.", no_args_is_help=True)
groups.register(group_app)
app.add_typer(group_app, name="group")

overview.register(app)
steering.register(app)
