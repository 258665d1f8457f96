"""Workers, what they hold, recovery, direct reservations, and jobs that another system has begun."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, picked, row, rows
from rota.stores.mongodb.schema import QUEUED, RUNNING, THERE
from rota.stores.mongodb.statements.claimed import as_json, claimed_rows
from rota.stores.mongodb.statements.endings import WAITING
from rota.stores.mongodb.statements.figures import ANY_WORKER
from rota.stores.mongodb.statements.joining import among
from rota.stores.mongodb.statements.moves import move, started

OF_HEAD = ("_id", "host", "kind", "beat", "job_types", "started_at", "stopping_at", "ended_at")
OF_REST = ("slots", "queues", "digests", "pid", "rota_version", "memory")
RESERVATION = ("_id", "reserved_by", "worker_id", "job_id", "job_number", "reserved_at", "expires_at")

# ---- on record -------------------------------------------------------------------------------------------------------


@statement
def register(db: Db, *, worker_id: str | bytes, now: int, digests: str | None, **columns: Any) -> int:
    """Record a worker, once."""
    worker = {"beat": 0} | document(started_at=now, digests=digests or "{}", **columns)
    return db.update("workers", {"_id": ident(worker_id)}, {"$setOnInsert": worker}, upsert=True)


def _open(worker_id: str | bytes) -> Document:
    return {"_id": ident(worker_id), "ended_at": None}


@statement
def beat(db: Db, *, worker_id: str | bytes, **columns: Any) -> int:
    """Advance a worker's beat, and write what is known of it: types, digests, memory."""
    return db.update("workers", _open(worker_id), {"$inc": {"beat": 1}, "$set": document(**columns)})


@statement
def stopping(db: Db, *, worker_id: str | bytes, now: int) -> int:
    """Record that a worker stops."""
    return db.update("workers", _open(worker_id) | {"stopping_at": None}, {"$set": {"stopping_at": now}})


@statement
def end_worker(db: Db, *, worker_id: str | bytes, now: int) -> int:
    """Record the end of a worker."""
    return db.update("workers", _open(worker_id), {"$set": {"ended_at": now}})


@statement
def give_up_worker(db: Db, *, worker_id: str | bytes, beat: int, now: int) -> int:
    """Record the end of a worker that beats no more. Its own beat, should it come after all, finds it ended: one of the two comes first."""
    return db.update("workers", _open(worker_id) | {"beat": beat}, {"$set": {"ended_at": now}})


@statement
def workers(db: Db) -> list[Row]:
    """Return workers, with how many jobs each runs.

    Those that were given up and still hold something are here too: whoever gave them up may be gone itself.
    """
    held = _held(db)
    known = [*db.find("workers", {"ended_at": None}), *among(db, "workers", "_id", held, None, ended_at=THERE)]
    return _workers(sorted(known, key=lambda worker: str(worker["_id"])), held)


@statement
def all_workers(db: Db) -> list[Row]:
    """Return every worker on record."""
    return _workers(db.find("workers", {}, sort=[("_id", 1)]), _held(db))


def _held(db: Db) -> dict[str, int]:
    """Return how many jobs run, by worker."""
    counts = db.aggregate("job_live", [{"$match": RUNNING | ANY_WORKER}, {"$group": {"_id": "$worker_id", "count": {"$sum": 1}}}])
    return {count["_id"]: count["count"] for count in counts}


def _workers(known: Iterable[Document], held: dict[str, int]) -> list[Row]:
    return [(*row(worker, OF_HEAD), held.get(worker["_id"], 0), *row(worker, OF_REST)) for worker in known]


# ---- recovery --------------------------------------------------------------------------------------------------------


@statement
def held_by(db: Db, *, worker_id: str | bytes, limit: int) -> list[Row]:
    """Return what a worker runs. A run is here what its job is: it is never missing, and never ends alone."""
    live = db.find("job_live", RUNNING | {"worker_id": ident(worker_id)}, HELD)
    return as_json(list(_held_rows(db, sorted(live, key=lambda job: int(job["_id"]))[:limit])))


