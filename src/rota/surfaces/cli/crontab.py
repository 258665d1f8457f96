"""`rota import crontab`: the lines of a crontab become jobs that run commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.surfaces.cli.exits import FAILED
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption
from rota.surfaces.cli.output import Table, counted, one_line, show_json
from rota.surfaces.cli.session import actor, session
from rota.surfaces.cli.zone import machine

if TYPE_CHECKING:
    from rota.sql.crontab_import import ImportedCrontab

TEXT_SHOWN = 1000
SYSTEM_FILE, SYSTEM_FOLDER = Path("/etc/crontab"), Path("/etc/cron.d")


def crontab(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A crontab; - is standard input.")],
    *,
    system: Annotated[bool, typer.Option("--system", help="Each line names a user, as in /etc/crontab and /etc/cron.d.")] = False,
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone",
            metavar="ZONE",
            help="IANA time zone of lines without CRON_TZ. Default: the machine's. Example: Europe/Berlin.",
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Begin the names of the jobs with this.", show_default=False)
    ] = "",
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="The user that workers run commands as; lines of others are named.")
    ] = None,
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Create the jobs DISABLED. Default: they run from their next due time on.")
    ] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Leave lines out that can't be taken. Default: write nothing then.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")] = False,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a job for each line of a crontab. Importing again adds nothing.

    Nothing is written if a line can't be taken, unless --skip. It exits with 1 if something was not taken.
    """
    text, zone = _text_of(file, system=system), timezone or machine().key
    with session(store, app=app, make=not dry_run) as rota:
        from rota.sql.crontab_import import import_crontab  # noqa: PLC0415 - a page of help needs none

        report = import_crontab(
            rota.acting_as(actor()),
            text,
            source="standard input" if file == "-" else file,
            system=system,
            timezone=zone,
            prefix=prefix,
            user=user,
            disabled=disabled,
            skip=skip,
            dry_run=dry_run,
        )
    if as_json:
        show_json(report)
    else:
        _show(report, "" if timezone else ", the time zone of this machine")
    if not report.complete:
        raise typer.Exit(FAILED)


def _text_of(file: str, *, system: bool) -> str:
    """Return the text of a crontab; what is not UTF-8 in it is named by line later."""
    path = Path(file).expanduser()
    if file != "-" and not system and (path.absolute() == SYSTEM_FILE or path.absolute().parent == SYSTEM_FOLDER):
        raise typer.BadParameter(f"the lines of {file} name a user: pass --system", param_hint="FILE")
    try:
        data = typer.get_binary_stream("stdin").read() if file == "-" else path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file!r} can't be read: {error}", param_hint="FILE") from None
    return data.decode("utf-8", "surrogateescape")


def _show(report: ImportedCrontab, zone_remark: str) -> None:
    """Print the lines that can't be taken, then a table of the others, then notices."""
    for problem in report.problems:
        typer.echo(f"line {problem.line}: {one_line(problem.why, TEXT_SHOWN)}", err=True)
    rows = Table("line", "name", "when", "command", "outcome", right=("line",), gives=("command", "when"))
    for job in report.jobs:
        rows.add_row(str(job.line), job.name, one_line(job.when), one_line(job.command, TEXT_SHOWN), job.outcome)
    rows.show("There is no line to import.")
    for job in report.jobs:
        if job.remark:
            typer.echo(f"line {job.line}: {one_line(job.remark, TEXT_SHOWN)}", err=True)
    if report.zoneless:
        typer.echo(
            f"note: {_lines(report.zoneless)}no CRON_TZ, so due in {report.timezone}{zone_remark}; --timezone sets another", err=True
        )
    for notice in report.notices:
        typer.echo(f"note: {_lines(notice.lines)}{one_line(notice.text, TEXT_SHOWN)}", err=True)
    typer.echo(_summary(report))


def _lines(numbers: Sequence[int]) -> str:
    return f"line{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}: " if numbers else ""


def _summary(report: ImportedCrontab) -> str:
    outcomes = [WORDS[job.outcome] for job in report.jobs]
    head = ", ".join(f"{outcomes.count(each):,} {each}" for each in dict.fromkeys(outcomes))
    head = f"{counted(len(outcomes), 'line')}: {head}. " if outcomes else ""
    bad = counted(len(report.problems), "line")
    if report.dry_run:
        return f"{head}This was a dry run: nothing was written."
    if not report.written:
        return f"{head}Nothing was written: {bad} can't be taken. Correct the crontab, or pass --skip to leave them out."
    return f"{head}{bad} left out.".strip() if report.problems else head.strip()


WORDS = {"new": "to be created", "created": "created", "exists": "already there", "differs": "different from the job that is there"}
"""Outcomes of lines, as they are counted."""
