"""Roles and grants in SQL. A change advances the definitions' version, by which every process learns that what it knows is old."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rota.errors import NotFound, Refused, StillNeeded
from rota.model.definitions import User, by_right
from rota.model.gate import Actor
from rota.model.grants import (
    SHOWN,
    CustomRole,
    Grant,
    GrantChanges,
    GranteeKind,
    Privilege,
    TargetKind,
    dependents,
    named_grants,
)
from rota.model.secrets import SecretPlace
from rota.model.values import Instant, dashed, moment, undashed
from rota.ports.store import DefinitionsChanged
from rota.stores.verbs.db import Db, audit
from rota.stores.verbs.definitions import same_definitions


def roles(db: Db) -> list[CustomRole]:
    """Return every role."""
    return [_role(row) for row in db.rows("roles")]


def grants(db: Db) -> list[Grant]:
    """Return every grant."""
    return [_grant(row) for row in db.rows("grants")]


def add_role(db: Db, role: CustomRole, *, actor: Actor, now: Instant) -> bool:
    """Keep a new role; say whether its name was free."""
    values = {"role_id": undashed(role.id), "organization_id": role.organization, "name": role.name}
    if not db.change("add_role", actor=actor.name, now=now, **values):
        return False
    db.change("advance_definitions")
    audit(db, actor, now, "role.create", ("role", role.name), after={"name": role.name}, organization=role.organization)
    return True


def drop_role(db: Db, role_id: str, *, actor: Actor, now: Instant) -> None:
    """Remove a role that nothing names any more."""
    row = db.row("role", role_id=undashed(role_id))
    if row is None:
        raise NotFound(f"there is no role {role_id} in this store")
    role = _role(row)
    naming = [grant for grant in grants(db) if _names(grant, role)]
    if naming:
        raise StillNeeded(f"role {role.name!r} can't be dropped while grants name it: revoke {named_grants(naming)} first")
    jobs = [name for (name,) in db.rows("schedules_run_as", organization_id=role.organization, name=role.name, limit=SHOWN)]
    if jobs:
        raise StillNeeded(f"role {role.name!r} can't be dropped while jobs run as it: change {', '.join(jobs)} first")
    db.change("drop_role", role_id=undashed(role_id))
    db.change("advance_definitions")
    audit(db, actor, now, "role.delete", ("role", role.name), before={"name": role.name}, organization=role.organization)


def _names(grant: Grant, role: CustomRole) -> bool:
    if grant.organization != role.organization:
        return False
    is_grantee = grant.grantee_kind is GranteeKind.ROLE and grant.grantee == role.name
    return is_grantee or (grant.target_kind is TargetKind.ROLE and grant.target_id == undashed(role.id))


def change_grants(db: Db, changes: GrantChanges, *, actor: Actor, now: Instant, definitions: int | None = None) -> list[Grant]:
    """Add, remove and narrow grants, and return those that were added as they are now."""
    if definitions is not None and not same_definitions(int(db.value("definitions_version")), definitions):
        raise DefinitionsChanged
    for grant in changes.add:
        _refuse_gone(db, grant)
        if _put(db, grant, now):
            _audit(db, grant, "grant.create", actor, now, after=_said(grant))
    for grant in changes.narrow:
        if db.change("narrow_grant", grant_id=undashed(grant.id)):
            _audit(db, grant, "grant.delete", actor, now, before=_said(grant), after={**_said(grant), "grant_option": False})
    remove(db, changes.remove, actor, now)
    db.change("advance_definitions")
    keys = {grant.key for grant in changes.add}
    return [grant for grant in grants(db) if grant.key in keys] if keys else []


def remove(db: Db, given: Iterable[Grant], actor: Actor, now: Instant) -> int:
    """Remove grants; return how many there were."""
    removed = [grant for grant in given if db.change("remove_grant", grant_id=undashed(grant.id))]
    for grant in removed:
        _audit(db, grant, "grant.delete", actor, now, before=_said(grant))
    return len(removed)


def remove_those_on_job(db: Db, schedule_id: str, actor: Actor, now: Instant) -> None:
    """Remove the grants on a job that is dropped."""
    rows = db.rows("grants_on", target_kind=TargetKind.JOB, target_id=schedule_id)
    if remove(db, map(_grant, rows), actor, now):
        db.change("advance_definitions")


def remove_those_on_connection(db: Db, organization: str, name: str, actor: Actor, now: Instant) -> None:
    """Remove the grants on a connection that is dropped, those that were granted onward among them. The caller advances the version."""
    rows = db.rows("grants_on", target_kind=TargetKind.CONNECTION, target_id=name)
    remove(db, (grant for grant in map(_grant, rows) if grant.organization == organization), actor, now)


def remove_those_on_secret(db: Db, place: SecretPlace, actor: Actor, now: Instant) -> None:
    """Remove the grants on a secret that is dropped: another one of its name is not what was granted."""
    found = [_grant(row) for row in db.rows("grants_on", target_kind=TargetKind.SECRET, target_id=place.name)]
    if remove(db, [grant for grant in found if grant.organization == place.organization], actor, now):
        db.change("advance_definitions")


def remove_those_of_user(db: Db, user: User, users: Mapping[str, User], actor: Actor, now: Instant) -> None:
    """Remove the grants of a user who leaves an organization, and those that rest on them. The caller advances the version."""
    here = [grant for grant in grants(db) if grant.organization == user.organization]
    own = tuple(grant for grant in here if grant.grantee_kind is GranteeKind.USER and grant.grantee == user.name)
    if own:
        remove(db, [*own, *dependents(here, GrantChanges(remove=own), by_right(users))], actor, now)


def _put(db: Db, grant: Grant, now: Instant) -> bool:
    return bool(
        db.change(
            "put_grant",
            grant_id=undashed(grant.id),
            organization_id=grant.organization,
            grantee_kind=grant.grantee_kind,
            grantee=grant.grantee,
            privilege=grant.privilege,
            target_kind=grant.target_kind,
            target_id=grant.target_id,
            grant_option=int(grant.grant_option),
            granted_by=grant.granted_by,
            now=now,
        )
    )


def _refuse_gone(db: Db, grant: Grant) -> None:
    """Refuse a grant on a job or a connection that was dropped in the meantime."""
    if grant.target_kind is TargetKind.JOB:
        there = db.value("job_is_there", schedule_id=grant.target_id)
    elif grant.target_kind is TargetKind.CONNECTION:
        there = db.value("connection_is_there", organization_id=grant.organization, name=grant.target_id)
    else:
        return
    if not there:
        raise Refused(f"{grant.target_kind.lower()} {grant.target} was dropped in the meantime: nothing was granted")


def _audit(db: Db, grant: Grant, action: str, actor: Actor, now: Instant, *, before: Any = None, after: Any = None) -> None:
    audit(db, actor, now, action, ("grant", grant.id), before=before, after=after, organization=grant.organization)


def _said(grant: Grant) -> dict[str, Any]:
    """Return a grant as the audit trail keeps it."""
    said = {
        "privilege": grant.privilege,
        "grantee": grant.grantee or GranteeKind.PUBLIC,
        "grantee_kind": grant.grantee_kind,
        "grant_option": grant.grant_option,
        "granted_by": grant.granted_by,
    }
    return said if grant.target_kind is None else said | {"target_kind": grant.target_kind, "target": grant.target}


def _role(row: tuple[Any, ...]) -> CustomRole:
    role_id, organization, name, created_by, created_at = row
    return CustomRole(id=dashed(role_id), organization=organization, name=name, created_by=created_by, created_at=moment(created_at))


def _grant(row: tuple[Any, ...]) -> Grant:
    grant_id, organization, grantee_kind, grantee, privilege, target_kind, target_id, target, owner, option, granted_by, granted_at = row
    return Grant(
        id=dashed(grant_id),
        organization=organization,
        grantee_kind=GranteeKind(grantee_kind),
        grantee=grantee,
        privilege=Privilege(privilege),
        target_kind=None if target_kind is None else TargetKind(target_kind),
        target_id=target_id,
        target=target,
        target_owner=owner,
        grant_option=bool(option),
        granted_by=granted_by,
        granted_at=moment(granted_at),
    )
