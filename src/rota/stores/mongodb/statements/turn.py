"""One turn of the wheel: claims, and what running handlers report. How jobs end is in `endings`, what a turn asks first in `looks`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pymongo import UpdateOne

from rota.model.values import Claimed, Instant
from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, ident, rows
from rota.stores.mongodb.errors import Refused
from rota.stores.mongodb.schema import QUEUED, RUNNING
from rota.stores.mongodb.statements.claimed import as_json, claimed_rows
from rota.stores.mongodb.statements.joining import among, in_chunks
from rota.stores.mongodb.statements.moves import move, rewrite, started

READY = QUEUED | {"held": None}
QUEUE_ORDER = (("priority", -1), ("position", 1), ("created_at", 1), ("job_id", 1))
PLACE = ("priority", "position", "created_at", "job_id")
ARMS_MAX = 200
"""The server merges this many lanes along their index; of more it would sort every ready job."""
_artifacts = msgspec.json.Decoder(list[str])

# ---- claims ----------------------------------------------------------------------------------------------------------


@statement
def candidates(db: Db, lanes: tuple[int, ...], want: int, *, slim: bool, suspects: bool) -> list[Claimed]:
    """Return the first ready jobs of these lanes, in the queue's order."""
    if len(lanes) > ARMS_MAX:
        lanes = _first_lanes(db, frozenset(lanes), want if suspects else len(lanes))
    ready = [job for some in in_chunks(lanes, ARMS_MAX) for job in _first(db, some, want, suspects=suspects)]
    if len(lanes) > ARMS_MAX:
        ready = sorted(ready, key=_place)[:want]
    db.offered = {job["_id"]: job for job in ready}
    return [Claimed(*row) for row in _offer(db, ready, slim=slim)]


def _offer(db: Db, ready: Sequence[Document], *, slim: bool = False) -> list[Row]:
    """Return what a worker chooses from."""
    offered = claimed_rows(db, ready, slim=slim)
    db.is_chosen = db.is_chosen or bool(offered)
    return offered


def _first_lanes(db: Db, lanes: frozenset[int], want: int) -> tuple[int, ...]:
    """Return those of very many lanes whose first ready jobs come first: as many as jobs are wanted, for all of these are of them."""
    # With no condition the server hops along the index from lane to lane; with one it would look at each ready job.
    first = {column: {"$first": f"${column}"} for column in PLACE}
    stages: list[Document] = [{"$sort": {"lane": 1, **dict(QUEUE_ORDER)}}, {"$group": {"_id": "$lane", **first}}]
    heads = [head for head in db.aggregate("job_live", stages, hint="live_ready") if head["_id"] in lanes]
    return tuple(head["_id"] for head in sorted(heads, key=_place)[:want])


def _first(db: Db, lanes: list[int], want: int, *, suspects: bool) -> list[Document]:
    where = READY | {"lane": {"$in": lanes} if len(lanes) > 1 else lanes[0]}
    if suspects:
        return db.find("job_live", where, sort=QUEUE_ORDER, limit=want)
    found: list[Document] = []
    with db.cursor("job_live", where, sort=QUEUE_ORDER) as ready:
        for jobs in in_chunks(ready, want):
            crashed = _crashed(db, jobs)
            found += [job for job in jobs if job["_id"] not in crashed]
            if len(found) >= want:
                break
    return found[:want]


def _crashed(db: Db, jobs: list[Document]) -> set[int]:
    """Return those of some jobs under which a worker has crashed."""
    retries = [job["_id"] for job in jobs if job["attempt"] > 1]
    return {fact["_id"] for fact in among(db, "job_facts", "_id", retries, crashes={"$gt": 0})}


def _place(job: Document) -> tuple[int, int, int, str]:
    return -job["priority"], job["position"], job["created_at"], job["job_id"]


@statement
def candidates_among(db: Db, *, numbers: Sequence[int], want: int) -> list[Row]:
    """Return the first of these jobs."""
    live = sorted(among(db, "job_live", "_id", numbers, PLACE), key=_place)
    return as_json(claimed_rows(db, live[:want]))


