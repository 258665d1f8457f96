"""One frame of `rota top`: the five questions, as many rows of each as the terminal has room for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rota.model.overview import Ahead, Current, Level, NotRun, Overview, Stuck, Why
from rota.surfaces.cli.output import one_line, span
from rota.surfaces.cli.view import SPARKS

WIDE = 120
"""From this many columns on there is room for longer bars and one more column."""
ROOMY = 100
"""From this many columns on the counts stand beside the store."""
ROWS_MAX = 50
ROWS_ONCE = 10
"""Rows of each question where no height says how many there is room for."""
AXIS_HOURS = 6
COLOURS = {Level.WELL: "bold green", Level.WATCH: "bold yellow", Level.TROUBLE: "bold red"}
WHY_COLOURS = {Why.NO_WORKER: "red", Why.PAUSED: "yellow", Why.PARENT: "magenta", Why.LIMIT: "cyan"}
WORDS = {Why.NO_WORKER: "no worker", Why.TURN: "its turn", Why.LATER: "not yet due"}


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame says beside the overview."""

    store: str
    notice: str = ""
    trouble: str = ""
    """Why the store could not be read: what is shown is older."""


def frame(overview: Overview, shown: Shown, *, width: int, height: int | None) -> RenderableType:
    """Return everything as one renderable that fits the terminal; without a height, as long as it needs to be."""
    concerns = overview.health.concerns[:4] if len(overview.health.concerns) > 1 else overview.health.concerns[:1]
    running, ahead = overview.running, overview.ahead
    wants = (len(overview.not_run), len(overview.stuck), len(running.jobs), len(ahead.items) + len(ahead.changes))
    fixed = 2 + len(concerns) + 4 + (2 if ahead.count else 0) + (1 if height is not None else 0)
    rooms = share(wants, None if height is None else height - fixed)
    parts = [
        _header(overview, shown, width),
        Text.assemble(("● ", COLOURS[overview.health.level]), (overview.health.sentence, COLOURS[overview.health.level])),
        *(_concern(each.what if len(concerns) > 1 else "", each.remedy, each.level) for each in concerns),
        _heading("Did not run", "last 24 hours" if overview.not_run else ""),
        _not_run(overview.not_run[: rooms[0]], overview.at, width),
        _heading("Stuck, and why", ""),
        _stuck(overview.stuck[: rooms[1]], overview.at, width),
        _heading("Running", _many(running.count, more=running.more) if running.count else ""),
        _running(running.jobs[: rooms[2]], wide=width >= WIDE),
        _heading("Next 24 hours", f"{_many(ahead.count, more=ahead.more)} due" if ahead.count else ""),
        *_ahead(ahead, rooms[3], width),
    ]
    if height is not None:
        parts.append(_footer(shown))
    return Group(*parts)


def share(wants: Sequence[int], lines: int | None) -> list[int]:
    """Share out lines among sections, in turn, until all have what they want or nothing is left; each has one at least."""
    rooms = [1] * len(wants)
    if lines is None:
        return [max(1, min(ROWS_ONCE, want)) for want in wants]
    left = lines - len(rooms)
    while left > 0:
        hungry = [index for index, want in enumerate(wants) if rooms[index] < min(want, ROWS_MAX)]
        if not hungry:
            break
        for index in hungry[:left]:
            rooms[index] += 1
            left -= 1
    return rooms


def _header(overview: Overview, shown: Shown, width: int) -> Table:
    line = _grid()
    line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    line.add_column(justify="right", no_wrap=True)
    counts = overview.counts
    words = []
    if counts is not None and width >= ROOMY:
        words = [f"{counts.queued:,} queued", f"{counts.pending:,} pending", f"{counts.running:,} running"]
        if counts.workers is not None:
            words.insert(0, "1 worker" if counts.workers == 1 else f"{counts.workers:,} workers")
    whose = f" · {overview.organization}" if overview.organization else ""
    line.add_row(
        Text.assemble(("rota top ", "bold cyan"), one_line(shown.store), (whose, "cyan")),
        Text(" · ".join([*words, f"{overview.at:%H:%M:%S} UTC"]), "bright_black"),
    )
    return line


def _concern(what: str, remedy: str | None, level: Level) -> Text:
    line = Text("  ", no_wrap=True, overflow="ellipsis")
    if what:
        line.append(f"{one_line(what)}  ", COLOURS[level].removeprefix("bold "))
    return line.append(f"→ {one_line(remedy)}" if remedy else "", "bright_black")


