"""The tree of commands."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from rota.errors import RotaError
from rota.surfaces.cli import enqueue, groups, jobs, overview, steering, verbs, workers
from rota.surfaces.cli.exits import report


class Commands(TyperGroup):
    """The root: turns what Rota refuses into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RotaError as error:
            raise typer.Exit(report(error)) from None


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
workers.register(app)
enqueue.register(app)

job_app = typer.Typer(help="Look at jobs and change them.", no_args_is_help=True)
jobs.register(job_app)
verbs.register(job_app)
app.add_typer(job_app, name="job", rich_help_panel="Jobs")

group_app = typer.Typer(help="Jobs that belong together, one after the other or all at once.", no_args_is_help=True)
groups.register(group_app)
app.add_typer(group_app, name="group", rich_help_panel="Jobs")

overview.register(app)
steering.register(app)
