"""The gate: who may do what to whose. Every operation of every surface passes here, and nothing else decides.

`RIGHTS` is the whole of it: for each role and operation, how far it reaches. `docs/guide/organizations.md` is tested
against it. Nobody learns from a refusal whether a thing of somebody else exists: what lies beyond an actor's reach is
treated as if it were not there (`NotFound`), what no reach could allow is `PermissionDenied`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rota.errors import InvalidOption, PermissionDenied
from rota.model.checks import check_name, word_of
from rota.model.grants import NOTHING, OF_ADMINS, Entitlement, Holdings, Privilege, TargetKind

NAME_MAX = 255


class Role(StrEnum):
    """What an actor is to its organization."""

    MANAGER = "system_manager"
    ADMIN = "admin"
    USER = "user"


class Right(StrEnum):
    """What can be asked for; the value is how messages name it."""

    READ = "read jobs"
    READ_LOG = "read execution logs"
    READ_STATS = "read statistics and the queue"
    READ_AUDIT = "read the audit trail"
    SUBMIT = "submit jobs"
    CANCEL = "cancel jobs"
    STEER = "change, move or retry jobs"
    PAUSE = "pause and resume an organization"
    DELETE = "delete jobs"
    READ_ORGANIZATIONS = "read organizations and users"
    SCHEDULE = "make, change and fire schedules and calendars"
    DELETE_SCHEDULES = "delete schedules and calendars"
    CREATE_JOBS = "create jobs with SQL"
    ALTER_JOBS = "alter jobs with SQL"
    DROP_JOBS = "drop jobs with SQL"
    EXECUTE_JOBS = "execute jobs with SQL"
    EXTERNAL = "create and alter jobs that run commands"
    READ_WEBHOOKS = "read webhooks and their deliveries"
    WEBHOOKS = "make, change and test webhooks"
    DELETE_WEBHOOKS = "delete webhooks"
    MANAGE_CONNECTIONS = "manage connections"
    GRANT = "grant and revoke privileges"
    MANAGE_GRANTS = "manage roles and everybody's grants"
    MANAGE_SECRETS = "create, change and delete secrets"
    MANAGE_TEMPLATES = "manage templates"
    MANAGE_ORGANIZATIONS = "manage organizations and users"
    OPERATE = "operate workers, pauses, recovery and transactions"


class Reach(StrEnum):
    """How far a right goes."""

    ALL = "all"
    ORGANIZATION = "organization"
    OWN = "own"
    NONE = "none"


_ALL, _ORGANIZATION, _OWN, _NONE = Reach

RIGHTS: dict[Right, dict[Role, Reach]] = {
    operation: dict(zip(Role, reaches, strict=True))
    for operation, reaches in {
        #                                manager, admin, user
        Right.READ: (_ALL, _ORGANIZATION, _OWN),
        Right.READ_LOG: (_ALL, _ORGANIZATION, _NONE),
        Right.READ_STATS: (_ALL, _ORGANIZATION, _NONE),
        Right.READ_AUDIT: (_ALL, _ORGANIZATION, _NONE),
        Right.SUBMIT: (_ALL, _ORGANIZATION, _ORGANIZATION),
        Right.CANCEL: (_ALL, _ORGANIZATION, _OWN),
        Right.STEER: (_ALL, _ORGANIZATION, _NONE),
        Right.PAUSE: (_ALL, _ORGANIZATION, _NONE),
        Right.DELETE: (_ALL, _NONE, _NONE),
        Right.READ_ORGANIZATIONS: (_ALL, _ORGANIZATION, _NONE),
        Right.SCHEDULE: (_ALL, _ORGANIZATION, _NONE),
        Right.DELETE_SCHEDULES: (_ALL, _NONE, _NONE),
        Right.CREATE_JOBS: (_ALL, _ORGANIZATION, _NONE),
        Right.ALTER_JOBS: (_ALL, _ORGANIZATION, _OWN),
        Right.DROP_JOBS: (_ALL, _ORGANIZATION, _OWN),
        Right.EXECUTE_JOBS: (_ALL, _ORGANIZATION, _OWN),
        Right.EXTERNAL: (_ALL, _NONE, _NONE),
        Right.READ_WEBHOOKS: (_ALL, _ORGANIZATION, _NONE),
        Right.WEBHOOKS: (_ALL, _ORGANIZATION, _NONE),
        Right.DELETE_WEBHOOKS: (_ALL, _NONE, _NONE),
        Right.MANAGE_CONNECTIONS: (_ALL, _ORGANIZATION, _NONE),
        Right.GRANT: (_ALL, _ORGANIZATION, _OWN),
        Right.MANAGE_GRANTS: (_ALL, _ORGANIZATION, _NONE),
        Right.MANAGE_SECRETS: (_ALL, _ORGANIZATION, _NONE),
        Right.MANAGE_TEMPLATES: (_ALL, _NONE, _NONE),
        Right.MANAGE_ORGANIZATIONS: (_ALL, _NONE, _NONE),
        Right.OPERATE: (_ALL, _NONE, _NONE),
    }.items()
}

GIVES: dict[Privilege, tuple[Right, ...]] = {
    Privilege.CREATE_JOB: (Right.CREATE_JOBS,),
    Privilege.EXECUTE_EXTERNAL_JOB: (Right.EXTERNAL,),
    Privilege.EXECUTE: (Right.EXECUTE_JOBS, Right.CANCEL),
    Privilege.ALTER: (Right.ALTER_JOBS,),
    Privilege.DROP: (Right.DROP_JOBS,),
    Privilege.VIEW_JOB_HISTORY: (Right.READ, Right.READ_LOG),
}
"""The rights that a privilege gives: in the organization, or on the one job that it was granted on."""
_GIVEN_BY = {right: privilege for privilege, rights in GIVES.items() for right in rights}

WHILE_SUSPENDED = frozenset(
    {
        Right.READ,
        Right.READ_LOG,
        Right.READ_STATS,
        Right.READ_AUDIT,
        Right.READ_ORGANIZATIONS,
        Right.READ_WEBHOOKS,
        Right.CANCEL,
    }
)
"""What is left to the people of an organization that is suspended."""


class Actor(msgspec.Struct, frozen=True):
    """Who asks: a name, its organization, its role there, and the permissions that templates may require.

    A program that has authenticated its users itself gives this value; a plain name is looked up in the store's users.
    """

    name: str
    organization: str = "default"
    role: Role = Role.USER
    permissions: frozenset[str] = frozenset()
    operations: frozenset[Right] | None = None
    """What it may ask for at most, whatever its role: the token it came with was made for that. None: anything."""

    def __post_init__(self) -> None:
        """Refuse what is no name or no role: an actor that is not what it seems would pass where it must not."""
        check_name(self.name, "actor", NAME_MAX)
        check_name(self.organization, "organization", NAME_MAX)
        role = word_of(Role, "role", self.role)
        given: object = self.permissions
        if isinstance(given, str):
            raise InvalidOption(f"permissions={given!r} is not allowed: give a list of names")
        msgspec.structs.force_setattr(self, "role", role)
        msgspec.structs.force_setattr(self, "permissions", frozenset(self.permissions))

    @property
    def is_redacted(self) -> bool:
        """Answers only confirm what it did: it came with a token without the permit `read`."""
        return self.operations is not None and Right.READ not in self.operations


SYSTEM = Actor("system", role=Role.MANAGER)
LOCAL = Actor("local", role=Role.MANAGER)


class Scope(msgspec.Struct, frozen=True):
    """The rows that an actor's right reaches; None does not restrict."""

    organization: str | None = None
    owner: str | None = None
    granted: tuple[str, ...] = ()
    """Ids of jobs (schedules) of other owners that are inside too, with their runs: 32 hexadecimal digits each."""

    def holds(self, organization: str, owner: str | None, schedule_id: str | None = None) -> bool:
        """Say whether a row of this organization, owner and schedule is inside."""
        if self.organization not in {None, organization}:
            return False
        return self.owner in {None, owner} or (schedule_id is not None and schedule_id.replace("-", "") in self.granted)

    def within(self, organization: str | None) -> Scope:
        """Return the part of it that is in an organization, if it is not in one already; None: all of it."""
        return msgspec.structs.replace(self, organization=self.organization or organization)


