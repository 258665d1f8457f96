"""Users: their organizations, roles and permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rota.model.definitions import User
from rota.surfaces.cli.views import View, listing

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called


def show_user(user: User, _called: Called) -> None:
    """Print a user as one line."""
    permissions = f"  permissions: {', '.join(user.permissions)}" if user.permissions else ""
    typer.echo(f"{user.name}  {'DELETED' if user.removed else user.role}  of {user.organization}{permissions}")


LIST = listing(
    "No users: until the first one is created, everybody who can open the store is its manager.",
    "name organization role permissions~ since=created_at state",
    state=lambda user: "deleted" if user.removed else "active",
)
VIEWS: dict[str | type, View] = {User: View(show_user), "user list": View(LIST)}
