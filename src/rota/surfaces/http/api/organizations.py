"""Organizations: who shares this store, and how much of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import ConfigDict

from rota.errors import NotFound, Refused
from rota.model.definitions import Organization
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.asking import TEXT
from rota.surfaces.http.api.bodies import Body, Name, Priority
from rota.surfaces.http.api.keyset import Cursor, Limit, cut
from rota.surfaces.http.api.missing import named_in_path
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives, nothing, page_of, refuses

router = strict_router("Organizations", "/organizations")

OrganizationName = Annotated[str, Path(description="The organization's name.", examples=["acme"], max_length=255, pattern=TEXT)]
ONE = gives(Organization, what="The organization as it stands.") | refuses(NotFound)


class OrganizationLimits(Body):
    """What can be said of an organization. What is not given stays; null takes a limit away."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_running": 10, "max_queued": None}]})

    display_name: Name | None = None
    max_running: int | None = None
    max_queued: int | None = None
    max_priority: Priority | None = None


class NewOrganization(OrganizationLimits):
    """An organization to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "acme", "display_name": "Acme Ltd", "max_running": 10}]})

    name: Name


@router.post(
    "",
    summary="Create an organization",
    status_code=201,
    responses=gives(Organization, status=201, what="It was made.")
    | gives(Organization, what="It was there already, just so.")
    | refuses(Refused),
)
def create(body: NewOrganization, rota: Served, who: Who) -> Answer:
    """Make an organization. Again, with the same limits: nothing more; with others: 409."""
    before = {each.name for each in rota.acting_as(who).organizations.list(removed=True)}
    made = rota.acting_as(who).organizations.create(body.name, **body.given("name"))
    return Answer(made, status_code=200 if body.name in before else 201)


@router.get("", summary="List organizations", responses=gives(page_of(Organization)))
def find(
    rota: Served,
    who: Who,
    *,
    removed: Annotated[bool, Query(description="Removed ones too.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Answer:
    """Return the organizations that you may see, by name."""
    found = sorted(rota.acting_as(who).organizations.list(removed=removed), key=_name)
    return Answer(cut(found, _name, limit=limit, cursor=cursor))


@router.post("/{name:path}/suspend", summary="Suspend an organization", responses=ONE | refuses(Refused))
def suspend(name: OrganizationName, rota: Served, who: Who) -> Answer:
    """Let nothing of an organization start or come in until it is resumed. What runs goes on."""
    with named_in_path():
        return Answer(rota.acting_as(who).organizations.suspend(name))


@router.post("/{name:path}/resume", summary="Resume an organization", responses=ONE)
def resume(name: OrganizationName, rota: Served, who: Who) -> Answer:
    """Let a suspended organization go on, or bring a removed one back."""
    with named_in_path():
        return Answer(rota.acting_as(who).organizations.restore(name))


@router.get("/{name:path}", summary="Get an organization", responses=ONE)
def get(name: OrganizationName, rota: Served, who: Who) -> Answer:
    """Return one organization, removed or not."""
    with named_in_path():
        return Answer(rota.acting_as(who).organizations.get(name))


@router.patch("/{name:path}", summary="Change an organization", responses=ONE)
def change(name: OrganizationName, body: OrganizationLimits, rota: Served, who: Who) -> Answer:
    """Change its display name or its limits."""
    with named_in_path():
        return Answer(rota.acting_as(who).organizations.update(name, **body.given()))


@router.delete("/{name:path}", summary="Remove an organization", status_code=204, responses=nothing() | refuses(NotFound, Refused))
def remove(name: OrganizationName, rota: Served, who: Who) -> None:
    """Remove an organization: its waiting jobs fail, its people may do nothing. Nothing is deleted; `resume` brings it back."""
    with named_in_path():
        rota.acting_as(who).organizations.delete(name)


def _name(organization: Organization) -> tuple[str, ...]:
    return (organization.name,)
