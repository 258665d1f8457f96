"""The queue in its order, as people see it."""

from __future__ import annotations

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, ident, rows
from rota.stores.mongodb.schema import QUEUED
from rota.stores.mongodb.statements.jobs import job_rows, whole, whole_by_number
from rota.stores.mongodb.statements.questions import answers

PLACE = ("position", "created_at", "job_id")


@statement
def next_priority(db: Db, *, priority: int) -> list[Row]:
    """Return the highest priority below this one that jobs wait at."""
    where = {**QUEUED, "priority": {"$lt": priority}}
    return rows(db.find("job_live", where, ("priority",), sort=[("priority", -1)], limit=1, hint="live_tail"), ("priority",))


@statement
def next_line(db: Db, *, priority: int, organization_id: str) -> list[Row]:
    """Return the next organization of which jobs wait at a priority."""
    where = {**QUEUED, "priority": priority, "organization_id": {"$gt": organization_id}}
    sort = [("priority", 1), ("organization_id", 1)]
    return rows(db.find("job_live", where, ("organization_id",), sort=sort, limit=1, hint="live_tail"), ("organization_id",))


@statement
def line(db: Db, *, priority: int, organization_id: str, limit: int) -> list[Row]:
    """Return the head of one line of the queue. The index goes as far as positions: only those that share one are sorted."""
    where: Document = {**QUEUED, "priority": priority, "organization_id": organization_id}
    sort = [("priority", 1), ("organization_id", 1), ("position", 1)]
    heads = db.find("job_live", where, PLACE, sort=sort, limit=limit, hint="live_tail")
    if heads:
        last = heads[-1]["position"]
        tied = db.find(
            "job_live", where | {"position": last}, PLACE, sort=[("created_at", 1), ("job_id", 1)], limit=limit, hint="live_tail"
        )
        heads = [head for head in heads if head["position"] != last] + tied
    heads.sort(key=lambda head: tuple([head[column] for column in PLACE]))
    return job_rows(db, whole_by_number(db, [head["_id"] for head in heads[:limit]]))


@statement
def ahead(db: Db, *, job_id: str | bytes, organization_id: str | None) -> list[Row]:
    """Return how many jobs are ready and come before one in the queue's order."""
    found = whole(db, db.find("job_facts", {"job_id": ident(job_id)}))
    if not found or "priority" not in found[0]:
        return [(0,)]
    mine = found[0]
    priority, position, created_at = mine["priority"], mine["position"], mine["created_at"]
    earlier = [{"created_at": {"$lt": created_at}}, {"created_at": created_at, "job_id": {"$lt": mine["job_id"]}}]
    ready: Document = {**QUEUED, "held": None} | ({} if organization_id is None else {"organization_id": organization_id})
    before = ({"priority": {"$gt": priority}}, {"priority": priority, "position": {"$lt": position}})
    tied = {"priority": priority, "position": position, "$or": earlier}
    counts = answers(db, [("job_live", [{"$match": ready | where}, {"$count": "jobs"}]) for where in (*before, tied)])
    return [(sum(answer[0]["jobs"] for answer in counts if answer),)]
