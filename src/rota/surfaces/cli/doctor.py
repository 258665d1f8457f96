"""`rota doctor` and `rota grants`: what is wrong with a store, and who may use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rota.model.findings import State
from rota.surfaces.cli.exits import FAILED
from rota.surfaces.cli.options import JsonOption, StoreOption, examples
from rota.surfaces.cli.output import console, escaped, show_json, show_json_lines
from rota.surfaces.cli.session import actor, rota_of, session

if TYPE_CHECKING:
    pass

COLOURS = {State.OK: "green", State.REPAIRED: "cyan", State.ADVICE: "yellow", State.PROBLEM: "red"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "doctor", rich_help_panel="Look", epilog=examples("rota doctor", "rota doctor --full --json | jq 'select(.state != \"ok\")'")
    )(doctor)
    app.command(
        "grants", rich_help_panel="Share", epilog=examples("rota grants shop_worker", "rota grants shop_web --kind submitter | psql jobs")
    )(grants)


def doctor(
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Also what takes long on a large file: every page, every index, every reference.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="First repair what can be repaired without a guess, and say what was done.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at the store, its server or file, and its workers, and say what to do.

    Changes nothing without --repair. Exit code 1 if there is a problem; advice alone is no reason for it.
    """
    with session(store) as rota:
        checks = rota.acting_as(actor()).store
        found = checks.repair(full=full) if repair else checks.doctor(full=full)
    if as_json:
        show_json_lines(found)
    else:
        screen = console()
        for each in found:
            screen.print(f"[{COLOURS[each.state]}]{each.state:<8}[/]  [bold]{each.name}[/]: {escaped(each.text)}", soft_wrap=True)
            if each.remedy:
                screen.print(f"          → {escaped(each.remedy)}", soft_wrap=True)
    if any(each.state is State.PROBLEM for each in found):
        raise typer.Exit(FAILED)


def grants(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="A role of the database, which is there already.")],
    *,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="What it is to be: worker, submitter, reader or server.")] = "worker",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the GRANT statements that a role of PostgreSQL needs, for the setting schema. Nothing is asked of the server."""
    statements = rota_of(store).store.grants(role, kind=kind)
    if as_json:
        return show_json({"role": role, "kind": kind, "statements": statements})
    return typer.echo("\n".join(statements))
