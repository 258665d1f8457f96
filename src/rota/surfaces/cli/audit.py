"""`rota audit`: what people changed."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.model.values import Audited
from rota.surfaces.cli.options import JsonOption, LimitOption, StoreOption, examples
from rota.surfaces.cli.output import clock_time, compact, escaped, show_json_lines, show_next, show_table, table
from rota.surfaces.cli.session import actor, session

VALUE_MAX = 40


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit", rich_help_panel="Look", epilog=examples("rota audit", "rota audit --subject job:42"))(audit)


def audit(
    *,
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="KIND[:ID]", help="Only changes to such things, as job, or to one, as job:42."),
    ] = None,
    limit: LimitOption = 20,
    before: Annotated[int | None, typer.Option("--before", metavar="CURSOR", min=1, help="Go on where a list ended: it says so.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what people changed, newest first: who, what, and from what to what."""
    with session(store) as rota:
        found = rota.acting_as(actor()).audit.list(subject=subject, limit=limit, before=before)
    if as_json:
        show_json_lines(found)
    else:
        made = table("when", "who", "did", "to", "from", "to what", gives=("to", "from", "to what"))
        for each in found:
            made.add_row(
                clock_time(each.at),
                escaped(each.actor),
                escaped(each.action),
                _subject(each),
                escaped(_cut(compact(each.before))),
                escaped(_cut(compact(each.after))),
            )
        show_table(made, "Nobody has changed anything." if subject is None else "No such changes.")
    show_next(found.next)


def _cut(text: str) -> str:
    """Keep a value from pushing who and what off the line; --json has it whole."""
    return text if len(text) <= VALUE_MAX else f"{text[: VALUE_MAX - 1]}…"


def _subject(entry: Audited) -> str:
    return escaped(f"{entry.subject} {entry.subject_id}")
