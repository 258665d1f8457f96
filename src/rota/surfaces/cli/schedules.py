"""`rota schedule list|show|create|edit|enable|disable|pause|fire|delete`: when templates become jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from rota.errors import NotFound
from rota.model.schedules import Fate, Kind, OnCompletion, ScheduleState
from rota.surfaces.cli.occurrences import fate_in_colour, jobs_of, show_occurrences
from rota.surfaces.cli.options import AppOption, JsonOption, PairsOption, ParamsOption, StoreOption, examples, params_of
from rota.surfaces.cli.output import (
    age,
    clock_time,
    coloured,
    compact,
    escaped,
    one_line,
    show_json,
    show_json_lines,
    show_pairs,
    show_table,
    span,
    table,
)
from rota.surfaces.cli.schedule_flags import UNSETTABLE, Given, ScheduleArgument, WithinOption, bad_values, takes_flags, unset
from rota.surfaces.cli.session import actor, session
from rota.surfaces.cli.timetable import local_time

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.lab.forecasts import ForecastItem
    from rota.schedule_views import OccurrenceView, ScheduleView

NEXT_SHOWN = 5
LAST_SHOWN = 10
REACHES = tuple(timedelta(days=8**power) for power in range(6))
"""How far ahead the next due times are looked for, step by step: a day, eight, …, ninety years."""
ENDED = "ENDED"
AFTERWARDS = {OnCompletion.PRESERVE: "it stays, disabled", OnCompletion.DROP: "it is dropped"}
STATES = {"ENABLED": "green", "DISABLED": "yellow", "PAUSED": "magenta", ENDED: "bright_black"}

TemplateOption = Annotated[str | None, typer.Option("--template", metavar="NAME", help="Another template.", show_default=False)]
BackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unset", metavar="OPTION", help=f"Take one back to its default: {', '.join(UNSETTABLE)}. May be repeated.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("list", epilog=examples("rota schedule list", "rota schedule list --template send_email --json | jq .next_at"))(
        list_schedules
    )
    app.command("show", epilog=examples("rota schedule show daily"))(show)
    app.command(
        "create",
        epilog=examples(
            "rota schedule create daily send_email --cron '0 9 * * MON-FRI' --timezone Europe/Berlin -p to=ada@example.org",
            "rota schedule create heartbeat ping --every 5m --overlap queue --catch-up none",
            "rota schedule create launch announce --at 2026-12-01T09:00:00+01:00 --on-completion DROP",
            "rota schedule create report make_report --cron '@daily' --depends-on extract --calendar holidays --disabled",
        ),
    )(takes_flags(create))
    app.command(
        "edit",
        epilog=examples(
            "rota schedule edit daily --cron '0 8 * * *' -p to=bob@example.org",
            "rota schedule edit daily --unset ends --unset calendar",
            "rota schedule edit daily --new-name nightly",
        ),
    )(takes_flags(edit))
    app.command("enable", epilog=examples("rota schedule enable daily"))(enable)
    app.command("disable", epilog=examples("rota schedule disable daily"))(disable)
    app.command("pause", epilog=examples("rota schedule pause daily"))(pause)
    app.command("fire", epilog=examples("rota schedule fire daily", "rota schedule fire daily -p to=eve@example.org"))(fire)
    app.command("delete", epilog=examples("rota schedule delete daily"))(delete)


def list_schedules(
    *,
    template: Annotated[str | None, typer.Option("--template", metavar="NAME", help="Only schedules of this template.")] = None,
    organization: Annotated[str | None, typer.Option("--organization", metavar="NAME", help="Only schedules of this organization.")] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List schedules: when they are due, in words, and when next."""
    with session(store, app=app) as rota:
        found = rota.acting_as(actor()).schedules.list(template=template, organization=organization)
    if as_json:
        return show_json_lines(found)
    several = len({view.organization for view in found}) > 1
    made = table("name", *(("organization",) if several else ()), "state", "next", "when", "template", soft=("when",))
    for view in found:
        whose = (escaped(view.organization),) if several else ()
        made.add_row(escaped(view.name), *whose, _state(view), _next(view), escaped(view.words), escaped(view.template))
    return show_table(made, "No schedules: `rota schedule create` makes one, and so does a program with `rota.schedule(…)`.")


