"""Organizations and their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from rota.errors import InvalidOption
from rota.model.gate import Right
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit

router = page_router()


@router.get("/organizations")
def show(visit: Visit, name: Annotated[str, Meta(max_length=255)] = "") -> Response:
    """Show the organizations that the visitor may see; the form shows one of them, if it is named."""
    found = visit.rota.acting_as(visit.actor).organizations.list(removed=visit.may(Right.MANAGE_ORGANIZATIONS))
    paused = (
        {name for kind, name in visit.rota.acting_as(visit.actor).store.pauses() if kind == "organization"}
        if visit.may(Right.READ)
        else set()
    )
    it = next((each for each in found if each.name == name), None)
    return visit.page("organizations.html", found=found, paused=paused, it=it)


@router.post("/organizations/{verb}")
def act(visit: Visit, verb: Annotated[str, Meta(max_length=20)]) -> Response:
    """Make, change, suspend, resume or remove an organization."""
    if verb not in ACTS:
        raise InvalidOption(f"an organization can't {verb!r}: it can {', '.join(ACTS)}")
    visit.must(Right.MANAGE_ORGANIZATIONS)
    return visit.done(ACTS[verb](visit, visit.form.need("name")), "/organizations")


def _limits(visit: Visit) -> dict[str, int | None]:
    return {name: visit.form.number(name) for name in ("max_running", "max_queued", "max_priority")}


def _create(visit: Visit, name: str) -> str:
    made = visit.rota.acting_as(visit.actor).organizations.create(name, display_name=visit.form.text("display_name"), **_limits(visit))
    return f"Organization {made.name} is made."


def _change(visit: Visit, name: str) -> str:
    visit.rota.acting_as(visit.actor).organizations.update(name, display_name=visit.form.text("display_name"), **_limits(visit))
    return f"Organization {name} is changed."


def _suspend(visit: Visit, name: str) -> str:
    visit.sure(f"Suspend {name}? Nothing of it starts or comes in until it is resumed. What runs goes on.", "Suspend it")
    visit.rota.acting_as(visit.actor).organizations.suspend(name)
    return f"{name} is suspended."


def _resume(visit: Visit, name: str) -> str:
    visit.rota.acting_as(visit.actor).organizations.restore(name)
    return f"{name} goes on."


def _remove(visit: Visit, name: str) -> str:
    visit.sure(f"Remove {name}? Its waiting jobs fail, and its people may do nothing any more. Nothing is deleted.", "Remove it")
    visit.rota.acting_as(visit.actor).organizations.delete(name)
    return f"{name} is removed."


ACTS: dict[str, Callable[[Visit, str], str]] = {
    "create": _create,
    "change": _change,
    "suspend": _suspend,
    "resume": _resume,
    "remove": _remove,
}
