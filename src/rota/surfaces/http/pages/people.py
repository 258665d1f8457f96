"""Organizations, users and tokens: who may ask for things, and how much; and the audit trail of what they changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rota.model.access import Permit
from rota.model.audit import NAMES
from rota.model.gate import Right, Role
from rota.model.templates import span_of
from rota.resources.tokens import NewToken
from rota.surfaces.cli.output import one_line
from rota.surfaces.http.pages.context import Visit, compact
from rota.surfaces.http.pages.routes import Act, Before, Name, Verb, chosen, page

AUDIT_PAGE = 50


class Change(msgspec.Struct, frozen=True):
    """One value before and after a change; empty if there was none, or is none."""

    name: str
    before: str
    after: str


@page("GET /organizations")
def show_organizations(visit: Visit, name: Name = "") -> Response:
    """Show the organizations that the visitor may see; the form shows one of them, if it is named."""
    found = visit.rota.organizations.list(removed=visit.may(Right.MANAGE_ORGANIZATIONS))
    paused = {name for kind, name in visit.rota.store.pauses() if kind == "organization"} if visit.may(Right.READ) else set()
    it = next((each for each in found if each.name == name), None)
    return visit.page("organizations.html", found=found, paused=paused, it=it)


@page("POST /organizations/{verb}")
def act_on_organization(visit: Visit, verb: Verb) -> Response:
    """Make, change, suspend, resume or remove an organization."""
    do = chosen(ORGANIZATION_ACTS, verb, "an organization")
    visit.must(Right.MANAGE_ORGANIZATIONS)
    return visit.done(do(visit, visit.form.need("name")), "/organizations")


def _limits(visit: Visit) -> dict[str, int | None]:
    return {name: visit.form.number(name) for name in ("max_running", "max_queued", "max_priority")}


def _create_organization(visit: Visit, name: str) -> str:
    made = visit.rota.organizations.create(name, display_name=visit.form.text("display_name"), **_limits(visit))
    return f"Organization {made.name} is created."


def _change_organization(visit: Visit, name: str) -> str:
    visit.rota.organizations.update(name, display_name=visit.form.text("display_name"), **_limits(visit))
    return f"Organization {name} is changed."


ORGANIZATION_ACTS: dict[str, Callable[[Visit, str], str]] = {
    "create": _create_organization,
    "change": _change_organization,
    "suspend": Act(
        "organizations",
        "suspend",
        "{name} is suspended.",
        "Suspend {name}? Nothing of it starts or comes in until it is resumed. What runs goes on.",
        "Suspend it",
    ),
    "resume": Act("organizations", "restore", "{name} goes on."),
    "remove": Act(
        "organizations",
        "delete",
        "{name} is removed.",
        "Remove {name}? Its waiting jobs fail, and its people may do nothing any more. Nothing is deleted.",
        "Remove it",
    ),
}


# ---- users -----------------------------------------------------------------------------------------------------------


@page("GET /users")
def show_users(visit: Visit, name: Name = "") -> Response:
    """Show the users that the visitor may see; the form shows one of them, if it is named."""
    found = visit.rota.users.list()
    names = [each.name for each in visit.rota.organizations.list()]
    it = next((each for each in found if each.name == name), None)
    return visit.page("users.html", found=found, organizations=names, roles=list(Role), it=it)


@page("POST /users/{verb}")
def act_on_user(visit: Visit, verb: Verb) -> Response:
    """Add, change or remove a user."""
    do = chosen(USER_ACTS, verb, "a user")
    visit.must(Right.MANAGE_ORGANIZATIONS)
    return visit.done(do(visit, visit.form.need("name")), "/users")


def _add_user(visit: Visit, name: str) -> str:
    visit.rota.users.create(
        name,
        organization=visit.form.text("organization") or "default",
        role=visit.form.text("role") or Role.USER,
        permissions=visit.form.words("permissions"),
    )
    return f"User {name} is added."


def _change_user(visit: Visit, name: str) -> str:
    visit.rota.users.update(
        name,
        organization=visit.form.need("organization"),
        role=visit.form.need("role"),
        permissions=visit.form.words("permissions"),
    )
    return f"User {name} is changed."


USER_ACTS: dict[str, Callable[[Visit, str], str]] = {
    "add": _add_user,
    "change": _change_user,
    "remove": Act(
        "users",
        "delete",
        "User {name} is removed.",
        "Remove the user {name}? It may do nothing any more, and its tokens open nothing. Its jobs stay.",
        "Remove the user",
    ),
}


# ---- tokens: a secret is shown once, in the answer to the form that made it ------------------------------------------


@page("GET /tokens")
def show_tokens(visit: Visit) -> Response:
    """Show the tokens that open something."""
    return _tokens_page(visit, None)


@page("POST /tokens")
def create_token(visit: Visit) -> Response:
    """Make a token and show its secret, this once."""
    form = visit.form
    lasts = form.text("expires_in")
    made = visit.rota.tokens.create(
        form.need("name"),
        user=form.text("user"),
        permits=[value for name, value in form.pairs if name == "permit"],
        expires_in=None if lasts is None else timedelta(seconds=span_of("expires_in", lasts)),
    )
    return _tokens_page(visit, made)


@page("POST /tokens/revoke")
def revoke_token(visit: Visit) -> Response:
    """Let a token open nothing any more."""
    visit.must(Right.MANAGE_ORGANIZATIONS)
    token_id, name = visit.form.need("id"), visit.form.text("name") or "this token"
    visit.sure(f"Revoke {name}? Whatever uses it is shut out at once.", "Revoke it")
    done = visit.rota.tokens.revoke(token_id)
    return visit.done(f"Token {done.name} is revoked.", "/tokens")


def _tokens_page(visit: Visit, made: NewToken | None) -> Response:
    found = visit.rota.tokens.list()
    users = [each.name for each in visit.rota.users.list()]
    return visit.page("tokens.html", found=found, made=made, users=users, permits=list(Permit))


# ---- the audit trail -------------------------------------------------------------------------------------------------


@page("GET /audit")
def find_audit(
    visit: Visit,
    subject: Annotated[str, Meta(max_length=512)] = "",
    event: Annotated[str, Meta(max_length=512)] = "",
    before: Before = None,
) -> Response:
    """Show a page of the audit trail, newest first."""
    found = visit.rota.audit.list(subject=subject.strip() or None, event=event.strip() or None, limit=AUDIT_PAGE, before=before)
    changes = {each.id: changes_of(each.before, each.after) for each in found}
    kinds = [("", "all"), *((name, name) for name in sorted(NAMES))]
    return visit.page(
        "audit.html",
        found=found,
        changes=changes,
        next=found.next,
        first=before is not None,
        subject=subject,
        event=event,
        kinds=kinds,
    )


def changes_of(before: Any, after: Any) -> list[Change]:
    """Return what an entry of the audit trail changed, name by name; what stayed as it was is left out."""
    if not isinstance(before or {}, dict) or not isinstance(after or {}, dict):
        return [Change("", compact(before), compact(after))]
    old, new = before or {}, after or {}
    return [Change(name, _side(old, name), _side(new, name)) for name in {**old, **new} if old.get(name) != new.get(name)]


def _side(values: dict[str, Any], name: str) -> str:
    return "" if values.get(name) is None else one_line(values[name], 120) if isinstance(values[name], str) else compact(values[name])
