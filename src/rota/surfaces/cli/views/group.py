"""Groups and their members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.model.groups import Group
from rota.surfaces.cli.output import console, escaped, show_table, status, table
from rota.surfaces.cli.views import View, listing

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called


LIST = listing(
    "No groups.",
    "id status mode on_failure ended> created=created_at name",
    status=lambda group: status(group.status),
    ended=lambda group: f"{sum(member.status.ended for member in group.members)}/{len(group.members)}",
)


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


VIEWS: dict[str | type, View] = {"group list": View(LIST), Group: View(show_group)}
