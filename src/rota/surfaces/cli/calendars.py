"""`rota calendar list|show|set|delete`: days on which schedules are not due."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.errors import NotFound, PermissionDenied
from rota.model.gate import LOCAL, Actor
from rota.model.schedules import Calendar
from rota.surfaces.cli.options import JsonOption, StoreOption, examples
from rota.surfaces.cli.output import escaped, one_line, show_json, show_json_lines, show_pairs, show_table, table
from rota.surfaces.cli.schedule_flags import bad_values
from rota.surfaces.cli.session import actor, session
from rota.surfaces.cli.timetable import counted

if TYPE_CHECKING:
    from rota.app import Rota

CalendarArgument = Annotated[str, typer.Argument(metavar="NAME", help="The calendar's name.")]
OfOption = Annotated[
    str | None, typer.Option("--organization", metavar="NAME", help="Of this organization. Else your own: default, or that of --as.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("list", epilog=examples("rota calendar list"))(list_calendars)
    app.command("show", epilog=examples("rota calendar show holidays"))(show)
    app.command(
        "set",
        epilog=examples(
            "rota calendar set holidays 2026-12-25 2026-12-26 2027-01-01 --description 'Bank holidays'",
            "rota calendar set holidays --from holidays.txt",
        ),
    )(set_days)
    app.command("delete", epilog=examples("rota calendar delete holidays"))(delete)


def list_calendars(*, organization: OfOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List calendars: how many days, and the next one to come."""
    with session(store) as rota:
        found = rota.acting_as(actor()).calendars.list(organization=organization)
    if as_json:
        return show_json_lines(map(_fields, found))
    made = table("name", "days", "next day", "what for", right=("days",))
    for calendar in found:
        coming = next((day for day in sorted(calendar.days) if day >= _today()), None)
        made.add_row(
            escaped(calendar.name),
            f"{len(calendar.days):,}",
            "none to come" if coming is None else f"{coming:%a %Y-%m-%d}",
            escaped(one_line(calendar.description or "")),
        )
    return show_table(made, "No calendars: `rota calendar set holidays 2026-12-25` makes one.")


def show(name: CalendarArgument, *, organization: OfOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show a calendar: its days, and the schedules that are not due on them."""
    with session(store) as rota:
        calendar = next((each for each in rota.acting_as(actor()).calendars.list(organization=organization) if each.name == name), None)
        if calendar is None:
            raise NotFound(f"there is no calendar {name!r}: `rota calendar list` shows them")
        there = rota.acting_as(actor()).schedules.list(organization=organization or _own(rota))
        users = [each.name for each in there if each.calendar == name]
    if as_json:
        return show_json(_fields(calendar) | {"schedules": users})
    ahead = sum(day >= _today() for day in calendar.days)
    show_pairs(
        [
            ("calendar", calendar.name),
            ("what for", calendar.description),
            ("days", f"{len(calendar.days):,}, {ahead:,} of them to come"),
            ("schedules", ", ".join(users) or "none uses it"),
        ]
    )
    for year, days in groupby(sorted(calendar.days), key=lambda day: day.year):
        typer.echo(f"\n{year}:")
        for line in _in_a_row(days):
            typer.echo(f"  {line}")
    return None


def set_days(
    name: CalendarArgument,
    days: Annotated[list[str] | None, typer.Argument(metavar="[DAY...]", help="All its days: 2026-12-25.", show_default=False)] = None,
    *,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Read the days from a file (- for stdin): one a line; # begins a remark."),
    ] = None,
    description: Annotated[str | None, typer.Option("--description", metavar="TEXT", help="What it is for.")] = None,
    organization: OfOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a calendar, or give it other days: those given take the place of all it had.

    They are days of each schedule's own time zone. Without --description it keeps the one it has.
    """
    if bool(days) == (source is not None):
        raise typer.BadParameter("give the days, or --from FILE")
    given = days or _read(source or "")
    with bad_values(), session(store) as rota:
        if description is None:
            there = rota.acting_as(actor()).calendars.list(organization=organization)
            description = next((each.description for each in there if each.name == name), None)
        calendar = rota.acting_as(actor()).calendars.update(name, given, description=description, organization=organization)
    if as_json:
        return show_json(_fields(calendar))
    return typer.echo(f"calendar {calendar.name} has {counted(len(calendar.days), 'day')}")


def delete(
    name: CalendarArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    organization: OfOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a calendar that no schedule uses, after a question."""
    with session(store) as rota:
        if not yes:
            typer.confirm(f"Delete calendar {name}?", abort=True, err=True)
        rota.acting_as(actor()).calendars.delete(name, organization=organization)
    if as_json:
        return show_json({"deleted": name})
    return typer.echo(f"calendar {name} is deleted")


def _own(rota: Rota) -> str | None:
    """Return the organization of who asks, whose calendars are meant; None where nothing else is within reach."""
    who = actor()
    if isinstance(who, Actor):
        return who.organization
    try:
        return next((user.organization for user in rota.acting_as(actor()).users.list() if user.name == who), LOCAL.organization)
    except PermissionDenied:
        return None


def _read(source: str) -> list[str]:
    """Return the days of a file, without remarks and empty lines."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{source} can't be read: {error}", param_hint="--from") from None
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _in_a_row(days: Iterable[date]) -> list[str]:
    """Return days as lines, days in a row as one."""
    rows: list[tuple[date, date]] = []
    for day in days:
        if rows and day == rows[-1][1] + timedelta(days=1):
            rows[-1] = (rows[-1][0], day)
        else:
            rows.append((day, day))
    return [f"{first:%a %Y-%m-%d}" if first == last else f"{first:%a %Y-%m-%d} to {last:%a %Y-%m-%d}" for first, last in rows]


def _fields(calendar: Calendar) -> dict[str, object]:
    return {"name": calendar.name, "days": sorted(calendar.days), "description": calendar.description}


def _today() -> date:
    return datetime.now(UTC).date()
