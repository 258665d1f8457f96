"""Dead letters, with the errors that they failed with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from rota.model.values import Job, Purged
from rota.surfaces.cli.output import age, escaped, one_line, show_table, table, with_run
from rota.surfaces.cli.views import View
from rota.surfaces.runs import run_of

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called

NONE_MATCHES = "No dead letter matches."


def show_list(jobs: Sequence[Job], called: Called) -> None:
    """Print dead letters with their last errors."""
    columns = ("number", "type", "died of", "when", "attempts", "last error")
    rows = table(*columns, right=("attempts",), gives=("type", "last error"))
    for job in jobs:
        run = run_of(called.rota, job.id)
        error = one_line((run.error if run else None) or job.reason or "")
        cause = str(job.error_type or "unknown")
        rows.add_row(job.number, escaped(job.job_type), cause, age(job.finished_at), str(job.attempt), escaped(error))
    show_table(rows, "No dead letters.")


def list_document(jobs: Sequence[Job], called: Called) -> list[dict[str, Any]]:
    """Return dead letters with their runs."""
    return [with_run(job, run_of(called.rota, job.id)) for job in jobs]


def show_retried(jobs: Sequence[Job], _called: Called) -> None:
    """Print how many were retried."""
    typer.echo(f"{len(jobs):,} retried" if jobs else NONE_MATCHES)


def show_deleted(gone: Purged, _called: Called) -> None:
    """Print how many were deleted, and how many could not be."""
    kept = f"; {gone.kept:,} are needed by others and stay" if gone.kept else ""
    typer.echo(f"{gone.chains:,} deleted{kept}" if gone.chains or gone.kept else NONE_MATCHES)


VIEWS: dict[str | type, View] = {
    "dead list": View(show_list, list_document),
    "dead retry": View(show_retried),
    "dead delete": View(show_deleted),
}
