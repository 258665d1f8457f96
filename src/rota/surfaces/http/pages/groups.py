"""Groups: the newest of them, and one with a page of its members."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from rota.errors import InvalidOption, NotFound
from rota.model.gate import Right
from rota.model.groups import Member
from rota.model.states import CHAIN_ENDS, Status
from rota.model.values import Job
from rota.surfaces.http.pages.context import Visit
from rota.surfaces.http.pages.routes import page
from rota.surfaces.http.pages.selection import JOB_ACTS
from rota.surfaces.runs import error_of

GROUPS_SHOWN = 50
MEMBERS_SHOWN = 100

GroupId = Annotated[str, Meta(max_length=64)]
OfStatus = Annotated[str, Meta(max_length=20)]
After = Annotated[int, Meta(ge=0, le=2**31)]
"""The number of members that come before a page of a group."""


@page("GET /groups")
def find_groups(visit: Visit) -> Response:
    """Show the newest groups."""
    found = visit.rota.groups.list(limit=GROUPS_SHOWN)
    done = {each.id: sum(member.status in CHAIN_ENDS for member in each.members) for each in found}
    failed = {each.id: sum(member.status is Status.DEAD_LETTER for member in each.members) for each in found}
    return visit.page("groups.html", groups=found, done=done, failed=failed)


@page("GET /groups/{group_id}")
def show_group(visit: Visit, group_id: GroupId, after: After = 0, status: OfStatus = "") -> Response:
    """Show one group and a page of its members."""
    if status and status not in set(Status):
        raise InvalidOption(f"status={status!r} is not one of {', '.join(Status)}")
    group = visit.rota.groups.get(group_id)
    done = sum(member.status in CHAIN_ENDS for member in group.members)
    matching = [member for member in group.members if status in {"", member.status}]
    members = matching[after : after + MEMBERS_SHOWN]
    jobs = {member.root_id: _last(visit, member) for member in members}
    return visit.page(
        "group.html",
        group=group,
        members=members,
        jobs=jobs,
        errors={root_id: error_of(visit.rota, job) for root_id, job in jobs.items() if job is not None},
        done=done,
        after=after,
        shown=MEMBERS_SHOWN,
        matching=len(matching),
        of_status=status,
        statuses=[each for each in Status if any(member.status is each for member in group.members)],
        acts=JOB_ACTS,
    )


def _last(visit: Visit, member: Member) -> Job | None:
    """Return the last attempt of a member; None if it was removed in the meantime."""
    try:
        return visit.rota.jobs.attempts(member.root_id)[-1]
    except NotFound:
        return None


@page("POST /groups/{group_id}/cancel")
def cancel_group(visit: Visit, group_id: GroupId) -> Response:
    """Cancel what has not ended of a group."""
    visit.must(Right.CANCEL)
    group = visit.rota.groups.get(group_id)
    left = sum(member.status not in CHAIN_ENDS for member in group.members)
    visit.sure(f"Cancel the {left:,} jobs of {group.name or 'this group'} that have not ended?", "Cancel the group")
    visit.rota.groups.cancel(group_id)
    return visit.done("The group is cancelled.", f"/groups/{group.id}")
