"""From a due time to a row that the store takes: what the template and the schedule say, as they stand now."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from rota.engine.registry import Known, Registry, override
from rota.engine.submit import encoded
from rota.errors import OrganizationUnavailable, PermissionDenied, QueueFull, TemplateUnavailable
from rota.model.definitions import OrganizationState, TemplateState
from rota.model.gate import Actor, Role, may_use
from rota.model.schedules import OwnTemplate, Schedule
from rota.model.values import SECOND, Instant, NewRow, Origin, Policy
from rota.ports.clock import Ids
from rota.ports.schedules import DueSchedule

IDS_AHEAD = 64
"""Ids are drawn so many at a time; those that are left when the process ends were never used."""


VERSION_META = '{"template_version":%d}'
"""Which version of the job a run was made of: ALTER JOB does not change what waits."""


def policy_of(own: OwnTemplate) -> dict[str, Any]:
    """Return what the template of one schedule alone says of its jobs, as `override` takes it."""
    return {option: own.defaults[option] for option in ("max_retries", "timeout", "backoff") if option in own.defaults}


def no_handler(own: OwnTemplate) -> str:
    """Say why no job can be made of it here."""
    return f"there is no handler {own.job_type!r} to call: start a worker that has it, or change the job with ALTER JOB … SET CALL"


class Cast(msgspec.Struct, frozen=True):
    """What the jobs of one template, owner and organization have in common."""

    known: Known
    row: NewRow
    """As all of them begin; its params are those of a schedule that has none of its own."""
    queue_ttl: Instant | None


class DueRows:
    """Builds the rows of due times from what the registry knows. It asks the store for nothing: the store may be asking it."""

    def __init__(self, registry: Registry, ids: Ids, rng: Random) -> None:
        """Take what rows are built from."""
        self._registry = registry
        self._ids = ids
        self._rng = rng
        self._spare: list[str] = []
        self._cast: dict[tuple[object, ...], Cast] = {}
        self._taken: dict[str, int] = {}
        """How many jobs each organization got in this transaction: its room is what it was at the beginning."""

    def begin(self) -> None:
        """Begin a transaction: what was known of templates and rights may have changed."""
        self._taken = {}
        self._cast = {}

    def row(self, due: DueSchedule, due_at: Instant, now: Instant) -> NewRow:
        """Build one row, or refuse it: the refusal becomes the due time's fate."""
        schedule = due.schedule
        if due.room is not None and due.room <= self._taken.get(schedule.organization, 0):
            raise QueueFull(f"organization {schedule.organization!r} has as many jobs queued as its max_queued allows")
        run_at = now
        if schedule.jitter:
            run_at = max(now, due_at + self._rng.randrange(schedule.jitter + 1))
        row = self.build(schedule, schedule.params, now=now, run_at=run_at)
        row.due_at = due_at
        if due.room is not None:
            self._taken[schedule.organization] = self._taken.get(schedule.organization, 0) + 1
        return row

    def build(self, schedule: Schedule, params: dict[str, Any], *, now: Instant, run_at: Instant) -> NewRow:
        """Build the row of one job of a schedule: a copy of what such jobs have in common, and what is its own."""
        own = None if schedule.own is None else schedule.own.id
        key = (schedule.template, own, schedule.organization, schedule.created_by, schedule.priority, not params)
        cast = self._cast.get(key)
        if cast is None:
            cast = self._cast[key] = self._make_cast(schedule, params)
        row: NewRow = cast.row.__copy__()  # type: ignore[attr-defined] # msgspec has it; `copy` would ask around first
        if not self._spare:
            self._spare = self._ids.take(IDS_AHEAD, now)[::-1]
        row.job_id = self._spare.pop()
        row.run_at = run_at
        row.schedule_id = schedule.id
        row.run_as = schedule.run_as
        if params:
            row.params = self._params(cast.known, schedule.own, params)
        if cast.queue_ttl is not None:
            row.expires_at = run_at + cast.queue_ttl
        return row

    def _params(self, known: Known, own: OwnTemplate | None, params: dict[str, Any]) -> str:
        """Return the template's params under the schedule's own, checked and encoded."""
        if own is not None:
            params = {**own.defaults.get("default_params", {}), **params}
        if known.force.default_params:
            params = {**known.force.default_params, **params}
        return encoded(known, params)

    def _make_cast(self, schedule: Schedule, params: dict[str, Any]) -> Cast:
        """Work out what the jobs of one template, owner and organization have in common, or refuse them."""
        known, own = self._known(schedule), schedule.own
        policy = override(known.force.policy, priority=schedule.priority, **(policy_of(own) if own is not None else {}))
        row = NewRow(
            job_id="",
            job_type=known.name,
            params="" if params else self._params(known, own, {}),
            policy=self._within_rights(schedule, known, policy),
            run_at=0,
            template_id=known.template_id if own is None else own.id,
            organization_id=schedule.organization,
            origin=Origin.SCHEDULE,
            owner=schedule.created_by,
            queue=known.force.queue,
            lane=self._registry.lane(known.name, known.force.queue),
            meta=None if own is None else VERSION_META % own.version,
        )
        queue_ttl = known.force.queue_ttl
        return Cast(known, row, None if queue_ttl is None else round(queue_ttl * SECOND))

    def _known(self, schedule: Schedule) -> Known:
        name = schedule.job_type
        known = self._registry.find(name)
        if known is None or known.template_id is None:
            raise TemplateUnavailable(f"template {name!r} is not there any more" if schedule.own is None else no_handler(schedule.own))
        if known.state != TemplateState.ENABLED:
            raise TemplateUnavailable(f"template {known.name!r} is {known.state.lower()}: `rota template enable {known.name}` changes that")
        return known

    def _within_rights(self, schedule: Schedule, known: Known, policy: Policy) -> Policy:
        organization = self._registry.organizations.get(schedule.organization)
        if organization is None or organization.state is not OrganizationState.ACTIVE:
            word = "not there any more" if organization is None else organization.state.lower()
            raise OrganizationUnavailable(f"organization {schedule.organization!r} is {word} and takes no new jobs")
        needed = known.force.requires_permission
        if needed is not None and not may_use(self._owner(schedule), needed):
            raise PermissionDenied(f"{schedule.created_by!r} lacks the permission {needed!r} that template {known.name!r} requires")
        most = organization.max_priority
        if most is None or policy.priority <= most:
            return policy
        return msgspec.structs.replace(policy, priority=most)

    def _owner(self, schedule: Schedule) -> Actor:
        """Return who answers for a schedule, with the rights it has now."""
        users = self._registry.users
        user = users.get(schedule.created_by)
        if user is None:
            # Made by who opened the store itself, or before there were users: see `rota.model.gate.LOCAL`.
            return Actor(schedule.created_by, schedule.organization, Role.MANAGER)
        if user.removed:
            raise PermissionDenied(f"{schedule.created_by!r}, who made the schedule, is no user of this store any more")
        return Actor(user.name, user.organization, user.role, frozenset(user.permissions))
