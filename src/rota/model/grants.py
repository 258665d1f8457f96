"""Grants: which privilege was given to whom, on what and by whom. Pure: the gate says what a privilege gives, the store keeps them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec.structs import replace


class Privilege(StrEnum):
    """The privileges."""

    CREATE_JOB = "CREATE JOB"
    EXECUTE_EXTERNAL_JOB = "EXECUTE EXTERNAL JOB"
    VIEW_JOB_HISTORY = "VIEW JOB HISTORY"
    EXECUTE = "EXECUTE"
    ALTER = "ALTER"
    DROP = "DROP"
    ALL = "ALL"
    USE = "USE"
    ROLE = "ROLE"


class TargetKind(StrEnum):
    """The kinds of things that a privilege can be granted on."""

    JOB = "JOB"
    CONNECTION = "CONNECTION"
    SECRET = "SECRET"  # noqa: S105 - a word of the language
    ROLE = "ROLE"


class GranteeKind(StrEnum):
    """The kinds of grantees."""

    ANY = ""
    """A name of which the statement does not say whether it is a user's or a role's."""
    USER = "USER"
    ROLE = "ROLE"
    PUBLIC = "PUBLIC"


PRIVILEGES: dict[Privilege, tuple[TargetKind | None, ...]] = {
    Privilege.CREATE_JOB: (None,),
    Privilege.EXECUTE_EXTERNAL_JOB: (None,),
    Privilege.VIEW_JOB_HISTORY: (None, TargetKind.JOB),
    Privilege.EXECUTE: (TargetKind.JOB,),
    Privilege.ALTER: (TargetKind.JOB,),
    Privilege.DROP: (TargetKind.JOB,),
    Privilege.ALL: (TargetKind.JOB,),
    Privilege.USE: (TargetKind.CONNECTION, TargetKind.SECRET),
    Privilege.ROLE: (TargetKind.ROLE,),
}
"""The things that each can be granted on; None: on nothing in particular."""
ALL_ON_JOB = (Privilege.EXECUTE, Privilege.ALTER, Privilege.DROP, Privilege.VIEW_JOB_HISTORY)
"""ALL is these, each granted for itself."""
OF_ADMINS = frozenset({Privilege.CREATE_JOB, *ALL_ON_JOB, Privilege.USE})
"""The privileges that an admin may grant in its organization: those whose rights an admin has itself."""


class CustomRole(msgspec.Struct, kw_only=True, frozen=True):
    """A role of an organization: its members hold the privileges that it was granted."""

    id: str
    organization: str
    name: str
    created_by: str
    created_at: datetime | None = None


class Entitlement(msgspec.Struct, frozen=True):
    """A privilege, and the thing that it is about."""

    privilege: Privilege
    target_kind: TargetKind | None = None
    target_id: str | None = None

    def covers(self, other: Entitlement) -> bool:
        """Say whether who has this has the other one too: a privilege on nothing in particular is one on everything."""
        return self.privilege is other.privilege and (self.target_kind is None or self == other)


class Grant(msgspec.Struct, kw_only=True, frozen=True):
    """One privilege of one grantee, on one thing at most."""

    id: str
    organization: str
    grantee_kind: GranteeKind
    grantee: str
    """The name of a user or a role; empty: PUBLIC."""
    privilege: Privilege
    target_kind: TargetKind | None = None
    target_id: str | None = None
    """The id of a job or a role, the name of a connection or a secret."""
    target: str | None = None
    """The same as people call it. Not stored."""
    target_owner: str | None = None
    """The owner of a job. Not stored."""
    grant_option: bool = False
    """The grantee may grant it further."""
    granted_by: str
    granted_at: datetime | None = None

    @property
    def entitlement(self) -> Entitlement:
        """What it entitles to."""
        return Entitlement(self.privilege, self.target_kind, self.target_id)

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it the same grant: given again, it is there already."""
        return self.organization, self.grantee_kind, self.grantee, self.entitlement, self.granted_by

    def __str__(self) -> str:
        """Return it as a message names it."""
        return f"{described(self.privilege, self.target_kind, self.target)} to {self.grantee or GranteeKind.PUBLIC} (by {self.granted_by})"


def described(privilege: Privilege, kind: TargetKind | None, name: str | None) -> str:
    """Return a privilege with its thing, as messages name them."""
    if privilege is Privilege.ROLE:
        return f"role {name}"
    return str(privilege) if kind is None else f"{privilege} on {kind.lower()} {name}"


