"""`rota group create`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.model.groups import Mode, OnFailure
from rota.model.values import undashed
from rota.surfaces.cli.options import AppOption, JsonOption, OrganizationOption, StoreOption, params_of
from rota.surfaces.cli.output import show_json
from rota.surfaces.cli.session import actor, session
from rota.surfaces.cli.views.job import show_group

if TYPE_CHECKING:
    from rota.app import Rota


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
    """Create a group of new jobs and of jobs that wait already."""
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
    if as_json:
        show_json(group)
    else:
        show_group(group)


def _member(rota: Rota, text: str) -> Any:
    if undashed(text) is not None or text.isdecimal() or text.upper().startswith("JOB-"):
        return rota.acting_as(actor()).jobs.get(text)
    return _new(text)


def _new(text: str) -> tuple[str, Any]:
    name, colon, params = text.partition(":{")
    return (name, params_of(f"{{{params}", None)) if colon else (text, None)
