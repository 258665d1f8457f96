"""The question before what can't be undone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from rota.errors import Refused
from rota.operation import operations

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.surfaces.cli.commands import Command


LOOK_MAX = 10_000
"""How many are counted for the question, at most."""


def confirm(command: Command, rota: Rota, typed: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Ask once, with the number of things that match where there are filters. If none matches, nothing is asked."""
    question = str(command.operation.confirm).format(**typed)
    count = _matching(command, rota, asked)
    if count == "":
        return
    if count is not None:
        question = f"{count} {question}"
    if not has_terminal():
        raise Refused(f"{question} There is no terminal to ask on: pass --yes to confirm")
    typer.confirm(question, abort=True, err=True)


def has_terminal() -> bool:
    """Say whether somebody can answer."""
    return sys.stdin is not None and sys.stdin.isatty()


def _matching(command: Command, rota: Rota, asked: Mapping[str, Any]) -> str | None:
    """Return how many match the filters, in words; empty if none does. None: it has no filters that the list of its noun has, too."""
    if any(field.required for field in command.operation.fields) or "limit" not in {field.name for field in command.operation.fields}:
        return None
    listing = {field.name for field in operations(type(getattr(rota, command.noun)))["list"].fields}
    limit = asked.get("limit", next(field.default for field in command.operation.fields if field.name == "limit"))
    filters = {name: value for name, value in asked.items() if name in listing and name != "limit"}
    page = getattr(rota, command.noun).list(**filters, limit=min(limit, LOOK_MAX))
    if not page:
        return ""
    return f"More than {len(page):,} match." if page.next is not None else f"{len(page):,} {'matches' if len(page) == 1 else 'match'}."
