"""`rota forecast`: what will run when."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from rota.surfaces.cli.options import JsonOption, StoreOption, examples, point_in_time
from rota.surfaces.cli.output import show_json
from rota.surfaces.cli.session import actor, session
from rota.surfaces.cli.timetable import show_timetable

OfOption = Annotated[str | None, typer.Option("--organization", metavar="NAME", help="Only schedules of this organization.")]


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
    with session(store) as rota:
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
