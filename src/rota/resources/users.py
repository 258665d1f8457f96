"""Users: people and programs, the organization of each, and what each may do."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Annotated

from msgspec import UNSET, UnsetType

from rota.errors import NotFound, Refused
from rota.model.checks import check_name, listed, word_of
from rota.model.definitions import User
from rota.model.gate import Right, Role
from rota.model.shapes import Shape
from rota.model.values import dashed
from rota.operation import Ask, Resource, operation

Name = Annotated[str, Shape("The user's name.", "bob", "NAME")]
Home = Annotated[str, Shape("The organization it belongs to.", "acme", "NAME")]
RoleName = Annotated[Role | str, Shape("system_manager, admin or user.", "admin", "ROLE", wire=str)]
Permissions = Annotated[Iterable[str], Shape("Permissions that templates may require.", "reports", "NAME", "permission", wire=list[str])]


class Users(Resource):
    """The users of the store."""

    __slots__ = ()

    @operation(Right.READ_ORGANIZATIONS, http="GET /users", cli="user list")
    def list(self, ask: Ask, *, removed: Annotated[bool, Shape("Include deleted ones.")] = False) -> builtins.list[User]:
        """Return the users that the actor may see, by name; deleted ones only if asked for."""
        return [user for user in recorded(ask).values() if _visible(ask, user) and (removed or not user.removed)]

    @operation(Right.READ_ORGANIZATIONS, http="GET /users/{name}", cli="user get")
    def get(self, ask: Ask, name: Name) -> User:
        """Return one user, deleted or not."""
        user = recorded(ask).get(name)
        if user is None or not _visible(ask, user):
            raise _no_user(name)
        return user

    @operation(Right.MANAGE_ORGANIZATIONS, http="POST /users", cli="user create", status=201)
    def create(
        self, ask: Ask, name: Name, *, organization: Home = "default", role: RoleName = "user", permissions: Permissions = ()
    ) -> User:
        """Create a user, or bring a deleted one back. Once the store has a user, a name that is not a user may do nothing."""
        check_name(name, "user", ask.settings.name_max)
        new = User(
            id=new_id(ask),
            name=name,
            organization=organization,
            role=word_of(Role, "role", role),
            permissions=permissions_of(ask, permissions),
        )
        present = recorded(ask).get(name)
        if present is not None and not present.removed and _rights(present) != _rights(new):
            raise Refused(f"user {name!r} is there already: change it with users.update({name!r}, …)")
        ask.store.put_user(new, actor=ask.who, now=ask.now)
        return recorded(ask)[name]

    @operation(Right.MANAGE_ORGANIZATIONS, http="PATCH /users/{name}", cli="user update")
    def update(
        self,
        ask: Ask,
        name: Name,
        *,
        organization: Home | UnsetType = UNSET,
        role: RoleName | UnsetType = UNSET,
        permissions: Permissions | UnsetType = UNSET,
    ) -> User:
        """Change the given fields of a user."""
        present = recorded(ask).get(name)
        if present is None or present.removed:
            raise _no_user(name)
        changed = User(
            name=name,
            organization=present.organization if organization is UNSET else organization,
            role=present.role if role is UNSET else word_of(Role, "role", role),
            permissions=present.permissions if permissions is UNSET else permissions_of(ask, permissions),
        )
        ask.store.put_user(changed, actor=ask.who, now=ask.now)
        return recorded(ask)[name]

    @operation(Right.MANAGE_ORGANIZATIONS, http="DELETE /users/{name}", cli="user delete", confirm="Delete user {name}?")
    def delete(self, ask: Ask, name: Name) -> User:
        """Delete a user, who may then do nothing. Its jobs stay, and so does its name."""
        ask.store.remove_user(name, actor=ask.who, now=ask.now)
        return recorded(ask)[name]


def recorded(ask: Ask) -> dict[str, User]:
    """Return all users by name."""
    return {user.name: user for user in ask.store.users()}


def new_id(ask: Ask) -> str:
    """Return the id of a user who is new; one that is there keeps its own."""
    return dashed(ask.session.ids.take(1, ask.now)[0])


def permissions_of(ask: Ask, value: object) -> tuple[str, ...]:
    """Return permissions as they are stored, or refuse them."""
    names = listed("permissions", value)
    for name in names:
        check_name(name, "permission", ask.settings.name_max)
    return tuple(sorted(set(names)))


def _visible(ask: Ask, user: User) -> bool:
    return ask.scope.organization in {None, user.organization}


def _no_user(name: str) -> NotFound:
    return NotFound(f"there is no user {name!r} in this store")


def _rights(user: User) -> tuple[object, ...]:
    return user.organization, user.role, user.permissions