EVERYTHING = Scope()
HISTORY = Entitlement(Privilege.VIEW_JOB_HISTORY)
NOBODY = ""
"""The owner of nothing: names are not empty."""


def scope_of(actor: Actor, operation: Right, holdings: Holdings = NOTHING) -> Scope:
    """Return the rows that the actor may do this to, or refuse if there can be none.

    It is the wider of what its role reaches and what it holds privileges for. A token is asked first, and a privilege never leaves the
    organization.
    """
    if actor.operations is not None and operation not in actor.operations:
        raise PermissionDenied(f"{actor.name!r} came with a token that may not {operation}: make one that may")
    reach, privilege = RIGHTS[operation][actor.role], _GIVEN_BY.get(operation)
    if reach is Reach.ALL:
        return EVERYTHING
    if reach is Reach.ORGANIZATION or privilege in holdings.anywhere or (operation is Right.GRANT and holdings.may_grant(HISTORY)):
        return Scope(actor.organization)
    jobs = holdings.grantable_jobs if operation is Right.GRANT else () if privilege is None else holdings.jobs.get(privilege, ())
    if reach is Reach.OWN:
        return Scope(actor.organization, actor.name, jobs)
    if jobs:
        return Scope(actor.organization, NOBODY, jobs)
    raise PermissionDenied(f"{actor.name!r} ({actor.role}) may not {operation}")


