"""`rota group create|list|show|cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.model.groups import Mode, OnFailure
from rota.model.values import Group, undashed
from rota.surfaces.cli.options import (
    AppOption,
    GroupArgument,
    JsonOption,
    LimitOption,
    OrganizationOption,
    StoreOption,
    examples,
    params_of,
)
from rota.surfaces.cli.output import age, console, escaped, show_json, show_json_lines, show_table, status, table
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rota.app import Rota


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "create",
        epilog=examples(
            "rota group create extract transform load --name nightly",
            "rota group create extract load --then report --on-parent-failure run",
            """rota group create 'resize:{"width": 640}' 'resize:{"width": 1280}' --mode parallel --on-failure continue""",
        ),
    )(create)
    app.command("list", epilog=examples("rota group list --limit 5"))(list_groups)
    app.command("show", epilog=examples("rota group show 01981c5e-7a10-7000-8000-000000000000"))(show)
    app.command("cancel", epilog=examples("rota group cancel 01981c5e-7a10-7000-8000-000000000000"))(cancel)


def create(
    members: Annotated[
        list[str],
        typer.Argument(
            metavar="MEMBER...", help="In order: NAME or NAME:{JSON params} makes a job; an id or number takes one that waits already."
        ),
    ],
    *,
    mode: Annotated[Mode, typer.Option("--mode", help="One after the other, or all at once.")] = Mode.SEQUENTIAL,
    on_failure: Annotated[
        OnFailure | None,
        typer.Option(
            "--on-failure", help="What happens to the other members when one fails. Default: stop if sequential, continue if parallel."
        ),
    ] = None,
    then: Annotated[
        str | None,
        typer.Option("--then", metavar="JOB", help="NAME or NAME:{JSON params}: a job that is queued when all members have ended."),
    ] = None,
    on_parent_failure: Annotated[
        str | None,
        typer.Option(
            "--on-parent-failure",
            metavar="RULE",
            help="If a member ends badly, the job of --then: waits until it is retried (wait, the default), or skip, cancel or run.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="A name to know it by.")] = None,
    organization: OrganizationOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a group of new jobs and of jobs that wait already."""
    with session(store, app=app) as rota:
        items = [_member(rota, text) for text in members]
        group = rota.acting_as(actor()).group(
            items,
            then=None if then is None else _new(then),
            on_parent_failure=on_parent_failure,
            mode=mode,
            on_failure=on_failure,
            name=name,
            organization=organization,
        )
    _show(group, as_json=as_json)


def list_groups(*, limit: LimitOption = 20, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List groups, newest first."""
    with session(store) as rota:
        found = rota.acting_as(actor()).groups.list(limit=limit)
    if as_json:
        return show_json_lines(found)
    made = table("id", "status", "mode", "on failure", "ended", "created", "name", right=("ended",))
    for group in found:
        ended = sum(member.status.ended for member in group.members)
        made.add_row(
            group.id,
            status(group.status),
            group.mode,
            group.on_failure,
            f"{ended}/{len(group.members)}",
            age(group.created_at),
            escaped(group.name or ""),
        )
    return show_table(made, "No groups.")


def show(group_id: GroupArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show a group and where its members stand."""
    with session(store) as rota:
        group = rota.acting_as(actor()).groups.get(group_id)
    _show(group, as_json=as_json)


def cancel(group_id: GroupArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Cancel every member that has not ended."""
    with session(store) as rota:
        group = rota.acting_as(actor()).groups.cancel(group_id)
    _show(group, as_json=as_json)


def _member(rota: Rota, text: str) -> Any:
    if undashed(text) is not None or text.isdecimal() or text.upper().startswith("JOB-"):
        return rota.acting_as(actor()).jobs.get(text)
    return _new(text)


def _new(text: str) -> tuple[str, Any]:
    name, colon, params = text.partition(":{")
    return (name, params_of(f"{{{params}", None)) if colon else (text, None)


def _show(group: Group, *, as_json: bool) -> None:
    if as_json:
        return show_json(group)
    name = f"  {escaped(group.name)}" if group.name else ""
    console().print(f"{group.id}  {status(group.status)}{name}  ({group.mode}, on failure: {group.on_failure})")
    made = table("place", "number", "status", "type", right=("place",))
    for member in group.members:
        made.add_row(str(member.sequence_number), member.number, status(member.status), escaped(member.job_type))
    show_table(made, "No members.")
    if group.then is not None:
        follower = f"{group.then.number}  {status(group.then.status)}  {escaped(group.then.job_type)}"
        console().print(f"then {follower}  (if a member fails: {group.then.on_parent_failure})")
    return None
