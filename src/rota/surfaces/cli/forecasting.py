"""`rota forecast`, `rota schedule plan|verify`: what will run when, what a change would do, and whether everything ran."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from rota.model.schedules import Fate
from rota.surfaces.cli.exits import FAILED
from rota.surfaces.cli.occurrences import OfOption, SinceOption, SomeArgument, UntilOption, fate_in_colour
from rota.surfaces.cli.options import JsonOption, StoreOption, examples, point_in_time
from rota.surfaces.cli.output import clock_time, console, escaped, one_line, show_json, show_table, table
from rota.surfaces.cli.schedule_flags import Given, ScheduleArgument, WithinOption, bad_values, takes_flags
from rota.surfaces.cli.schedules import BackOption, TemplateOption, changes
from rota.surfaces.cli.session import actor, session
from rota.surfaces.cli.timetable import counted, local_time, show_timetable

if TYPE_CHECKING:
    from rota.lab.forecasts import SchedulePlan

PLANNED_SHOWN = 20
"""Due times of a plan that are told one by one; `--json` has them all."""


def register(app: typer.Typer) -> None:
    """Add `rota forecast`."""
    app.command(
        "forecast",
        rich_help_panel="Look",
        epilog=examples(
            "rota forecast",
            "rota forecast --hours 168 --skipped",
            "rota forecast --schedule daily --start 2026-10-24T00:00:00Z --end 2026-10-27T00:00:00Z",
        ),
    )(forecast)


def register_checks(app: typer.Typer) -> None:
    """Add what is asked of schedules."""
    app.command("verify", epilog=examples("rota schedule verify", "rota schedule verify daily --since 30d"))(verify)
    app.command(
        "plan",
        epilog=examples("rota schedule plan daily --cron '0 8 * * *' --days 30", "rota schedule plan daily --timezone Asia/Tokyo --json"),
    )(takes_flags(plan))


def forecast(
    *,
    hours: Annotated[
        float | None,
        typer.Option("--hours", metavar="N", min=0, help="How far to look, from now or from --start. Else 24.", show_default=False),
    ] = None,
    start: Annotated[
        datetime | None, typer.Option("--start", parser=point_in_time, metavar="TIME", help="From then on. Else from now on.")
    ] = None,
    end: Annotated[datetime | None, typer.Option("--end", parser=point_in_time, metavar="TIME", help="Until then.")] = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", metavar="NAME", help="Only this schedule, each due time on its line.")
    ] = None,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="Also list what will be due and not run: paused, excluded, jumped over, overlapping.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Show at most this many lines.")] = 50,
    organization: OfOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what will run when: a bar for each hour, changes of clocks, days that are excluded, overlaps, and where jobs would wait.

    A schedule that is due more than six times a day is shown as one line with its count. Jobs that would overlap, depend on each other or
    wait for a limit are simulated with the usual durations of their types.
    """
    with bad_values(), session(store) as rota:
        found = rota.acting_as(actor()).forecast(hours, start=start, end=end, schedule=schedule, skipped=skipped, organization=organization)
        if as_json:
            return show_json(
                {
                    "items": list(found),
                    **{name: getattr(found, name) for name in ("start", "end", "cut", "exact_until", "changes", "density")},
                }
            )
        # Asked for separately, so that a paused schedule of every minute does not fill the forecast.
        beside = (
            None
            if skipped
            else rota.acting_as(actor()).forecast(
                start=found.start, end=found.end, schedule=schedule, skipped=True, organization=organization
            )
        )
        views = {(each.organization, each.name): each for each in rota.acting_as(actor()).schedules.list(organization=organization)}
    return show_timetable(found, beside, views, apart=schedule is not None, limit=limit)


def verify(
    name: SomeArgument = None,
    *,
    since: SinceOption = None,
    until: UntilOption = None,
    organization: OfOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Match every due time with its outcome; exit with 1 if one is overdue, has two outcomes, or fired twice."""
    with bad_values(), session(store) as rota:
        found = rota.acting_as(actor()).schedules.verify(name, since=since, until=until, organization=organization)
    if as_json:
        show_json(msgspec.to_builtins(found) | {"ok": found.ok})
    else:
        made = table("schedule", "due (UTC)", "what is wrong")
        for each in found.problems:
            made.add_row(escaped(each.schedule), clock_time(each.due_at), escaped(one_line(each.what)))
        for late in found.overdue:
            what = f"{fate_in_colour(Fate.OVERDUE, late.count)} until {clock_time(late.last_due_at)}: {escaped(late.reason)}"
            made.add_row(escaped(late.schedule), clock_time(late.due_at), what)
        show_table(
            made, f"All is well: {counted(found.due, 'due time')} of {counted(found.schedules, 'schedule')}, each with its one fate."
        )
        if not found.ok:
            overdue = f", {counted(len(found.overdue), 'schedule')} overdue" if found.overdue else ""
            typer.echo(f"\n{counted(len(found.problems), 'problem')}{overdue}: {found.matched:,} of {counted(found.due, 'due time')} match")
    if not found.ok:
        raise typer.Exit(FAILED)


def plan(
    name: ScheduleArgument,
    *,
    template: TemplateOption = None,
    given: Given,
    back: BackOption = None,
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, help="How far to look.")] = 90,
    organization: WithinOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which due times a change would add and remove. Nothing is changed.

    It takes the flags of `edit`.
    """
    with session(store) as rota:
        options = changes(rota, name, organization, given=given, template=template, back=back)
        found = rota.acting_as(actor()).plan(name, days=days, organization=organization, **options)
        zone = rota.acting_as(actor()).schedules.get(name, organization=organization).timezone
    if as_json:
        return show_json(found)
    after = zone if "timezone" not in options else options["timezone"] or "UTC"
    return _show_plan(found, {"−": zone, "+": after})


def _show_plan(found: SchedulePlan, zones: Mapping[str, str]) -> None:
    screen = console()
    screen.print(f"schedule [bold]{escaped(found.schedule)}[/]")
    screen.print(f"  is due    {escaped(found.words_before)}", soft_wrap=True)
    screen.print(f"  would be  {escaped(found.words_after)}", soft_wrap=True)
    screen.print(f"until {clock_time(found.end)}: {len(found.added):,} added, {len(found.removed):,} removed, {found.kept:,} stay")
    both = sorted([(at, "+") for at in found.added] + [(at, "−") for at in found.removed])
    for at, sign in both[:PLANNED_SHOWN]:
        colour = "green" if sign == "+" else "red"
        local = f"  {local_time(at, zones[sign])}" if zones[sign] != "UTC" else ""
        screen.print(f"  [{colour}]{sign}[/] {clock_time(at)}{local}")
    if len(both) > PLANNED_SHOWN:
        screen.print(f"  and {len(both) - PLANNED_SHOWN:,} more: --json has them all")
