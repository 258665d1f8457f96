"""The tree of commands."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from rota.errors import RotaError
from rota.model.urls import hide
from rota.surfaces.cli import (
    audit,
    calendars,
    dead,
    doctor,
    enqueue,
    events,
    forecasting,
    graph,
    groups,
    importing,
    jobs,
    occurrences,
    overview,
    promoting,
    purge,
    schedules,
    simulating,
    steering,
    templates,
    tenants,
    tokens,
    top,
    verbs,
    webhooks,
    workers,
)
from rota.surfaces.cli.acting import act_as_somebody
from rota.surfaces.cli.exits import report
from rota.surfaces.cli.session import warn_of_passwords

UsageError: Any = typer.BadParameter.__base__
"""Whatever is wrong with a command line: typer has no name of its own for it."""


class Commands(TyperGroup):
    """The root: turns what Rota refuses into one line and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look at the whole command line once."""
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

job_app = typer.Typer(help="Look at jobs and change them.", no_args_is_help=True)
jobs.register(job_app)
verbs.register(job_app)
graph.register(job_app)
app.add_typer(job_app, name="job", rich_help_panel="Jobs")

group_app = typer.Typer(help="Jobs that belong together, one after the other or all at once.", no_args_is_help=True)
groups.register(group_app)
app.add_typer(group_app, name="group", rich_help_panel="Jobs")

template_app = typer.Typer(help="What jobs are made from: handlers, defaults and limits.", no_args_is_help=True)
templates.register(template_app)
app.add_typer(template_app, name="template", rich_help_panel="Define")

schedule_app = typer.Typer(help="When templates become jobs, and what became of each due time.", no_args_is_help=True)
schedules.register(schedule_app)
occurrences.register(schedule_app)
forecasting.register_checks(schedule_app)
app.add_typer(schedule_app, name="schedule", rich_help_panel="Define")

calendar_app = typer.Typer(help="Days on which schedules are not due.", no_args_is_help=True)
calendars.register(calendar_app)
app.add_typer(calendar_app, name="calendar", rich_help_panel="Define")

import_app = typer.Typer(help="Take over the jobs of another system.", no_args_is_help=True)
importing.register(import_app)
app.add_typer(import_app, name="import", rich_help_panel="Define")

dead_app = typer.Typer(help="Jobs that failed for good: what they died of, and one more try.", no_args_is_help=True)
dead.register(dead_app)
app.add_typer(dead_app, name="dead", rich_help_panel="Jobs")

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

organization_app = typer.Typer(help="Tenants: who shares this store, and how much of it each may use.", no_args_is_help=True)
tenants.register_organizations(organization_app)
app.add_typer(organization_app, name="organization", rich_help_panel="Share")

user_app = typer.Typer(help="People, and what they may do.", no_args_is_help=True)
tenants.register_users(user_app)
app.add_typer(user_app, name="user", rich_help_panel="Share")

token_app = typer.Typer(help="Keys to the HTTP API and the dashboard.", no_args_is_help=True)
tokens.register(token_app)
app.add_typer(token_app, name="token", rich_help_panel="Share")

webhook_app = typer.Typer(help="Who is told of ends, and what became of each message.", no_args_is_help=True)
webhooks.register(webhook_app)
app.add_typer(webhook_app, name="webhook", rich_help_panel="Share")

# The last line: commands that are registered after it would be without --as.
act_as_somebody(app)
