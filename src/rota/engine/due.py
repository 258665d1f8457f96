"""From a due time to a row that the store takes: what the template and the schedule say, as they stand now."""

from __future__ import annotations

from random import Random

import msgspec

from rota.engine.registry import Known, Registry, override
from rota.engine.submit import check_params
from rota.errors import OrganizationUnavailable, PermissionDenied, QueueFull, TemplateUnavailable
from rota.model.gate import Actor, Role, may_use
from rota.model.params import encode_params
from rota.model.schedules import Schedule
from rota.model.values import SECOND, Instant, NewRow, OrganizationState, Origin, Policy, TemplateState
from rota.ports.clock import Ids
from rota.ports.schedules import DueSchedule


class DueRows:
    """Builds the rows of due times from what the registry knows. It asks the store for nothing: the store may be asking it."""

    def __init__(self, registry: Registry, ids: Ids, rng: Random) -> None:
        """Take what rows are built from."""
        self._registry = registry
        self._ids = ids
        self._rng = rng
        self._taken: dict[str, int] = {}
        """How many jobs each organization got in this transaction: its room is what it was at the beginning."""

    def begin(self) -> None:
        """Begin a transaction."""
        self._taken = {}

    def row(self, due: DueSchedule, due_at: Instant, now: Instant) -> NewRow:
        """Build one row, or refuse it: the refusal becomes the due time's fate."""
        schedule = due.schedule
        known = self._known(schedule)
        self._refuse_full(due)
        run_at = max(now, due_at + (self._rng.randrange(schedule.jitter + 1) if schedule.jitter else 0))
        row = self.build(schedule, known, schedule.params, now=now, run_at=run_at)
        row.due_at = due_at
        self._taken[schedule.organization] = self._taken.get(schedule.organization, 0) + 1
        return row

    def build(self, schedule: Schedule, known: Known, params: dict[str, object], *, now: Instant, run_at: Instant) -> NewRow:
        """Build the row of one job of a schedule."""
        force = known.force
        merged = {**(force.default_params or {}), **params}
        check_params(known, merged)
        policy = override(force.policy, priority=schedule.priority, max_retries=None, timeout=None)
        policy = self._within_rights(schedule, known, policy)
        return NewRow(
            job_id=self._ids.take(1, now)[0],
            job_type=known.name,
            params=encode_params(merged, limit_bytes=force.payload_max),
            policy=policy,
            run_at=run_at,
            template_id=known.template_id,
            organization_id=schedule.organization,
            origin=Origin.SCHEDULE,
            owner=schedule.created_by,
            expires_at=None if force.queue_ttl is None else run_at + round(force.queue_ttl * SECOND),
            schedule_id=schedule.id,
            run_as=schedule.run_as,
        )

    def _known(self, schedule: Schedule) -> Known:
        known = self._registry.find(schedule.template)
        if known is None or known.template_id is None:
            raise TemplateUnavailable(f"template {schedule.template!r} is not there any more")
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

    def _refuse_full(self, due: DueSchedule) -> None:
        name = due.schedule.organization
        if due.room is not None and due.room - self._taken.get(name, 0) <= 0:
            raise QueueFull(f"organization {name!r} has as many jobs queued as its max_queued allows")
