"""`rota import`: taking over the jobs of another system."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.surfaces.cli.exits import FAILED
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption, examples
from rota.surfaces.cli.output import console, one_line, show_json, show_pairs
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rota.compat.import_report import Imported, Progress

BAD_PRINTED = 10
NAMED_PRINTED = 10


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "monque",
        epilog=examples(
            "rota import monque jobs.jsonl --dry-run",
            "rota import monque jobs.jsonl --app shop.jobs:rota --max-retries 9",
            "mongoexport -c monque_jobs | rota import monque - --make-templates",
        ),
    )(monque)


def monque(
    file: Annotated[str, typer.Argument(metavar="FILE", help="One document a line (or one JSON array), as exports write it; - for stdin.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look at everything, write nothing.")] = False,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad/--all-or-nothing", help="Leave bad documents out, or import nothing if there is one (the default)."),
    ] = False,
    max_retries: Annotated[int | None, typer.Option(min=0, help="Retries that these jobs have; else what their templates say.")] = None,
    timezone: Annotated[
        str | None, typer.Option(help="IANA zone of recurring documents that name none, such as Europe/Berlin. Default: UTC.")
    ] = None,
    make_templates: Annotated[bool, typer.Option("--make-templates", help="Create templates for names that have none.")] = False,
    with_completed: Annotated[bool, typer.Option("--with-completed", help="Import completed ones too, as history.")] = False,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take over the jobs of a Monque collection. Importing again adds nothing.

    Waiting ones wait here, those at work are recovered as after a crash, failed ones become dead letters that can be retried,
    and what recurs becomes a schedule.
    """
    with session(store, app=app, make=make_templates) as rota, _readable(file) as path, _progress() as progress:
        report = rota.acting_as(actor()).store.import_monque(
            path,
            max_retries=max_retries,
            timezone=timezone,
            skip_bad=skip_bad,
            make_templates=make_templates,
            with_completed=with_completed,
            dry_run=dry_run,
            progress=progress,
        )
    if as_json:
        show_json(report)
    else:
        _show(report, zone_given=timezone is not None)
    if report.bad_count:
        raise typer.Exit(FAILED)


@contextmanager
def _readable(file: str) -> Iterator[str]:
    """Give a path that can be read twice: what comes through a pipe is kept on the side first."""
    if file != "-":
        yield file
        return
    with NamedTemporaryFile(prefix="rota-import-") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        yield kept.name


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """Show a bar while a terminal is there to see it."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - see output
    from rich.progress import Progress as Bar  # noqa: PLC0415 - see output

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=screen, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int | None) -> None:
            task = tasks.get(what)
            if task is None:
                task = tasks[what] = bar.add_task(what, total=total)
            bar.update(task, completed=done, total=total)

        yield tell


def _show(report: Imported, *, zone_given: bool) -> None:
    schedules = ", ".join(f"{name} ({cron})" for name, cron in sorted(report.schedules.items()))
    show_pairs(
        [
            ("documents", f"{report.documents:,}"),
            ("waiting", _count(report.waiting)),
            ("recovered", _count(report.recovered, "were being processed: that attempt counts as a crash")),
            ("dead letters", _count(report.dead, "`rota job retry` gives one more attempt")),
            ("cancelled", _count(report.cancelled)),
            ("completed", _count(report.completed)),
            ("left out", _count(report.left_out, "completed; --with-completed imports them as history")),
            ("already here", _count(report.already)),
            ("key taken", _count(report.key_taken, "a live job holds their unique key")),
            ("schedules", schedules or None),
            ("templates made", ", ".join(report.templates_made)),
            ("fields not kept", ", ".join(report.unknown_fields)),
            ("bad", _count(report.bad_count)),
        ]
    )
    if report.zone_assumed and not zone_given:
        names = ", ".join(sorted(report.zone_assumed)[:NAMED_PRINTED])
        more = f" and {len(report.zone_assumed) - NAMED_PRINTED:,} more" if len(report.zone_assumed) > NAMED_PRINTED else ""
        typer.echo(
            f"warning: no time zone in the documents of {names}{more}: they are due by UTC, while Monque used the clock of its machine; "
            "pass --timezone to set their zone",
            err=True,
        )
    for bad in report.bad[:BAD_PRINTED]:
        typer.echo(f"  {one_line(bad.why, 400)}", err=True)
    if report.bad_count > BAD_PRINTED:
        typer.echo(f"  and {report.bad_count - BAD_PRINTED:,} more", err=True)
    if report.dry_run:
        typer.echo("This was a dry run: nothing was written.")


def _count(number: int, remark: str = "") -> str | None:
    if not number:
        return None
    return f"{number:,} ({remark})" if remark else f"{number:,}"
