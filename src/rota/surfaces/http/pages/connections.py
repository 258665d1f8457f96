"""Connections: databases that jobs in SQL use, and who may use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from rota.model.connections import DEFAULT
from rota.model.gate import Right
from rota.model.grants import TargetKind
from rota.surfaces.http.pages.context import Visit
from rota.surfaces.http.pages.routes import Name, Verb, chosen, page


@page("GET /connections")
def find(visit: Visit, name: Name = "", organization: Name = "") -> Response:
    """Show the connections that the visitor may use; the form shows one of them, if it is named."""
    found = visit.rota.connections.list()
    it = next((each for each in found if (each.organization, each.name) == (organization, name)), None)
    return visit.page("connections.html", found=found, users=_users(visit), it=it, default=DEFAULT)


@page("POST /connections/{verb}")
def act(visit: Visit, verb: Verb) -> Response:
    """Create, change, test or delete a connection."""
    do = chosen(ACTS, verb, "a connection")
    visit.must(Right.MANAGE_CONNECTIONS)
    return visit.done(do(visit, visit.form.need("name"), visit.form.text("organization")), "/connections")


def _create(visit: Visit, name: str, organization: str | None) -> str:
    fields = _fields(visit)
    visit.rota.connections.create(name, fields.pop("url"), **fields, organization=organization)
    return f"Connection {name} is created. Test it before jobs use it."


def _change(visit: Visit, name: str, organization: str | None) -> str:
    visit.rota.connections.update(name, **_fields(visit), organization=organization)
    return f"Connection {name} is changed."


def _test(visit: Visit, name: str, organization: str | None) -> str:
    tested = visit.rota.connections.test(name, organization=organization)
    return f"Jobs can use {name}." if tested.fit else f"Jobs can't use {name}: {tested.error}."


def _delete(visit: Visit, name: str, organization: str | None) -> str:
    visit.sure(f"Delete connection {name}, and everybody's right to use it?", "Delete it")
    visit.rota.connections.delete(name, organization=organization)
    return f"Connection {name} is deleted."


def _fields(visit: Visit) -> dict[str, Any]:
    form = visit.form
    return {
        "url": form.need("url"),
        "login": form.text("login"),
        "secret_name": form.text("secret_name"),
        "multi": form.text("multi") == "yes",
    }


def _users(visit: Visit) -> dict[tuple[str, str | None], list[str]]:
    """Return whom each connection was granted to, by its organization and name."""
    users: dict[tuple[str, str | None], list[str]] = {}
    for grant in visit.rota.grants.list():
        if grant.target_kind is TargetKind.CONNECTION:
            users.setdefault((grant.organization, grant.target_id), []).append(grant.grantee or str(grant.grantee_kind))
    return {key: sorted(set(names)) for key, names in users.items()}


ACTS: dict[str, Callable[[Visit, str, str | None], str]] = {"create": _create, "change": _change, "test": _test, "delete": _delete}
