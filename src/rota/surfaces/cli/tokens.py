"""`rota token create|list|revoke`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
import typer

from rota.model.access import Permit, Token
from rota.surfaces.cli.options import JsonOption, StoreOption, duration, examples
from rota.surfaces.cli.output import age, escaped, show_json, show_json_lines, show_table, table
from rota.surfaces.cli.session import actor, session

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What it is for, in your own words.")]
TokenArgument = Annotated[str, typer.Argument(metavar="ID", help="The token: its id, as `rota token list` shows it.")]
UserOption = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="Whose rights it has. Else the operator's, who may do everything.")
]
PermitsOption = Annotated[
    list[Permit] | None,
    typer.Option("--permit", help="What it may be used for; may be repeated. Else read. manage is everything that its user may do."),
]
ExpiresOption = Annotated[
    timedelta | None, typer.Option("--expires", parser=duration, metavar="DURATION", help="Let it end by itself: 12h, 30d. Else never.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print the secret and nothing else.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "create",
        epilog=examples(
            "rota token create laptop --permit manage",
            "rota token create shop --user bob --permit submit --permit read --expires 90d",
        ),
    )(create)
    app.command("list", epilog=examples("rota token list"))(list_tokens)
    app.command("revoke", epilog=examples("rota token revoke 01997c3e-5f0a-7cc3-98c4-dc0c0c07398f"))(revoke)


def create(
    name: NameArgument,
    *,
    user: UserOption = None,
    permits: PermitsOption = None,
    expires: ExpiresOption = None,
    quiet: QuietOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token and print its secret, once.

    Only a digest is kept: a secret that is lost can't be shown again. Revoke the token and make another.
    """
    with session(store, make=True) as rota:
        made = rota.acting_as(actor()).tokens.create(name, user=user, permits=permits or (Permit.READ,), expires_in=expires)
    if as_json:
        show_json(msgspec.to_builtins(made.token) | {"secret": made.secret})
        return
    if not quiet:
        typer.echo(f"{_line(made.token)}\nThe secret, which is shown once, now:", err=True)
    typer.echo(made.secret)


def list_tokens(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Those that were revoked or have expired too.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tokens, newest first. Their secrets are known to nobody but their holders."""
    with session(store) as rota:
        found = rota.acting_as(actor()).tokens.list(revoked=everything)
    if as_json:
        return show_json_lines(found)
    made = table("id", "name", "user", "permits", "made", "by", "used", "expires", "state", gives=("permits", "by"))
    for token in found:
        made.add_row(
            token.id,
            escaped(token.name),
            escaped(token.user or "(operator)"),
            _permits(token),
            age(token.created_at),
            escaped(token.created_by),
            age(token.last_used_at) or "never",
            age(token.expires_at) or "never",
            _state(token),
        )
    return show_table(made, "No tokens: `rota token create NAME` makes one.")


def revoke(token_id: TokenArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Let a token open nothing any more, and log out the browsers that came with it. At once, and for good."""
    with session(store) as rota:
        token = rota.acting_as(actor()).tokens.revoke(token_id)
    if as_json:
        return show_json(token)
    return typer.echo(_line(token))


def _line(token: Token) -> str:
    expires = f"  expires {age(token.expires_at)}" if token.expires_at else ""
    return f"{token.id}  {_state(token)}  {token.name}  of {token.user or 'the operator'}  may {_permits(token)}{expires}"


def _permits(token: Token) -> str:
    return ", ".join(token.permits)


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "open" if token.is_open(datetime.now(UTC)) else "expired"
