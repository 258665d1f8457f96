"""How things are shown: JSON for machines, tables and lines for people. Rich is imported when the first table is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.model.local_time import localized, shown
from rota.model.states import Status
from rota.model.urls import hide
from rota.model.values import Job, Run
from rota.surfaces.cli.zone import current

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PIPE_COLUMNS = 200
"""Width of a table that no terminal shows: wide enough that `grep` finds what it looks for."""
GAP, NARROW_GAP = 3, 2
"""Blanks between the columns of a table, and between those of one that has not enough room."""
HEADING_LEAST = 5
TEXT_LEAST, TEXT_TINY = 10, 3
"""What is left of a text that gives way, at least; less than that only if the table then fits."""
ID_COLUMNS = range(32, 37)
"""Widths of ids, without dashes and with them: a wider cell is a text, or a name that somebody chose."""

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


class Table:
    """A table of texts. Where there is no room, long texts and names are cut, then ids are folded; headings are cut before other cells.

    Left to itself, rich takes from all columns alike, until a number can't be copied and a state can't be read.
    """

    def __init__(self, *headings: str, right: Sequence[str] = (), soft: Sequence[str] = (), gives: Sequence[str] = ()) -> None:
        """Take the headings; those in `right` are over numbers.

        Where there is no room, columns in `soft` go on in the next line and those in `gives` are cut: the last one, if none is named.
        """
        self._headings = headings
        self._right = right
        self._soft = soft
        self._gives = (*soft, *gives) or headings[-1:]
        self._rows: list[list[Marked]] = []
        self._styles: dict[int, str] = {}
        self._sections: list[int] = []

    def add_row(self, *cells: object, style: str = "") -> None:
        """Add a row. What is not marked up by ourselves is data, whatever it looks like."""
        self._styles[len(self._rows)] = style
        self._rows.append([escaped(cell) for cell in cells])

    def add_section(self) -> None:
        """Draw a line under the rows that are there."""
        self._sections.append(len(self._rows) - 1)

    def show(self, empty: str = "") -> None:
        """Print it, or say what is not there."""
        if not self._rows:
            typer.echo(empty)
            return
        from rich import box  # noqa: PLC0415 - see console
        from rich.table import Table as Drawn  # noqa: PLC0415 - see console

        screen = console()
        drawn = Drawn(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
        widths = self._widths(screen.width)
        if widths:
            drawn.padding = (0, 1, 0, 0)
            screen.width = max(screen.width, sum(widths) + NARROW_GAP * (len(widths) - 1))
        for place, heading in enumerate(self._headings):
            justify: Any = "right" if heading in self._right else "left"
            width = widths[place] if widths else None
            # An id is of use only as a whole.
            folds = width is not None and width < self._cells[place] in ID_COLUMNS and heading not in self._gives
            overflow: Any = "fold" if folds else "ellipsis"
            drawn.add_column(heading, justify=justify, no_wrap=not folds and heading not in self._soft, overflow=overflow, width=width)
        for place, row in enumerate(self._rows):
            drawn.add_row(*row, style=self._styles[place] or None, end_section=place in self._sections)
        screen.print(drawn)

    def _widths(self, width: int) -> list[int]:
        """Return the width of each column, together more than there is room for where what stays whole needs it; none if all fits."""
        cells = self._cells
        headings = [_width(heading) for heading in self._headings]
        wanted = list(map(max, cells, headings))
        if sum(wanted) + GAP * (len(wanted) - 1) <= width:
            return []
        room = width - NARROW_GAP * (len(wanted) - 1)
        giving = self._giving(room)
        least = sum(min(want, TEXT_LEAST) for want, gives in zip(wanted, giving, strict=True) if gives)
        if sum(want for want, gives in zip(wanted, giving, strict=True) if not gives) + least > room:
            wanted = [max(cell, min(heading, HEADING_LEAST)) for cell, heading in zip(cells, headings, strict=True)]
        # Those that stay whole get what they want. The rest is shared out: the short ones get theirs, the long ones alike.
        widths = list(wanted)
        left = room - sum(want for want, gives in zip(wanted, giving, strict=True) if not gives)
        texts = sorted((place for place, gives in enumerate(giving) if gives), key=wanted.__getitem__)
        floor = TEXT_LEAST if left < TEXT_TINY * len(texts) else min(TEXT_LEAST, left // len(texts))
        for behind, place in enumerate(texts):
            share = left // (len(texts) - behind)
            widths[place] = min(wanted[place], max(share, floor))
            left -= widths[place]
        return widths

    @property
    def _cells(self) -> list[int]:
        """The width of the widest cell of each column."""
        return [max(map(_width, column)) for column in zip(*self._rows, strict=True)]

    def _giving(self, room: int) -> list[bool]:
        """Say which columns give way: those named and those longer than an id; ids as well, if it fits only then."""
        cells = self._cells
        least = [max(cell, min(_width(heading), HEADING_LEAST)) for cell, heading in zip(cells, self._headings, strict=True)]
        choices = [
            [heading in self._gives or cell > most for cell, heading in zip(cells, self._headings, strict=True)]
            for most in (ID_COLUMNS[-1], ID_COLUMNS[0] - 1)
        ]
        for giving in choices:
            if sum(TEXT_TINY if gives else whole for whole, gives in zip(least, giving, strict=True)) <= room:
                return giving
        return choices[0]


def _width(cell: str) -> int:
    """Return how many columns of a terminal a cell takes, in its longest line."""
    from rich.text import Text  # noqa: PLC0415 - see console

    return max((line.cell_len for line in Text.from_markup(cell).split()), default=0)


def show_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, one pair a line, without what is unset; objects and lists as JSON."""
    from rich.table import Table  # noqa: PLC0415 - see console

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, "", [], {}):
            shown_as = clock_time(value) if isinstance(value, datetime) else compact(value) if isinstance(value, dict | list) else value
            grid.add_row(name, escaped(shown_as))
    console().print(grid)


