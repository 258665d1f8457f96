"""How results are shown: a file for each noun, with what its commands print for people and, where it is more than the result, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.model.values import Job
from rota.surfaces.cli.output import (
    Marked,
    Table,
    age,
    compact,
    one_line,
    pause_text,
    show_json,
    show_json_lines,
    show_pairs,
    told_job,
)

if TYPE_CHECKING:
    from rota.operation import Expected
    from rota.surfaces.cli.commands import Called

MODULES = {
    "calendar": "schedule",
    "dead": "job",
    "group": "job",
    "import": "store",
    "grant": "access",
    "organization": "access",
    "queue": "job",
    "role": "access",
    "secret": "access",
    "setting": "store",
    "token": "access",
    "user": "access",
}
"""The modules of nouns that have none of their own."""
Shower = Callable[[Any, "Called"], object]


class View(msgspec.Struct, frozen=True):
    """How the results of a command, or of a type, are shown."""

    show: Shower | None = None
    """Prints for people. Default: a job as one line, anything else by its fields."""
    document: Shower | None = None
    """Returns what --json prints: one document, or a list of them. Default: the result itself."""
    place: Callable[[Any, Called], str | None] | None = None
    """Returns where the next page begins. Default: `next` of the result."""
    check: Callable[[Any], object] | None = None
    """Called when the result has been shown; raises what gives another exit code."""
    prepare: Callable[[Called], Expected | None] | None = None
    """Called before the operation: completes what was asked; returns the state that the edit then expects."""


def views_of(words: str) -> dict[str | type, View]:
    """Return the views of a command's noun; those of commands of one word are the store's."""
    group, verb, _ = words.partition(" ")
    views: dict[str | type, View] = import_module(f"{__name__}.{MODULES.get(group, group) if verb else 'store'}").VIEWS
    return views


def show(view: View, result: Any, called: Called, *, as_json: bool) -> None:
    """Print a result."""
    if as_json:
        _show_document(result if view.document is None else view.document(result, called), called)
    else:
        (view.show or _show)(result, called)
    cursor = getattr(result, "next", None) if view.place is None else view.place(result, called)
    if cursor is not None:
        typer.echo(f"more: --before {cursor}", err=True)
    if view.check is not None:
        view.check(result)


def _show_document(document: Any, called: Called) -> None:
    if document is None:
        show_json({"paused": paused(called)} if _pauses(called) else {"deleted": _subject(called)})
    elif isinstance(document, msgspec.Struct | dict | str):
        show_json(document)
    else:
        show_json_lines(document)


def _show(result: Any, called: Called) -> None:
    if isinstance(result, Job):
        typer.echo(told_job(result))
    elif isinstance(result, msgspec.Struct):
        show_pairs((name.replace("_", " "), getattr(result, name)) for name in result.__struct_fields__)
    elif result is None and _pauses(called):
        pauses = paused(called)
        typer.echo(f"Paused: {', '.join(pauses)}." if pauses else "Nothing is paused.")
    elif result is None:
        typer.echo(f"{called.words.split()[0]} {_subject(called)} is deleted")
    else:
        for each in result:
            typer.echo(each)


def listing(empty: str, columns: str, **computed: Callable[[Any], object]) -> Shower:
    """Return what prints a table of these columns: a word for each, which is an attribute or the name of a function given.

    `type=job_type` has another heading than its attribute; an underscore is a space in it. Where there is no room, a column with `~` is
    cut and one with `+` continues in the next line; one with `>` holds numbers. Moments are shown by their age.
    """
    words = [(word.rstrip("~+>").partition("="), word) for word in columns.split()]
    titles = {heading: heading.replace("_", " ") for (heading, _, _), _ in words}
    reads = [computed.get(heading) or attrgetter(attribute or heading) for (heading, _, attribute), _ in words]
    marked = {mark: [titles[heading] for (heading, _, _), word in words if mark in word] for mark in "~+>"}

    def show_rows(items: Iterable[Any], _called: Called) -> None:
        rows = Table(*titles.values(), right=marked[">"], soft=marked["+"], gives=marked["~"])
        for item in items:
            rows.add_row(*(_cell(read(item)) for read in reads))
        rows.show(empty)

    return show_rows


def _cell(value: Any) -> str:
    if isinstance(value, Marked):
        return value
    if isinstance(value, datetime):
        return age(value)
    if isinstance(value, tuple | list):
        value = ", ".join(map(str, value))
    if isinstance(value, dict):
        value = compact(value)
    return "" if value is None else f"{value:,}" if isinstance(value, int) else one_line(value)


def _pauses(called: Called) -> bool:
    return called.words.split()[-1] in {"pause", "resume"}


def paused(called: Called) -> list[str]:
    """Return what is paused, in words."""
    return [pause_text(*pause) for pause in called.rota.store.pauses()]


def _subject(called: Called) -> str:
    return str(next(iter(called.asked.values()), ""))