def show(
    name: ScheduleArgument,
    *,
    organization: WithinOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a schedule: what it says, its next due times, what became of the last ones, and what it depends on."""
    with bad_values(), session(store, app=app) as rota:
        view = rota.acting_as(actor()).schedules.get(name, organization=organization)
        coming = _coming(rota, view)
        ledger = rota.acting_as(actor()).schedules.occurrences(name, organization=view.organization, limit=LAST_SHOWN)
        jobs = {} if as_json else jobs_of(rota, ledger)
        before = {each: _latest(rota, each, view.organization) for each in view.depends_on}
        after = [
            each.name for each in rota.acting_as(actor()).schedules.list(organization=view.organization) if view.name in each.depends_on
        ]
    if as_json:
        return show_json(msgspec.to_builtins(view) | {"coming": coming, "occurrences": ledger, "needed_by": after})
    show_pairs([*_about(view), ("depends on", ", ".join(_after(*each) for each in before.items())), ("needed by", ", ".join(after))])
    if coming:
        typer.echo("\nnext due times:")
        _show_coming(view, coming)
    if ledger:
        typer.echo("\nlast occurrences:")
        show_occurrences(ledger, jobs, named=False)
    return None


def create(
    name: ScheduleArgument,
    template: Annotated[str, typer.Argument(metavar="TEMPLATE", help="What becomes a job when it is due.")],
    *,
    given: Given,
    disabled: Annotated[bool, typer.Option("--disabled", help="Make it without due times yet; `enable` starts it.")] = False,
    organization: Annotated[str | None, typer.Option("--organization", metavar="NAME", help="In this organization. Else your own.")] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a schedule: give --cron, --at or --every."""
    with session(store, app=app) as rota:
        view = rota.acting_as(actor()).schedules.create(name, template, enabled=not disabled, organization=organization, **given.options())
    _tell(view, as_json=as_json)


def edit(
    name: ScheduleArgument,
    *,
    new_name: Annotated[str | None, typer.Option("--new-name", metavar="NAME", help="Rename the schedule.")] = None,
    template: TemplateOption = None,
    given: Given,
    back: BackOption = None,
    organization: WithinOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change what a schedule says: flags that are given change, the others stay.

    Due times up to now get their fate by what held before; jobs that are there stay as they are. `-p` changes the params it names,
    `--params` and `--depends-on` take the place of all there were.
    """
    with session(store, app=app) as rota:
        options = changes(rota, name, organization, given=given, template=template, back=back)
        if new_name is not None:
            options["new_name"] = new_name
        view = rota.acting_as(actor()).schedules.update(name, organization=organization, **options)
    _tell(view, as_json=as_json)


def changes(
    rota: Rota, name: str, organization: str | None, *, given: Given, template: str | None, back: list[str] | None
) -> dict[str, Any]:
    """Return the options that a command line changes of a schedule."""
    present = rota.acting_as(actor()).schedules.get(name, organization=organization).params if given.adds_params else None
    options = given.options(present)
    if template is not None:
        options = {**options, "template": template}
    return {**options, **unset(back, options)}


def enable(name: ScheduleArgument, *, organization: WithinOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Let a schedule fire from now on.

    What was due while it was disabled is not made up for; what was due in a pause was skipped.
    """
    _turn(lambda rota: rota.acting_as(actor()).schedules.enable(name, organization=organization), store, as_json=as_json)


def disable(name: ScheduleArgument, *, organization: WithinOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Take a schedule out of use: it has no due times.

    Its jobs go on.
    """
    _turn(lambda rota: rota.acting_as(actor()).schedules.disable(name, organization=organization), store, as_json=as_json)


def pause(name: ScheduleArgument, *, organization: WithinOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Let a schedule skip its due times, each written down as skipped, until it is enabled again."""
    _turn(lambda rota: rota.acting_as(actor()).schedules.pause(name, organization=organization), store, as_json=as_json)


def fire(
    name: ScheduleArgument,
    *,
    params: ParamsOption = None,
    pairs: PairsOption = None,
    organization: WithinOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a job of a schedule now, whatever its state. Params go over its own.

    No due time is shifted or used up.
    """
    given = params_of(params, pairs)
    with bad_values(), session(store, app=app) as rota:
        job = rota.acting_as(actor()).schedules.fire(name, given, organization=organization)
    if as_json:
        return show_json(job)
    return typer.echo(f"{job.number}  {job.status}  {job.id}")


def delete(
    name: ScheduleArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    organization: WithinOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a schedule, after a question.

    Its jobs and its ledger stay. Code that still declares it makes it anew.
    """
    with bad_values(), session(store) as rota:
        view = rota.acting_as(actor()).schedules.get(name, organization=organization)
        if not yes:
            typer.confirm(f"Delete schedule {view.name} ({view.words})? Its jobs and its ledger stay.", abort=True, err=True)
        rota.acting_as(actor()).schedules.delete(name, organization=view.organization)
    if as_json:
        return show_json({"deleted": name})
    return typer.echo(f"schedule {name} is deleted")


# ---- how a schedule is told -----------------------------------------------------------------------------------------


def _turn(verb: Callable[[Rota], ScheduleView], store: str | None, *, as_json: bool) -> None:
    with bad_values(), session(store) as rota:
        view = verb(rota)
    _tell(view, as_json=as_json)


def _tell(view: ScheduleView, *, as_json: bool) -> None:
    if as_json:
        return show_json(view)
    coming = f"; {_next(view)}" if view.next_at else ""
    return typer.echo(f"schedule {view.name} is {state_of(view)}: {view.words}{coming}")


def state_of(view: ScheduleView) -> str:
    """Return a schedule's state in a word; one that has nothing to come any more has ended."""
    fired = view.kind is Kind.AT and view.last_at is not None and view.last_at == view.at
    over = view.next_at is None and view.state is not ScheduleState.DISABLED
    return ENDED if fired or over else str(view.state)


def _state(view: ScheduleView) -> str:
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


def _about(view: ScheduleView) -> list[tuple[str, object]]:
    said = f" (cron {view.cron})" if view.cron and view.cron not in view.words else ""
    late = f", at most {span(view.catch_up_lateness)} late" if view.catch_up_lateness is not None else ""
    most = f", at most {view.catch_up_count:,}" if view.catch_up_count is not None else ""
    return [
        ("schedule", view.name),
        ("organization", None if view.organization == "default" else view.organization),
        ("what for", view.description),
        ("state", _state(view)),
        ("when", f"{view.words}{said}"),
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
        ("made by", f"{view.created_by}{'; the code declares it, and what people change stays' if view.declared else ''}"),
        ("version", f"{view.version}, changed {age(view.updated_at)}"),
        ("id", view.id),
    ]


# ---- before and after -----------------------------------------------------------------------------------------------


class Coming(msgspec.Struct, frozen=True):
    """A due time to come."""

    due_at: datetime
    fate: Fate
    note: str | None


def _coming(rota: Rota, view: ScheduleView) -> list[Coming]:
    """Return the next due times, skipped ones among them, as the forecast has them."""
    if view.next_at is None:
        return []
    start = view.next_at - timedelta(microseconds=1)
    found: Sequence[ForecastItem] = ()
    for reach in REACHES:
        found = rota.acting_as(actor()).forecast(
            start=start,
            end=start + reach,
            schedule=view.name,
            skipped=True,
            organization=view.organization,
            limit=min(NEXT_SHOWN, rota.settings.forecast_max),
        )
        if len(found) >= NEXT_SHOWN or (view.ends is not None and start + reach > view.ends) or view.kind is Kind.AT:
            break
    return [Coming(each.due_at, each.fate, each.note) for each in found[:NEXT_SHOWN]]


def _show_coming(view: ScheduleView, coming: Sequence[Coming]) -> None:
    local = view.timezone != "UTC"
    made = table(*((view.timezone,) if local else ()), "UTC", "when", "", soft=("",))
    for each in coming:
        there = (local_time(each.due_at, view.timezone),) if local else ()
        fate = "" if each.fate is Fate.FIRED else fate_in_colour(each.fate)
        note = escaped(one_line(each.note or ""))
        made.add_row(*there, clock_time(each.due_at), age(each.due_at), f"{fate}: {note}" if fate and note else fate or note)
    show_table(made, "")


def _latest(rota: Rota, name: str, organization: str) -> OccurrenceView | None:
    """Return what became of the latest due time of a schedule, if there is one within reach."""
    try:
        found = rota.acting_as(actor()).schedules.occurrences(name, organization=organization, limit=1)
    except NotFound:
        return None
    return found[0] if found else None


def _after(name: str, latest: OccurrenceView | None) -> str:
    if latest is None:
        return name
    return f"{name} (latest {clock_time(latest.last_due_at)}: {latest.status or latest.fate})"