def _not_run(rows: Sequence[NotRun], now: datetime, width: int) -> RenderableType:
    made = _grid()
    made.add_column(justify="right", no_wrap=True)
    made.add_column(no_wrap=True, overflow="ellipsis", max_width=width // 4)
    made.add_column(no_wrap=True)
    made.add_column(justify="right", no_wrap=True)
    made.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for row in rows:
        colour = "bright_black" if row.planned else "red" if row.kind == "job" else "yellow"
        made.add_row(
            f"{_many(row.count, more=row.more)} x",
            Text(one_line(row.name)),
            Text(row.fate.lower().replace("_", " "), colour),
            Text(f"{span((now - row.last_at).total_seconds())} ago", "bright_black"),
            Text(one_line(row.reason or (row.example.number if row.example else "")), "bright_black"),
        )
    return made if rows else _nothing("everything that was due did run")


def _stuck(rows: Sequence[Stuck], now: datetime, width: int) -> RenderableType:
    made = _grid()
    made.add_column(justify="right", no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True, overflow="ellipsis", max_width=width // 5)
    made.add_column(justify="right", no_wrap=True)
    made.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    if width >= WIDE:
        made.add_column(no_wrap=True)
    for row in rows:
        since = f"first in {span((row.next_at - now).total_seconds())}" if row.next_at else f"oldest {span(row.oldest_s)}"
        made.add_row(
            _many(row.count, more=row.more),
            Text(WORDS.get(row.why, row.why.replace("_", " ")), WHY_COLOURS.get(row.why, "bright_black")),
            Text(one_line(row.job_type or "")),
            Text(since, "bright_black"),
            Text(one_line(row.words)),
            *([Text(row.example.number, "bright_black")] if width >= WIDE else []),
        )
    return made if rows else _nothing("nothing waits")


def _running(rows: Sequence[Current], *, wide: bool) -> RenderableType:
    made = _grid()
    for ratio in (None, 2, None, None, None, 3):
        made.add_column(ratio=ratio, no_wrap=True, overflow="ellipsis")
    for row in rows:
        bar = ProgressBar(total=100, completed=row.progress, width=24 if wide else 10) if row.progress is not None else ""
        said = f"{row.progress}% {one_line(row.message or '')}" if row.progress is not None else one_line(row.message or "")
        words = "asked to stop" if row.stopping else said
        made.add_row(
            Text(row.number, "blue"),
            Text(one_line(row.job_type)),
            Text(span(row.elapsed_s), "bold yellow" if row.slow else "bold"),
            Text(_usual(row, wide=wide), "bright_black"),
            bar,
            Text(words, "magenta" if row.stopping else ""),
        )
    return made if rows else _nothing("nothing runs")


def _usual(row: Current, *, wide: bool) -> str:
    if row.usual_s is None:
        return ""
    usual = f"of ~{span(row.usual_s)}"
    return f"{usual}, 95 % within {span(row.long_s)}" if wide and row.long_s is not None else usual


def _ahead(ahead: Ahead, room: int, width: int) -> list[RenderableType]:
    if not ahead.count:
        return [_nothing("nothing is scheduled")]
    parts: list[RenderableType] = [*_density(ahead, width)]
    changes = ahead.changes[: max(0, room - 1)]
    for change in changes:
        words = f"the clock of {change.timezone} goes from {change.before} to {change.after}: {', '.join(change.schedules)}"
        parts.append(Text(f"{change.at:%a %H:%M}  {one_line(words)}", "bold yellow", no_wrap=True, overflow="ellipsis"))
    made = _grid()
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True, overflow="ellipsis", max_width=width // 3)
    made.add_column(no_wrap=True, overflow="ellipsis", max_width=width // 4)
    made.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for item in ahead.items[: room - len(changes)]:
        said = [f"in {span((item.due_at - ahead.start).total_seconds())}", f"and {item.more:,} more" if item.more else "", item.note or ""]
        made.add_row(
            Text(f"{item.due_at:%H:%M:%S}", "cyan"),
            Text(one_line(item.schedule)),
            Text(one_line(item.template), "bright_black"),
            Text(one_line("; ".join(filter(None, said))), "bright_black"),
        )
    return [*parts, made]


def _density(ahead: Ahead, width: int) -> list[Text]:
    """Return a bar for each hour, and an axis of the clock, in UTC, under it."""
    cell = max(1, min(8, (width - 1) // max(1, len(ahead.hours))))
    top = max((hour.count for hour in ahead.hours), default=0)
    bars, axis = Text(no_wrap=True, overflow="crop"), ""
    for index, hour in enumerate(ahead.hours):
        height = SPARKS[round(hour.count / top * (len(SPARKS) - 1))] if hour.count and top else " "
        bars.append(height * (cell - 1 if cell > 1 else 1) + (" " if cell > 1 else ""), "cyan")
        if hour.begins_at.hour % AXIS_HOURS == 0 or index == 0:
            axis = axis.ljust(index * cell) + (f"{hour.begins_at:%H:%M}" if len(axis) <= index * cell else "")
    return [bars, Text(axis, "bright_black", no_wrap=True, overflow="crop")]


def _footer(shown: Shown) -> Text:
    if shown.trouble:
        return Text(f"store in trouble: {one_line(shown.trouble)}", "bold red", no_wrap=True, overflow="ellipsis")
    if shown.notice:
        return Text(shown.notice, "bold yellow", no_wrap=True, overflow="ellipsis")
    return Text("q quits · p pauses everything · r resumes · space looks again", "bright_black", no_wrap=True, overflow="ellipsis")


def _many(count: int, *, more: bool) -> str:
    return f"{count:,}+" if more else f"{count:,}"


def _heading(words: str, beside: str) -> Rule:
    return Rule(Text(words, "bold").append(f"  {beside}" if beside else "", "bright_black"), align="left", style="bright_black")


def _nothing(words: str) -> Text:
    return Text(words, "bright_black italic")


def _grid() -> Table:
    return Table.grid(expand=True, padding=(0, 2, 0, 0), pad_edge=False)
