"""The tree of commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rota.errors import RotaError
from rota.model.urls import has_password, hide
from rota.surfaces.cli.help_page import show_plain_values
from rota.surfaces.cli.tree import Group, Leaf, branch

show_plain_values()

TRACEBACK = "--traceback"

UsageError: Any = typer.BadParameter.__base__
"""Whatever is wrong with a command line: typer has no name of its own for it."""


class Commands(TyperGroup):
    """The root: turns what Rota refuses into one line and an exit code."""

    def __init__(self, **options: Any) -> None:
        """Put the commands of the root before its groups."""
        super().__init__(**options)
        self.commands = LEAVES | dict(self.commands)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what is no text, because bytes of another encoding could be neither stored nor found; warn of passwords."""
        for each in args:
            if any("\ud800" <= letter <= "\udfff" for letter in each):
                raise typer.BadParameter(f"{each!r} is not UTF-8: give it in the encoding of this terminal")
        exposed = [each for each in args if "://" in each and has_password(each)]
        if exposed:
            file = ", and put the password into ~/.pgpass" if any("postgres" in each.partition("://")[0] for each in exposed) else ""
            typer.echo(
                "warning: a password on the command line can be read by everybody on this machine (ps): "
                f"set $ROTA_STORE to the URL instead{file}",
                err=True,
            )
        named = args[: args.index("--")] if "--" in args else args
        if TRACEBACK in named:
            # It may be given anywhere: people add it to a line that failed.
            args = [TRACEBACK, *(each for each in named if each != TRACEBACK), *args[len(named) :]]
        # Whoever names no command wants to see which there are: that is no mistake.
        return super().parse_args(ctx, args or ["--help"])

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RotaError as error:
            from rota.surfaces.cli.exits import report  # noqa: PLC0415 - a page of help needs none

            raise typer.Exit(report(error, traceback=ctx.params["traceback"])) from None
        except UsageError as error:
            error.message = hide(error.message)
            raise


BY_HAND = {
    "up": "starts a worker, a server and a live view, and stops them by signals",
    "worker": "as up",
    "serve": "as up",
    "mcp": "serves a protocol on standard input and output",
    "enqueue": "waits for the outcome, which gives the exit code; `Rota.enqueue` is not an operation",
    "top": "a live view of `Rota.overview`",
    "sql": "scripts, a prompt with a history, tables of any columns; `Rota.sql` is not an operation",
    "settings": "reads no store",
    "version": "reads no store",
    "events": "a stream that lasts until Ctrl-C",
    "forecast": "draws bars from several forecasts; --limit counts lines, not due times",
    "simulate": "opens a copy of the store; `Rota.simulate` is not an operation",
    "promote": "two stores, with progress; it opens the store before it asks for the right",
    "reopen": "as promote",
    "login": "a link for a browser; over HTTP and in Python nobody needs one",
    "job run-now": "the time of `job update`, under the word that people look for",
    "secret key": "reads no store",
    "bridge monque": "as up",
    "import crontab": "reads a file of this machine, and writes its jobs as one SQL script",
    "group create": "members as NAME or NAME:{JSON}",
    "admin job list": "a query over sys.jobs",
    "admin job runs": "a query over sys.job_runs",
    "admin job metrics": "a query over sys.performance",
}
"""Commands that are not made from an operation, each with the reason."""


