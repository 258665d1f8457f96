"""Tokens: the keys of this API. A secret leaves this process once, in the answer that makes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path, Query
from pydantic import ConfigDict, Field

from rota.errors import NotFound
from rota.model.access import Token
from rota.model.checks import CENTURY_S
from rota.resources.tokens import NewToken
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.bodies import Body, Name
from rota.surfaces.http.api.keyset import Cursor, Limit, cut
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives, nothing, page_of, refuses

router = strict_router("Tokens", "/tokens")

TokenId = Annotated[str, Path(description="The token's id.", examples=["01980c5e-7a10-7000-8000-000000000001"], max_length=64)]
PermitWord = Literal["read", "submit", "operate", "manage"]
NO_STORE = {"Cache-Control": "no-store"}


class TokenOrder(Body):
    """A token to be made."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ci", "user": "ada", "permits": ["read", "submit"], "expires_in": 2592000}]}
    )

    name: Name = Field(description="What it is for.")
    user: Name | None = Field(None, description="Whose rights it has. None: those of the operator of this store, who may do everything.")
    permits: list[PermitWord] = Field(["read"], min_length=1, max_length=4)
    expires_in: float | None = Field(None, gt=0, le=CENTURY_S, description="Seconds. None: it does not expire.")


@router.post(
    "",
    summary="Create a token",
    status_code=201,
    responses=gives(NewToken, status=201, what="The token, and its secret, which is never shown again.") | refuses(NotFound),
)
def create(body: TokenOrder, rota: Served, who: Who) -> Answer:
    """Make a token that acts as a user, or as the operator of this store. Its secret stands in this answer and nowhere else."""
    expires_in = None if body.expires_in is None else timedelta(seconds=body.expires_in)
    made = rota.acting_as(who).tokens.create(body.name, user=body.user, permits=body.permits, expires_in=expires_in)
    return Answer({"token": _view(made.token), "secret": made.secret}, status_code=201, headers=NO_STORE)


@router.get("", summary="List tokens", responses=gives(page_of(Token)))
def find(
    rota: Served,
    who: Who,
    *,
    revoked: Annotated[bool, Query(description="Those that open nothing any more too.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Answer:
    """Return tokens, by name: never their secrets."""
    shown = cut(sorted(rota.acting_as(who).tokens.list(revoked=revoked), key=_place), _place, limit=limit, cursor=cursor)
    return Answer(shown | {"items": [_view(each) for each in shown["items"]]})


@router.delete("/{token_id}", summary="Revoke a token", status_code=204, responses=nothing() | refuses(NotFound))
def revoke(token_id: TokenId, rota: Served, who: Who) -> None:
    """Let a token open nothing any more, and end the browser sessions that were opened with it. Again: nothing more."""
    rota.acting_as(who).tokens.revoke(token_id)


def _place(token: Token) -> tuple[str, str]:
    return token.name, token.id


def _view(token: Token) -> dict[str, Any]:
    """Return a token with its permits in order: a set has none."""
    return msgspec.structs.asdict(token) | {"permits": sorted(token.permits)}
