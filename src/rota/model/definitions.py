"""What people and programs define: templates, organizations and users, as the store keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from rota.errors import TemplateUnavailable
from rota.model.gate import Role, grants_by_right
from rota.model.grants import Grant, IsByRight
from rota.model.lanes import Takes
from rota.model.schedules import JobKind


class TemplateState(StrEnum):
    """Whether a template takes new jobs. An archived one is out of sight too."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"
    ARCHIVED = "ARCHIVED"


def unfit_for_schedules(name: str, state: str) -> TemplateUnavailable:
    """Return the error for a schedule that would come into use on a template that takes no jobs."""
    return TemplateUnavailable(
        f"template {name!r} is {state.lower()}, and a schedule needs one that is enabled; `rota template enable {name}` changes that"
    )


class OrganizationState(StrEnum):
    """Whether an organization's jobs run: a suspended one's wait, a removed one's fail."""

    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"
    REMOVED = "REMOVED"


class Organization(msgspec.Struct, kw_only=True, frozen=True):
    """One tenant and its limits; None does not limit."""

    name: str
    display_name: str
    state: OrganizationState = OrganizationState.ACTIVE
    max_running: int | None = None
    max_queued: int | None = None
    max_priority: int | None = None
    created_at: datetime | None = None


class User(msgspec.Struct, kw_only=True, frozen=True):
    """Somebody who may ask for things, and as what."""

    id: str | None = None
    """Never changes. None: a new one, which the store is given with its first record."""
    name: str
    organization: str
    role: Role
    permissions: tuple[str, ...] = ()
    removed: bool = False
    created_at: datetime | None = None


def by_right(users: Mapping[str, User]) -> IsByRight:
    """Return what tells grants that rest on what their grantor is. A name that is no user's was vouched for by a program."""

    def is_by_right(grant: Grant) -> bool:
        user = users.get(grant.granted_by)
        if user is None:
            return True
        role = user.role if user.organization == grant.organization or user.role is Role.MANAGER else Role.USER
        return grants_by_right(role, grant.privilege, is_owner=grant.target_owner == user.name)

    return is_by_right


class Template(msgspec.Struct, kw_only=True, frozen=True):
    """A named definition as the store keeps it.

    `defaults` is what the code says, `overrides` what people have set on top; both are objects of the fields of
    `rota.model.templates.Spec`. What is in force is settings, then defaults, then overrides.
    """

    id: str
    name: str
    job_type: str
    state: TemplateState = TemplateState.ENABLED
    version: int = 0
    defaults: dict[str, object] = msgspec.field(default_factory=dict)
    overrides: dict[str, object] = msgspec.field(default_factory=dict)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    kind: JobKind = JobKind.PYTHON
    body: str | None = None
    """SQL or a command line, where it is not Python."""
    created_by: str = "system"
    takes: Takes | None = None
    """What its handler takes, where a process that has it says so. Not read back: see `newest_params`."""
    broken: str | None = None
    """What can't be read of it; its jobs wait until that is set anew."""
