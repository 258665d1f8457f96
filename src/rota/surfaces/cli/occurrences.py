"""`rota schedule occurrences`: what became of due times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from rota.errors import InvalidOption, NotFound
from rota.model.schedules import Fate
from rota.model.states import Status
from rota.model.values import Job
from rota.ports.schedules import LedgerCursor
from rota.surfaces.cli.jobs import past
from rota.surfaces.cli.options import JsonOption, LimitOption, StoreOption, examples
from rota.surfaces.cli.output import clock_time, escaped, one_line, show_json_lines, show_table, status, table
from rota.surfaces.cli.schedule_flags import bad_values
from rota.surfaces.cli.session import actor, session
from rota.surfaces.runs import run_of

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.schedule_views import OccurrenceView

COLOURS = {Fate.FIRED: "green", Fate.COALESCED: "bright_black", Fate.MISSED: "red", Fate.REFUSED: "red", Fate.OVERDUE: "red"}
"""The others are skipped: yellow."""

SomeArgument = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The schedule. None given: all of them.", show_default=False)]
SinceOption = Annotated[
    datetime | None,
    typer.Option("--since", parser=past, metavar="TIME", help="Only due times since then: 2026-08-01T09:00:00Z, or 7d for seven days ago."),
]
UntilOption = Annotated[
    datetime | None, typer.Option("--until", parser=past, metavar="TIME", help="Only due times before then, given in the same way.")
]
OfOption = Annotated[str | None, typer.Option("--organization", metavar="NAME", help="Only schedules of this organization.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "occurrences",
        epilog=examples(
            "rota schedule occurrences daily",
            "rota schedule occurrences --not-ran --since 7d",
            "rota schedule occurrences daily --fate MISSED --json | jq .count",
        ),
    )(occurrences)


def occurrences(
    name: SomeArgument = None,
    *,
    not_ran: Annotated[
        bool, typer.Option("--not-ran", help="Only what did not run: overdue, not fired, or fired and its job did not end COMPLETED.")
    ] = False,
    fates: Annotated[list[Fate] | None, typer.Option("--fate", case_sensitive=False, help="Only these fates.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 20,
    before: Annotated[str | None, typer.Option("--before", metavar="CURSOR", help="Go on where a list ended: it says so.")] = None,
    organization: OfOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the outcomes of due times, latest first. Several of one fate in a row are one line with their number.

    OVERDUE are due times without a recorded outcome: no worker has been there.
    """
    from rota.resources.filters import LIST_MAX  # noqa: PLC0415 - as in `session.rota_of`

    with bad_values(), session(store) as rota:
        found = rota.acting_as(actor()).schedules.occurrences(
            name,
            fate=fates,
            not_ran=not_ran,
            since=since,
            until=until,
            # One more than is shown says whether there is a next page.
            limit=min(limit + 1, LIST_MAX),
            before=None if before is None else _cursor(before),
            organization=organization,
        )
        shown, jobs = found[:limit], {} if as_json else jobs_of(rota, found[:limit])
    if as_json:
        show_json_lines(shown)
    else:
        show_occurrences(shown, jobs, named=name is None)
    if len(found) > limit:
        typer.echo(f"more: --before {':'.join(map(str, shown[-1].cursor))}", err=True)


def jobs_of(rota: Rota, found: Sequence[OccurrenceView]) -> dict[str, str]:
    """Return, by the id of each job that a due time became, its number and what it died of; nothing of what is gone or out of reach."""
    words: dict[str, str] = {}
    for each in found:
        if each.job_id is not None and each.status is not None:
            with suppress(NotFound):
                words[each.job_id] = _told(rota, rota.acting_as(actor()).jobs.attempts(each.job_id)[-1])
    return words


def _told(rota: Rota, tail: Job) -> str:
    run = None if tail.reason or tail.status is Status.COMPLETED or not tail.status.ended else run_of(rota.acting_as(actor()), tail.id)
    why = tail.reason or (run.error if run else None)
    return f"{tail.number}: {why}" if why else tail.number


def show_occurrences(found: Sequence[OccurrenceView], jobs: Mapping[str, str], *, named: bool) -> None:
    """Print rows of the ledger, with the names of their schedules where there may be several."""
    made = table("due (UTC)", *(("schedule",) if named else ()), "fate", "job", "which, and why", soft=("due (UTC)", "which, and why"))
    for each in found:
        made.add_row(
            _due(each),
            *((escaped(each.schedule),) if named else ()),
            fate_in_colour(each.fate, each.count),
            status(each.status) if each.status else "",
            escaped(one_line(each.reason or jobs.get(each.job_id or "", ""))),
        )
    show_table(made, "No due times.")


def fate_in_colour(fate: Fate, count: int = 1) -> str:
    """Return a fate in its colour, with how many due times had it."""
    return f"[{COLOURS.get(fate, 'yellow')}]{fate}{f' ×{count:,}' if count > 1 else ''}[/]"


def _due(each: OccurrenceView) -> str:
    """Return the due time or, of several, the first and the last; the day is said once if it is one."""
    if each.count == 1:
        return clock_time(each.due_at)
    one_day = each.due_at.date() == each.last_due_at.date()
    last = f"{each.last_due_at:%H:%M:%S}Z" if one_day else clock_time(each.last_due_at)
    return f"{clock_time(each.due_at)} – {last}"


def _cursor(text: str) -> LedgerCursor:
    """Read where a list ended."""
    due_at, _, rest = text.partition(":")
    schedule, _, fate = rest.partition(":")
    if not due_at.isdecimal() or not schedule or fate not in set(Fate):
        raise InvalidOption(f"--before {text!r:.100} is not where a list ended: give what it said after `more: --before`")
    return int(due_at), schedule, fate
