"""Tokens. A secret is printed once, when it is created."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.model.access import Token
from rota.resources.tokens import NewToken
from rota.surfaces.cli.output import age
from rota.surfaces.cli.views import View, listing

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called


def show_new(new: NewToken, called: Called) -> None:
    """Print a secret, alone on stdout."""
    if not called.extras["quiet"]:
        typer.echo(f"{_line(new.token)}\nThe secret, which is shown once, now:", err=True)
    typer.echo(new.secret)


def new_document(new: NewToken, _called: Called) -> dict[str, Any]:
    """Return a token with its secret among its fields."""
    fields: dict[str, Any] = msgspec.to_builtins(new.token)
    return fields | {"secret": new.secret}


def _line(token: Token) -> str:
    expires = f"  expires {age(token.expires_at)}" if token.expires_at else ""
    return f"{token.id}  {_state(token)}  {token.name}  of {token.user or 'the operator'}  may {', '.join(token.permits)}{expires}"


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "open" if token.is_open(datetime.now(UTC)) else "expired"


LIST = listing(
    "No tokens: `rota token create NAME` creates one.",
    "id name user permits~ created=created_at by=created_by~ used expires state",
    user=lambda token: token.user or "(operator)",
    used=lambda token: token.last_used_at or "never",
    expires=lambda token: token.expires_at or "never",
    state=_state,
)
VIEWS: dict[str | type, View] = {
    Token: View(lambda token, _called: typer.echo(_line(token))),
    "token list": View(LIST),
    "token create": View(show_new, new_document),
}
