"""The live views of `rota up` and `rota top`: one frame each from what was read, to fit the terminal. Nothing is read here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rota.model.local_time import in_zone
from rota.model.overview import Ahead, Level, NotRun, Overview, Running, Stuck, Why
from rota.model.overview import Current as RunningJob
from rota.model.schedules import Fate
from rota.model.states import Status
from rota.surfaces.cli.output import COLOURS, compact, counted, one_line, pause_text, sentence, span, took
from rota.surfaces.cli.watch import Current, Ended, Snapshot, Waiter
from rota.surfaces.cli.zone import current

SPARKS = "▁▂▃▄▅▆▇█"
ROOMY, WIDE = 100, 120
"""From these numbers of columns on there is room for counts and longer bars, and for one more column."""
ROWS_MAX, ROWS_LEAST = 8, 2
"""Rows of a list of `rota up`."""
FIXED_LINES = 7
"""Of `rota up`: header, counts, rate, three headings and the line below."""
ANSWERS_MAX = 50
ANSWERS_ONCE = 10
"""Rows of each question of `rota top`, and where no height says how many there is room for."""
AXIS_HOURS = 6
ALWAYS = (Status.PENDING, Status.QUEUED, Status.RUNNING, Status.COMPLETED)
SOMETIMES = (Status.FAILED, Status.TIMED_OUT, Status.DEAD_LETTER, Status.SKIPPED, Status.CANCELLED)
LEVELS = {Level.WELL: "bold green", Level.WATCH: "bold yellow", Level.TROUBLE: "bold red"}
WHY_COLOURS = {Why.NO_WORKER: "red", Why.PAUSED: "yellow", Why.PARENT: "magenta", Why.LIMIT: "cyan", Why.SUSPECT: "yellow"}
WORDS = {Why.NO_WORKER: "no worker", Why.TURN: "its turn", Why.LATER: "not yet due"}
PLAIN: dict[str, Any] = {}
RIGHT = {"justify": "right"}
REST = {"ratio": 1}
"""Columns of a grid: as wide as they need to be, on the left or on the right, and what takes the room that is left."""
RUNNING = (PLAIN, {"ratio": 2}, PLAIN, PLAIN, PLAIN, {"ratio": 3})


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame says beside what was read."""

    store: str
    notice: str = ""
    trouble: str = ""
    """Why the store could not be read: what is shown is older."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame of `rota up` says of the process itself."""

    store: str
    up_s: float
    slots: int
    url: str = ""
    """Where the dashboard is, if it is served."""
    notice: str = ""


# ---- what both are made of ------------------------------------------------------------------------------------------