@statement
def candidates_named(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return those of these jobs that are ready."""
    return as_json(_offer(db, db.find("job_live", READY | {"_id": {"$in": list(numbers)}}, PLACE)))


@statement
def candidate_direct(db: Db, *, number: int) -> list[Row]:
    """Return the job of a direct execution, if it waits."""
    return as_json(_offer(db, db.find("job_live", QUEUED | {"_id": number, "held": "direct"}, PLACE)))


@statement
def place_suspect(db: Db, *, number: int, executor: str) -> int:
    """Say where a suspect runs: `explain` tells by this whether others may start beside it."""
    return db.update("job_facts", {"_id": number}, {"$set": {"executor": executor}})


@statement
def start(db: Db, jobs: Sequence[Claimed], clocks: dict[int, int], *, now: Instant, worker_id: bytes) -> None:
    """Start jobs, each with the run whose id it bears, and move the clocks of their priorities on."""
    numbers = [job.number for job in jobs]
    live = db.offered | {
        job["_id"]: job for job in among(db, "job_live", "_id", [each for each in numbers if each not in db.offered], None)
    }
    holder = ident(worker_id)
    move(db, QUEUED, [started(live[job.number], job.run_id, now, holder) for job in jobs if job.number in live])
    db.write_each("queue_clock", [UpdateOne({"_id": priority}, {"$max": {"position": at}}, upsert=True) for priority, at in clocks.items()])
    # A run starts with the checkpoint of the one before: if it makes none of its own, its successor still has it.
    checkpoints = {job.number: job.checkpoint for job in jobs if job.checkpoint is not None}
    db.insert("run_notes", *({"_id": number, "artifacts": "[]", "checkpoint": text} for number, text in checkpoints.items()))


@statement
def park_jobs(db: Db, *, parked: dict[int, str]) -> int:
    """Park jobs, each with the word of its blocker. A direct job keeps its own word."""
    return rewrite(db, READY, parked, lambda job: job | {"held": parked[job["_id"]]})


@statement
def park_run(db: Db, *, lane: int, organization_id: str, held: str, limit: int) -> int:
    """Park those of an organization among the first ready jobs of a lane."""
    first = db.find("job_live", READY | {"lane": lane}, ("organization_id",), sort=QUEUE_ORDER, limit=limit)
    numbers = [job["_id"] for job in first if job["organization_id"] == organization_id]
    return rewrite(db, READY, numbers, lambda job: job | {"held": held})


@statement
def holding(db: Db, *, worker_id: str | bytes) -> list[Row]:
    """Return what a worker runs."""
    return as_json(claimed_rows(db, db.find("job_live", RUNNING | {"worker_id": ident(worker_id)}, PLACE)))


@statement
def run_ids(db: Db, *, worker_id: str | bytes) -> list[Row]:
    """Return the runs of a worker, with the numbers of their jobs."""
    columns = ("_id", "run_id", "started_at")
    return rows(db.find("job_live", RUNNING | {"worker_id": ident(worker_id)}, columns), columns)


# ---- reports ---------------------------------------------------------------------------------------------------------


def _keep(db: Db, number: int, change: Document) -> int:
    """Write what a job has reported, as long as it runs."""
    if not db.has("job_live", RUNNING | {"_id": number}):
        return 0
    return db.update("run_notes", {"_id": number}, change, upsert=True)


@statement
def keep_progress(db: Db, *, number: int, progress: int, message: str | None) -> int:
    """Write how far a job has come: never less than before."""
    if not 0 <= progress <= 100:
        raise Refused(f"progress is a percentage, and not {progress}")
    said = {} if message is None else {"$set": {"progress_message": message}}
    return _keep(db, number, {"$max": {"progress": progress}, "$setOnInsert": {"artifacts": "[]"}, **said})


@statement
def keep_checkpoint(db: Db, *, number: int, checkpoint: str) -> int:
    """Write from where a job can go on."""
    return _keep(db, number, {"$set": {"checkpoint": checkpoint}, "$setOnInsert": {"artifacts": "[]"}})


@statement
def keep_artifact(db: Db, *, number: int, artifact: str) -> int:
    """Add a file to what a job has made, once."""
    note = db.first("run_notes", {"_id": number}, ("artifacts",))
    known = [] if note is None else _artifacts.decode(note["artifacts"])
    if artifact in known:
        return 0
    return _keep(db, number, {"$set": {"artifacts": msgspec.json.encode([*known, artifact]).decode()}})


@statement
def count_late(db: Db, *, count: int) -> int:
    """Count results that came too late."""
    return db.update("meta", {"_id": "late_results"}, {"$inc": {"value": count}})
