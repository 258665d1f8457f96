"""Tokens: secrets with which programs and browsers use the HTTP API and the dashboard."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated

import msgspec

from rota.errors import InvalidOption, NotFound
from rota.model.access import SECRET_BYTES, Permit, Token, digest, permits_of, token_text
from rota.model.checks import check_name
from rota.model.gate import Right
from rota.model.shapes import Shape
from rota.model.values import dashed, moment_of, undashed
from rota.operation import Ask, Resource, operation


class NewToken(msgspec.Struct, frozen=True):
    """A token, and its secret, which is never shown again."""

    token: Token
    secret: str


class Tokens(Resource):
    """The tokens of the store."""

    __slots__ = ()

    @operation(Right.MANAGE_ORGANIZATIONS, http="GET /tokens", cli="token list")
    def list(self, ask: Ask, *, revoked: Annotated[bool, Shape("Include revoked and expired ones.")] = False) -> builtins.list[Token]:
        """Return tokens, newest first; revoked and expired ones only if asked for."""
        now = moment_of(ask.now)
        return [token for token in ask.store.tokens() if revoked or token.is_open(now)]

    @operation(Right.MANAGE_ORGANIZATIONS, http="POST /tokens", cli="token create", status=201)
    def create(
        self,
        ask: Ask,
        name: Annotated[str, Shape("What it is for, in your own words.", "laptop", "NAME")],
        *,
        user: Annotated[str | None, Shape("The user it acts as. Default: the operator of the store.", "ada", "USER")] = None,
        permits: Annotated[
            Iterable[Permit | str],
            Shape("What it may do: read, submit or manage. Default: read.", "read", "PERMIT", "permit", wire=builtins.list[str]),
        ] = (Permit.READ,),
        expires_in: Annotated[
            timedelta | None, Shape("How long it is valid. Default: no limit.", "90d", "SPAN", "expires", wire=float | str)
        ] = None,
    ) -> NewToken:
        """Create a token that acts as a user, or as the operator of this store. Its secret is returned only here."""
        import secrets  # noqa: PLC0415 - only creating a token needs it

        check_name(name, "token", ask.settings.name_max)
        if user is not None:
            ask.registry.sync(ask.store, ask.now)
            if user not in ask.registry.users:
                raise NotFound(f"{user!r} is not a user of this store: add it with `rota user create`")
            # One that was removed may do nothing, and its tokens neither.
            ask.session.actor(user)
        if expires_in is not None and expires_in <= timedelta(0):
            raise InvalidOption(f"expires_in={expires_in} is not allowed: give a time to come")
        now = ask.now
        created = moment_of(now)
        token = Token(
            id=dashed(ask.session.ids.take(1, now)[0]),
            name=name,
            user=user,
            permits=permits_of(tuple(permits)),
            created_by=ask.who.name,
            created_at=created,
            expires_at=None if expires_in is None else created + expires_in,
        )
        secret = token_text(secrets.token_bytes(SECRET_BYTES))
        ask.store.add_token(token, digest(secret), actor=ask.who, now=now)
        return NewToken(token, secret)

    @operation(Right.MANAGE_ORGANIZATIONS, http="DELETE /tokens/{token}", cli="token revoke", confirm="Revoke token {token}?")
    def revoke(
        self, ask: Ask, token: Annotated[str, Shape("The token's id, or its name if only one valid token has it.", metavar="TOKEN")]
    ) -> Token:
        """Revoke a token, and end the sessions that were opened with it."""
        token_id = undashed(token) or undashed(_named(ask, token).id)
        assert token_id is not None  # noqa: S101 - the id of a token
        return ask.store.revoke_token(token_id, actor=ask.who, now=ask.now)


def _named(ask: Ask, name: str) -> Token:
    """Return the only valid token of this name."""
    now = moment_of(ask.now)
    named = [token for token in ask.store.tokens() if token.name == name and token.is_open(now)]
    if not named:
        raise NotFound(f"{name!r} is neither the id nor the name of a valid token: `rota token list` shows them")
    if len(named) > 1:
        raise InvalidOption(f"{len(named)} tokens are named {name!r}: use the id of one, which `rota token list` shows")
    return named[0]
