"""Organizations and users: who shares this store, and what each may do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.errors import InvalidOption, NotFound, Refused, UnknownOrganization
from rota.model.checks import check_name, line, whole
from rota.model.definitions import Organization, OrganizationState, User
from rota.model.gate import Actor, Right, Role
from rota.model.ordering import priority_of
from rota.surfaces.python.base import Base


class Tenants(Base):
    """The part of Rota that keeps organizations and users."""

    def create_organization(
        self,
        name: str,
        *,
        display_name: str | None = None,
        max_running: int | None = None,
        max_queued: int | None = None,
        max_priority: str | int | None = None,
        actor: Actor | str | None = None,
    ) -> Organization:
        """Make an organization. A limit of None does not limit."""
        who = self._session.acts(actor, Right.MANAGE_ORGANIZATIONS)
        check_name(name, "organization", self.settings.name_max)
        limits = {"max_running": max_running, "max_queued": max_queued, "max_priority": max_priority}
        new = Organization(name=name, **self._checked(name, {"display_name": display_name, **limits}))
        present = self._organizations().get(name)
        if present is not None and present.state is OrganizationState.REMOVED:
            raise Refused(f"organization {name!r} was removed and keeps its name: bring it back with resume_organization({name!r})")
        if present is not None and _limits(present) != _limits(new):
            raise Refused(f"organization {name!r} is there already: change it with change_organization({name!r}, …)")
        self._session.open().store.put_organization(new, actor=who, now=self._session.clock.now())
        return self._organizations()[name]

    def change_organization(
        self,
        name: str,
        *,
        display_name: str | UnsetType | None = UNSET,
        max_running: int | UnsetType | None = UNSET,
        max_queued: int | UnsetType | None = UNSET,
        max_priority: str | int | UnsetType | None = UNSET,
        actor: Actor | str | None = None,
    ) -> Organization:
        """Change what is given of an organization; a limit of None is taken away."""
        who = self._session.acts(actor, Right.MANAGE_ORGANIZATIONS)
        limits = {"max_running": max_running, "max_queued": max_queued, "max_priority": max_priority}
        given = {key: value for key, value in {"display_name": display_name, **limits}.items() if value is not UNSET}
        changed = msgspec.structs.replace(self._known_organization(name), **self._checked(name, given))
        self._session.open().store.put_organization(changed, actor=who, now=self._session.clock.now())
        return self._organizations()[name]

    def suspend_organization(self, name: str, *, actor: Actor | str | None = None) -> Organization:
        """Let nothing of an organization start or come in until it is resumed. What runs goes on."""
        return self._set_state(name, OrganizationState.SUSPENDED, actor)

    def resume_organization(self, name: str, *, actor: Actor | str | None = None) -> Organization:
        """Let a suspended organization go on, or bring a removed one back."""
        return self._set_state(name, OrganizationState.ACTIVE, actor)

    def remove_organization(self, name: str, *, actor: Actor | str | None = None) -> Organization:
        """Remove an organization: its waiting jobs fail with "Organization not found", its people may do nothing. Nothing is deleted."""
        return self._set_state(name, OrganizationState.REMOVED, actor)

    def organizations(self, *, removed: bool = False, actor: Actor | str | None = None) -> list[Organization]:
        """Return the organizations that the actor may see, by name; removed ones only if asked for."""
        scope = self._session.scope(actor, Right.READ_ORGANIZATIONS)
        return [
            each
            for each in self._organizations().values()
            if scope.organization in {None, each.name} and (removed or each.state is not OrganizationState.REMOVED)
        ]

    def organization(self, name: str, *, actor: Actor | str | None = None) -> Organization:
        """Return one organization, removed or not."""
        scope = self._session.scope(actor, Right.READ_ORGANIZATIONS)
        if scope.organization not in {None, name}:
            raise _no_organization(name)
        return self._known_organization(name)

    def add_user(
        self,
        name: str,
        *,
        organization: str = "default",
        role: Role | str = "user",
        permissions: Iterable[str] = (),
        actor: Actor | str | None = None,
    ) -> User:
        """Make a user, or bring one back that was removed. From the first one on, names that are no users may do nothing."""
        who = self._session.acts(actor, Right.MANAGE_ORGANIZATIONS)
        check_name(name, "user", self.settings.name_max)
        new = User(name=name, organization=organization, role=role_of(role), permissions=self._permissions(permissions))
        present = self._users().get(name)
        if present is not None and not present.removed and _rights(present) != _rights(new):
            raise Refused(f"user {name!r} is there already: change it with change_user({name!r}, …)")
        self._session.open().store.put_user(new, actor=who, now=self._session.clock.now())
        return self._users()[name]

    def change_user(
        self,
        name: str,
        *,
        organization: str | UnsetType = UNSET,
        role: Role | str | UnsetType = UNSET,
        permissions: Iterable[str] | UnsetType = UNSET,
        actor: Actor | str | None = None,
    ) -> User:
        """Change what is given of a user."""
        who = self._session.acts(actor, Right.MANAGE_ORGANIZATIONS)
        present = self._users().get(name)
        if present is None or present.removed:
            raise NotFound(f"there is no user {name!r} in this store")
        changed = User(
            name=name,
            organization=present.organization if organization is UNSET else organization,
            role=present.role if role is UNSET else role_of(role),
            permissions=present.permissions if permissions is UNSET else self._permissions(permissions),
        )
        self._session.open().store.put_user(changed, actor=who, now=self._session.clock.now())
        return self._users()[name]

    def remove_user(self, name: str, *, actor: Actor | str | None = None) -> User:
        """Let a user do nothing any more. Its jobs stay, and so does its name."""
        who = self._session.acts(actor, Right.MANAGE_ORGANIZATIONS)
        self._session.open().store.remove_user(name, actor=who, now=self._session.clock.now())
        return self._users()[name]

    def users(self, *, removed: bool = False, actor: Actor | str | None = None) -> list[User]:
        """Return the users that the actor may see, by name; removed ones only if asked for."""
        scope = self._session.scope(actor, Right.READ_ORGANIZATIONS)
        return [
            each for each in self._users().values() if scope.organization in {None, each.organization} and (removed or not each.removed)
        ]

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _set_state(self, name: str, state: OrganizationState, actor: Actor | str | None) -> Organization:
        who = self._session.acts(actor, Right.MANAGE_ORGANIZATIONS)
        self._session.open().store.set_organization_state(name, state, actor=who, now=self._session.clock.now())
        self._session.poke()
        return self._organizations()[name]

    def _organizations(self) -> dict[str, Organization]:
        return {each.name: each for each in self._session.open().store.organizations()}

    def _known_organization(self, name: str) -> Organization:
        found = self._organizations().get(name)
        if found is None:
            raise _no_organization(name)
        return found

    def _users(self) -> dict[str, User]:
        return {each.name: each for each in self._session.open().store.users()}

    def _checked(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """Return an organization's fields, or refuse the one that can't be."""
        found, limit = dict(given), self.settings.name_max
        if "display_name" in found:
            found["display_name"] = name if found["display_name"] is None else line("display_name", found["display_name"], limit)
        for each in ("max_running", "max_queued"):
            if found.get(each) is not None:
                found[each] = whole(each, found[each], least=0, most=COUNT_MAX)
        if found.get("max_priority") is not None:
            found["max_priority"] = priority_of(found["max_priority"])
        return found

    def _permissions(self, given: object) -> tuple[str, ...]:
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidOption(f"permissions={given!r} is not allowed: give a list of names")
        names = list(given)
        for name in names:
            check_name(name, "permission", self.settings.name_max)
        return tuple(sorted(set(names)))


COUNT_MAX = 1_000_000_000
"""More jobs than a store holds: a larger limit is a slip of the hand."""


def role_of(given: object) -> Role:
    """Return a role given by its name, or refuse it."""
    if not isinstance(given, str) or given not in set(Role):
        raise InvalidOption(f"role={given!r} is not one of {', '.join(Role)}")
    return Role(given)


def _no_organization(name: str) -> UnknownOrganization:
    return UnknownOrganization(f"there is no organization {name!r} in this store")


def _limits(organization: Organization) -> tuple[object, ...]:
    return organization.display_name, organization.max_running, organization.max_queued, organization.max_priority


def _rights(user: User) -> tuple[object, ...]:
    return user.organization, user.role, user.permissions
