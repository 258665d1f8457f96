"""Schedules: their definitions in words, their next due times, and the outcomes of the last ones; calendars and their days."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.errors import InvalidOption, NotFound
from rota.model.schedules import Calendar, Fate, Kind, OnCompletion, ScheduleState
from rota.model.states import Status
from rota.model.values import Job
from rota.operation import session_of
from rota.schedule_views import OccurrenceView, OverdueView, ScheduleView
from rota.surfaces.cli.exits import FAILED
from rota.surfaces.cli.forecast import local_time, own_zone
from rota.surfaces.cli.output import (
    Marked,
    Table,
    age,
    clock_time,
    coloured,
    compact,
    console,
    counted,
    escaped,
    one_line,
    sentence,
    show_pairs,
    span,
    status,
)
from rota.surfaces.cli.session import actor
from rota.surfaces.cli.views import View, listing
from rota.surfaces.cli.zone import current
from rota.surfaces.outcomes import MARKED_MAX, Outcome, last_outcomes
from rota.surfaces.runs import run_of
from rota.wire import seal

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.lab.forecasts import ForecastItem, Problem, SchedulePlan, Verified
    from rota.surfaces.cli.commands import Called

NEXT_SHOWN = 5
LAST_SHOWN = 10
PLANNED_SHOWN = 20
"""Due times of a plan that are shown one by one; `--json` has them all."""
REACHES = tuple(timedelta(days=8**power) for power in range(6))
"""How far ahead the next due times are looked for, step by step: a day, eight, …, ninety years."""
ENDED = "ENDED"
AFTERWARDS = {OnCompletion.PRESERVE: "it stays, disabled", OnCompletion.DROP: "it is dropped"}
STATES = {"ENABLED": "green", "DISABLED": "yellow", "PAUSED": "magenta", ENDED: "bright_black"}
MARKS = {"well": "green", "trouble": "red", "watch": "yellow"}
FATES = {Fate.FIRED: "green", Fate.COALESCED: "bright_black", Fate.MISSED: "red", Fate.REFUSED: "red", Fate.OVERDUE: "red"}
"""The others are skipped: yellow."""


def show_list(views: Sequence[ScheduleView], called: Called) -> None:
    """Print schedules: when they are due, in words, and when next; and their last outcomes, a mark for each, the latest last."""
    several = len({view.organization for view in views}) > 1
    rows = Table("name", *(("organization",) if several else ()), "state", "next", "last", "when", "template", soft=("when",))
    for place, view in enumerate(views):
        marks = _marks(last_outcomes(called.rota, view)) if place < MARKED_MAX else ""
        rows.add_row(
            view.name, *((view.organization,) if several else ()), _state(view), _next(view), marks, sentence(view.words), view.template
        )
    rows.show("No schedules: `rota schedule create` creates one, and so does a program with `rota.schedule(…)`.")


def _marks(outcomes: Sequence[Outcome]) -> Marked:
    return Marked("".join(f"[{MARKS[each.level]}]{each.sign}[/]" for each in outcomes))


def list_documents(views: Sequence[ScheduleView], called: Called) -> list[dict[str, Any]]:
    """Return schedules with their last outcomes in words, the latest last."""
    return [
        msgspec.to_builtins(view)
        | {"last_outcomes": [each.words for each in last_outcomes(called.rota, view)] if place < MARKED_MAX else None}
        for place, view in enumerate(views)
    ]


def show_changed(view: ScheduleView, _called: Called) -> None:
    """Print the state of a schedule that was changed, and when it is due."""
    coming = f"; {_next(view)}" if view.next_at else ""
    typer.echo(f"schedule {view.name} is {state_of(view)}: {sentence(view.words)}{coming}")


def state_of(view: ScheduleView) -> str:
    """Return a schedule's state in a word; one that has no due time left has ended."""
    fired = view.kind is Kind.AT and view.last_at is not None and view.last_at == view.at
    over = view.next_at is None and view.state is not ScheduleState.DISABLED
    return ENDED if fired or over else str(view.state)


