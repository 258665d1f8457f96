"""Organizations: the tenants of a store, and their limits."""

from __future__ import annotations

import builtins
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.errors import Refused, UnknownOrganization
from rota.model.checks import check_name, line, whole
from rota.model.definitions import Organization, OrganizationState
from rota.model.gate import Right
from rota.model.ordering import priority_of
from rota.model.shapes import Priority, Shape
from rota.operation import Ask, Resource, operation

COUNT_MAX = 1_000_000_000
"""More jobs than a store holds: a larger limit is a typing error."""

Name = Annotated[str, Shape("The organization's name.", "acme", "NAME")]
DisplayName = Annotated[str | None, Shape("Name shown to people. Default: its name.", "Acme Ltd", "TEXT")]
MaxRunning = Annotated[int | None, Shape("Jobs that run at the same time. Default: no limit.", 20, "N")]
MaxQueued = Annotated[int | None, Shape("Jobs that wait. Default: no limit.", 10_000, "N")]
MaxPriority = Annotated[Priority | str | None, Shape("Highest priority of its jobs. Default: no limit.")]


class Organizations(Resource):
    """The organizations of the store."""

    __slots__ = ()

    @operation(Right.READ_ORGANIZATIONS, http="GET /organizations", cli="organization list")
    def list(self, ask: Ask, *, removed: Annotated[bool, Shape("Include deleted ones.")] = False) -> builtins.list[Organization]:
        """Return the organizations that the actor may see, by name; deleted ones only if asked for."""
        return [
            organization
            for organization in recorded(ask).values()
            if ask.scope.organization in {None, organization.name} and (removed or organization.state is not OrganizationState.REMOVED)
        ]

    @operation(Right.READ_ORGANIZATIONS, http="GET /organizations/{name}", cli="organization get")
    def get(self, ask: Ask, name: Name) -> Organization:
        """Return one organization, deleted or not."""
        if ask.scope.organization not in {None, name}:
            raise _no_organization(name)
        return _known(ask, name)

    @operation(Right.MANAGE_ORGANIZATIONS, http="POST /organizations", cli="organization create", status=201)
    def create(
        self,
        ask: Ask,
        name: Name,
        *,
        display_name: DisplayName = None,
        max_running: MaxRunning = None,
        max_queued: MaxQueued = None,
        max_priority: MaxPriority = None,
    ) -> Organization:
        """Create an organization. By default it has no limits."""
        check_name(name, "organization", ask.settings.name_max)
        limits = {"max_running": max_running, "max_queued": max_queued, "max_priority": max_priority}
        new = Organization(name=name, **checked_fields(ask, name, {"display_name": display_name, **limits}))
        present = recorded(ask).get(name)
        if present is not None and present.state is OrganizationState.REMOVED:
            raise Refused(f"organization {name!r} was removed and keeps its name: bring it back with organizations.restore({name!r})")
        if present is not None and _limits(present) != _limits(new):
            raise Refused(f"organization {name!r} is there already: change it with organizations.update({name!r}, …)")
        ask.store.put_organization(new, actor=ask.who, now=ask.now)
        return recorded(ask)[name]

    @operation(Right.MANAGE_ORGANIZATIONS, http="PATCH /organizations/{name}", cli="organization update")
    def update(
        self,
        ask: Ask,
        name: Name,
        *,
        display_name: DisplayName | UnsetType = UNSET,
        max_running: MaxRunning | UnsetType = UNSET,
        max_queued: MaxQueued | UnsetType = UNSET,
        max_priority: MaxPriority | UnsetType = UNSET,
    ) -> Organization:
        """Change the given fields of an organization; None removes a limit."""
        limits = {"max_running": max_running, "max_queued": max_queued, "max_priority": max_priority}
        fields = {key: value for key, value in {"display_name": display_name, **limits}.items() if value is not UNSET}
        changed = msgspec.structs.replace(_known(ask, name), **checked_fields(ask, name, fields))
        ask.store.put_organization(changed, actor=ask.who, now=ask.now)
        return recorded(ask)[name]

    @operation(
        Right.MANAGE_ORGANIZATIONS,
        http="POST /organizations/{name}/suspend",
        cli="organization suspend",
        confirm="Suspend organization {name}? Nothing of it is accepted or started until it is restored.",
    )
    def suspend(self, ask: Ask, name: Name) -> Organization:
        """Accept and start no jobs of an organization until it is restored. Running ones continue."""
        return _set_state(ask, name, OrganizationState.SUSPENDED)

    @operation(Right.MANAGE_ORGANIZATIONS, http="POST /organizations/{name}/restore", cli="organization restore")
    def restore(self, ask: Ask, name: Name) -> Organization:
        """Let a suspended organization continue, or bring a deleted one back."""
        return _set_state(ask, name, OrganizationState.ACTIVE)

    @operation(
        Right.MANAGE_ORGANIZATIONS,
        http="DELETE /organizations/{name}",
        cli="organization delete",
        confirm="Delete organization {name}? Its waiting jobs fail for good.",
    )
    def delete(self, ask: Ask, name: Name) -> Organization:
        """Delete an organization: its waiting jobs fail with "Organization not found", its users may do nothing. Its rows are kept."""
        return _set_state(ask, name, OrganizationState.REMOVED)

    @operation(Right.PAUSE, http="POST /organizations/{name}/pause", cli="organization pause", status=204)
    def pause(self, ask: Ask, name: Name) -> None:
        """Stop new jobs of an organization from starting until it is resumed. Running ones continue."""
        who = ask.within(name)
        _refuse_unknown(ask, name)
        ask.store.pause("organization", name, actor=who, now=ask.now)

    @operation(Right.PAUSE, http="POST /organizations/{name}/resume", cli="organization resume", status=204)
    def resume(self, ask: Ask, name: Name) -> None:
        """End the pause of an organization."""
        who = ask.within(name)
        _refuse_unknown(ask, name)
        ask.store.resume("organization", name, actor=who, now=ask.now)
        ask.session.poke()


def recorded(ask: Ask) -> dict[str, Organization]:
    """Return all organizations by name."""
    return {organization.name: organization for organization in ask.store.organizations()}


def checked_fields(ask: Ask, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return an organization's fields as they are stored, or refuse the one that is not valid."""
    checked, limit = dict(fields), ask.settings.name_max
    if "display_name" in checked:
        checked["display_name"] = name if checked["display_name"] is None else line("display_name", checked["display_name"], limit)
    for field in ("max_running", "max_queued"):
        if checked.get(field) is not None:
            checked[field] = whole(field, checked[field], least=0, most=COUNT_MAX)
    if checked.get("max_priority") is not None:
        checked["max_priority"] = priority_of(checked["max_priority"])
    return checked


def _set_state(ask: Ask, name: str, state: OrganizationState) -> Organization:
    ask.store.set_organization_state(name, state, actor=ask.who, now=ask.now)
    ask.session.poke()
    return recorded(ask)[name]


def _known(ask: Ask, name: str) -> Organization:
    organization = recorded(ask).get(name)
    if organization is None:
        raise _no_organization(name)
    return organization


def _refuse_unknown(ask: Ask, name: str) -> None:
    ask.registry.sync(ask.store, ask.now)
    if name not in ask.registry.organizations:
        raise _no_organization(name)


def _no_organization(name: str) -> UnknownOrganization:
    return UnknownOrganization(f"there is no organization {name!r} in this store")


def _limits(organization: Organization) -> tuple[object, ...]:
    return organization.display_name, organization.max_running, organization.max_queued, organization.max_priority
