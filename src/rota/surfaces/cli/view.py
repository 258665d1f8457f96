"""The live view of `rota up`: one frame from one snapshot. Nothing is read here."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rota.model.states import Status
from rota.surfaces.cli.output import COLOURS, compact, one_line, pause_text, span, took
from rota.surfaces.cli.watch import Current, Ended, Snapshot, Waiter

SPARKS = "▁▂▃▄▅▆▇█"
WIDE = 100
"""From this many columns on there is room for longer bars."""
ROWS_MAX = 8
ROWS_LEAST = 2
FIXED_LINES = 7
"""Header, counts, rate, three headings and the line below."""
ALWAYS = (Status.PENDING, Status.QUEUED, Status.RUNNING, Status.COMPLETED)
SOMETIMES = (Status.FAILED, Status.TIMED_OUT, Status.DEAD_LETTER, Status.SKIPPED, Status.CANCELLED)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame says of the process itself."""

    store: str
    up_s: float
    slots: int
    url: str = ""
    """Where the dashboard is, if it is served."""
    notice: str = ""
    stopping: bool = False


def frame(snapshot: Snapshot, about: About, *, width: int, height: int) -> RenderableType:
    """Return everything as one renderable that fits the terminal."""
    running, waiting, ended = _shares(snapshot, height)
    return Group(
        _header(snapshot, about),
        _counts(snapshot),
        _rate(snapshot),
        _heading("Running", _count(snapshot, Status.RUNNING) if snapshot.running else 0),
        _running(snapshot.running[:running], wide=width >= WIDE),
        _heading("Waiting", _count(snapshot, Status.QUEUED, Status.PENDING)),
        _waiting(snapshot.waiting[:waiting], width),
        _heading("Ended", None),
        _ended(snapshot.ended[:ended], width),
        _footer(snapshot, about),
    )


