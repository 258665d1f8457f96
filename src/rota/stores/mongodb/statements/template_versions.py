"""Templates of jobs that SQL has created, and their versions: a run is what its job was when it was enqueued."""

from __future__ import annotations

import msgspec

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows, setting
from rota.stores.mongodb.schema import LIVING, THERE
from rota.stores.mongodb.statements.joining import among, in_chunks

VERSION = ("kind", "job_type", "body", "defaults", "created_by", "created_at")
WALK = 500
"""Versions that are looked at together."""


class _Meta(msgspec.Struct):
    template_version: int | None = None


_meta = msgspec.json.Decoder(_Meta).decode


# ---- templates of one schedule ---------------------------------------------------------------------------------------


@statement
def template_named(db: Db, *, name: str) -> list[Row]:
    """Return the id and the state of a shared template."""
    columns = ("_id", "state")
    return rows(db.find("templates", {"organization_id": None, "name": name, **LIVING}, columns), columns)


@statement
def name_of_template(db: Db, *, organization_id: str, name: str) -> list[Row]:
    """Say whether a template has this name: one that all share, or one of this organization."""
    return [(db.has("templates", {"organization_id": {"$in": [None, organization_id]}, "name": name, **LIVING}),)]


@statement
def put_own_template(
    db: Db,
    *,
    template_id: str | bytes,
    organization_id: str,
    name: str,
    description: str | None,
    kind: str,
    job_type: str,
    body: str | None,
    defaults: str,
    job_class: str | None,
    partition_strategy: str | None,
    partition_shard: str | None,
    partition_expression: str | None,
    actor: str,
    step: int,
    now: int,
) -> int:
    """Create or change the template of one schedule alone."""
    said = {
        "name": name,
        "description": description,
        "kind": kind,
        "job_type": job_type,
        "body": body,
        "defaults": defaults,
        "job_class": job_class,
        "partition_strategy": partition_strategy,
        "partition_shard": partition_shard,
        "partition_expression": partition_expression,
        "updated_at": now,
    }
    key = ident(template_id)
    if db.update("templates", {"_id": key}, setting(**said) | {"$inc": {"version": step}}):
        return 1
    created = {"organization_id": organization_id, "version": 1, "created_by": actor, "created_at": now}
    unsaid = {"state": "ENABLED", "overrides": "{}", "default_params": "{}"}
    return db.insert("templates", document(_id=key, **said, **created, **unsaid))


@statement
def drop_own_template(db: Db, *, template_id: str | bytes, now: int) -> int:
    """Drop the template of one schedule alone. Its document stays."""
    where = {"_id": ident(template_id), "organization_id": THERE, **LIVING}
    return db.update("templates", where, {"$set": {"dropped_at": now, "updated_at": now}})


# ---- versions --------------------------------------------------------------------------------------------------------


@statement
def add_version(db: Db, *, template_id: str | bytes, schedule_id: str | bytes, actor: str, now: int) -> int:
    """Keep what a template is now under its version."""
    columns = ("version", "kind", "job_type", "body", "defaults")
    template = db.first("templates", {"_id": ident(template_id)}, columns)
    if template is None:
        return 0
    said = {column: template.get(column) for column in columns}
    keys = {"template_id": template["_id"], "schedule_id": ident(schedule_id)}
    return db.insert("template_versions", document(**keys, **said, created_by=actor, created_at=now))


@statement
def template_version(db: Db, *, template_id: str | bytes, version: int) -> list[Row]:
    """Return what a template was in one of its versions."""
    return rows(db.find("template_versions", {"template_id": ident(template_id), "version": version}, VERSION), VERSION)


@statement
def work_of_job(db: Db, *, number: int) -> list[Row]:
    """Return what a job was defined as when it was enqueued, and never anything else: another version may be somebody else's.

    A shared template has versions that only its options have, which keep the work of the one before.
    """
    fact = db.first("job_facts", {"_id": number}, ("template_id", "schedule_id", "run_as", "meta")) or {}
    template = db.first("templates", {"_id": fact.get("template_id")}, ("name", "organization_id"))
    named = _meta(fact.get("meta", "{}")).template_version
    if template is None or named is None:
        return []
    columns = ("version", "kind", "body", "defaults", "created_by")
    before = {"template_id": template["_id"], "version": {"$lte": named}}
    version = db.first("template_versions", before, columns, sort=[("version", -1)])
    shared = "organization_id" not in template
    if version is None or not (shared or version["version"] == named):
        return []
    work = (version["kind"], version.get("body"), version["defaults"], template["name"])
    return [(*work, fact.get("schedule_id"), fact.get("run_as"), version["created_by"], shared)]


@statement
def forget_versions(db: Db, *, limit: int) -> int:
    """Remove versions that are not in force any more, and that no job names. Those of shared templates stay while there is the template."""
    unused: list[object] = []
    for versions in in_chunks(db.cursor("template_versions", {}, ("template_id", "version", "schedule_id")), WALK):
        columns = ("version", "organization_id", "dropped_at")
        templates = {found["_id"]: found for found in among(db, "templates", "_id", {one["template_id"] for one in versions}, columns)}
        old = [one for one in versions if _is_old(one, templates.get(one["template_id"]))]
        unused += [one["_id"] for one in old if not _is_named(db, one)]
        if len(unused) >= limit:
            break
    return db.delete("template_versions", {"_id": {"$in": unused[:limit]}}) if unused else 0


def _is_old(version: Document, template: Document | None) -> bool:
    if template is None:
        return False
    return "dropped_at" in template or ("organization_id" in template and version["version"] < template["version"])


def _is_named(db: Db, version: Document) -> bool:
    """Say whether a job of the schedule names a version. The oldest are the first, and the server leaves out what can't."""
    number = version["version"]
    where = {"schedule_id": version["schedule_id"], "meta": {"$regex": f'"template_version":\\s*{number}\\b'}}
    return any(_meta(fact["meta"]).template_version == number for fact in db.cursor("job_facts", where, ("meta",), sort=[("_id", 1)]))