def _state(view: ScheduleView) -> Marked:
    word = state_of(view)
    return coloured(word, STATES[word])


def _next(view: ScheduleView) -> str:
    """Return when a schedule is due next, from now on."""
    if view.next_at is None:
        return ""
    left_s = (view.next_at - datetime.now(UTC)).total_seconds()
    if view.state is ScheduleState.PAUSED:
        return f"skips {age(view.next_at)}" if left_s > 0 else "paused"
    return age(view.next_at) if left_s > 0 else f"due {age(view.next_at)}"


# ---- one schedule ---------------------------------------------------------------------------------------------------


class Coming(msgspec.Struct, frozen=True):
    """A due time to come."""

    due_at: datetime
    fate: Fate
    note: str | None


def one_document(view: ScheduleView, called: Called) -> dict[str, Any]:
    """Return a schedule with its next due times, its last outcomes and what depends on it; or as another system has it."""
    if called.extras["face"] is not None:
        return _face(view, called)
    fields: dict[str, Any] = msgspec.to_builtins(view)
    return fields | {
        "coming": _coming(called.rota, view),
        "occurrences": _ledger(called.rota, view),
        "needed_by": _needed_by(called.rota, view),
    }


def _face(view: ScheduleView, called: Called) -> dict[str, Any]:
    from rota.compat.faces import monque_schedule  # noqa: PLC0415 - few calls need it
    from rota.model.gate import Right  # noqa: PLC0415 - as above
    from rota.operation import ask_for  # noqa: PLC0415 - as above

    if called.extras["face"] != "monque":
        raise InvalidOption(f"--face {called.extras['face']!r} is not one of monque")
    return monque_schedule(ask_for(called.rota, Right.READ), view.name, view.organization)


def show_one(view: ScheduleView, called: Called) -> None:
    """Print a schedule, its next due times, the outcomes of the last ones, and what it depends on; or as another system shows it."""
    if called.extras["face"] is not None:
        show_pairs(_face(view, called).items())
        return
    me = called.rota
    before = ", ".join(_with_latest(me, name, view.organization) for name in view.depends_on)
    show_pairs([*_about(view), ("depends on", before), ("needed by", ", ".join(_needed_by(me, view)))])
    if coming := _coming(me, view):
        typer.echo("\nnext due times:")
        _show_coming(view, coming)
    if ledger := _ledger(me, view):
        typer.echo("\nlast occurrences:")
        _show_rows(ledger, _jobs_of(me, ledger), named=False)


def _ledger(me: Rota, view: ScheduleView) -> list[OccurrenceView]:
    return me.schedules.occurrences(view.name, organization=view.organization, limit=LAST_SHOWN)


def _needed_by(me: Rota, view: ScheduleView) -> list[str]:
    return [each.name for each in me.schedules.list(organization=view.organization) if view.name in each.depends_on]


def _about(view: ScheduleView) -> list[tuple[str, object]]:
    cron = f" (cron {view.cron})" if view.cron and view.cron not in view.words else ""
    late = f", at most {span(view.catch_up_lateness)} late" if view.catch_up_lateness is not None else ""
    most = f", at most {view.catch_up_count:,}" if view.catch_up_count is not None else ""
    return [
        ("schedule", view.name),
        ("organization", None if view.organization == "default" else view.organization),
        ("what for", view.description),
        ("state", _state(view)),
        ("when", f"{sentence(view.words)}{cron}"),
        ("counts from", clock_time(view.starts) if view.kind is Kind.EVERY else None),
        ("not on", f"days of calendar {view.calendar}" if view.calendar else None),
        ("jitter", f"up to {span(view.jitter)}" if view.jitter else None),
        ("next", f"{clock_time(view.next_at)}, {_next(view)}" if view.next_at else None),
        ("last fired", f"{clock_time(view.last_at)}, {age(view.last_at)}" if view.last_at else None),
        ("template", view.template),
        ("params", compact(view.params)),
        ("priority", "its template's" if view.priority is None else str(view.priority)),
        ("catch up", f"{view.catch_up}{late}{most}"),
        ("overlap", str(view.overlap)),
        ("afterwards", AFTERWARDS[view.on_completion] if view.kind is Kind.AT else None),
        ("run as", view.run_as),
        ("created by", f"{view.created_by}{'; declared by code, and changes of operators stay' if view.declared else ''}"),
        ("version", f"{view.version}, changed {age(view.updated_at)}"),
        ("id", view.id),
    ]


