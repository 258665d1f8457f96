"""The definitions of a relational store: templates, organizations, users, pauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.model.definitions import Organization, OrganizationState, Template, TemplateState, User
from rota.model.gate import Actor
from rota.model.lanes import JobLane, NewestParams, QueueInfo, Takes
from rota.model.values import Instant
from rota.stores.verbs import definitions, lanes, organizations, param_digests, recovery
from rota.stores.verbs.base import Base, Hold


class Defining(Base):
    """What people and code say of jobs before there are any."""

    def definitions(self) -> int:
        """Return the version of the definitions."""
        with self._reading() as db:
            return int(db.value("definitions_version"))

    def put_templates(self, templates: Sequence[Template], *, actor: Actor, now: Instant) -> None:
        """Make or update templates."""
        with self._reading() as db:
            news, unrecorded = definitions.news(db, templates), param_digests.unrecorded(db, param_digests.stated_by(templates))
        # Most processes say what is there already: that needs no lock, and no right to write.
        if news:
            self._write(lambda db: definitions.put_templates(db, news, actor, now))
        if unrecorded:
            self._write(lambda db: param_digests.record(db, unrecorded, now))

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
        """Set and take back overrides."""
        return self._write(lambda db: definitions.set_template(db, template, actor, now, overrides=overrides, unset=unset, version=version))

    def set_template_state(self, name: str, state: TemplateState, *, actor: Actor, now: Instant, version: int | None = None) -> Template:
        """Enable, disable or archive a template."""
        return self._write(lambda db: definitions.set_template_state(db, name, state, actor, now, version=version))

    def drop_template(self, name: str, *, actor: Actor, now: Instant, version: int | None = None) -> None:
        """Remove a template that has no jobs."""
        with self._reading(long=True) as db:
            newest = definitions.look_for_jobs(db, name)
        self._write(lambda db: definitions.drop_template(db, name, actor, now, newest=newest, version=version), hold=Hold.STILL, long=True)

    def templates(self) -> list[Template]:
        """Return every template."""
        with self._reading() as db:
            return definitions.templates(db)

    def put_params(self, stated: Mapping[str, Takes], *, now: Instant) -> None:
        """Record what handlers take."""
        with self._reading() as db:
            unrecorded = param_digests.unrecorded(db, stated)
        if unrecorded:
            self._write(lambda db: param_digests.record(db, unrecorded, now))

    def newest_params(self, job_type: str) -> NewestParams | None:
        """Return what the newest handler of a type takes."""
        with self._reading() as db:
            return param_digests.newest(db, job_type)

    def lanes(self) -> list[JobLane]:
        """Return every lane."""
        with self._reading() as db:
            return lanes.lanes(db)

    def place_strays(self) -> int:
        """Put live jobs without a lane into the lane of their type."""
        with self._reading() as db:
            if not lanes.has_strays(db):
                return 0
        return self._write(lanes.place_strays)

    def queues(self, *, look: int) -> list[QueueInfo]:
        """Return every queue."""
        with self._reading() as db, db.snapshot():
            return lanes.queues(db, recovery.workers(db, ended=False), look=look)
        raise AssertionError  # a context manager may swallow an error, for all that mypy knows

    def put_adhoc_type(self, job_type: str, handler: str, *, actor: Actor, now: Instant) -> None:
        """Record the handler of a type without a template."""
        with self._reading() as db:
            is_here = definitions.has_adhoc_type(db, job_type, handler)
        if not is_here:
            self._write(lambda db: definitions.put_adhoc_type(db, job_type, handler, actor, now))

    def adhoc_types(self) -> dict[str, str]:
        """Return the types without a template, with their handlers."""
        with self._reading() as db:
            return dict(db.rows("adhoc_types"))

    def pause(self, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
        """Begin a pause."""
        self._write(lambda db: definitions.pause(db, kind, name, actor, now))

    def resume(self, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
        """End a pause and give back what it parked."""
        self._write(lambda db: definitions.resume(db, kind, name, actor, now))

    def pauses(self) -> list[tuple[str, str]]:
        """Return what is paused."""
        with self._reading() as db:
            return [(row[0], row[1]) for row in db.rows("pauses")]

    def put_organization(self, organization: Organization, *, actor: Actor, now: Instant) -> None:
        """Make or change an organization."""
        self._write(lambda db: organizations.put_organization(db, organization, actor, now))

    def set_organization_state(self, name: str, state: OrganizationState, *, actor: Actor, now: Instant) -> None:
        """Suspend, resume or remove an organization."""
        self._write(lambda db: organizations.set_state(db, name, state, actor, now))

    def organizations(self) -> list[Organization]:
        """Return every organization."""
        with self._reading() as db:
            return organizations.organizations(db)

    def put_user(self, user: User, *, actor: Actor, now: Instant) -> None:
        """Make or change a user."""
        self._write(lambda db: organizations.put_user(db, user, actor, now))

    def remove_user(self, name: str, *, actor: Actor, now: Instant) -> None:
        """Mark a user as removed."""
        self._write(lambda db: organizations.remove_user(db, name, actor, now))

    def users(self) -> list[User]:
        """Return every user."""
        with self._reading() as db:
            return organizations.users(db)