SHOWN = 5
"""Grants that a message names."""


def named_grants(grants: Sequence[Grant]) -> str:
    """Return grants as a message names them: the first few."""
    shown = ", ".join(map(str, grants[:SHOWN]))
    return f"{shown} and {len(grants) - SHOWN:,} more" if len(grants) > SHOWN else shown


class GrantChanges(msgspec.Struct, kw_only=True, frozen=True):
    """What one statement changes: all of it, or nothing."""

    add: tuple[Grant, ...] = ()
    """New ones, and those that get the grant option."""
    remove: tuple[Grant, ...] = ()
    narrow: tuple[Grant, ...] = ()
    """Those that lose the grant option alone."""


class Holdings(msgspec.Struct, frozen=True):
    """The privileges that somebody holds in an organization: as a user, as a member of roles, and as one of everybody."""

    grants: tuple[Grant, ...] = ()
    anywhere: frozenset[Privilege] = frozenset()
    """Those that are about nothing in particular."""
    jobs: Mapping[Privilege, tuple[str, ...]] = {}
    """The ids of jobs by privilege."""

    @property
    def grantable_jobs(self) -> tuple[str, ...]:
        """The jobs on which it may grant something."""
        found = (grant.target_id for grant in self.grants if grant.grant_option and grant.target_kind is TargetKind.JOB)
        return tuple(sorted({job for job in found if job is not None}))

    def has(self, wanted: Entitlement) -> bool:
        """Say whether it holds this."""
        return any(grant.entitlement.covers(wanted) for grant in self.grants)

    def may_grant(self, wanted: Entitlement) -> bool:
        """Say whether it holds this with the option to grant it further."""
        return any(grant.grant_option and grant.entitlement.covers(wanted) for grant in self.grants)


NOTHING = Holdings()


def holdings_of(name: str, organization: str, grants: Iterable[Grant]) -> Holdings:
    """Return what somebody holds in an organization."""
    here = [grant for grant in grants if grant.organization == organization]
    held = tuple(_held(name, here))
    if not held:
        return NOTHING
    jobs: dict[Privilege, set[str]] = {}
    for grant in held:
        if grant.target_kind is TargetKind.JOB and grant.target_id is not None:
            jobs.setdefault(grant.privilege, set()).add(grant.target_id)
    return Holdings(
        held,
        frozenset(grant.privilege for grant in held if grant.target_kind is None),
        {privilege: tuple(sorted(ids)) for privilege, ids in jobs.items()},
    )


def _held(name: str, grants: Collection[Grant]) -> list[Grant]:
    """Return the grants of one organization that somebody holds, those of its roles included."""
    own = [grant for grant in grants if _is_directly(name, grant)]
    roles = {grant.target for grant in own if grant.privilege is Privilege.ROLE}
    return own + [grant for grant in grants if grant.grantee_kind is GranteeKind.ROLE and grant.grantee in roles]


def _is_directly(name: str, grant: Grant) -> bool:
    if grant.grantee_kind is GranteeKind.PUBLIC:
        return True
    return grant.grantee_kind is GranteeKind.USER and grant.grantee == name


IsByRight = Callable[[Grant], bool]
"""Says whether a grant rests on what its grantor is, a manager, an admin or the owner of the job, and so on no other grant."""


def dependents(grants: Collection[Grant], changes: GrantChanges, is_by_right: IsByRight) -> tuple[Grant, ...]:
    """Return the grants of an organization that would rest on nothing if those of a change were gone."""
    gone, narrowed = {grant.id for grant in changes.remove}, {grant.id for grant in changes.narrow}
    left = [replace(grant, grant_option=grant.grant_option and grant.id not in narrowed) for grant in grants if grant.id not in gone]
    before, after = _supported(grants, is_by_right), _supported(left, is_by_right)
    return tuple(grant for grant in grants if grant.id in before - after - gone)


def _supported(grants: Collection[Grant], is_by_right: IsByRight) -> set[str]:
    """Return the ids of the grants that go back to one by right. Two that rest on each other alone rest on nothing."""
    kept = list(filter(is_by_right, grants))
    open_ = [grant for grant in grants if grant not in kept]
    while True:
        holders = {grant.granted_by: Holdings(tuple(_held(grant.granted_by, kept))) for grant in open_}
        more = [grant for grant in open_ if holders[grant.granted_by].may_grant(grant.entitlement)]
        if not more:
            return {grant.id for grant in kept}
        kept += more
        open_ = [grant for grant in open_ if grant not in more]
