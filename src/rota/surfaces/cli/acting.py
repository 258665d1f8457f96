"""`--as NAME` on every command that acts: given once here, so that no command can be without it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, Any

import typer

named: ContextVar[str | None] = ContextVar("named", default=None)
"""What --as says, while a command lasts."""

WITHOUT = frozenset({"settings", "version"})
"""Commands that ask nothing of a store."""

AsOption = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="NAME", help="Act as this user of the store, with its rights. Else $ROTA_ACTOR, else you: a system manager."
    ),
]


def act_as_somebody(app: typer.Typer) -> None:
    """Give the option to every command of a tree that is complete."""
    for command in app.registered_commands:
        if command.name not in WITHOUT and command.callback is not None:
            command.callback = _acting(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            act_as_somebody(group.typer_instance)


def _acting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with one more option, which `session.actor` reads."""

    @wraps(command)
    def acting(*args: Any, acts_as: str | None = None, **options: Any) -> Any:
        before = named.set(acts_as)
        try:
            return command(*args, **options)
        finally:
            named.reset(before)

    own = inspect.signature(command, eval_str=True)
    added = inspect.Parameter("acts_as", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=AsOption)
    acting.__signature__ = own.replace(parameters=[*own.parameters.values(), added])  # type: ignore[attr-defined] # how a signature is told
    acting.__annotations__ = {name: each.annotation for name, each in acting.__signature__.parameters.items()}  # type: ignore[attr-defined]
    return acting