@contextmanager
def progress(*, percent: bool = False) -> Iterator[Progress | None]:
    """Show bars on a terminal for the time of a block, with the part that is done in per cent or as a count. None: nobody sees them."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    from rich.progress import (  # noqa: PLC0415 - see console
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    part = TaskProgressColumn() if percent else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), part, TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bars:
        yield bars


def progress_bar(stack: ExitStack) -> Callable[[str, int, int | None], None] | None:
    """Show a bar for each step that is reported, on a terminal, until the stack is left. None: nobody sees it."""
    bars = stack.enter_context(progress())
    if bars is None:
        return None
    tasks: dict[str, Any] = {}

    def report(step: str, done: int, total: int | None) -> None:
        if step not in tasks:
            tasks[step] = bars.add_task(step, total=total)
        bars.update(tasks[step], completed=done, total=total)

    return report


def show_json(value: Any) -> None:
    """Print one JSON document on one line. It is UTF-8, whatever the terminal speaks."""
    typer.echo(msgspec.json.encode(value))


def show_json_lines(values: Iterable[Any]) -> None:
    """Print one JSON document a line."""
    for value in values:
        show_json(value)


def show_error(message: str, code: str) -> None:
    """Say on stderr, in one line, what was refused or failed, with its stable code."""
    typer.echo(f"error: {plain(hide(sentence(' '.join(message.split()))))} ({code})", err=True)


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
    """Return a moment for people: in the zone of the command, to the second."""
    return "" if at is None else _clock_time(at, current())


def exact_time(at: datetime) -> str:
    """Return a moment for people: in the zone of the command, to the millisecond."""
    return shown(at, current(), milliseconds=True).replace(" UTC", "Z")


def _clock_time(at: datetime, zone: tzinfo) -> str:
    return shown(at, zone).replace(" UTC", "Z")


def sentence(text: str) -> str:
    """Return a sentence of Rota's with its moments in the zone of the command."""
    return localized(text, current(), _clock_time) if "Z" in text else text


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