def is_grantable(operation: Right) -> bool:
    """Say whether privileges can widen what an actor's role reaches."""
    return operation in _GIVEN_BY or operation is Right.GRANT


def grants_by_right(role: Role, privilege: Privilege, *, is_owner: bool) -> bool:
    """Say whether somebody may grant a privilege for what it is: a manager all, an admin what admins reach, the owner of a job on that."""
    return role is Role.MANAGER or is_owner or (role is Role.ADMIN and privilege in OF_ADMINS)


def may_grant(actor: Actor, wanted: Entitlement, holdings: Holdings, *, is_owner: bool) -> bool:
    """Say whether an actor may grant this: nobody grants what they have not."""
    return grants_by_right(actor.role, wanted.privilege, is_owner=is_owner) or holdings.may_grant(wanted)


def may_run_as(actor: Actor, role: str, holdings: Holdings) -> bool:
    """Say whether jobs of an actor may run as a role: a manager's as any, others' as those that the actor was granted."""
    return actor.role is Role.MANAGER or any(grant.privilege is Privilege.ROLE and grant.target == role for grant in holdings.grants)


def uses(actor: Actor, kind: TargetKind, name: str, organization: str, holdings: Holdings) -> bool:
    """Say whether an actor may use a connection or a secret: a manager any, an admin those of its organization, others what was granted."""
    if actor.role is Role.MANAGER:
        return True
    if actor.organization != organization:
        return False
    return actor.role is Role.ADMIN or holdings.has(Entitlement(Privilege.USE, kind, name))


def act_in(actor: Actor, operation: Right, organization: str | None, holdings: Holdings = NOTHING) -> Actor:
    """Return the actor as acting in an organization: its own, or any other if its right reaches that far."""
    scope = scope_of(actor, operation, holdings)
    if organization is None or organization == actor.organization:
        return actor
    if scope.organization is not None:
        raise PermissionDenied(f"{actor.name!r} ({actor.role}) may not {operation} in another organization")
    return msgspec.structs.replace(actor, organization=organization)


def may_use(actor: Actor, requires_permission: str | None) -> bool:
    """Say whether the actor may submit (and have run) jobs of a template that requires this permission."""
    return requires_permission is None or actor.role is Role.MANAGER or requires_permission in actor.permissions


def refuse_unfit(actor: Actor, requires_permission: str | None, template: str) -> None:
    """Refuse an actor who lacks the permission that a template requires."""
    if not may_use(actor, requires_permission):
        raise PermissionDenied(f"{actor.name!r} lacks the permission {requires_permission!r} that template {template!r} requires")
