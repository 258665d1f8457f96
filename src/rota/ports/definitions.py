"""Definitions in the store: templates, organizations, users, pauses and tokens. A part of `rota.ports.store`, by the same rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from rota.model.access import Token
from rota.model.connections import Connection
from rota.model.definitions import Organization, OrganizationState, Template, TemplateState, User
from rota.model.gate import Actor
from rota.model.grants import CustomRole, Grant, GrantChanges
from rota.model.lanes import JobLane, NewestParams, QueueInfo, Takes
from rota.model.stored_settings import Stored
from rota.model.values import Instant


class Definitions(Protocol):
    """What the store keeps of definitions."""

    def definitions(self) -> int:
        """Return the version that every change to templates, pauses or organizations advances."""

    def stored_settings(self) -> list[Stored]:
        """Return every setting that the store keeps."""

    def put_setting(self, name: str, value: str | None, *, actor: Actor, now: Instant) -> None:
        """Set a setting, or remove it if the value is None. Again: nothing more. Audited."""

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

    def define_template(self, template: Template, *, actor: Actor, now: Instant, version: int | None = None) -> Template:
        """Create or change a template that is SQL or a command: kind, body and defaults. Again: nothing more. Audited, without its body.

        Jobs that were enqueued keep the version they were enqueued with. Raise Refused if the name is that of a template in Python, and
        ChangedMeanwhile as `set_template` does.
        """

    def set_template_state(self, name: str, state: TemplateState, *, actor: Actor, now: Instant, version: int | None = None) -> Template:
        """Enable, disable or archive a template. Again: nothing more. Audited. Raise UnknownTemplate, ChangedMeanwhile."""

    def drop_template(self, name: str, *, actor: Actor, now: Instant, version: int | None = None) -> None:
        """Remove a template that has no jobs and no schedules. Audited. Raise UnknownTemplate, TemplateInUse, ChangedMeanwhile."""

    def templates(self) -> list[Template]:
        """Return every template."""

    def put_params(self, stated: Mapping[str, Takes], *, now: Instant) -> None:
        """Record what handlers take, by job type: names and JSON Schema by digest, and the lane of their jobs. Again: nothing more.

        A schema that is new advances the version of the definitions.
        """

    def newest_params(self, job_type: str) -> NewestParams | None:
        """Return what the handler of a type takes that was recorded last, with a schema if there is one; None: nothing was recorded."""

    def schemas_of_live_workers(self, job_type: str) -> list[dict[str, Any] | None]:
        """Return the schemas of a type behind the digests that live workers announce; None among them: one is not recorded."""

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

    def add_role(self, role: CustomRole, *, actor: Actor, now: Instant) -> bool:
        """Keep a new role of an organization; False, writing nothing, if its name is taken there. Audited."""

    def drop_role(self, role_id: str, *, actor: Actor, now: Instant) -> None:
        """Remove a role. Audited. Raise NotFound, or StillNeeded while a grant or a job names it."""

    def roles(self) -> list[CustomRole]:
        """Return every role, by organization and name."""

    def change_grants(self, changes: GrantChanges, *, actor: Actor, now: Instant, definitions: int | None = None) -> list[Grant]:
        """Add, remove and narrow grants, all or none; return those that were added as they are now. Each change is audited.

        One that is there already, by the same grantor, may get the grant option and is otherwise left; one that is gone is left out.
        Raise DefinitionsChanged, writing nothing, if `definitions` is not the version any more: the caller has decided by what it knew.
        Raise Refused for a job or a connection that was dropped. Dropping one removes the grants on it, and so does removing a user, or
        moving it to another organization: with those that rest on them.
        """

    def grants(self) -> list[Grant]:
        """Return every grant, by organization and grantee."""

    def put_connection(self, connection: Connection, *, actor: Actor, now: Instant, version: int | None = None) -> Connection:
        """Create a connection, or change url, login, secret and multi of the one that has its name; return it. Audited.

        Again: nothing more. Raise ChangedMeanwhile, writing nothing, if a `version` is given and is not the one it has; one that is not
        there has 0.
        """

    def drop_connection(self, name: str, *, organization: str, actor: Actor, now: Instant, version: int | None = None) -> None:
        """Remove a connection, and the grants on it. Audited. Raise NotFound, ChangedMeanwhile, or StillNeeded while jobs use it.

        A job uses the connection that its template names. One in SQL that names none uses the one called 'default'.
        """

    def connections(self) -> list[Connection]:
        """Return every connection, by organization and name."""

    def pause(self, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
        """Pause a template, an organization, a queue or (kind 'all') everything. Again: nothing more. Audited."""

    def resume(self, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
        """End a pause and give back what it parked. Audited."""

    def pauses(self) -> list[tuple[str, str]]:
        """Return what is paused, as (kind, name)."""


class Access(Protocol):
    """Tokens and browser sessions. A secret never comes here: only its digest does."""

    def add_token(self, token: Token, digest: bytes, *, actor: Actor, now: Instant) -> None:
        """Keep a new token. Audited. The same id again: nothing more."""

    def tokens(self) -> list[Token]:
        """Return every token, revoked and expired ones too, newest first."""

    def token_by(self, digest: bytes) -> Token | None:
        """Return the token of this digest."""

    def revoke_token(self, token_id: str, *, actor: Actor, now: Instant) -> Token:
        """Let a token open nothing any more, and end its sessions. Audited. Again: nothing more. Raise NotFound."""

    def note_use(self, token_id: str, *, now: Instant) -> None:
        """Write down that a token was used. Nothing, if a later use is known."""

    def add_session(self, digest: bytes, token_id: str, *, now: Instant, expires_at: Instant) -> None:
        """Keep a browser session that stands for a token."""

    def session(self, digest: bytes, *, now: Instant) -> Token | None:
        """Return the token behind a session that has neither ended nor expired."""

    def tokens_behind(self, digests: Collection[bytes], *, now: Instant) -> dict[bytes, Token]:
        """Return the token of each of these digests: its own, or that of a session that has neither ended nor expired. One statement."""

    def end_session(self, digest: bytes, *, now: Instant) -> None:
        """End a session. Again, or one that is not there: nothing."""

    def forget_sessions(self, *, before: Instant, limit: int) -> int:
        """Remove up to `limit` sessions, ended or not, whose time was over at this moment; return how many."""
