"""Roles of organizations: names that privileges are granted to, and that jobs can run as. Members hold what a role was granted."""

from __future__ import annotations

import builtins
from typing import Annotated

from rota.errors import NotFound, Refused
from rota.model.checks import check_name
from rota.model.gate import Right
from rota.model.grants import CustomRole
from rota.model.shapes import Organization, Shape
from rota.model.values import dashed
from rota.operation import Ask, Resource, operation

Name = Annotated[str, Shape("The role's name.", "operators", "NAME")]


class Roles(Resource):
    """The roles of an organization: the caller's own, unless another is given."""

    __slots__ = ()

    @operation(Right.READ_ORGANIZATIONS, http="GET /roles", cli="role list")
    def list(self, ask: Ask, *, organization: Organization = None) -> builtins.list[CustomRole]:
        """Return the roles that the actor may see, by organization and name."""
        return [role for role in visible_roles(ask) if organization in {None, role.organization}]

    @operation(Right.MANAGE_GRANTS, http="POST /roles", cli="role create", status=201)
    def create(self, ask: Ask, name: Name, *, organization: Organization = None) -> CustomRole:
        """Create a role. It has no privileges and no members yet."""
        return create(ask, name, organization)

    @operation(Right.MANAGE_GRANTS, http="DELETE /roles/{name}", cli="role delete", status=204, confirm="Delete role {name}?")
    def delete(self, ask: Ask, name: Name, *, organization: Organization = None) -> None:
        """Delete a role that no grant and no job names: revoke those first."""
        delete(ask, name, organization)


def create(ask: Ask, name: str, organization: str | None = None) -> CustomRole:
    """Create a role of an organization: `Roles.create`, and CREATE ROLE."""
    check_name(name, "role", ask.settings.name_max)
    who = ask.within(organization)
    ask.registry.organization(who.organization, ask.store, ask.now)
    new = CustomRole(id=dashed(ask.session.ids.take(1, ask.now)[0]), organization=who.organization, name=name, created_by=who.name)
    if not ask.store.add_role(new, actor=who, now=ask.now):
        raise Refused(f"organization {who.organization!r} has a role {name!r} already: use it, or choose another name")
    return role_named(ask, name, who.organization)


def delete(ask: Ask, name: str, organization: str | None = None) -> None:
    """Delete a role of an organization: `Roles.delete`, and DROP ROLE."""
    who = ask.within(organization)
    ask.store.drop_role(role_named(ask, name, who.organization).id, actor=who, now=ask.now)


def visible_roles(ask: Ask) -> builtins.list[CustomRole]:
    """Return the roles of the organizations that an actor may see."""
    return [role for role in ask.store.roles() if ask.scope.organization in {None, role.organization}]


def role_named(ask: Ask, name: str, organization: str) -> CustomRole:
    """Return a role of an organization."""
    for role in ask.store.roles():
        if (role.organization, role.name) == (organization, name):
            return role
    raise NotFound(f"there is no role {name!r} in organization {organization!r}: `rota role list` shows them")
