"""Users: their organizations, roles and permissions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from rota.model.definitions import User
from rota.surfaces.cli.output import age, escaped, show_table, table
from rota.surfaces.cli.views import View

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called


def show_list(users: Sequence[User], _called: Called) -> None:
    """Print users, one a line."""
    rows = table("name", "organization", "role", "permissions", "since", "state", gives=("permissions",))
    for user in users:
        state, permissions = "deleted" if user.removed else "active", escaped(", ".join(user.permissions))
        rows.add_row(escaped(user.name), escaped(user.organization), user.role, permissions, age(user.created_at), state)
    show_table(rows, "No users: until the first one is created, everybody who can open the store is its manager.")


def show_user(user: User, _called: Called) -> None:
    """Print a user as one line."""
    permissions = f"  permissions: {', '.join(user.permissions)}" if user.permissions else ""
    typer.echo(f"{user.name}  {'DELETED' if user.removed else user.role}  of {user.organization}{permissions}")


VIEWS: dict[str | type, View] = {User: View(show_user), "user list": View(show_list)}
