"""Tokens: what opens the front door. A secret is shown once, in the answer to the form that made it."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from rota.model.access import Permit
from rota.model.gate import Right
from rota.model.templates import span_of
from rota.resources.tokens import NewToken
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit

router = page_router()


@router.get("/tokens")
def show(visit: Visit) -> Response:
    """Show the tokens that open something."""
    return _page(visit, None)


@router.post("/tokens")
def create(visit: Visit) -> Response:
    """Make a token and show its secret, this once."""
    form = visit.form
    lasts = form.text("expires_in")
    made = visit.rota.acting_as(visit.actor).tokens.create(
        form.need("name"),
        user=form.text("user"),
        permits=[value for name, value in form.pairs if name == "permit"],
        expires_in=None if lasts is None else timedelta(seconds=span_of("expires_in", lasts)),
    )
    return _page(visit, made)


@router.post("/tokens/revoke")
def revoke(visit: Visit) -> Response:
    """Let a token open nothing any more."""
    visit.must(Right.MANAGE_ORGANIZATIONS)
    token_id, name = visit.form.need("id"), visit.form.text("name") or "this token"
    visit.sure(f"Revoke {name}? Whatever uses it is shut out at once.", "Revoke it")
    done = visit.rota.acting_as(visit.actor).tokens.revoke(token_id)
    return visit.done(f"Token {done.name} is revoked.", "/tokens")


def _page(visit: Visit, made: NewToken | None) -> Response:
    found = visit.rota.acting_as(visit.actor).tokens.list()
    users = [each.name for each in visit.rota.acting_as(visit.actor).users.list()]
    return visit.page("tokens.html", found=found, made=made, users=users, permits=list(Permit))
