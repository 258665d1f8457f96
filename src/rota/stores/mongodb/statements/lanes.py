"""Lanes: lines of ready jobs of one type, one queue and one digest of parameters; and what is behind a digest."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, rows, setting
from rota.stores.mongodb.schema import ORDER, QUEUED, RUNNING, THERE

LANE_STEP = 1 << 40
"""A new lane advances the version of the definitions from bit 40 on, which only workers compare."""
IN_ORDER = [(column.removeprefix("-"), -1 if column.startswith("-") else 1) for column in ORDER]
_digests = msgspec.json.Decoder(dict[str, str]).decode


@statement
def all_lanes(db: Db) -> list[Row]:
    """Return every lane, with the names behind its digest."""
    names = {(each["job_type"], each["digest"]): each["names"] for each in db.find("param_digests", {}, ("job_type", "digest", "names"))}
    return [
        (lane["_id"], lane["job_type"], lane["queue"], lane["digest"], names.get((lane["job_type"], lane["digest"])))
        for lane in db.find("lanes", {}, sort=[("_id", 1)])
    ]


@statement
def lanes_of_types(db: Db, *, types: Sequence[str]) -> list[Row]:
    """Return the lanes of some types."""
    return rows(db.find("lanes", {"job_type": {"$in": list(types)}}, ("job_type",), sort=[("_id", 1)]), ("_id", "job_type"))


@statement
def lane_of(db: Db, *, job_type: str, queue: str, digest: str) -> list[Row]:
    """Return a lane."""
    return rows(db.find("lanes", {"job_type": job_type, "queue": queue, "digest": digest}, ()), ("_id",))


@statement
def add_lane(db: Db, *, job_type: str, queue: str, digest: str) -> int:
    """Add a lane, if it is not there. Two that add it beside each other write the version: one of them is begun again."""
    key = {"job_type": job_type, "queue": queue, "digest": digest}
    if db.has("lanes", key):
        return 0
    db.update("meta", {"_id": "definitions_version"}, {"$inc": {"value": LANE_STEP}})
    return db.insert("lanes", {"_id": db.next_numbers("lanes"), **key})


@statement
def held_by_lane(db: Db, *, look: int) -> list[Row]:
    """Return how many jobs are parked by lane, and since when, among the first of them."""
    parked = {**QUEUED, "held": {**THERE, "$gte": ""}}
    counts = {"_id": "$lane", "count": {"$sum": 1}, "since": {"$min": "$queued_at"}}
    return rows(db.aggregate("job_live", [{"$match": parked}, {"$limit": look}, {"$group": counts}]), ("_id", "count", "since"))


@statement
def running_by_lane(db: Db) -> list[Row]:
    """Return how many jobs run by lane."""
    stages = [{"$match": {**RUNNING, "worker_id": {"$gte": ""}}}, {"$group": {"_id": "$lane", "count": {"$sum": 1}}}]
    return rows(db.aggregate("job_live", stages), ("_id", "count"))


@statement
def type_and_queue(db: Db, *, number: int) -> list[Row]:
    """Return the type of a job and its queue."""
    fact = db.first("job_facts", {"_id": number}, ("job_type", "lane"))
    if fact is None:
        return []
    lane = db.first("lanes", {"_id": fact.get("lane")}, ("queue",)) or {}
    return [(fact["job_type"], lane.get("queue", "default"))]


@statement
def old_in_lane(db: Db, *, lane: int, before: int, look: int, limit: int) -> list[Row]:
    """Return ready jobs of a lane that were queued at a moment or before, among its first."""
    first = db.find("job_live", {**QUEUED, "held": None, "lane": lane}, ("queued_at",), sort=IN_ORDER, limit=look)
    return [(job["_id"],) for job in first if job["queued_at"] <= before][:limit]


# ---- jobs without a lane ---------------------------------------------------------------------------------------------


@statement
def stray_types(db: Db, *, limit: int) -> list[Row]:
    """Return the types of live jobs without a lane."""
    stages: list[Document] = [{"$match": {"lane": None, "job_type": {"$gte": ""}}}, {"$group": {"_id": "$job_type"}}, {"$limit": limit}]
    return rows(db.aggregate("job_live", stages), ("_id",))


@statement
def place_strays(db: Db, *, job_type: str, lane: int) -> int:
    """Put live jobs of a type without a lane into one."""
    return db.update("job_live", {"job_type": job_type, "lane": None}, {"$set": {"lane": lane}})


# ---- what is behind a digest -----------------------------------------------------------------------------------------


@statement
def param_digests(db: Db, *, with_schema: int) -> list[Row]:
    """Return what is recorded of digests; their schemas if that is asked for."""
    columns = ("job_type", "digest", "recorded_at", "schema")
    return rows(db.find("param_digests", {}, columns if with_schema else columns[:-1]), columns)


@statement
def add_param_digest(db: Db, *, job_type: str, digest: str, param_names: str, schema: str | None, now: int) -> int:
    """Record what is behind a digest, if that is not there."""
    if db.has("param_digests", {"job_type": job_type, "digest": digest}):
        return 0
    return db.insert("param_digests", document(job_type=job_type, digest=digest, names=param_names, schema=schema, recorded_at=now))


@statement
def set_param_schema(db: Db, *, job_type: str, digest: str, schema: str | None, now: int) -> int:
    """Set the schema behind a digest."""
    return db.update("param_digests", {"job_type": job_type, "digest": digest}, setting(schema=schema, recorded_at=now))


@statement
def newest_params(db: Db, *, job_type: str) -> list[Row]:
    """Return what was recorded last of a type: first what a worker stated, for the names of a job that was given back have no schema."""
    of_type = db.find("param_digests", {"job_type": job_type})
    of_type.sort(key=lambda each: ("schema" not in each, -each["recorded_at"], each["digest"]))
    return rows(of_type[:1], ("digest", "names", "schema"))


@statement
def schemas_of_live_workers(db: Db, *, job_type: str) -> list[Row]:
    """Return the schemas of a type that live workers announce; None for one that is not recorded."""
    stated = [_digests(worker["digests"]) for worker in db.find("workers", {"ended_at": None, "digests": THERE}, ("digests",))]
    digests = {own[job_type] for own in stated if job_type in own}
    known = {
        each["digest"]: each.get("schema") for each in db.find("param_digests", {"job_type": job_type, "digest": {"$in": list(digests)}})
    }
    return [(schema,) for schema in {known.get(digest) for digest in digests}]
