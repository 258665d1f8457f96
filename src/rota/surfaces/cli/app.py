"""The tree of commands."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from rota.errors import RotaError
from rota.model.urls import hide
from rota.surfaces.cli.arguments import refuse_broken_text, warn_of_passwords
from rota.surfaces.cli.branches import Leaf, branch

UsageError: Any = typer.BadParameter.__base__
"""Whatever is wrong with a command line: typer has no name of its own for it."""


class Commands(TyperGroup):
    """The root: turns what Rota refuses into one line and an exit code."""

    def __init__(self, **options: Any) -> None:
        """Put the commands of the root before its groups."""
        super().__init__(**options)
        self.commands = {str(leaf.name): leaf for leaf in leaves()} | dict(self.commands)

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
            from rota.surfaces.cli.exits import report  # noqa: PLC0415 - a page of help needs none

            raise typer.Exit(report(error)) from None
        except UsageError as error:
            error.message = hide(error.message)
            raise


def leaves() -> tuple[Leaf, ...]:
    """Return the commands of the root, with the first sentence of each: what `rota --help` shows without importing them all."""
    return (
        Leaf("up", "Start Rota here: a worker, the HTTP API, the dashboard, and a live view.", "workers:register", panel="Start"),
        Leaf("worker", "Run a worker with plain log lines, for servers.", "workers:register", panel="Start"),
        Leaf("serve", "Serve the HTTP API and the dashboard, without a worker.", "workers:register", panel="Start"),
        Leaf(
            "mcp", "Serve Rota's operations to a language model, as MCP tools on standard input and output.", "mcp:register", panel="Start"
        ),
        Leaf("enqueue", "Enqueue one job; when this returns, it is on disk.", "enqueue:register", panel="Jobs"),
        Leaf(
            "stats",
            "Count jobs by state, say how long the oldest waits and what is paused, and how each type fared lately.",
            "overview:register",
            panel="Look",
        ),
        Leaf("queue", "List QUEUED jobs in the order in which they will be claimed.", "overview:register", panel="Look"),
        Leaf("workers", "List the workers that are registered and not ended.", "overview:register", panel="Look"),
        Leaf("settings", "Print every setting: its value and what it is for.", "overview:register", panel="Look"),
        Leaf("version", "Print versions and which store is meant: what a bug report needs.", "overview:register", panel="Look"),
        Leaf(
            "top",
            "Show whether all is well, what did not run, what is stuck and why, what is running, and what comes next.",
            "top:register",
            panel="Look",
        ),
        Leaf("doctor", "Look at the store, its server or file, and its workers, and say what to do.", "doctor:register", panel="Look"),
        Leaf(
            "grants",
            "Print the GRANT statements that a role of PostgreSQL needs, for the setting schema. Nothing is asked of the server.",
            "doctor:register",
            panel="Share",
        ),
        Leaf(
            "forecast",
            "Show what will run when: a bar for each hour, changes of clocks, days that are excluded, overlaps, and where jobs would wait.",
            "forecasting:register",
            panel="Look",
        ),
        Leaf("audit", "List what people changed, newest first: who, what, and from what to what.", "audit:register", panel="Look"),
        Leaf("events", "Show what happens to jobs and definitions, as it happens, until Ctrl-C.", "events:register", panel="Look"),
        Leaf("pause", "Stop new jobs from starting until `rota resume`.", "steering:register", panel="Steer"),
        Leaf("resume", "End a pause.", "steering:register", panel="Steer"),
        Leaf("recover", "End what dead workers left behind, now.", "steering:register", panel="Steer"),
        Leaf("purge", "Remove chains that ended long ago, with their runs and logs.", "purge:register", panel="Steer"),
        Leaf(
            "promote",
            "Move everything to another store, from a file to a fleet or back, and verify that it is the same there.",
            "promoting:register",
            panel="Steer",
        ),
        Leaf("reopen", "Open a store again that was moved, as it was then.", "promoting:register", panel="Steer"),
        Leaf(
            "simulate",
            "Run the schedules of a store through some days, on the real engine with a simulated clock, "
            "and tell what ran and what did not.",
            "simulating:register",
            panel="Look",
        ),
    )


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
