"""Secrets of organizations and of single jobs, encrypted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, ids, rows
from rota.stores.mongodb.schema import IN_SQL, LIVING
from rota.stores.mongodb.statements.joining import among, users_of

SECRET = (
    *("_id", "organization_id", "name", "job", "schedule_id", "version", "key_id"),
    *("created_by", "created_at", "updated_at", "last_used_at"),
)
SEALED = ("_id", "organization_id", "name", "schedule_id", "version", "key_id", "wrapped", "body")


class _Named(msgspec.Struct):
    secrets: list[str] | None = None


_named = msgspec.json.Decoder(_Named).decode


@statement
def stored_secrets(db: Db) -> list[Row]:
    """Return every secret: of those of one name first the organization's, then those of its jobs."""
    found = _with_jobs(db, db.find("secrets", {}, SECRET))
    found.sort(key=lambda secret: (secret["organization_id"], secret["name"], "job" in secret, secret.get("job", "")))
    return rows(found, SECRET)


@statement
def stored_secret(db: Db, *, organization_id: str, name: str, schedule_id: str | None) -> list[Row]:
    """Return a secret of an organization, or of one of its jobs."""
    where = {"organization_id": organization_id, "name": name, "schedule_id": ident(schedule_id)}
    return rows(_with_jobs(db, db.find("secrets", where, SECRET)), SECRET)


@statement
def secrets_of_job(db: Db, *, schedule_id: str) -> list[Row]:
    """Return the secrets of a job."""
    return rows(_with_jobs(db, db.find("secrets", {"schedule_id": ident(schedule_id)}, SECRET)), SECRET)


def _with_jobs(db: Db, secrets: list[Document]) -> list[Document]:
    """Add the names of the jobs that secrets belong to."""
    keys = {secret["schedule_id"] for secret in secrets if "schedule_id" in secret}
    names = {schedule["_id"]: schedule["name"] for schedule in among(db, "schedules", "_id", keys, ("name",))}
    return [secret | document(job=names.get(secret.get("schedule_id", ""))) for secret in secrets]


@statement
def sealed_secrets(db: Db, *, organization_id: str, schedule_id: str | None, names: Sequence[str]) -> list[Row]:
    """Return all of the job's own secrets, and those of the organization that are asked for and that the job has not."""
    own = [] if schedule_id is None else db.find("secrets", {"schedule_id": ident(schedule_id)}, SEALED)
    missing = set(names) - {secret["name"] for secret in own}
    shared: list[Document] = []
    if missing:
        shared = db.find("secrets", {"organization_id": organization_id, "schedule_id": None, "name": {"$in": sorted(missing)}}, SEALED)
    return rows([*own, *shared], SEALED)


@statement
def add_stored_secret(
    db: Db,
    *,
    secret_id: str,
    organization_id: str,
    name: str,
    schedule_id: str | None,
    version: int,
    key_id: str,
    wrapped: bytes,
    sealed_body: bytes,
    actor: str,
    now: int,
) -> int:
    """Keep a new secret."""
    place = document(_id=ident(secret_id), organization_id=organization_id, name=name, schedule_id=ident(schedule_id))
    sealed = {"version": version, "key_id": key_id, "wrapped": wrapped, "body": sealed_body}
    return db.insert("secrets", place | sealed | {"created_by": actor, "created_at": now, "updated_at": now})


@statement
def change_stored_secret(db: Db, *, secret_id: str, version: int, key_id: str, wrapped: bytes, sealed_body: bytes, now: int) -> int:
    """Set another value of a secret."""
    change = {"version": version, "key_id": key_id, "wrapped": wrapped, "body": sealed_body, "updated_at": now}
    return db.update("secrets", {"_id": ident(secret_id)}, {"$set": change})


@statement
def drop_stored_secret(db: Db, *, secret_id: str) -> int:
    """Remove a secret."""
    return db.delete("secrets", {"_id": ident(secret_id)})


@statement
def users_of_secret(db: Db, *, organization_id: str, name: str, limit: int) -> list[Row]:
    """Return jobs, and templates that all share, that name a secret of their organization."""
    found = db.cursor("templates", {**IN_SQL, **LIVING}, ("name", "organization_id", "defaults"))
    return users_of(db, [each for each in found if name in (_named(each["defaults"]).secrets or ())], organization_id, limit)


@statement
def note_secrets_used(db: Db, *, secret_ids: Sequence[str], now: int) -> int:
    """Record that runs were given secrets, unless they were given later."""
    where = {"_id": {"$in": ids(secret_ids)}, "$or": [{"last_used_at": None}, {"last_used_at": {"$lt": now}}]}
    return db.update("secrets", where, {"$set": {"last_used_at": now}})


# ---- master keys -----------------------------------------------------------------------------------------------------


@statement
def secrets_to_rewrap(db: Db, *, key_id: str, after_id: str, limit: int) -> list[Row]:
    """Return secrets behind an id that are under another key."""
    where = {"_id": {"$gt": ident(after_id)}, "key_id": {"$ne": key_id}}
    return rows(db.find("secrets", where, SEALED, sort=[("_id", 1)], limit=limit), SEALED)


@statement
def rewrap_secret(db: Db, *, secret_id: str, version: int, old_key_id: str, key_id: str, wrapped: bytes) -> int:
    """Put a secret under another key. One whose value was set in the meantime, or that another process has rewrapped, is left."""
    where = {"_id": ident(secret_id), "version": version, "key_id": old_key_id}
    return db.update("secrets", where, {"$set": {"key_id": key_id, "wrapped": wrapped}})


@statement
def keys_of_secrets(db: Db) -> list[Row]:
    """Return how many secrets are under each key."""
    counts = db.aggregate("secrets", [{"$group": {"_id": "$key_id", "count": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
    return [(found["_id"], found["count"]) for found in counts]