def _coming(me: Rota, view: ScheduleView) -> list[Coming]:
    """Return the next due times, skipped ones among them, as the forecast has them."""
    if view.next_at is None:
        return []
    start = view.next_at - timedelta(microseconds=1)
    found: Sequence[ForecastItem] = ()
    for reach in REACHES:
        found = me.forecast(
            start=start,
            end=start + reach,
            schedule=view.name,
            skipped=True,
            organization=view.organization,
            limit=min(NEXT_SHOWN, me.settings.forecast_max),
        )
        if len(found) >= NEXT_SHOWN or (view.ends is not None and start + reach > view.ends) or view.kind is Kind.AT:
            break
    return [Coming(each.due_at, each.fate, each.note) for each in found[:NEXT_SHOWN]]


def _show_coming(view: ScheduleView, coming: Sequence[Coming]) -> None:
    zone = current().key
    local = own_zone(view).key != zone
    rows = Table(*((view.timezone,) if local else ()), zone, "when", "", soft=("",))
    for each in coming:
        there = (local_time(each.due_at, view.timezone),) if local else ()
        fate = "" if each.fate is Fate.FIRED else fate_in_colour(each.fate)
        note = escaped(one_line(sentence(each.note or "")))
        rows.add_row(*there, clock_time(each.due_at), age(each.due_at), Marked(f"{fate}: {note}" if fate and note else fate or note))
    rows.show()


def _with_latest(me: Rota, name: str, organization: str) -> str:
    """Return the name of a schedule with the outcome of its latest due time, if there is one that the actor may see."""
    with suppress(NotFound):
        for latest in me.schedules.occurrences(name, organization=organization, limit=1):
            return f"{name} (latest {clock_time(latest.last_due_at)}: {latest.status or latest.fate})"
    return name


# ---- outcomes of due times ------------------------------------------------------------------------------------------


def show_occurrences(rows: Sequence[OccurrenceView], called: Called) -> None:
    """Print rows of the ledger, with the names of their schedules where there may be several."""
    _show_rows(rows, _jobs_of(called.rota, rows), named="schedule" not in called.asked)


def place_after(rows: Sequence[OccurrenceView], called: Called) -> str | None:
    """Return the place after a full page: there may be more."""
    return seal(rows[-1].cursor) if rows and len(rows) == called.asked.get("limit") else None


def _jobs_of(me: Rota, rows: Sequence[OccurrenceView]) -> dict[str, str]:
    """Return the number and the error of each job that a due time created, by its id; nothing of jobs that were deleted."""
    words: dict[str, str] = {}
    for row in rows:
        if row.job_id is not None and row.status is not None:
            with suppress(NotFound):
                words[row.job_id] = _told(me, me.jobs.attempts(row.job_id)[-1])
    return words


def _told(me: Rota, tail: Job) -> str:
    run = None if tail.reason or tail.status is Status.COMPLETED or not tail.status.ended else run_of(me, tail.id)
    why = sentence(tail.reason or "") or (run.error if run else None)
    return f"{tail.number}: {why}" if why else tail.number


def _show_rows(ledger: Sequence[OccurrenceView], jobs: Mapping[str, str], *, named: bool) -> None:
    due = f"due ({current().key})"
    rows = Table(due, *(("schedule",) if named else ()), "fate", "job", "which, and why", soft=(due, "which, and why"))
    for each in ledger:
        schedule = (each.schedule,) if named else ()
        reason = one_line(sentence(each.reason or "") or jobs.get(each.job_id or "", ""))
        rows.add_row(_due(each), *schedule, fate_in_colour(each.fate, each.count), status(each.status) if each.status else "", reason)
    rows.show("No due times.")


