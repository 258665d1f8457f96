"""Users: who may ask for things, and as what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from rota.errors import InvalidOption
from rota.model.gate import Right, Role
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit

router = page_router()


@router.get("/users")
def show(visit: Visit, name: Annotated[str, Meta(max_length=255)] = "") -> Response:
    """Show the users that the visitor may see; the form shows one of them, if it is named."""
    found = visit.rota.acting_as(visit.actor).users.list()
    names = [each.name for each in visit.rota.acting_as(visit.actor).organizations.list()]
    it = next((each for each in found if each.name == name), None)
    return visit.page("users.html", found=found, organizations=names, roles=list(Role), it=it)


@router.post("/users/{verb}")
def act(visit: Visit, verb: Annotated[str, Meta(max_length=20)]) -> Response:
    """Add, change or remove a user."""
    if verb not in ACTS:
        raise InvalidOption(f"a user can't {verb!r}: it can {', '.join(ACTS)}")
    visit.must(Right.MANAGE_ORGANIZATIONS)
    return visit.done(ACTS[verb](visit, visit.form.need("name")), "/users")


def _add(visit: Visit, name: str) -> str:
    visit.rota.acting_as(visit.actor).users.create(
        name,
        organization=visit.form.text("organization") or "default",
        role=visit.form.text("role") or Role.USER,
        permissions=_permissions(visit),
    )
    return f"User {name} is added."


def _change(visit: Visit, name: str) -> str:
    visit.rota.acting_as(visit.actor).users.update(
        name,
        organization=visit.form.need("organization"),
        role=visit.form.need("role"),
        permissions=_permissions(visit),
    )
    return f"User {name} is changed."


def _remove(visit: Visit, name: str) -> str:
    visit.sure(f"Remove the user {name}? It may do nothing any more, and its tokens open nothing. Its jobs stay.", "Remove the user")
    visit.rota.acting_as(visit.actor).users.delete(name)
    return f"User {name} is removed."


def _permissions(visit: Visit) -> list[str]:
    return [each.strip() for each in (visit.form.text("permissions") or "").split(",") if each.strip()]


ACTS: dict[str, Callable[[Visit, str], str]] = {"add": _add, "change": _change, "remove": _remove}
