"""Figures: counted as jobs end, so that none of these reads walks over history; and what waits and runs, counted along indexes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from bson.min_key import MinKey
from pymongo import UpdateOne

from rota.model.figures import NO_RUN, PER_OCTAVE
from rota.model.values import Instant
from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, rows
from rota.stores.mongodb.schema import OF_SEVERAL, PENDING, QUEUED, RUNNING, THERE
from rota.stores.mongodb.statements.joining import among

MINUTE, HOUR = 60_000_000, 3_600_000_000
TOTAL = {"kind": "total", "at": 0}
OF_FARED = ["COMPLETED", "FAILED", "TIMED_OUT", "DEAD_LETTER"]
ANY_WORKER = {"worker_id": {"$gte": MinKey()}}
"""Any worker, and none: asked for it, the server walks the index of what runs."""
DUE = PENDING | {"blockers": 0, "priority": {"$gte": 0}}
BLOCKED = PENDING | {"blockers": {"$gt": 0}, "organization_id": {"$gte": ""}}

Figure = tuple[int, str, str, str, int, int, int]
"""Minute, organization, job type, status, bucket, count, and the microseconds spent."""
_figures = msgspec.json.Decoder(list[Figure])

# ---- counting --------------------------------------------------------------------------------------------------------


def figures_of(ends: Iterable[tuple[Document, str]]) -> str:
    """Return what jobs that have just ended, each with its organization, add to the figures: for `count_figures`."""
    counts: Counter[tuple[int, str, str, str, int]] = Counter()
    spent_us: Counter[tuple[int, str, str, str, int]] = Counter()
    for end, organization_id in ends:
        at, began = end["finished_at"], end.get("started_at")
        key = (at - at % MINUTE, organization_id, end["job_type"], end["status"], _bucket(began, at))
        counts[key] += 1
        spent_us[key] += 0 if began is None else max(at - began, 0)
    return msgspec.json.encode([(*key, count, spent_us[key]) for key, count in counts.items()]).decode()


def _bucket(began: Instant | None, at: Instant) -> int:
    """Return the bucket of a run; a power of two begins one, which a logarithm may miss by its last digit."""
    return NO_RUN if began is None else int(PER_OCTAVE * math.log2(max(at - began, 1)) + 3e-13)


@statement
def tally(db: Db, numbers: Sequence[int]) -> None:
    """Count jobs that have just ended."""
    organizations = _organizations(db, numbers)
    ends = among(db, "job_ends", "_id", numbers, ("job_type", "status", "started_at", "finished_at"))
    count_figures(db, figures_of((end, organizations[end["_id"]]) for end in ends if end["_id"] in organizations))


def _organizations(db: Db, numbers: Sequence[int]) -> dict[int, str]:
    return {fact["_id"]: fact["organization_id"] for fact in among(db, "job_facts", "_id", numbers, ("organization_id",))}


@statement
def count_figures(db: Db, figures: str) -> None:
    """Add to the figures: of the minute, of the hour, and of all that is here."""
    sums: dict[Row, Counter[str]] = {}
    for minute, organization_id, job_type, status, bucket, count, total_us in _figures.decode(figures):
        ends = (organization_id, job_type, status)
        for key in (("minute", minute, *ends, bucket), ("hour", minute - minute % HOUR, *ends, bucket)):
            sums.setdefault(key, Counter()).update(count=count, total_us=total_us)
        sums.setdefault(("total", 0, *ends), Counter()).update(count=count)
    db.write_each("figures", [UpdateOne(_keyed(key), {"$inc": dict(added)}, upsert=True) for key, added in sums.items()])


def _keyed(key: Row) -> Document:
    """Return the filter for one document. Totals have no bucket."""
    return dict(zip(OF_SEVERAL["figures"], key, strict=False))


@statement
def untally(db: Db, *, numbers: Sequence[int]) -> int:
    """Count jobs out that are about to be removed: what happened in their hours did happen."""
    organizations = _organizations(db, numbers)
    ends = among(db, "job_ends", "_id", numbers, ("job_type", "status"))
    gone = Counter(("total", 0, organizations[end["_id"]], end["job_type"], end["status"]) for end in ends if end["_id"] in organizations)
    return db.write_each("figures", [UpdateOne(_keyed(key), {"$inc": {"count": -count}}) for key, count in gone.items()])


@statement
def forget_zeros(db: Db) -> int:
    """Remove what nothing is left of."""
    return db.delete("figures", TOTAL | {"count": 0})


# ---- reading ---------------------------------------------------------------------------------------------------------


def _of(organization_id: str | None) -> Document:
    return {} if organization_id is None else {"organization_id": organization_id}


@statement
def count_ended(db: Db, *, organization_id: str | None) -> list[Row]:
    """Return how many ended jobs are here, by status."""
    stages: list[Document] = [{"$match": TOTAL | _of(organization_id)}, {"$group": {"_id": "$status", "count": {"$sum": "$count"}}}]
    return rows(db.aggregate("figures", stages), ("_id", "count"))


@statement
def count_running(db: Db, *, organization_id: str | None) -> list[Row]:
    """Return how many jobs run."""
    return [(db.size("job_live", RUNNING | ANY_WORKER | _of(organization_id)),)]


@statement
def count_pending(db: Db) -> list[Row]:
    """Return how many jobs are PENDING."""
    # Without a condition the server counts an index, and looks at no job.
    return [(db.size("job_live", {}, hint="live_due") + db.size("job_live", {}, hint="live_blocked"),)]


@statement
def count_pending_of(db: Db, *, organization_id: str) -> list[Row]:
    """Return how many jobs of an organization are PENDING."""
    return [(db.size("job_live", DUE | _of(organization_id)) + db.size("job_live", BLOCKED | _of(organization_id)),)]


@statement
def count_line(db: Db, *, priority: int, organization_id: str, few: int) -> list[Row]:
    """Return how long one line of the queue is, and since when its first few wait.

    Positions are given in the order of time, so the longest wait is there, unless more than `few` were moved to the front.
    """
    line = QUEUED | {"priority": priority, "organization_id": organization_id}
    first = db.find("job_live", line, ("queued_at",), sort=[("position", 1)], limit=few)
    return [(db.size("job_live", line), min((job["queued_at"] for job in first), default=None))]


@statement
def count_types(db: Db, *, limit: int) -> list[Row]:
    """Return the types of which most are QUEUED."""
    queued: Counter[str] = Counter()
    # Without a condition the server counts an index, and looks at no job.
    ready = _sizes(db, {}, "$lane", hint="live_ready")
    types = {lane["_id"]: lane["job_type"] for lane in among(db, "lanes", "_id", ready, ("job_type",))}
    for lane, count in ready.items():
        if lane in types:
            queued[types[lane]] += count
    queued.update(_sizes(db, {}, "$job_type", hint="live_held"))
    return sorted(queued.items(), key=lambda item: (-item[1], item[0]))[:limit]


@statement
def count_types_of_line(db: Db, *, priority: int, organization_id: str) -> list[Row]:
    """Return how many of each type are in one line of the queue."""
    return list(_sizes(db, QUEUED | {"priority": priority, "organization_id": organization_id}, "$job_type").items())


def _sizes(db: Db, where: Document, column: str, *, hint: str | None = None) -> dict[str, int]:
    stages = [{"$match": where}, {"$group": {"_id": column, "count": {"$sum": 1}}}]
    return {group["_id"]: group["count"] for group in db.aggregate("job_live", stages, hint=hint)}


@statement
def fared(db: Db, *, since: int, organization_id: str | None) -> list[Row]:
    """Return how types fared since an hour began: completed runs by bucket, and how many attempts failed."""
    key = {"job_type": "$job_type", "bucket": "$bucket", "completed": {"$eq": ["$status", "COMPLETED"]}}
    stages: list[Document] = [
        {"$match": {"kind": "hour", "at": {"$gte": since}, "status": {"$in": OF_FARED}} | _of(organization_id)},
        {"$group": {"_id": key, "count": {"$sum": "$count"}, "total_us": {"$sum": "$total_us"}}},
        {"$sort": {"_id.job_type": 1, "_id.bucket": 1}},
    ]
    groups = db.aggregate("figures", stages)
    return [(*group["_id"].values(), group["count"], group["total_us"]) for group in groups]


@statement
def late_results(db: Db) -> list[Row]:
    """Return how many results came too late."""
    return rows(db.find("meta", {"_id": "late_results"}), ("value",))


@statement
def claimed_ahead(db: Db) -> list[Row]:
    """Return how many RUNNING jobs workers hold beyond their slots."""
    slots = {worker["_id"]: worker["slots"] for worker in db.find("workers", {"ended_at": None, "slots": THERE}, ("slots",))}
    held = _sizes(db, RUNNING | {"worker_id": {"$in": list(slots)}}, "$worker_id") if slots else {}
    return [(sum(max(count - slots[worker_id], 0) for worker_id, count in held.items()),)]


@statement
def count_workers(db: Db) -> list[Row]:
    """Return how many workers there are."""
    return [(db.size("workers", {"ended_at": None, "kind": "worker"}),)]