@statement
def held_rows(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return the same by the numbers of jobs."""
    return as_json(list(_held_rows(db, list(among(db, "job_live", "_id", numbers, HELD)))))


@statement
def failed_without_successor(db: Db, *, since: int) -> list[Row]:
    """Return attempts that were to be tried again and have no successor."""
    where = {"status": {"$in": ["FAILED", "TIMED_OUT"]}, "finished_at": {"$gte": since}}
    ends = db.find("job_ends", where, (*HELD, "status"), sort=[("finished_at", 1)])
    job_ids = {fact["_id"]: fact["job_id"] for fact in among(db, "job_facts", "_id", [end["_id"] for end in ends], ("job_id",))}
    retried = {fact["retry_of"] for fact in among(db, "job_facts", "retry_of", job_ids.values(), ("retry_of",))}
    return as_json(list(_held_rows(db, [end for end in ends if job_ids.get(end["_id"]) not in retried])))


HELD = ("priority", "position", "run_id", "started_at")


def _held_rows(db: Db, jobs: Sequence[Document]) -> Iterator[Row]:
    """Return live or ended jobs with their runs: those of ended ones with how they ended."""
    by_number = {job["_id"]: job for job in jobs}
    for claimed in claimed_rows(db, jobs):
        job = by_number[claimed[0]]
        yield claimed, 0, job.get("status"), job.get("run_id", ""), job.get("started_at")


@statement
def recovered_at(db: Db) -> list[Row]:
    """Return when recovery was last finished."""
    return rows(db.find("meta", {"_id": "recovered_at"}), ("value",))


@statement
def set_recovered_at(db: Db, *, now: int) -> int:
    """Record that recovery is finished."""
    return db.update("meta", {"_id": "recovered_at"}, {"$set": {"value": now}})


@statement
def is_waiting(db: Db, *, number: int) -> list[Row]:
    """Return a row if a job waits."""
    return [(1,)] if db.has("job_live", WAITING | {"_id": number}) else []


@statement
def is_running(db: Db, *, number: int) -> list[Row]:
    """Return a row if a job runs."""
    return [(1,)] if db.has("job_live", RUNNING | {"_id": number}) else []


# ---- direct reservations ---------------------------------------------------------------------------------------------


@statement
def active_reservation(db: Db) -> list[Row]:
    """Return the reservation of the direct execution that is under way."""
    return rows(db.find("direct_reservations", {"status": "ACTIVE"}), RESERVATION)


@statement
def reservation_by_id(db: Db, *, reservation_id: str | bytes) -> list[Row]:
    """Return a reservation."""
    return rows(db.find("direct_reservations", {"_id": ident(reservation_id)}), RESERVATION)


@statement
def insert_reservation(
    db: Db,
    *,
    reservation_id: str | bytes,
    reserved_by: str,
    worker_id: str | bytes,
    job_id: str | bytes,
    job_number: int,
    now: int,
    expires_at: int,
) -> int:
    """Reserve the store for a direct execution. There is one at a time."""
    reservation = document(
        _id=ident(reservation_id),
        reserved_at=now,
        reserved_by=reserved_by,
        status="ACTIVE",
        expires_at=expires_at,
        job_id=ident(job_id),
        job_number=job_number,
        worker_id=ident(worker_id),
    )
    return db.insert("direct_reservations", reservation)


@statement
def end_reservation(db: Db, *, reservation_id: str | bytes, status: str, now: int) -> int:
    """End a reservation."""
    return _end_reservation(db, {"_id": ident(reservation_id)}, status, now)


@statement
def end_reservation_of(db: Db, *, numbers: Sequence[int], status: str, now: int) -> int:
    """End the reservation of that job among these that it was made for."""
    return _end_reservation(db, {"job_number": {"$in": list(numbers)}}, status, now)


def _end_reservation(db: Db, which: Document, status: str, now: int) -> int:
    return db.update("direct_reservations", {"status": "ACTIVE"} | which, {"$set": {"status": str(status), "released_at": now}})


# ---- jobs of other systems -------------------------------------------------------------------------------------------


@statement
def adopt_starts(db: Db, rows: Sequence[tuple[Any, ...]], adopter_id: str) -> None:
    """Start jobs as another system has: by the number, the run's id, started_at, and the failures before it."""
    past = {number: (run_id, started_at, failures) for number, run_id, started_at, failures in rows}
    live = list(among(db, "job_live", "_id", past, None, **QUEUED))
    if not live:
        return
    move(db, QUEUED, [started(job, run_id, at, ident(adopter_id)) for job in live for run_id, at, _ in [past[job["_id"]]]])
    numbers = [job["_id"] for job in live]
    failures = picked([past[number][2] for number in numbers], numbers)
    db.update("job_facts", {"_id": {"$in": numbers}}, [{"$set": {"failures": failures}}])
