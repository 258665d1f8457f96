"""Definitions in the store: templates, organizations, users and pauses. A part of `rota.ports.store`, by the same rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rota.model.definitions import Organization, OrganizationState, Template, TemplateState, User
from rota.model.gate import Actor
from rota.model.lanes import JobLane, NewestParams, QueueInfo, Takes
from rota.model.values import Instant


class Definitions(Protocol):
    """What the store keeps of definitions."""

    def definitions(self) -> int:
        """Return the version that every change to templates, pauses or organizations advances."""

    def put_templates(self, templates: Sequence[Template], *, actor: Actor, now: Instant) -> None:
        """Record what the code says of templates, by name: `defaults` and `job_type`. Those that are the same change nothing.

        State and overrides of one that is there stay as they are. What its handler takes is recorded by digest, with the lane of its jobs.
        """

    def set_template(
        self,
        template: Template,
        *,
        actor: Actor,
        now: Instant,
        overrides: dict[str, object],
        unset: Sequence[str] = (),
        version: int | None = None,
    ) -> Template:
        """Set some overrides of a template and take others back, making it (as `template` says) if it is not there. Audited.

        Raise ChangedMeanwhile, writing nothing, if a `version` is given and is not the one it has; one that is not there has 0.
        """

    def set_template_state(self, name: str, state: TemplateState, *, actor: Actor, now: Instant, version: int | None = None) -> Template:
        """Enable, disable or archive a template. Again: nothing more. Audited. Raise UnknownTemplate, ChangedMeanwhile."""

    def drop_template(self, name: str, *, actor: Actor, now: Instant, version: int | None = None) -> None:
        """Remove a template that has no jobs and no schedules. Audited. Raise UnknownTemplate, TemplateInUse, ChangedMeanwhile."""

    def templates(self) -> list[Template]:
        """Return every template."""

    def put_params(self, stated: Mapping[str, Takes], *, now: Instant) -> None:
        """Record what handlers take, by job type: names and JSON Schema by digest, and the lane of their jobs. Again: nothing more."""

    def newest_params(self, job_type: str) -> NewestParams | None:
        """Return what the handler of a type takes that was recorded last; None: nothing was recorded."""

    def lanes(self) -> list[JobLane]:
        """Return every lane, the oldest first. A lane is added with its first job, which advances the version; none is ever removed."""

    def place_strays(self) -> int:
        """Put live jobs without a lane, which only a program of an earlier version writes, into the lane of their type; return how many."""

    def queues(self, *, look: int) -> list[QueueInfo]:
        """Return every queue that has or had jobs, is served by name or is paused, by name. About `look` waiting jobs are counted."""

    def put_adhoc_type(self, job_type: str, handler: str, *, actor: Actor, now: Instant) -> None:
        """Record which function the jobs of a type without a template call. Again: nothing more; what is new advances the version.

        Raise InvalidOption if it is the name of a template, has another handler, or is one type too many.
        """

    def adhoc_types(self) -> dict[str, str]:
        """Return the types of jobs without a template, each with its handler as module:function."""

    def put_organization(self, organization: Organization, *, actor: Actor, now: Instant) -> None:
        """Make an organization or change its display name and limits; its state stays. Audited."""

    def set_organization_state(self, name: str, state: OrganizationState, *, actor: Actor, now: Instant) -> None:
        """Suspend, resume or remove an organization. Nothing of it is deleted. Audited. Raise UnknownOrganization.

        'default' can't be removed (Refused). Made ACTIVE or REMOVED, its jobs that were parked are offered again.
        """

    def organizations(self) -> list[Organization]:
        """Return every organization, by name."""

    def put_user(self, user: User, *, actor: Actor, now: Instant) -> None:
        """Make or change a user; one that was removed comes back. Audited. Raise UnknownOrganization.

        The last system manager stays one: making it less is Refused, as is removing it.
        """

    def remove_user(self, name: str, *, actor: Actor, now: Instant) -> None:
        """Mark a user as removed: the name stays taken, and may do nothing. Audited. Raise NotFound."""

    def users(self) -> list[User]:
        """Return every user, removed ones too, by name."""

    def pause(self, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
        """Pause a template, an organization, a queue or (kind 'all') everything. Again: nothing more. Audited."""

    def resume(self, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
        """End a pause and give back what it parked. Audited."""

    def pauses(self) -> list[tuple[str, str]]:
        """Return what is paused, as (kind, name)."""
