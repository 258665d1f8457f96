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
    READ_WEBHOOKS = "read webhooks and their deliveries"
    WEBHOOKS = "make, change and test webhooks"
    DELETE_WEBHOOKS = "delete webhooks"
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
        Right.READ_WEBHOOKS: (_ALL, _ORGANIZATION, _NONE),
        Right.WEBHOOKS: (_ALL, _ORGANIZATION, _NONE),
        Right.DELETE_WEBHOOKS: (_ALL, _NONE, _NONE),
        Right.MANAGE_TEMPLATES: (_ALL, _NONE, _NONE),
        Right.MANAGE_ORGANIZATIONS: (_ALL, _NONE, _NONE),
        Right.OPERATE: (_ALL, _NONE, _NONE),
    }.items()
}


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

    def holds(self, organization: str, owner: str | None) -> bool:
        """Say whether a row of this organization and owner is inside."""
        return self.organization in {None, organization} and self.owner in {None, owner}


EVERYTHING = Scope()


def scope_of(actor: Actor, operation: Right) -> Scope:
    """Return the rows that the actor may do this to, or refuse if there can be none."""
    if actor.operations is not None and operation not in actor.operations:
        raise PermissionDenied(f"{actor.name!r} came with a token that may not {operation}: make one that may")
    match RIGHTS[operation][actor.role]:
        case Reach.ALL:
            return EVERYTHING
        case Reach.ORGANIZATION:
            return Scope(actor.organization)
        case Reach.OWN:
            return Scope(actor.organization, actor.name)
        case Reach.NONE:
            raise PermissionDenied(f"{actor.name!r} ({actor.role}) may not {operation}")


def act_in(actor: Actor, operation: Right, organization: str | None) -> Actor:
    """Return the actor as acting in an organization: its own, or any other if its right reaches that far."""
    scope = scope_of(actor, operation)
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
