"""The queue: where a newcomer stands, which jobs are there already, and jobs whose time has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, ident, rows
from rota.stores.mongodb.documents import ids as unpacked
from rota.stores.mongodb.schema import PENDING, QUEUED, THERE
from rota.stores.mongodb.statements.jobs import whole
from rota.stores.mongodb.statements.joining import among, in_chunks
from rota.stores.mongodb.statements.moves import rewrite
from rota.stores.mongodb.statements.questions import Question, answers

DUE = {**PENDING, "blockers": 0}
KEYS_AT_ONCE = 1000
"""Unique keys that are asked for at a time: each may have 4 KB, and a question 16 MB."""

# ---- entering --------------------------------------------------------------------------------------------------------


def _line(organization_id: str, priority: int) -> list[Question]:
    """Return the questions that tell where a newcomer stands: is anything queued, where is the last of its own, and what is the clock."""
    queued = {**QUEUED, "priority": priority}
    own = queued | {"organization_id": organization_id}
    return [
        ("job_live", [{"$match": queued}, {"$limit": 1}, {"$project": {"_id": 1}}]),
        ("job_live", [{"$match": own}, {"$sort": {"position": -1}}, {"$limit": 1}, {"$project": {"position": 1}}]),
        ("queue_clock", [{"$match": {"_id": priority}}]),
    ]


def _base(queued: list[Document], tail: list[Document], clock: list[Document]) -> int | None:
    """Return the highest position that counts for a newcomer; None if nothing is queued at its priority.

    It is the last of its organization or, while anything is queued at this priority, the clock: the highest position claimed there.
    """
    return max([0, *(place["position"] for place in (*tail, *clock))]) if queued else None


@statement
def position_base(db: Db, *, organization_id: str, priority: int) -> list[Row]:
    """Return the highest position that counts for a newcomer."""
    return [(_base(*answers(db, _line(organization_id, priority))),)]


@statement
def clock_reset(db: Db, *, priority: int) -> int:
    """Let the positions of a priority be counted anew."""
    return db.delete("queue_clock", {"_id": priority})


@statement
def enqueue_gate(db: Db, *, organization_id: str, priority: int, first: bytes, last: bytes) -> list[Row]:
    """Return what every enqueue asks: the version, max_queued, whether an id is known, the base of positions. A number comes later."""
    known = {"job_id": {"$in": list({first.hex(), last.hex()})}}
    questions: list[Question] = [
        ("meta", [{"$match": {"_id": "definitions_version"}}]),
        ("organizations", [{"$match": {"_id": organization_id}}, {"$project": {"max_queued": 1}}]),
        ("job_facts", [{"$match": known}, {"$limit": 1}, {"$project": {"_id": 1}}]),
        *_line(organization_id, priority),
    ]
    version, organizations, present, *line = answers(db, questions)
    return [(version[0]["value"], _max_queued(organizations), bool(present), _base(*line), None)]


def _max_queued(organizations: Sequence[Document]) -> int | None:
    return organizations[0].get("max_queued") if organizations else None


@statement
def max_queued(db: Db, *, organization_id: str) -> list[Row]:
    """Return how many jobs of an organization may be queued."""
    return rows(db.find("organizations", {"_id": organization_id}, ("max_queued",)), ("max_queued",))


@statement
def queued_count(db: Db, *, organization_id: str) -> list[Row]:
    """Return how many jobs of an organization are queued: the index hops from priority to priority."""
    return [(db.size("job_live", {**QUEUED, "priority": {"$gte": 0}, "organization_id": organization_id}),)]


# ---- jobs that are there already -------------------------------------------------------------------------------------


def _standing(job: Document) -> Row:
    return job["job_id"], job["root_id"], job["_id"], job["status"], job["position"] if "queued_at" in job else 0


@statement
def same_id(db: Db, *, job_id: str | bytes) -> list[Row]:
    """Return the job of this id."""
    jobs = whole(db, db.find("job_facts", {"job_id": ident(job_id)}))
    return [(*_standing(job), job["job_type"], job["organization_id"]) for job in jobs]


@statement
def key_holder(db: Db, *, organization_id: str, job_type: str, unique_key: str) -> list[Row]:
    """Return the live job that holds a unique key."""
    where = {"organization_id": organization_id, "job_type": job_type, "unique_key": unique_key}
    return [_standing(job) for job in db.find("job_live", where)]


@statement
def standing(db: Db, *, ids: bytes, keys: Sequence[tuple[str, str, str | None]]) -> list[Row]:
    """Return which of many are there already, counted from 0, by id (0) or by key (1), and what is there."""
    places = {job_id: place for place, job_id in enumerate(unpacked(ids))}
    jobs = whole(db, among(db, "job_facts", "job_id", places, None))
    found: list[Row] = [(places[job["job_id"]], 0, *_standing(job), job["job_type"], job["organization_id"]) for job in jobs]
    holders = _holders(db, keys)
    for place, key in enumerate(keys):
        holder = holders.get(key)
        if holder is not None:
            found.append((place, 1, *_standing(holder), holder["job_type"], holder["organization_id"]))
    return found


def _holders(db: Db, keys: Sequence[tuple[str, str, str | None]]) -> dict[tuple[str, str, str | None], Document]:
    by_type: dict[tuple[str, str], list[str]] = {}
    for organization_id, job_type, key in keys:
        if key is not None:
            by_type.setdefault((organization_id, job_type), []).append(key)
    return {
        (organization_id, job_type, job["unique_key"]): job
        for (organization_id, job_type), own in by_type.items()
        for some in in_chunks(own, KEYS_AT_ONCE)
        for job in among(db, "job_live", "unique_key", some, None, organization_id=organization_id, job_type=job_type)
    }


# ---- time ------------------------------------------------------------------------------------------------------------


@statement
def due_priorities(db: Db) -> list[Row]:
    """Return each priority that has PENDING jobs free of edges, the highest first, with its earliest run_at: a hop from one to the next."""
    # With no condition the server hops along the index; with one it would look at each job that waits.
    stages: list[Document] = [{"$sort": {"priority": 1, "run_at": 1}}, {"$group": {"_id": "$priority", "run_at": {"$first": "$run_at"}}}]
    return sorted(rows(db.aggregate("job_live", stages, hint="live_due"), ("_id", "run_at")), reverse=True)


@statement
def due_jobs(db: Db, *, priority: int, now: int, limit: int) -> list[Row]:
    """Return the due jobs of a priority, the earliest first."""
    where = {**DUE, "priority": priority, "run_at": {"$lte": now}}
    due = db.find("job_live", where, ("organization_id",), sort=[("run_at", 1), ("_id", 1)], limit=limit)
    return [(msgspec.json.encode([(job["_id"], job["organization_id"]) for job in due]).decode(),)]


@statement
def queue_jobs(db: Db, *, now: int, positions: Mapping[int, int]) -> int:
    """Queue PENDING jobs at these positions, by number."""
    queued = {"status": "QUEUED", "queued_at": now}
    return rewrite(db, PENDING, positions, lambda job: job | queued | {"position": positions[job["_id"]]})


@statement
def expired_jobs(db: Db, *, now: int, limit: int) -> list[Row]:
    """Return the jobs that have waited for too long."""
    where = {"expires_at": {**THERE, "$lte": now}, "started_at": None}
    late = db.find("job_live", where, (), sort=[("expires_at", 1)], limit=limit)
    return [(msgspec.json.encode([job["_id"] for job in late]).decode(),)]
