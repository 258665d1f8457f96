"""Roles and grants."""

from __future__ import annotations

from collections.abc import Iterable

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, row, rows

ROLE = ("_id", "organization_id", "name", "created_by", "created_at")
GRANT = (
    *("_id", "organization_id", "grantee_kind", "grantee", "privilege", "target_kind", "target_id", "target", "target_owner"),
    *("grant_option", "granted_by", "granted_at"),
)
ORDER = ("organization_id", "grantee_kind", "grantee", "privilege", "target_kind", "target_id", "granted_by")

# ---- roles -----------------------------------------------------------------------------------------------------------


@statement
def roles(db: Db) -> list[Row]:
    """Return every role."""
    return rows(db.find("roles", {}, ROLE, sort=[("organization_id", 1), ("name", 1)]), ROLE)


@statement
def role(db: Db, *, role_id: str) -> list[Row]:
    """Return a role."""
    return rows(db.find("roles", {"_id": ident(role_id)}, ROLE), ROLE)


@statement
def add_role(db: Db, *, role_id: str, organization_id: str, name: str, actor: str, now: int) -> int:
    """Keep a new role, if its id and its name are free."""
    if db.has("roles", {"$or": [{"_id": ident(role_id)}, {"organization_id": organization_id, "name": name}]}):
        return 0
    return db.insert(
        "roles", {"_id": ident(role_id), "organization_id": organization_id, "name": name, "created_by": actor, "created_at": now}
    )


@statement
def drop_role(db: Db, *, role_id: str) -> int:
    """Remove a role."""
    return db.delete("roles", {"_id": ident(role_id)})


# ---- grants ----------------------------------------------------------------------------------------------------------


@statement
def grants(db: Db) -> list[Row]:
    """Return every grant; those without a target come behind those with one."""
    found = db.find("grants", {})
    found.sort(key=lambda grant: tuple((grant.get(column) is None, grant.get(column) or "") for column in ORDER))
    return _with_targets(db, found)


@statement
def grants_on(db: Db, *, target_kind: str, target_id: str) -> list[Row]:
    """Return the grants on a target."""
    return _with_targets(db, db.find("grants", {"target_kind": target_kind, "target_id": target_id}))


def _with_targets(db: Db, found: list[Document]) -> list[Row]:
    """Return grants with the names of what they are on. The owner of a job is told with it."""
    jobs = _named(db, "schedules", (grant["target_id"] for grant in found if grant.get("target_kind") == "JOB"))
    roles_of_grants = _named(db, "roles", (grant["target_id"] for grant in found if grant.get("target_kind") == "ROLE"))
    shown: list[Row] = []
    for grant in found:
        target_id = grant.get("target_id")
        match grant.get("target_kind"):
            case "JOB":
                job = jobs.get(target_id or "", {})
                target = {"target": job.get("name"), "target_owner": job.get("created_by")}
            case "ROLE":
                target = {"target": roles_of_grants.get(target_id or "", {}).get("name")}
            case _:
                target = {"target": target_id}
        shown.append(row(grant | target, GRANT))
    return shown


def _named(db: Db, collection: str, keys: Iterable[str]) -> dict[str, Document]:
    wanted = set(keys)
    return {found["_id"]: found for found in db.find(collection, {"_id": {"$in": list(wanted)}}, ("name", "created_by"))} if wanted else {}


@statement
def put_grant(
    db: Db,
    *,
    grant_id: str,
    organization_id: str,
    grantee_kind: str,
    grantee: str,
    privilege: str,
    target_kind: str | None,
    target_id: str | None,
    grant_option: int,
    granted_by: str,
    now: int,
) -> int:
    """Keep a grant. The same grant again may add the option to grant it further, and takes nothing away."""
    key = {
        "organization_id": organization_id,
        "grantee_kind": grantee_kind,
        "grantee": grantee,
        "privilege": privilege,
        "target_kind": target_kind,
        "target_id": target_id,
        "granted_by": granted_by,
    }
    present = db.first("grants", key, ("grant_option",))
    if present is None:
        return db.insert("grants", document(_id=ident(grant_id), grant_option=grant_option, granted_at=now, **key))
    if grant_option <= present["grant_option"]:
        return 0
    return db.update("grants", {"_id": present["_id"]}, {"$set": {"grant_option": 1}})


@statement
def narrow_grant(db: Db, *, grant_id: str) -> int:
    """Take the option to grant it further from a grant."""
    return db.update("grants", {"_id": ident(grant_id), "grant_option": 1}, {"$set": {"grant_option": 0}})


@statement
def remove_grant(db: Db, *, grant_id: str) -> int:
    """Remove a grant."""
    return db.delete("grants", {"_id": ident(grant_id)})


# ---- jobs that grants and roles are about ----------------------------------------------------------------------------


@statement
def job_is_there(db: Db, *, schedule_id: str) -> list[Row]:
    """Say whether there is a job with this id."""
    return [(db.has("schedules", {"_id": ident(schedule_id), "dropped_at": None}),)]


@statement
def schedules_run_as(db: Db, *, organization_id: str, name: str, limit: int) -> list[Row]:
    """Return jobs that run as a role or a user."""
    where = {"organization_id": organization_id, "run_as": name, "dropped_at": None}
    return rows(db.find("schedules", where, ("name",), limit=limit), ("name",))
