"""Organizations and users in SQL. Each change advances the definitions' version and is audited; a repeated one does neither."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.errors import NotFound, Refused, UnknownOrganization
from rota.model.definitions import Organization, OrganizationState, User
from rota.model.gate import Actor, Role
from rota.model.values import Held, Instant, moment
from rota.stores.verbs.db import Db
from rota.stores.verbs.limits import offer_again
from rota.stores.verbs.verbs import audit

DEFAULT = "default"
_CHANGED = {OrganizationState.ACTIVE: "resume", OrganizationState.SUSPENDED: "suspend", OrganizationState.REMOVED: "remove"}
_strings = msgspec.json.Decoder(tuple[str, ...])


def put_organization(db: Db, organization: Organization, actor: Actor, now: Instant) -> None:
    """Make or change an organization."""
    name = organization.name
    present = _organization(db, name)
    before, after = None if present is None else _limits(present), _limits(organization)
    if before == after:
        return
    db.change("put_organization", name=name, now=now, **after)
    db.change("advance_definitions")
    word = "create" if present is None else "change"
    audit(db, actor, now, f"organization.{word}", ("organization", name), before=before, after=after, organization=name)
    if present is not None and present.max_running != organization.max_running:
        offer_again(db, f"{Held.ORGANIZATION_LIMIT}:{name}")


def set_state(db: Db, name: str, state: OrganizationState, actor: Actor, now: Instant) -> None:
    """Suspend, resume or remove an organization."""
    present = _organization(db, name)
    if present is None:
        raise UnknownOrganization(f"there is no organization {name!r} in this store")
    if present.state is state:
        return
    if name == DEFAULT and state is OrganizationState.REMOVED:
        raise Refused(f"organization {DEFAULT!r} can't be removed: jobs that name no organization are its; suspend it instead")
    db.change("set_organization_state", name=name, state=state)
    db.change("advance_definitions")
    sides = {"before": {"state": present.state}, "after": {"state": state}}
    audit(db, actor, now, f"organization.{_CHANGED[state]}", ("organization", name), **sides, organization=name)
    if state is not OrganizationState.SUSPENDED:
        # Resumed, they may run; removed, they are to fail: both need a claim that meets them.
        offer_again(db, f"{Held.SUSPENDED}:{name}")


def organizations(db: Db) -> list[Organization]:
    """Return every organization."""
    return [_organization_from(row) for row in db.rows("organizations")]


def put_user(db: Db, user: User, actor: Actor, now: Instant) -> None:
    """Make or change a user; one that was removed comes back."""
    organization = _organization(db, user.organization)
    if organization is None or organization.state is OrganizationState.REMOVED:
        raise UnknownOrganization(f"there is no organization {user.organization!r} that could have users: make it, or resume it, first")
    present = _user(db, user.name)
    before, after = None if present is None else _rights(present), _rights(user)
    if before == after:
        return
    if user.role is not Role.MANAGER:
        _keep_a_manager(db, present)
    permissions = msgspec.json.encode(user.permissions).decode()
    db.change(
        "put_user", name=user.name, organization_id=user.organization, role=user.role, permissions=permissions, actor=actor.name, now=now
    )
    db.change("advance_definitions")
    # Who moves between organizations is the business of neither: only a system manager reads that entry.
    moved = present is not None and present.organization != user.organization
    word = "add" if present is None or present.removed else "change"
    audit(
        db,
        actor,
        now,
        f"user.{word}",
        ("user", user.name),
        before=before,
        after=after,
        organization=None if moved else user.organization,
    )


def remove_user(db: Db, name: str, actor: Actor, now: Instant) -> None:
    """Mark a user as removed."""
    present = _user(db, name)
    if present is None:
        raise NotFound(f"there is no user {name!r} in this store")
    if present.removed:
        return
    _keep_a_manager(db, present)
    db.change("remove_user", name=name, now=now)
    db.change("advance_definitions")
    audit(db, actor, now, "user.remove", ("user", name), before=_rights(present), organization=present.organization)


def users(db: Db) -> list[User]:
    """Return every user."""
    return [_user_from(row) for row in db.rows("users")]


def _keep_a_manager(db: Db, present: User | None) -> None:
    """Refuse to take the rights of the last system manager: nobody could give them back by name."""
    if present is None or present.removed or present.role is not Role.MANAGER or db.value("other_managers", name=present.name):
        return
    raise Refused(f"{present.name!r} is the last system manager of this store: make another one first")


def _organization(db: Db, name: str) -> Organization | None:
    row = db.row("organization", name=name)
    return None if row is None else _organization_from(row)


def _organization_from(row: tuple[Any, ...]) -> Organization:
    return Organization(
        name=row[0],
        display_name=row[1],
        state=OrganizationState(row[2]),
        max_running=row[3],
        max_queued=row[4],
        max_priority=row[5],
        created_at=moment(row[6]),
    )


def _limits(organization: Organization) -> dict[str, Any]:
    return {name: getattr(organization, name) for name in ("display_name", "max_running", "max_queued", "max_priority")}


def _user(db: Db, name: str) -> User | None:
    row = db.row("user", name=name)
    return None if row is None else _user_from(row)


def _user_from(row: tuple[Any, ...]) -> User:
    return User(
        name=row[0],
        organization=row[1],
        role=Role(row[2]),
        permissions=_strings.decode(row[3]),
        removed=row[4] == "REMOVED",
        created_at=moment(row[5]),
    )


def _rights(user: User) -> dict[str, Any]:
    return {"organization": user.organization, "role": user.role, "permissions": user.permissions, "removed": user.removed}
