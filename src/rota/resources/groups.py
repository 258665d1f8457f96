"""Groups: jobs that belong together, run one after the other or side by side."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from rota.errors import DuplicateId, InvalidOption, NotFound
from rota.handle import Handle
from rota.model.call import as_new_job
from rota.model.checks import check_name, whole, word_of
from rota.model.gate import Actor, Right
from rota.model.groups import USUAL_RULE, Group, Mode, OnFailure
from rota.model.shapes import Limit, Shape
from rota.model.values import Job, NewRow, Origin, dashed, undashed
from rota.operation import Ask, Resource, operation
from rota.ports.store import NewGroup

Ref = Annotated[str | Group, Shape("The group's id.", "01981c5e-7a10-7000-8000-000000000000", "GROUP", wire=str)]


class Groups(Resource):
    """Groups of jobs. `rota.group` creates one."""

    __slots__ = ()

    @operation(Right.READ, http="GET /groups", cli="group list")
    def list(self, ask: Ask, *, limit: Limit = 50) -> builtins.list[Group]:
        """Return the newest groups."""
        return ask.store.groups(limit=whole("limit", limit, least=1), scope=ask.scope)

    @operation(Right.READ, http="GET /groups/{group}", cli="group get")
    def get(self, ask: Ask, group: Ref) -> Group:
        """Return a group with its status and members."""
        group_id = ask.group(group)
        found = ask.store.group(group_id)
        if found is None:
            raise NotFound(f"there is no group {dashed(group_id)} in this store")
        return found

    @operation(Right.CANCEL, http="POST /groups/{group}/cancel", cli="group cancel", confirm="Cancel the jobs of group {group} for good?")
    def cancel(self, ask: Ask, group: Ref) -> Group:
        """Cancel every chain of the group that has not ended."""
        cancelled = ask.store.cancel_group(ask.group(group), actor=ask.who, now=ask.now)
        ask.session.poke()
        return cancelled


def create(
    ask: Ask,
    jobs: Sequence[Any],
    *,
    then: Any = None,
    on_parent_failure: str | None = None,
    mode: str = "sequential",
    on_failure: str | None = None,
    name: str | None = None,
    group_id: str | None = None,
    organization: str | None = None,
) -> Group:
    """Create a group of new jobs and of waiting jobs: see `Rota.group`."""
    who = ask.within(organization)
    group_mode = word_of(Mode, "mode", mode)
    rule = USUAL_RULE[group_mode] if on_failure is None else word_of(OnFailure, "on_failure", on_failure)
    if not jobs and then is None:
        raise InvalidOption("a group needs at least one job, or a job that follows it: pass then=…")
    if then is None and on_parent_failure is not None:
        raise InvalidOption(f"on_parent_failure={on_parent_failure!r} is for the job that follows a group: pass then=… too")
    if len(jobs) > ask.settings.group_max:
        raise InvalidOption(f"a group of {len(jobs):,} jobs is over the limit of {ask.settings.group_max:,} (setting group_max)")
    if name is not None:
        check_name(name, "group", ask.settings.name_max)
    new = NewGroup(
        group_id=ask.session.submitter.id_of(group_id, ask.now, "group_id"),
        name=name,
        mode=group_mode,
        on_failure=rule,
        members=[_member(ask, job, who) for job in jobs],
        organization_id=who.organization,
        then=None if then is None else _follower(ask, then, on_parent_failure, who),
    )
    group = ask.store.add_group(new, actor=who, now=ask.now)
    if (group.organization, group.owner) != (who.organization, who.name):
        raise DuplicateId(f"group_id {group_id!r} is taken already: choose another")
    ask.session.poke()
    return group


def _member(ask: Ask, job: Any, who: Actor) -> Any:
    if isinstance(job, Job | Handle) or (isinstance(job, str) and undashed(job) is not None):
        return ask.session.reach(job, who, Right.STEER)
    return ask.session.submitter.one(as_new_job(job), ask.store, who, origin=Origin.GROUP)


def _follower(ask: Ask, then: Any, on_parent_failure: str | None, who: Actor) -> NewRow:
    new = as_new_job(then)
    if on_parent_failure is not None:
        new = msgspec.structs.replace(new, on_parent_failure=on_parent_failure)
    return ask.session.submitter.one(new, ask.store, who, origin=Origin.GROUP)
