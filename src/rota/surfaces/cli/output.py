"""How things are shown: JSON for machines, tables and lines for people. Rich is imported when the first table is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.model.states import Status
from rota.model.urls import hide
from rota.model.values import Job, Run

if TYPE_CHECKING:
    from rich.console import Console

    from rota.surfaces.cli.fitting import Fitted

PIPE_COLUMNS = 200
"""Width of a table that no terminal shows: wide enough that `grep` finds what it looks for."""

COLOURS: dict[str, str] = {
    Status.PENDING: "yellow",
    Status.QUEUED: "cyan",
    Status.RUNNING: "blue",
    Status.COMPLETED: "green",
    Status.FAILED: "dark_orange",
    Status.TIMED_OUT: "dark_orange",
    Status.DEAD_LETTER: "red",
    Status.SKIPPED: "bright_black",
    Status.CANCELLED: "magenta",
    "PARTIAL": "dark_orange",
}


def console(*, stderr: bool = False) -> Console:
    """Return a console on the stream as it is now."""
    from rich.console import Console  # noqa: PLC0415 - 30 ms that --json and --help need not pay

    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_COLUMNS
    return Console(file=stream, width=wide, highlight=False, soft_wrap=False)


def table(
    *columns: str, right: Sequence[str] = (), soft: Sequence[str] = (), gives: Sequence[str] = (), title: str | None = None
) -> Fitted:
    """Return an empty table; columns named in `right` hold numbers.

    Where there is no room, those in `soft` go on in the next line and those in `gives` are cut: the last one, if none is named.
    """
    from rota.surfaces.cli.fitting import Fitted  # noqa: PLC0415 - see console

    made = Fitted(title, (*soft, *gives) or columns[-1:])
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", no_wrap=column not in soft, overflow="ellipsis")
    return made


def show_table(made: Fitted, empty: str) -> None:
    """Print a table, or say what is not there."""
    if made.row_count:
        screen = console()
        screen.width = made.fit(screen.width)
        screen.print(made)
    else:
        typer.echo(empty)


def show_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, one pair a line, without what is unset."""
    from rich.table import Table  # noqa: PLC0415 - see console

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, "", [], {}):
            grid.add_row(name, escaped(value))
    console().print(grid)


def progress_bar(stack: ExitStack) -> Callable[[str, int, int | None], None] | None:
    """Show a bar for each step that is reported, on a terminal, until the stack is left. None: nobody sees it."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        return None
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - see console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = stack.enter_context(Progress(*columns, console=screen, transient=True))
    tasks: dict[str, Any] = {}

    def report(step: str, done: int, total: int | None) -> None:
        if step not in tasks:
            tasks[step] = bar.add_task(step, total=total)
        bar.update(tasks[step], completed=done, total=total)

    return report


def show_json(value: Any) -> None:
    """Print one JSON document on one line. It is UTF-8, whatever the terminal speaks."""
    typer.echo(msgspec.json.encode(value))


def show_json_lines(values: Iterable[Any]) -> None:
    """Print one JSON document a line."""
    for value in values:
        show_json(value)


def show_next(cursor: int | str | None) -> None:
    """Print on stderr how a list continues."""
    if cursor is not None:
        typer.echo(f"more: --before {cursor}", err=True)


def show_error(message: str, code: str) -> None:
    """Say on stderr, in one line, what was refused or failed, with its stable code."""
    typer.echo(f"error: {plain(hide(' '.join(message.split())))} ({code})", err=True)


def with_run(job: Job, run: Run | None) -> dict[str, Any]:
    """Return a job's fields with its run among them: how --json shows a job and what became of it."""
    fields: dict[str, Any] = msgspec.to_builtins(job)
    return fields | {"run": msgspec.to_builtins(run)}


class Marked(str):
    """A text whose markup is our own. Any other text is data, whatever it looks like."""

    __slots__ = ()


def coloured(words: str, colour: str) -> Marked:
    """Return words of our own in a colour."""
    return Marked(f"[{colour}]{words}[/]")


def status(value: str) -> Marked:
    """Return a state in its colour."""
    return coloured(value, COLOURS.get(value, "default"))


def escaped(value: object) -> Marked:
    """Return any text so that nothing in it is taken for markup or steers a terminal; what is marked up already stays as it is."""
    if isinstance(value, Marked):
        return value
    from rich.markup import escape  # noqa: PLC0415 - see console

    return Marked(escape(plain(str(value))))


def plain(text: str) -> str:
    """Return a text in its lines, with what could steer a terminal taken out: escapes, bells, carriage returns, turned directions."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else " " if each.isspace() else "·" for each in text)


def one_line(value: object, limit: int = 200) -> str:
    """Return text on one line, cut, with what could steer a terminal taken out."""
    shown = plain(" ".join(str(value).split())[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def compact(value: object) -> str:
    """Return a value as JSON on one line, empty for nothing."""
    return "" if value in (None, {}, []) else one_line(msgspec.json.encode(value).decode())


def clock_time(at: datetime | None) -> str:
    """Return a moment for people: in UTC, to the second."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def span(seconds: float | None) -> str:
    """Return a length of time in at most two units: 12ms, 3.4s, 2m 05s, 1h 10m, 3d 4h."""
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600}h"


def age(at: datetime | None) -> str:
    """Return how long ago a moment was, or how far ahead it is."""
    if at is None:
        return ""
    seconds = (datetime.now(UTC) - at).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def took(job: Job) -> str:
    """Return how long a job ran, or has been running."""
    if job.started_at is None:
        return ""
    return span(((job.finished_at or datetime.now(UTC)) - job.started_at).total_seconds())


def told_job(job: Job) -> str:
    """Return a job that was changed as one line."""
    words = [job.number, str(job.status), job.job_type]
    if job.status is Status.RUNNING and job.cancel_requested_at is not None:
        words.append("was asked to stop")
    if job.status is Status.QUEUED:
        words.append(f"priority {job.priority}, position {job.position}")
    if job.status is Status.PENDING and job.run_at is not None:
        words.append(f"priority {job.priority}, due {clock_time(job.run_at)}")
    return "  ".join(words)


def pause_text(kind: str, name: str) -> str:
    """Return a pause in words."""
    return "everything" if kind == "all" else f"{kind} {name}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 job, 2 jobs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