def fate_in_colour(fate: Fate, count: int = 1) -> Marked:
    """Return a fate in its colour, with the number of due times that had it."""
    return coloured(f"{fate}{f' ×{count:,}' if count > 1 else ''}", FATES.get(fate, "yellow"))


def _due(each: OccurrenceView) -> str:
    """Return the due time or, of several, the first and the last; the day is said once if it is one."""
    if each.count == 1:
        return clock_time(each.due_at)
    first, last = clock_time(each.due_at), clock_time(each.last_due_at)
    return f"{first} – {last.removeprefix(first[: len('2026-01-01 ')])}"


def show_overdue(views: Sequence[OverdueView], _called: Called) -> None:
    """Print schedules with due times that have no outcome yet."""
    _wrong(views).show("Nothing is overdue.")


def show_verified(found: Verified, _called: Called) -> None:
    """Print every due time whose outcome does not match, or that all match."""
    well = f"All is well: {counted(found.due, 'due time')} of {counted(found.schedules, 'schedule')}, each with its one fate."
    _wrong(found.overdue, found.problems).show(well)
    if not found.ok:
        overdue = f", {counted(len(found.overdue), 'schedule')} overdue" if found.overdue else ""
        typer.echo(f"\n{counted(len(found.problems), 'problem')}{overdue}: {found.matched:,} of {counted(found.due, 'due time')} match")


def _wrong(overdue: Sequence[OverdueView], problems: Sequence[Problem] = ()) -> Table:
    rows = Table("schedule", f"due ({current().key})", "what is wrong")
    for each in problems:
        rows.add_row(each.schedule, clock_time(each.due_at), one_line(sentence(each.what)))
    for late in overdue:
        words = f"{fate_in_colour(Fate.OVERDUE, late.count)} until {clock_time(late.last_due_at)}: {escaped(sentence(late.reason))}"
        rows.add_row(late.schedule, clock_time(late.due_at), Marked(words))
    return rows


def fail_unless_ok(found: Verified) -> None:
    """Exit with 1 if something does not match."""
    if not found.ok:
        raise typer.Exit(FAILED)


# ---- changes --------------------------------------------------------------------------------------------------------


def add_to_params(called: Called) -> int | None:
    """Let -p change the params it names and keep the others; the edit is refused if the schedule has changed since they were read."""
    if not called.adds:
        return None
    view = called.rota.schedules.get(called.asked["name"], organization=called.asked.get("organization"))
    called.asked["params"] = {**view.params, **called.asked["params"]}
    return view.version if called.words == "schedule update" else None


def show_plan(found: SchedulePlan, called: Called) -> None:
    """Print the due times that a change would add and remove, in the zone of the command and where the schedule is."""
    view = called.rota.schedules.get(called.asked["name"], organization=called.asked.get("organization"))
    zone = own_zone(view).key
    zones = {"−": zone, "+": called.asked.get("timezone", view.timezone) or "UTC" if called.asked.get("cron", view.cron) else zone}
    screen = console()
    screen.print(f"schedule [bold]{escaped(found.schedule)}[/]")
    screen.print(f"  is due    {escaped(sentence(found.words_before))}", soft_wrap=True)
    screen.print(f"  would be  {escaped(sentence(found.words_after))}", soft_wrap=True)
    screen.print(f"until {clock_time(found.end)}: {len(found.added):,} added, {len(found.removed):,} removed, {found.kept:,} stay")
    both = sorted([(at, "+") for at in found.added] + [(at, "−") for at in found.removed])
    for at, sign in both[:PLANNED_SHOWN]:
        colour = "green" if sign == "+" else "red"
        local = f"  {local_time(at, zones[sign])}" if zones[sign] != current().key else ""
        screen.print(f"  [{colour}]{sign}[/] {clock_time(at)}{local}")
    if len(both) > PLANNED_SHOWN:
        screen.print(f"  and {len(both) - PLANNED_SHOWN:,} more: --json has them all")


