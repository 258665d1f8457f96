"""`rota simulate`: the schedules of a store, lived through in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from rota.surfaces.cli.exits import FAILED
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption, point_in_time
from rota.surfaces.cli.output import Table, clock_time, coloured, console, counted, escaped, one_line, progress, sentence, show_json
from rota.surfaces.cli.session import actor, session
from rota.surfaces.cli.zone import current

if TYPE_CHECKING:
    from rota.simulation import Simulated, Tally

LINES = 200
COLOURS = {"FIRED": "green", "COALESCED": "cyan", "SKIPPED_PAUSED": "bright_black", "SKIPPED_CALENDAR": "bright_black"}
"""Of what a line is about; trouble is told in magenta, and all other fates did not run."""


def simulate(
    *,
    days: Annotated[float, typer.Option("--days", metavar="N", help="How many days to live through.")] = 7.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed, start and definitions give the same story.")] = 0,
    start: Annotated[
        datetime | None, typer.Option("--start", parser=point_in_time, metavar="TIME", help="From then on. Else from this minute on.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, help="Workers that share the store.")] = 1,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", min=1, help="Jobs each runs at once; else $ROTA_CONCURRENCY, else 8.")
    ] = None,
    faults: Annotated[
        str,
        typer.Option("--faults", metavar="LIST", help="What goes wrong: crash, clock-step, sleep, by comma; or all.", show_default=False),
    ] = "",
    faults_per_day: Annotated[
        float, typer.Option("--faults-per-day", metavar="N", help="How often each of them happens, on average.")
    ] = 2.0,
    failures: Annotated[bool, typer.Option("--failures", help="Let jobs fail as often as those of their type did lately.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Lines of the story, at most; what went as it should is left out first.")
    ] = LINES,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the schedules of a store through some days, on the real engine with a simulated clock, and tell what ran and what did not.

    The store is only read: its definitions are copied into one that is thrown away. No handler is called; jobs last as long as those of
    their type did lately. Exit with 1 if a due time is found without its one fate.
    """
    with session(store, app=app) as rota, progress(percent=True) as bars:
        task = None if bars is None else bars.add_task("simulating", total=timedelta(days=days).total_seconds())
        first: list[datetime] = []

        def tell(at: datetime) -> None:
            first.append(at) if not first else None
            if bars is not None and task is not None:
                bars.update(task, completed=(at - first[0]).total_seconds(), description=f"{at:%Y-%m-%d}")

        told = rota.acting_as(actor()).simulate(
            days,
            seed=seed,
            start=start,
            workers=workers,
            concurrency=concurrency,
            faults=faults,
            faults_per_day=faults_per_day,
            failures=failures,
            limit=limit,
            progress=None if bars is None else tell,
        )
    if as_json:
        show_json(told)
    else:
        _show(told)
    if not told.ok:
        raise typer.Exit(FAILED)


def _show(told: Simulated) -> None:
    screen = console()
    several = len({each.organization for each in told.schedules}) > 1
    if told.story:
        made = Table(f"time ({current().key})", "schedule", "what", "how", soft=("how",))
        for line in told.story:
            what = coloured(line.what, "magenta" if line.schedule is None else COLOURS.get(line.what, "yellow"))
            made.add_row(
                clock_time(line.at), _name(line.schedule, line.organization, several=several), what, one_line(sentence(line.words))
            )
        made.show()
    if told.left_out:
        screen.print(f"… and {counted(told.left_out, 'line')} more: --limit makes room for them\n")
    _show_summary(told, several=several)
    for words in _conclusion(told):
        screen.print(words)


def _show_summary(told: Simulated, *, several: bool) -> None:
    numbers = ("due", "fired", "completed", "failed", "unfinished", "did not run")
    made = Table("schedule", "when", *numbers, "of these", right=numbers, soft=("when", "of these"))
    for each in told.schedules:
        made.add_row(_name(each.schedule, each.organization, several=several), one_line(sentence(each.words), 60), *_numbers(each.tally))
    made.add_section()
    made.add_row("all", "", *_numbers(told.totals), style="bold")
    made.show()


def _numbers(tally: Tally) -> tuple[str, ...]:
    fates = ", ".join(f"{count:,} {fate}" for fate, count in sorted(tally.not_run.items()))
    counts = (tally.due, tally.fired, tally.completed, tally.failed, tally.unfinished, sum(tally.not_run.values()))
    return (*(f"{count:,}" for count in counts), fates)


def _conclusion(told: Simulated) -> Iterator[str]:
    faults = f", with {', '.join(told.faults)}" if told.faults else ""
    yield f"{clock_time(told.start)} to {clock_time(told.end)}, {counted(told.workers, 'worker')}, seed {told.seed}{faults}."
    if told.recovered:
        yield f"{told.recovered:,} {'job was' if told.recovered == 1 else 'jobs were'} taken over from workers that vanished."
    if told.ok:
        yield "[green]Every due time has exactly one fate, and every one that fired a job of its own.[/]"
        return
    yield "[red]Not every due time has its one fate:[/]"
    for each in told.problems:
        name = "" if each.schedule is None else f"{escaped(each.schedule)}  {clock_time(each.due_at)}  "
        yield f"  {name}{escaped(one_line(sentence(each.what)))}"


def _name(schedule: str | None, organization: str | None, *, several: bool) -> str:
    if schedule is None:
        return ""
    return one_line(f"{organization}: {schedule}" if several else schedule, 60)
