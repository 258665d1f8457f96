"""Organizations, their limits and their users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.model.definitions import Organization, User
from rota.surfaces.cli.output import clock_time, show_pairs
from rota.surfaces.cli.views import View, listing

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called

LIMITS = ("max_running", "max_queued", "max_priority")


def show_one(organization: Organization, called: Called) -> None:
    """Print an organization, its limits and its users."""
    show_pairs(
        [
            ("name", organization.name),
            ("display name", organization.display_name),
            ("state", organization.state),
            *((name.replace("_", " "), _limit(getattr(organization, name))) for name in LIMITS),
            ("created", clock_time(organization.created_at)),
            ("users", ", ".join(f"{user.name} ({user.role})" for user in _users(organization, called))),
        ]
    )


def one_document(organization: Organization, called: Called) -> dict[str, Any]:
    """Return an organization with its users."""
    return msgspec.structs.asdict(organization) | {"users": _users(organization, called)}


def show_changed(organization: Organization, _called: Called) -> None:
    """Print an organization as one line."""
    limits = ", ".join(f"{name.removeprefix('max_')} {_limit(getattr(organization, name))}" for name in LIMITS)
    typer.echo(f"{organization.name}  {organization.state}  limits: {limits}")


def _users(organization: Organization, called: Called) -> list[User]:
    return [user for user in called.rota.users.list() if user.organization == organization.name]


def _limit(limit: int | None) -> str:
    return "none" if limit is None else f"{limit:,}"


LIST = listing(
    "No organizations.",
    "name state max_running> max_queued> max_priority> display_name",
    max_running=lambda organization: _limit(organization.max_running),
    max_queued=lambda organization: _limit(organization.max_queued),
    max_priority=lambda organization: _limit(organization.max_priority),
)
VIEWS: dict[str | type, View] = {
    Organization: View(show_changed),
    "organization list": View(LIST),
    "organization get": View(show_one, one_document),
}