def show_fired(job: Job, _called: Called) -> None:
    """Print the job that was created."""
    typer.echo(f"{job.number}  {job.status}  {job.id}")


# ---- calendars ------------------------------------------------------------------------------------------------------


def _next_day(calendar: Calendar) -> str:
    coming = next((day for day in sorted(calendar.days) if day >= _today()), None)
    return "none to come" if coming is None else f"{coming:%a %Y-%m-%d}"


CALENDARS = listing(
    "No calendars: `rota calendar update holidays 2026-12-25` creates one.",
    "name days> next_day what_for=description",
    days=lambda calendar: len(calendar.days),
    next_day=_next_day,
)


def show_calendar(calendar: Calendar, called: Called) -> None:
    """Print the days of a calendar, and the schedules that are not due on them."""
    ahead = sum(day >= _today() for day in calendar.days)
    show_pairs(
        [
            ("calendar", calendar.name),
            ("what for", calendar.description),
            ("days", f"{len(calendar.days):,}, {ahead:,} of them to come"),
            ("schedules", ", ".join(_used_by(calendar, called)) or "none uses it"),
        ]
    )
    for year, days in groupby(sorted(calendar.days), key=lambda day: day.year):
        typer.echo(f"\n{year}:")
        for line in _in_a_row(days):
            typer.echo(f"  {line}")


def show_updated(calendar: Calendar, _called: Called) -> None:
    """Print how many days a calendar has now."""
    typer.echo(f"calendar {calendar.name} has {counted(len(calendar.days), 'day')}")


def keep_description(called: Called) -> None:
    """Keep the description of a calendar unless another is given."""
    asked = called.asked
    if "description" not in asked:
        present = called.rota.calendars.list(organization=asked.get("organization"))
        asked["description"] = next((each.description for each in present if each.name == asked["name"]), None)


def _used_by(calendar: Calendar, called: Called) -> list[str]:
    who = session_of(called.rota).actor(actor())
    schedules = called.rota.schedules.list(organization=called.asked.get("organization") or who.organization)
    return [schedule.name for schedule in schedules if schedule.calendar == calendar.name]


def _in_a_row(days: Iterable[date]) -> list[str]:
    """Return days as lines, days in a row as one."""
    rows: list[tuple[date, date]] = []
    for day in days:
        if rows and day == rows[-1][1] + timedelta(days=1):
            rows[-1] = (rows[-1][0], day)
        else:
            rows.append((day, day))
    return [f"{first:%a %Y-%m-%d}" if first == last else f"{first:%a %Y-%m-%d} to {last:%a %Y-%m-%d}" for first, last in rows]


def _fields(calendar: Calendar) -> dict[str, Any]:
    return {"name": calendar.name, "days": sorted(calendar.days), "description": calendar.description}


def _today() -> date:
    return datetime.now(UTC).date()


VIEWS: dict[str | type, View] = {
    ScheduleView: View(show_changed),
    "schedule list": View(show_list, list_documents),
    "schedule get": View(show_one, one_document),
    "schedule update": View(show_changed, prepare=add_to_params),
    "schedule plan": View(show_plan, prepare=add_to_params),
    "schedule fire": View(show_fired),
    "schedule occurrences": View(show_occurrences, place=place_after),
    "schedule overdue": View(show_overdue),
    "schedule verify": View(show_verified, lambda found, _called: msgspec.to_builtins(found) | {"ok": found.ok}, check=fail_unless_ok),
    "calendar list": View(CALENDARS, lambda calendars, _called: map(_fields, calendars)),
    "calendar get": View(show_calendar, lambda calendar, called: _fields(calendar) | {"schedules": _used_by(calendar, called)}),
    "calendar update": View(show_updated, lambda calendar, _called: _fields(calendar), prepare=keep_description),
}
