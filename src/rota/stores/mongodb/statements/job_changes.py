"""What people ask for of one job: to cancel, change, move or retry it."""

from __future__ import annotations

from collections.abc import Sequence

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows
from rota.stores.mongodb.schema import QUEUED, RUNNING
from rota.stores.mongodb.statements.jobs import whole, whole_by_number

PLACE = ("_id", "status", "priority", "organization_id", "position", "created_at", "job_id", "params", "run_at", "held")
TAIL = ("_id", "job_id", "status", "unique_key", "organization_id", "job_type", "root_id")
IN_LINE = ("position", "created_at", "job_id")
OF_FACTS = ("_id", "job_id", "root_id", "attempt", "organization_id", "job_type", "created_at", "schedule_id", "unique_key", "lane")
"""The columns that a live job has from its facts."""
WAITING = {"status": {"$in": ["PENDING", "QUEUED"]}}


@statement
def locate(db: Db, *, job_id: str | bytes) -> list[Row]:
    """Return the chain that a job belongs to, and the job itself."""
    return rows(whole(db, db.find("job_facts", {"job_id": ident(job_id)})), ("root_id", "_id", "status"))


@statement
def live_of_root(db: Db, *, root_id: str | bytes) -> list[Row]:
    """Return the live job of a chain."""
    root = ident(root_id)
    first = db.first("job_facts", {"job_id": root}, ())
    if first is None:
        return []
    ways = [{"_id": first["_id"]}, {"root_id": root, "attempt": {"$gt": 1}}]
    return rows(db.find("job_live", {"$or": ways}, ("job_id", "status")), ("_id", "job_id", "status"))


@statement
def tail_of(db: Db, *, job_id: str | bytes) -> list[Row]:
    """Return the last job of a chain, from any of its jobs."""
    fact = db.first("job_facts", {"job_id": ident(job_id)})
    if fact is None:
        return []
    # A job without a later one in its chain is the first and only one.
    last = db.first("job_facts", {"root_id": fact["root_id"], "attempt": {"$gt": 1}}, sort=[("attempt", -1)])
    return rows(whole(db, [last or fact]), TAIL)


@statement
def request_cancel(db: Db, *, number: int, now: int, actor: str, reason: str | None) -> int:
    """Ask for the end of a job that runs, unless that was asked for before."""
    asked = document(cancel_requested_at=now, cancel_requested_by=actor, reason=reason)
    return db.update("job_live", {"_id": number, **RUNNING, "cancel_requested_at": None}, {"$set": asked})


@statement
def change_waiting(db: Db, *, number: int, params: str | None, run_at: int | None, priority: int, position: int) -> int:
    """Change what a job that has not started may still have changed."""
    changed = db.update("job_live", {"_id": number, **WAITING}, {"$set": document(run_at=run_at, priority=priority, position=position)})
    if changed and params is not None:
        db.update("job_facts", {"_id": number}, {"$set": {"params": params}})
    return changed


@statement
def place_of(db: Db, *, number: int) -> list[Row]:
    """Return where a job stands."""
    return rows(whole_by_number(db, [number]), PLACE)


# ---- moving ----------------------------------------------------------------------------------------------------------


@statement
def neighbours_behind(
    db: Db, *, priority: int, organization_id: str, moved: int, position: int, created_at: int, job_id: str | bytes, limit: int
) -> list[Row]:
    """Return an organization's own jobs from a place on, the nearest first, without the one that is moved."""
    line, place = _line(priority, organization_id, moved), (position, created_at, ident(job_id))
    near = [job for job in _at(db, line, position) if _in_line(job) >= place]
    found = sorted(near + _beyond(db, line, {"$gt": position}, limit), key=_in_line)
    return rows(found[:limit], ("_id", "position"))


@statement
def neighbours_ahead(
    db: Db, *, priority: int, organization_id: str, moved: int, position: int, created_at: int, job_id: str | bytes, limit: int
) -> list[Row]:
    """Return an organization's own jobs before a place, the nearest first, without the one that is moved."""
    line, place = _line(priority, organization_id, moved), (position, created_at, ident(job_id))
    near = [job for job in _at(db, line, position) if _in_line(job) < place]
    found = sorted(near + _beyond(db, line, {"$lt": position}, limit), key=_in_line, reverse=True)
    return rows(found[:limit], ("_id", "position"))


@statement
def first_in_line(db: Db, *, priority: int, organization_id: str, moved: int) -> list[Row]:
    """Return the first of an organization's own jobs of a priority, without the one that is moved."""
    found = _beyond(db, _line(priority, organization_id, moved), {"$gt": -(1 << 62)}, 1)
    return rows(sorted(found, key=_in_line)[:1], ("_id", *IN_LINE))


def _line(priority: int, organization_id: str, moved: int) -> Document:
    return {**QUEUED, "priority": priority, "organization_id": organization_id, "_id": {"$ne": moved}}


def _in_line(job: Document) -> tuple[int, int, str]:
    return job["position"], job["created_at"], job["job_id"]


def _at(db: Db, line: Document, position: int) -> list[Document]:
    return db.find("job_live", line | {"position": position}, IN_LINE)


def _beyond(db: Db, line: Document, positions: Document, limit: int) -> list[Document]:
    """Return the nearest jobs beyond a position, and all that share that of the last of them: the index knows the order of positions."""
    down = "$lt" in positions
    nearest = db.find("job_live", line | {"position": positions}, IN_LINE, sort=[("position", -1 if down else 1)], limit=limit)
    if len(nearest) < limit:
        return nearest
    last = nearest[-1]["position"]
    return [job for job in nearest if job["position"] != last] + _at(db, line, last)


@statement
def set_position(db: Db, *, number: int, position: int) -> int:
    """Give a QUEUED job another position."""
    return db.update("job_live", {"_id": number, **QUEUED}, {"$set": {"position": position}})


# ---- retrying --------------------------------------------------------------------------------------------------------


@statement
def insert_retry(db: Db, *, number: int, new_id: str | bytes, now: int, position: int) -> int:
    """Add one more attempt to an ended chain, with a fresh budget."""
    before, end = db.first("job_facts", {"_id": number}), db.first("job_ends", {"_id": number}, ("priority",))
    if before is None or end is None:
        return 0
    fact = before | {"_id": db.next_numbers("job_numbers"), "job_id": ident(new_id), "retry_of": before["job_id"]}
    fact |= {"attempt": before["attempt"] + 1, "failures": 0, "crashes": 0, "snoozes": 0, "created_at": now, **_own_lane(db, before)}
    if before["origin"] == "direct":
        fact["origin"] = "api"
    live = {column: fact[column] for column in OF_FACTS if column in fact}
    live |= {"status": "QUEUED", "blockers": 0, "priority": end["priority"], "position": position, "run_at": now, "queued_at": now}
    db.insert("job_facts", fact)
    return db.insert("job_live", live)


def _own_lane(db: Db, fact: Document) -> Document:
    """Return the lane of the attempt before; of one that ended before there were lanes, the lane of its type."""
    if "lane" in fact:
        return {"lane": fact["lane"]}
    lanes: Sequence[Document] = db.find("lanes", {"job_type": fact["job_type"], "queue": "default", "digest": ""}, ())
    return {"lane": lanes[0]["_id"]} if lanes else {}
