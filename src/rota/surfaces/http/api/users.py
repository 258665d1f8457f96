"""Users: people and programs, whose they are and what they may."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import ConfigDict, Field

from rota.errors import NotFound, Refused
from rota.model.definitions import User
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.asking import TEXT
from rota.surfaces.http.api.bodies import Body, Name
from rota.surfaces.http.api.keyset import Cursor, Limit, cut
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives, nothing, page_of, refuses

router = strict_router("Users", "/users")

UserName = Annotated[str, Path(description="The user's name.", examples=["ada"], max_length=255, pattern=TEXT)]
RoleWord = Literal["system_manager", "admin", "user"]


class UserChange(Body):
    """What can be changed of a user. What is not given stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"role": "admin"}]})

    organization: Name = "default"
    role: RoleWord = "user"
    permissions: list[Name] = Field(default_factory=list, max_length=1000, description="What templates may require.")


class NewUser(UserChange):
    """A user to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ada", "organization": "acme", "role": "admin"}]})

    name: Name


@router.post(
    "",
    summary="Add a user",
    status_code=201,
    responses=gives(User, status=201, what="It was made.") | gives(User, what="It was there already, just so.") | refuses(Refused),
)
def create(body: NewUser, rota: Served, who: Who) -> Answer:
    """Make a user, or bring one back that was removed. From the first one on, names that are no users may do nothing."""
    before = {each.name for each in rota.acting_as(who).users.list()}
    made = rota.acting_as(who).users.create(body.name, **body.given("name"))
    return Answer(made, status_code=200 if body.name in before else 201)


@router.get("", summary="List users", responses=gives(page_of(User)))
def find(
    rota: Served,
    who: Who,
    *,
    removed: Annotated[bool, Query(description="Removed ones too.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Answer:
    """Return the users that you may see, by name."""
    found = sorted(rota.acting_as(who).users.list(removed=removed), key=_name)
    return Answer(cut(found, _name, limit=limit, cursor=cursor))


@router.get("/{name:path}", summary="Get a user", responses=gives(User) | refuses(NotFound))
def get(name: UserName, rota: Served, who: Who) -> Answer:
    """Return one user, removed or not."""
    found = next((each for each in rota.acting_as(who).users.list(removed=True) if each.name == name), None)
    if found is None:
        raise NotFound(f"there is no user {name!r} in this store")
    return Answer(found)


@router.patch("/{name:path}", summary="Change a user", responses=gives(User) | refuses(NotFound, Refused))
def change(name: UserName, body: UserChange, rota: Served, who: Who) -> Answer:
    """Change whose a user is, or what it may."""
    return Answer(rota.acting_as(who).users.update(name, **body.given()))


@router.delete("/{name:path}", summary="Remove a user", status_code=204, responses=nothing() | refuses(NotFound, Refused))
def remove(name: UserName, rota: Served, who: Who) -> None:
    """Let a user do nothing any more, nor its tokens. Its jobs stay, and so does its name."""
    rota.acting_as(who).users.delete(name)


def _name(user: User) -> tuple[str, ...]:
    return (user.name,)
