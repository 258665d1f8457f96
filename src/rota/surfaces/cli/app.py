"""The tree of commands."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from rota.errors import RotaError
from rota.model.urls import hide
from rota.surfaces.cli import (
    audit,
    doctor,
    enqueue,
    events,
    forecasting,
    overview,
    promoting,
    purge,
    simulating,
    steering,
    top,
    workers,
)
from rota.surfaces.cli.acting import act_as_somebody
from rota.surfaces.cli.branches import branch
from rota.surfaces.cli.exits import report
from rota.surfaces.cli.session import refuse_broken_text, warn_of_passwords

UsageError: Any = typer.BadParameter.__base__
"""Whatever is wrong with a command line: typer has no name of its own for it."""


class Commands(TyperGroup):
    """The root: turns what Rota refuses into one line and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look at the whole command line once."""
        refuse_broken_text(args)
        warn_of_passwords(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RotaError as error:
            raise typer.Exit(report(error)) from None
        except UsageError as error:
            error.message = hide(error.message)
            raise


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
overview.register(app)
top.register(app)
doctor.register(app)
forecasting.register(app)
audit.register(app)
events.register(app)
steering.register(app)
purge.register(app)
promoting.register(app)
simulating.register(app)
# After the last command of its own: one that is registered later would be without --as. A branch sees to its own.
act_as_somebody(app)

branch(app, "job", "Look at jobs and change them.", "jobs:register", "verbs:register", "graph:register", panel="Jobs")
branch(app, "group", "Jobs that belong together, one after the other or all at once.", "groups:register", panel="Jobs")
branch(app, "template", "What jobs are made from: handlers, defaults and limits.", "templates:register", panel="Define")
branch(
    app,
    "schedule",
    "When templates become jobs, and what became of each due time.",
    "schedules:register",
    "occurrences:register",
    "forecasting:register_checks",
    panel="Define",
)
branch(app, "calendar", "Days on which schedules are not due.", "calendars:register", panel="Define")
branch(app, "import", "Take over the jobs of another system.", "importing:register", panel="Define")
branch(app, "dead", "Jobs that failed for good: what they died of, and one more try.", "dead:register", panel="Jobs")
branch(
    app, "organization", "Tenants: who shares this store, and how much of it each may use.", "tenants:register_organizations", panel="Share"
)
branch(app, "user", "People, and what they may do.", "tenants:register_users", panel="Share")
branch(app, "token", "Keys to the HTTP API and the dashboard.", "tokens:register", panel="Share")
branch(app, "webhook", "Who is told of ends, and what became of each message.", "webhooks:register", panel="Share")
