"""`rota pause|resume|recover`: the store as a whole."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from rota.surfaces.cli.options import JsonOption, StoreOption, examples
from rota.surfaces.cli.output import show_json
from rota.surfaces.cli.overview import pause_text
from rota.surfaces.cli.session import actor, session
from rota.surfaces.pauses import set_pause

TemplateOption = Annotated[str | None, typer.Option("--template", help="Only this template.")]
OrganizationOption = Annotated[str | None, typer.Option("--organization", help="Only this organization.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only this queue.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "pause",
        rich_help_panel="Steer",
        epilog=examples("rota pause", "rota pause --template send_email", "rota pause --organization acme", "rota pause --queue mail"),
    )(pause)
    app.command("resume", rich_help_panel="Steer", epilog=examples("rota resume", "rota resume --template send_email"))(resume)
    app.command("recover", rich_help_panel="Steer", epilog=examples("rota recover"))(recover)


def pause(
    *,
    template: TemplateOption = None,
    organization: OrganizationOption = None,
    queue: QueueOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop new jobs from starting until `rota resume`.

    Of a template, an organization or a queue, or (none given) all jobs. Jobs that run already continue.
    """
    _not_both(template, organization, queue)
    with session(store) as rota:
        set_pause(rota.acting_as(actor()), paused=True, template=template, organization=organization, queue=queue)
        _show(rota.acting_as(actor()).store.pauses(), as_json=as_json)


def resume(
    *,
    template: TemplateOption = None,
    organization: OrganizationOption = None,
    queue: QueueOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a pause.

    Each is ended by itself: resuming everything leaves a template's own pause as it is.
    """
    _not_both(template, organization, queue)
    with session(store) as rota:
        set_pause(rota.acting_as(actor()), paused=False, template=template, organization=organization, queue=queue)
        _show(rota.acting_as(actor()).store.pauses(), as_json=as_json)


def recover(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """End what dead workers left behind, now.

    Workers do this by themselves; twice has the effect of once.
    """
    with session(store) as rota:
        done = rota.acting_as(actor()).store.recover()
    if as_json:
        return show_json(done)
    if not done:
        return typer.echo("Nothing to recover.")
    return typer.echo(
        f"{done.workers} workers were gone; {done.jobs} of their jobs were ended,"
        f" {done.successors} missing successors made, {done.reservations} reservations ended."
    )


def _show(pauses: list[tuple[str, str]], *, as_json: bool) -> None:
    words = [pause_text(*each) for each in pauses]
    if as_json:
        return show_json(msgspec.to_builtins({"paused": words}))
    return typer.echo(f"Paused: {', '.join(words)}." if words else "Nothing is paused.")


def _not_both(*names: str | None) -> None:
    if sum(name is not None for name in names) > 1:
        raise typer.BadParameter("use one of --template, --organization and --queue")
