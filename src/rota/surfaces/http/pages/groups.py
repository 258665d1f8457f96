"""Groups: jobs that belong together."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from rota.model.gate import Right
from rota.model.states import CHAIN_ENDS
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit

router = page_router()

SHOWN = 50
MEMBERS_MAX = 500

GroupId = Annotated[str, Meta(max_length=64)]


@router.get("/groups")
def find(visit: Visit) -> Response:
    """Show the newest groups."""
    found = visit.rota.acting_as(visit.actor).groups.list(limit=SHOWN)
    done = {each.id: sum(member.status in CHAIN_ENDS for member in each.members) for each in found}
    return visit.page("groups.html", groups=found, done=done)


@router.get("/groups/{group_id}")
def show(visit: Visit, group_id: GroupId) -> Response:
    """Show one group and where its members stand."""
    group = visit.rota.acting_as(visit.actor).groups.get(group_id)
    done = sum(member.status in CHAIN_ENDS for member in group.members)
    return visit.page("group.html", group=group, members=group.members[:MEMBERS_MAX], done=done)


@router.post("/groups/{group_id}/cancel")
def cancel(visit: Visit, group_id: GroupId) -> Response:
    """Cancel what has not ended of a group."""
    visit.must(Right.CANCEL)
    group = visit.rota.acting_as(visit.actor).groups.get(group_id)
    left = sum(member.status not in CHAIN_ENDS for member in group.members)
    visit.sure(f"Cancel the {left:,} jobs of {group.name or 'this group'} that have not ended?", "Cancel the group")
    visit.rota.acting_as(visit.actor).groups.cancel(group_id)
    return visit.done("The group is cancelled.", f"/groups/{group.id}")
