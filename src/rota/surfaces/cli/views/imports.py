"""Imports from other systems."""

from __future__ import annotations

import shutil
import sys
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

import typer

from rota.surfaces.cli.exits import FAILED
from rota.surfaces.cli.output import one_line, progress_bar, show_pairs
from rota.surfaces.cli.views import View

if TYPE_CHECKING:
    from rota.compat.import_report import Imported
    from rota.surfaces.cli.commands import Called

BAD_PRINTED = 10
NAMED_PRINTED = 10


def read_twice(called: Called) -> None:
    """Keep what comes through a pipe in a file, because it is read twice, and show a bar."""
    if called.asked["source"] == "-":
        kept = called.stack.enter_context(NamedTemporaryFile(prefix="rota-import-"))  # noqa: SIM115 - closed by the stack
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        called.asked["source"] = kept.name
    called.asked["progress"] = progress_bar(called.stack)


def show_imported(report: Imported, called: Called) -> None:
    """Print how many documents were imported, and what was wrong with some."""
    called.stack.close()
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
    if report.zone_assumed and "timezone" not in called.asked:
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


def fail_on_bad(report: Imported) -> None:
    """Exit with 1 if a document was bad."""
    if report.bad_count:
        raise typer.Exit(FAILED)


VIEWS: dict[str | type, View] = {"import monque": View(show_imported, check=fail_on_bad, prepare=read_twice)}