def _shares(snapshot: Snapshot, height: int) -> tuple[int, int, int]:
    """Share out the lines of the terminal: what runs first, then what ended, then what waits."""
    left = max(3 * ROWS_LEAST, height - FIXED_LINES - 2)
    running = min(len(snapshot.running), 2 * ROWS_MAX, max(ROWS_LEAST, left - 2 * ROWS_LEAST))
    left -= max(1, running)
    waiting = min(len(snapshot.waiting), ROWS_MAX, max(ROWS_LEAST, left // 2))
    left -= max(1, waiting)
    return running, waiting, min(len(snapshot.ended), ROWS_MAX, max(ROWS_LEAST, left))


def _header(snapshot: Snapshot, about: About) -> Table:
    line = _grid(expand=True)
    line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    line.add_column(justify="right", no_wrap=True)
    others = len(snapshot.workers)
    words = f"up {span(about.up_s) if about.up_s >= 1 else '0s'} · {about.slots} slots · {others} {'worker' if others == 1 else 'workers'}"
    line.add_row(Text.assemble(("rota ", "bold cyan"), about.store), Text(words, "bright_black"))
    return line


def _counts(snapshot: Snapshot) -> Text:
    shown = [*ALWAYS, *(state for state in SOMETIMES if _count(snapshot, state))]
    line = Text(no_wrap=True, overflow="ellipsis")
    for state in shown:
        count = _count(snapshot, state)
        line.append(f"{state.lower().replace('_', ' ')} ", "bright_black").append(f"{count:,}  ", f"bold {COLOURS[state]}" if count else "")
        if state is Status.RUNNING and snapshot.stats is not None and snapshot.stats.claimed_ahead:
            line.append("claimed ahead ", "bright_black").append(f"{snapshot.stats.claimed_ahead:,}  ")
    return line


def _rate(snapshot: Snapshot) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append("done per second ", "bright_black").append(f"{snapshot.rate:,.1f} ", "bold green" if snapshot.rate else "")
    line.append(sparkline(snapshot.per_second), "green")
    if snapshot.pauses:
        line.append(f"  paused: {', '.join(pause_text(*pause) for pause in snapshot.pauses)}", "bold yellow")
    return line


def sparkline(values: list[float]) -> str:
    """Return values as a row of small bars, the highest of them full."""
    top = max(values, default=0.0)
    return "".join(SPARKS[round(value / top * (len(SPARKS) - 1))] if top else SPARKS[0] for value in values)


def _running(rows: list[Current], *, wide: bool) -> RenderableType:
    made = _grid(expand=True)
    for ratio in (None, 2, None, None, None, 3):
        made.add_column(ratio=ratio, no_wrap=True, overflow="ellipsis")
    for row in rows:
        asked = row.job.cancel_requested_at is not None
        name = Text(one_line(row.job.job_type), "magenta" if asked else "")
        bar = ProgressBar(total=100, completed=row.progress or 0, width=24 if wide else 14) if row.progress is not None else ""
        words = "asked to stop" if asked else f"{row.progress}% {one_line(row.message)}" if row.progress is not None else ""
        attempt = Text(f"attempt {row.job.attempt}" if wide else f"#{row.job.attempt}", "bright_black")
        made.add_row(Text(row.job.number, COLOURS[Status.RUNNING]), name, attempt, Text(took(row.job), "bold"), bar, Text(words))
    return made if rows else _nothing("nothing runs")


def _waiting(rows: list[Waiter], width: int) -> RenderableType:
    made = _list(width)
    for row in rows:
        made.add_row(
            Text(row.job.number, COLOURS[row.job.status]), Text(one_line(row.job.job_type)), Text(one_line(_why(row)), "bright_black")
        )
    return made if rows else _nothing("nothing waits")


def _why(row: Waiter) -> str:
    """Return why a job waits; for one that waits for its time, how long that is now."""
    job = row.job
    left_s = (job.run_at - datetime.now(UTC)).total_seconds() if job.run_at and job.status is Status.PENDING else 0.0
    if left_s <= 0 or job.blockers:
        return row.why
    return f"due in {span(left_s)}" + (f", after attempt {job.attempt - 1} ended" if job.attempt > 1 else "")


def _ended(rows: list[Ended], width: int) -> RenderableType:
    made = _grid(expand=True)
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True, overflow="ellipsis", max_width=width // 4)
    for _ in range(3 if width >= WIDE else 2):
        made.add_column(no_wrap=True)
    made.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for row in rows:
        job, colour = row.job, COLOURS[row.job.status]
        when = [Text(f"{_ago(job.finished_at)} ago", "bright_black")] if width >= WIDE else []
        made.add_row(
            Text(job.number, colour),
            Text(one_line(job.job_type)),
            Text(job.status, colour),
            Text(took(job)),
            *when,
            Text(_note(row), "bright_black"),
        )
    return made if rows else _nothing("nothing has ended yet")


def _note(row: Ended) -> str:
    if row.job.status is not Status.COMPLETED:
        return one_line(row.job.reason or (row.run.error if row.run else "") or "")
    return compact(row.run.result) if row.run else ""


def _footer(snapshot: Snapshot, about: About) -> Text:
    if snapshot.trouble:
        return Text(f"store in trouble: {one_line(snapshot.trouble)}", "bold red", no_wrap=True, overflow="ellipsis")
    if about.notice:
        return Text(about.notice, "bold yellow", no_wrap=True, overflow="ellipsis")
    return Text.assemble((f"{about.url}  ", "cyan") if about.url else "", ("Ctrl-C stops", "bright_black"))


def _count(snapshot: Snapshot, *states: Status) -> int:
    """Return how many jobs there are of these states; of RUNNING, those whose handler runs."""
    stats = snapshot.stats
    if stats is None:
        return 0
    return sum(stats.running if state is Status.RUNNING else stats.by_status.get(state, 0) for state in states)


def _heading(words: str, count: int | None) -> Rule:
    title = Text(words, "bold").append(f" {count:,}" if count else "", "bright_black")
    return Rule(title, align="left", style="bright_black")


def _nothing(words: str) -> Text:
    return Text(words, "bright_black italic")


def _list(width: int) -> Table:
    made = _grid(expand=True)
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True, overflow="ellipsis", max_width=width // 4)
    made.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    return made


def _grid(*, expand: bool) -> Table:
    return Table.grid(expand=expand, padding=(0, 2, 0, 0), pad_edge=False)


def _ago(at: datetime | None) -> str:
    return "" if at is None else span((datetime.now(UTC) - at).total_seconds())
