"""Groups and their members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.model.values import Group
from rota.surfaces.cli.output import age, console, escaped, show_table, status, table
from rota.surfaces.cli.views import View

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called


def show_list(groups: Sequence[Group], _called: Called) -> None:
    """Print groups, one a line."""
    rows = table("id", "status", "mode", "on failure", "ended", "created", "name", right=("ended",))
    for group in groups:
        ended = f"{sum(member.status.ended for member in group.members)}/{len(group.members)}"
        rows.add_row(group.id, status(group.status), group.mode, group.on_failure, ended, age(group.created_at), escaped(group.name or ""))
    show_table(rows, "No groups.")


def show_group(group: Group, _called: Called | None = None) -> None:
    """Print a group and the states of its members."""
    name = f"  {escaped(group.name)}" if group.name else ""
    console().print(f"{group.id}  {status(group.status)}{name}  ({group.mode}, on failure: {group.on_failure})")
    rows = table("place", "number", "status", "type", right=("place",))
    for member in group.members:
        rows.add_row(str(member.sequence_number), member.number, status(member.status), escaped(member.job_type))
    show_table(rows, "No members.")
    if group.then is not None:
        follower = f"{group.then.number}  {status(group.then.status)}  {escaped(group.then.job_type)}"
        console().print(f"then {follower}  (if a member fails: {group.then.on_parent_failure})")


VIEWS: dict[str | type, View] = {"group list": View(show_list), Group: View(show_group)}