def _grid(columns: Iterable[Mapping[str, Any]], rows: Iterable[Iterable[RenderableType]], nothing: str = "") -> RenderableType:
    """Return rows in columns that are cut where there is no room, or say that there is nothing."""
    made = Table.grid(expand=True, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        made.add_column(no_wrap=True, overflow="ellipsis", **column)
    for row in rows:
        made.add_row(*row)
    return Text(nothing, "bright_black italic") if nothing and not made.row_count else made


def _header(name: str, store: str, whose: str, words: str) -> RenderableType:
    return _grid((REST, RIGHT), [(Text.assemble((f"{name} ", "bold cyan"), store, (whose, "cyan")), _faint(words))])


def _heading(words: str, beside: str) -> Rule:
    return Rule(Text(words, "bold").append(beside, "bright_black"), align="left", style="bright_black")


def _footer(trouble: str, notice: str, hint: Text) -> Text:
    if trouble:
        return _line(f"store in trouble: {one_line(trouble)}", "bold red")
    return _line(notice, "bold yellow") if notice else hint


def _line(words: str = "", style: str = "") -> Text:
    return Text(words, style, no_wrap=True, overflow="ellipsis")


def _faint(words: str) -> Text:
    return Text(words, "bright_black")


def _bar(progress: int | None, width: int) -> RenderableType:
    return "" if progress is None else ProgressBar(total=100, completed=progress, width=width)


# ---- rota up --------------------------------------------------------------------------------------------------------


def up_frame(snapshot: Snapshot, about: About, *, width: int, height: int) -> RenderableType:
    """Return what `rota up` shows as one renderable that fits the terminal."""
    running, waiting, ended = _shares(snapshot, height)
    workers = counted(len(snapshot.workers), "worker")
    hint = Text.assemble((f"{about.url}  ", "cyan") if about.url else "", ("Ctrl-C stops", "bright_black"))
    return Group(
        _header("rota", about.store, "", f"up {span(about.up_s) if about.up_s >= 1 else '0s'} · {about.slots} slots · {workers}"),
        _counts(snapshot),
        _rate(snapshot),
        _heading("Running", _beside(_count(snapshot, Status.RUNNING) if snapshot.running else 0)),
        _grid(RUNNING, (_current(row, wide=width >= ROOMY) for row in snapshot.running[:running]), "nothing runs"),
        _heading("Waiting", _beside(_count(snapshot, Status.QUEUED, Status.PENDING))),
        _grid((PLAIN, {"max_width": width // 4}, REST), map(_waiter, snapshot.waiting[:waiting]), "nothing waits"),
        _heading("Ended", ""),
        _ended(snapshot.ended[:ended], width),
        _footer(snapshot.trouble, about.notice, hint),
    )


def _shares(snapshot: Snapshot, height: int) -> tuple[int, int, int]:
    """Share out the lines of the terminal: what runs first, then what ended, then what waits."""
    left = max(3 * ROWS_LEAST, height - FIXED_LINES - 2)
    running = min(len(snapshot.running), 2 * ROWS_MAX, max(ROWS_LEAST, left - 2 * ROWS_LEAST))
    left -= max(1, running)
    waiting = min(len(snapshot.waiting), ROWS_MAX, max(ROWS_LEAST, left // 2))
    left -= max(1, waiting)
    return running, waiting, min(len(snapshot.ended), ROWS_MAX, max(ROWS_LEAST, left))


def _counts(snapshot: Snapshot) -> Text:
    shown = [*ALWAYS, *(state for state in SOMETIMES if _count(snapshot, state))]
    line = _line()
    for state in shown:
        count = _count(snapshot, state)
        line.append(f"{state.lower().replace('_', ' ')} ", "bright_black").append(f"{count:,}  ", f"bold {COLOURS[state]}" if count else "")
        if state is Status.RUNNING and snapshot.stats is not None and snapshot.stats.claimed_ahead:
            line.append("claimed ahead ", "bright_black").append(f"{snapshot.stats.claimed_ahead:,}  ")
    return line


def _rate(snapshot: Snapshot) -> Text:
    line = _line()
    line.append("done per second ", "bright_black").append(f"{snapshot.rate:,.1f} ", "bold green" if snapshot.rate else "")
    line.append(sparkline(snapshot.per_second), "green")
    if snapshot.pauses:
        line.append(f"  paused: {', '.join(pause_text(*pause) for pause in snapshot.pauses)}", "bold yellow")
    return line


def sparkline(values: Sequence[float]) -> str:
    """Return values as a row of small bars, the highest of them full."""
    top = max(values, default=0.0)
    return "".join(SPARKS[round(value / top * (len(SPARKS) - 1))] if top else SPARKS[0] for value in values)


def _current(row: Current, *, wide: bool) -> tuple[RenderableType, ...]:
    job, stopping = row.job, row.job.cancel_requested_at is not None
    words = "asked to stop" if stopping else f"{row.progress}% {one_line(row.message)}" if row.progress is not None else ""
    return (
        Text(job.number, COLOURS[Status.RUNNING]),
        Text(one_line(job.job_type), "magenta" if stopping else ""),
        _faint(f"attempt {job.attempt}" if wide else f"#{job.attempt}"),
        Text(took(job), "bold"),
        _bar(row.progress, 24 if wide else 14),
        Text(words),
    )


def _waiter(row: Waiter) -> tuple[Text, Text, Text]:
    """Return a job and why it waits; of one that waits for its time, how long that is now."""
    job, why = row.job, row.why
    left_s = (job.run_at - datetime.now(UTC)).total_seconds() if job.run_at and job.status is Status.PENDING else 0.0
    if left_s > 0 and not job.blockers:
        why = f"due in {span(left_s)}" + (f", after attempt {job.attempt - 1} failed" if job.attempt > 1 else "")
    return Text(job.number, COLOURS[job.status]), Text(one_line(job.job_type)), _faint(one_line(why))


def _ended(rows: Sequence[Ended], width: int) -> RenderableType:
    when = [PLAIN] if width >= ROOMY else []
    columns = (PLAIN, {"max_width": width // 4}, PLAIN, PLAIN, *when, REST)
    return _grid(columns, (_ended_row(row, wide=bool(when)) for row in rows), "nothing has ended yet")


def _ended_row(row: Ended, *, wide: bool) -> tuple[Text, ...]:
    job, run, colour = row.job, row.run, COLOURS[row.job.status]
    if job.status is Status.COMPLETED:
        note = compact(run.result) if run else ""
    else:
        note = one_line(job.reason or (run.error if run else "") or "")
    ago = "" if job.finished_at is None else span((datetime.now(UTC) - job.finished_at).total_seconds())
    when = (_faint(f"{ago} ago"),) if wide else ()
    return (Text(job.number, colour), Text(one_line(job.job_type)), Text(job.status, colour), Text(took(job)), *when, _faint(note))


def _count(snapshot: Snapshot, *states: Status) -> int:
    """Return how many jobs there are of these states; of RUNNING, those whose handler runs."""
    stats = snapshot.stats
    if stats is None:
        return 0
    return sum(stats.running if state is Status.RUNNING else stats.by_status.get(state, 0) for state in states)


def _beside(count: int) -> str:
    return f" {count:,}" if count else ""


# ---- rota top -------------------------------------------------------------------------------------------------------


def top_frame(overview: Overview, shown: Shown, *, width: int, height: int | None) -> RenderableType:
    """Return the five questions as one renderable that fits the terminal; without a height, as long as it needs to be."""
    health, running, ahead, now = overview.health, overview.running, overview.ahead, overview.at
    concerns = health.concerns[:4] if len(health.concerns) > 1 else health.concerns[:1]
    wants = (len(overview.not_run), len(overview.stuck), len(running.jobs), len(ahead.items) + len(ahead.changes))
    fixed = 2 + len(concerns) + 4 + (2 if ahead.count else 0) + (1 if height is not None else 0)
    rooms = share(wants, None if height is None else height - fixed)
    not_run = (_not_run(row, now) for row in overview.not_run[: rooms[0]])
    stuck = (_stuck(row, wide=width >= WIDE) for row in overview.stuck[: rooms[1]])
    jobs = (_running(row, wide=width >= WIDE) for row in running.jobs[: rooms[2]])
    example = [PLAIN] if width >= WIDE else []
    parts = [
        _top_header(overview, shown, width),
        Text(f"● {health.sentence}", LEVELS[health.level]),
        *(_concern(each.what if len(concerns) > 1 else "", each.remedy, each.level) for each in concerns),
        _heading("Did not run", "  last 24 hours" if overview.not_run else ""),
        _grid((RIGHT, {"max_width": width // 4}, PLAIN, RIGHT, REST), not_run, "everything that was due did run"),
        _heading("Stuck, and why", ""),
        _grid((RIGHT, PLAIN, {"max_width": width // 5}, RIGHT, REST, *example), stuck, "nothing waits longer than usual"),
        _heading("Running", _running_words(running)),
        _grid(RUNNING, jobs, "nothing runs"),
        _heading("Next 24 hours", f"  {_many(ahead.count, more=ahead.more)} due" if ahead.count else ""),
        *_ahead(ahead, rooms[3], width),
    ]
    if height is not None:
        hint = _line("q quits · p pauses everything · r resumes · space looks again", "bright_black")
        parts.append(_footer(shown.trouble, shown.notice, hint))
    return Group(*parts)


def share(wants: Sequence[int], lines: int | None) -> list[int]:
    """Share out lines among sections, in turn, until all have what they want or nothing is left; each has one at least."""
    rooms = [1] * len(wants)
    if lines is None:
        return [max(1, min(ANSWERS_ONCE, want)) for want in wants]
    left = lines - len(rooms)
    while left > 0:
        hungry = [index for index, want in enumerate(wants) if rooms[index] < min(want, ANSWERS_MAX)]
        if not hungry:
            break
        for index in hungry[:left]:
            rooms[index] += 1
            left -= 1
    return rooms


def _top_header(overview: Overview, shown: Shown, width: int) -> RenderableType:
    counts = overview.counts
    words = []
    if counts is not None and width >= ROOMY:
        words = [f"{counts.queued:,} queued", f"{counts.pending:,} pending", f"{counts.running:,} running"]
        if counts.claimed_ahead:
            words.append(f"{counts.claimed_ahead:,} claimed ahead")
        if counts.workers is not None:
            words.insert(0, counted(counts.workers, "worker"))
    whose = f" · {overview.organization}" if overview.organization else ""
    return _header("rota top", one_line(shown.store), whose, " · ".join([*words, f"{in_zone(overview.at, current()):%H:%M:%S %Z}"]))


def _concern(what: str, remedy: str | None, level: Level) -> Text:
    line = _line("  ")
    if what:
        line.append(f"{one_line(sentence(what))}  ", LEVELS[level].removeprefix("bold "))
    return line.append(f"→ {one_line(remedy)}" if remedy else "", "bright_black")


def _not_run(row: NotRun, now: datetime) -> tuple[RenderableType, ...]:
    """Return what did not run, and when the latest was or, of what is overdue, for how long the first has been."""
    overdue = row.fate == Fate.OVERDUE
    length = span((now - (row.first_at if overdue else row.last_at)).total_seconds())
    return (
        f"{_many(row.count, more=row.more)} x",
        Text(one_line(row.name)),
        Text(row.fate.lower().replace("_", " "), "bright_black" if row.planned else "red" if row.kind == "job" or overdue else "yellow"),
        _faint(f"for {length}" if overdue else f"{length} ago"),
        _faint(one_line(sentence(row.reason or "") or (row.example.number if row.example else ""))),
    )


def _stuck(row: Stuck, *, wide: bool) -> tuple[RenderableType, ...]:
    return (
        _many(row.count, more=row.more),
        Text(WORDS.get(row.why, row.why.replace("_", " ")), WHY_COLOURS.get(row.why, "bright_black")),
        Text(one_line(row.job_type or "")),
        _faint(f"oldest {span(row.oldest_s)}"),
        Text(one_line(sentence(row.words))),
        *([_faint(row.example.number)] if wide else []),
    )


def _running(row: RunningJob, *, wide: bool) -> tuple[RenderableType, ...]:
    usual = "" if row.usual_s is None else f"of ~{span(row.usual_s)}"
    if usual and wide and row.long_s is not None:
        usual = f"{usual}, 95 % within {span(row.long_s)}"
    message = one_line(row.message or "")
    words = message if row.progress is None else f"{row.progress}% {message}"
    return (
        Text(row.number, "blue"),
        Text(one_line(row.job_type)),
        Text(span(row.elapsed_s), "bold yellow" if row.slow else "bold"),
        _faint(usual),
        _bar(row.progress, 24 if wide else 10),
        Text("asked to stop", "magenta") if row.stopping else Text(words),
    )


def _ahead(ahead: Ahead, room: int, width: int) -> list[RenderableType]:
    if not ahead.count:
        return [_grid((), (), "nothing is scheduled")]
    parts: list[RenderableType] = [*_density(ahead, width)]
    changes = ahead.changes[: max(0, room - 1)]
    for change in changes:
        words = f"the clock of {change.timezone} goes from {change.before} to {change.after}: {', '.join(change.schedules)}"
        parts.append(_line(f"{in_zone(change.at, current()):%a %H:%M}  {one_line(words)}", "bold yellow"))
    rows = []
    for item in ahead.items[: room - len(changes)]:
        notes = (
            f"in {span((item.due_at - ahead.start).total_seconds())}",
            f"and {item.more:,} more" if item.more else "",
            sentence(item.note or ""),
        )
        texts = (_faint(one_line(item.template)), _faint(one_line("; ".join(filter(None, notes)))))
        rows.append((Text(f"{in_zone(item.due_at, current()):%H:%M:%S}", "cyan"), Text(one_line(item.schedule)), *texts))
    return [*parts, _grid((PLAIN, {"max_width": width // 3}, {"max_width": width // 4}, REST), rows)]


def _density(ahead: Ahead, width: int) -> list[Text]:
    """Return a bar for each hour, and an axis of the clock, in the zone that the header names, under it."""
    cell = max(1, min(8, (width - 1) // max(1, len(ahead.hours))))
    top = max((hour.count for hour in ahead.hours), default=0)
    bars, axis = Text(no_wrap=True, overflow="crop"), ""
    for index, hour in enumerate(ahead.hours):
        height = SPARKS[round(hour.count / top * (len(SPARKS) - 1))] if hour.count and top else " "
        bars.append(height * (cell - 1 if cell > 1 else 1) + (" " if cell > 1 else ""), "cyan")
        begins = in_zone(hour.begins_at, current())
        if begins.hour % AXIS_HOURS == 0 or index == 0:
            axis = axis.ljust(index * cell) + (f"{begins:%H:%M}" if len(axis) <= index * cell else "")
    return [bars, Text(axis, "bright_black", no_wrap=True, overflow="crop")]


def _running_words(running: Running) -> str:
    """Return how many handlers run, and how many jobs wait in a worker for theirs to start."""
    words = [_many(running.count, more=running.more)] if running.count else []
    words += [f"{running.claimed_ahead:,} claimed ahead"] if running.claimed_ahead else []
    return f"  {', '.join(words)}" if words else ""


def _many(count: int, *, more: bool) -> str:
    return f"{count:,}+" if more else f"{count:,}"