LEAVES = {
    name: Leaf(name, summary, place, panel=panel)
    for panel, name, place, summary in (
        ("Start", "up", "workers:up", "Start Rota here: a worker, the HTTP API, the dashboard, and a live view."),
        ("Start", "worker", "workers:worker", "Run a worker with plain log lines, for servers."),
        ("Start", "serve", "workers:serve", "Serve the HTTP API and the dashboard, without a worker."),
        ("Start", "login", "login:login", "Print a link that logs a browser in to the dashboard."),
        ("Start", "mcp", "mcp:mcp", "Serve Rota's operations to a language model, as MCP tools on standard input and output."),
        ("Jobs", "enqueue", "enqueue:enqueue", "Enqueue one job; when this returns, it is on disk."),
        ("Jobs", "direct", "jobs.direct", "Run one job ahead of the queue and show its run."),
        ("Look", "stats", "store.stats", "Show counts by state, priority and type, ages, and averages by type over the last hours."),
        ("Look", "workers", "workers.list", "Show the workers that are registered and have not ended."),
        ("Look", "settings", "settings:settings", "Print every setting: its value and what it is for."),
        ("Look", "version", "settings:version", "Print versions and which store is meant: what a bug report needs."),
        (
            "Look",
            "top",
            "top:top",
            "Show whether all is well, what did not run, what is stuck and why, what is running, and what comes next.",
        ),
        ("Look", "sql", "sql:sql", "Run SQL statements and show their results; without a statement, prompt for them."),
        ("Look", "doctor", "store.doctor", "Check the store, its server or file, and its workers; show the findings. Changes nothing."),
        (
            "Share",
            "grants",
            "store.grants",
            "Show the statements that let a role of PostgreSQL or MongoDB be a worker, a submitter, a reader or a server of this store.",
        ),
        (
            "Look",
            "forecast",
            "forecast:forecast",
            "Show what will run when: a bar for each hour, changes of clocks, days that are excluded, overlaps, and where jobs would wait.",
        ),
        ("Look", "audit", "audit.list", "Show what people did, refused attempts and audited runs, newest first."),
        ("Look", "events", "events:events", "Show what happens to jobs and definitions, as it happens, until Ctrl-C."),
        ("Steer", "pause", "store.pause", "Stop new jobs from starting until the store is resumed. Running ones continue."),
        ("Steer", "resume", "store.resume", "End the pause of the store."),
        ("Look", "pauses", "store.pauses", "Show what is paused."),
        ("Steer", "recover", "store.recover", "Recover the jobs of dead workers now. Workers do this automatically."),
        (
            "Steer",
            "repair",
            "store.repair",
            "Repair what can be repaired without a guess, then check as `doctor` does. What was repaired has the state `repaired`.",
        ),
        ("Steer", "purge", "store.purge", "Delete chains that ended long ago, with their runs and logs."),
        (
            "Steer",
            "promote",
            "promotion:promote",
            "Move everything to another store, from a file to a fleet or back, and verify that it is the same there.",
        ),
        ("Steer", "reopen", "promotion:reopen", "Open a store again that was moved, as it was then."),
        (
            "Look",
            "simulate",
            "simulation:simulate",
            (
                "Run the schedules of a store through some days, on the real engine with a simulated clock, "
                "and tell what ran and what did not."
            ),
        ),
    )
}
"""The commands of the root, with the first sentence of each: what `rota --help` shows without importing them all."""

app = typer.Typer(
    cls=Commands,
    name="rota",
    help="A durable job scheduler: one file beside your program on the first day, a fleet when you outgrow it.",
    epilog="Start with `rota up`, then look around with `rota stats`, `rota job list` and `rota job explain 42`.",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - called by typer
    if wanted:
        from rota import __version__  # noqa: PLC0415 - the package is complete by now

        typer.echo(f"rota {__version__}")
        raise typer.Exit


@app.callback(help=app.info.help)
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version; `rota version` prints more.")
    ] = False,
    traceback: Annotated[bool, typer.Option(TRACEBACK, help="If the command is refused, show the Python traceback, too.")] = False,
) -> None:
    del version, traceback


branch(app, "job", "Look at jobs and change them.", "jobs", "rota.explain", "enqueue:run_now", panel="Jobs")
branch(app, "group", "Jobs that belong together, one after the other or all at once.", "groups", "enqueue:create", panel="Jobs")
branch(app, "dead", "Inspect, retry or delete jobs that failed permanently.", "dead_letters", panel="Jobs")
branch(app, "queue", "See what waits in each queue, and pause queues.", "queues", panel="Jobs")
branch(app, "template", "Handlers, defaults and limits of each type of job.", "templates", "store.load", panel="Define")
branch(app, "schedule", "When templates become jobs, and the outcome of each due time.", "schedules", "rota.plan", panel="Define")
branch(app, "calendar", "Days on which schedules are not due.", "calendars", panel="Define")
branch(app, "connection", "Databases that jobs in SQL use.", "connections", panel="Define")
branch(app, "setting", "Settings that the store keeps for all processes.", "stored_settings", panel="Steer")
branch(app, "import", "Take over the jobs of another system.", "store.import_monque", "crontab:crontab", panel="Define")
branch(app, "bridge", "Run the jobs of another system with Rota's handlers.", "bridge:monque", panel="Start")
branch(app, "organization", "Tenants that share this store, and their limits.", "organizations", panel="Share")
branch(app, "user", "People, and what they may do.", "users", panel="Share")
branch(app, "role", "Roles of organizations, which privileges are granted to.", "roles", panel="Share")
branch(app, "grant", "Privileges: who was granted what.", "grants", panel="Share")
branch(app, "secret", "Values that jobs are given, encrypted in the store.", "secrets", "keys:key", panel="Share")
branch(app, "token", "Keys to the HTTP API and the dashboard.", "tokens", panel="Share")
branch(app, "webhook", "Addresses that receive events, and the delivery results.", "webhooks", panel="Share")

admin = typer.Typer(help="Look at jobs, runs and figures by the words of sb_admin.")
branch(
    admin,
    "job",
    "Jobs that run by a schedule, their runs, and the figures of the scheduler.",
    "admin:list",
    "admin:runs",
    "admin:metrics",
    panel="Commands",
    inside="admin",
)
app.add_typer(admin, name="admin", cls=Group, rich_help_panel="Look")
