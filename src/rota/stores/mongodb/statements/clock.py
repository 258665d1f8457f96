"""The clock: when schedules want to be looked at, how far anything was written, and what a clock that was ahead has left."""

from __future__ import annotations

from pymongo import UpdateOne

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, rows
from rota.stores.mongodb.schema import LIVING, OPEN, PENDING, THERE
from rota.stores.mongodb.statements.joining import among, in_chunks
from rota.stores.mongodb.statements.schedules import schedules_over

OPEN_UNTIL = {"resolved_at": None, "until": THERE}
"""Edges that are given up at a time."""


@statement
def beat_of_schedules(db: Db, *, span: int) -> list[Row]:
    """Return the first moments at which something is due, then `furthest`. One index has schedules that depend on others among the rest."""
    # A number, so that those with none are not walked over; disabled ones have none.
    due = db.first("schedules", {**LIVING, "next_trigger_at": {"$gt": 0}}, ("next_trigger_at",), sort=[("next_trigger_at", 1)])
    waits = db.first("job_edges", OPEN_UNTIL, ("until",), sort=[("until", 1)])
    over = next(schedules_over(db), None)
    return [(due and due["next_trigger_at"], None, waits and waits["until"], None if over is None else 0, _furthest(db, span))]


@statement
def furthest(db: Db, *, span: int) -> list[Row]:
    """Return the furthest moment at which anything was written that waits.

    These are fates, jobs that were put off, and the message with the furthest attempt. No message waits longer than `span`, so one that
    does was taken on by a clock that was ahead.
    """
    return [(_furthest(db, span),)]


def _furthest(db: Db, span: int) -> int:
    moments = [found["value"] for found in db.find("meta", {"_id": "clock"}, ("value",))]
    put_off = db.first("job_live", {**PENDING, "position": {"$lt": 0}}, ("position",), sort=[("position", 1)], hint="live_put_off")
    if put_off is not None:
        moments.append(-put_off["position"])
    columns = ("last_attempt_at", "created_at", "next_attempt_at")
    message = db.first("outbox", OPEN, columns, sort=[("next_attempt_at", -1)], hint="outbox_due")
    if message is not None:
        moments += [message.get("last_attempt_at", message["created_at"]), message["next_attempt_at"] - span]
    return max(moments, default=0)


@statement
def note_clock(db: Db, *, now: int) -> int:
    """Note how far the clock was, if it was never further."""
    return db.update("meta", {"_id": "clock", "value": {"$lt": now}}, {"$set": {"value": now}})


@statement
def set_clock(db: Db, *, now: int) -> int:
    """Note how far the clock is, even if it was further."""
    return db.update("meta", {"_id": "clock"}, {"$set": {"value": now}})


@statement
def zone_rules(db: Db) -> list[Row]:
    """Return by which rules of zones due times were worked out."""
    return rows(db.find("meta", {"_id": "tzdata"}, ("value",)), ["value"])


@statement
def set_zone_rules(db: Db, *, rules: int) -> int:
    """Note by which rules of zones due times are worked out."""
    return db.update("meta", {"_id": "tzdata"}, {"$set": {"value": rules}})


# ---- a clock that was ahead ------------------------------------------------------------------------------------------


@statement
def wait_as_long(db: Db, *, now: int, ahead: int) -> int:
    """Have jobs wait as long from now on that a clock which was ahead put off. A moment that a caller named stays."""
    put_off = {**PENDING, "position": {"$lt": min(0, -ahead)}}
    made_ahead = {"position": {"$gte": 0}, "created_at": {"$gt": ahead}, "$or": [{"attempt": {"$gt": 1}}, {"schedule_id": THERE}]}
    since = {"$cond": [{"$lt": ["$position", 0]}, {"$subtract": [0, "$position"]}, "$created_at"]}
    expires = {"$and": [{"$gt": ["$created_at", ahead]}, {"$gt": ["$expires_at", None]}]}
    change = {
        "run_at": {"$add": [now, {"$max": [0, {"$subtract": ["$run_at", since]}]}]},
        "expires_at": {"$cond": [expires, {"$add": [now, {"$subtract": ["$expires_at", "$created_at"]}]}, "$expires_at"]},
        "position": {"$cond": [{"$lt": ["$position", 0]}, -now, "$position"]},
    }
    # Each along an index of its own, whose first column needs a condition.
    due = {**PENDING, "blockers": 0, "priority": {"$gte": 0}, **made_ahead}
    blocked = {**PENDING, "blockers": {"$gt": 0}, "organization_id": {"$gte": ""}, **made_ahead}
    return sum(db.update("job_live", where, [{"$set": change}]) for where in (put_off, due, blocked))


@statement
def wait_as_long_edges(db: Db, *, now: int, ahead: int) -> int:
    """Have jobs wait as long for other schedules, from now on, that a clock which was ahead created."""
    changed = 0
    for edges in in_chunks(db.find("job_edges", OPEN_UNTIL, ("child", "until"))):
        children = {edge["child"] for edge in edges}
        created = {
            fact["_id"]: fact["created_at"] for fact in among(db, "job_facts", "_id", children, ("created_at",), created_at={"$gt": ahead})
        }
        changed += db.write_each("job_edges", [_until(edge, created[edge["child"]], now) for edge in edges if edge["child"] in created])
    return changed


def _until(edge: Document, created_at: int, now: int) -> UpdateOne:
    return UpdateOne({"_id": edge["_id"]}, {"$set": {"until": now + max(0, edge["until"] - created_at)}})


@statement
def pull_back_schedule(db: Db, *, schedule_id: str, now: int, next_at: int | None, told: int) -> int:
    """Bring a cursor back to now, and note how far it was; `told` says whether what was told beyond is kept."""
    kept = {"told_from": now, "told_until": {"$ifNull": ["$told_until", "$cursor_at"]}}
    change = {
        "ahead_at": {"$max": ["$ahead_at", "$cursor_at"]},
        **(kept if told else dict.fromkeys(kept, "$$REMOVE")),
        "cursor_at": now,
        "next_trigger_at": "$$REMOVE" if next_at is None else next_at,
    }
    return db.update("schedules", {"_id": schedule_id}, [{"$set": change}])


@statement
def rest_on_this_clock(db: Db, *, schedule_id: str, now: int) -> int:
    """Forget what was told by a clock that was ahead: somebody edits."""
    ahead = {"$cond": [{"$gt": ["$cursor_at", now]}, {"$max": ["$ahead_at", "$cursor_at"]}, "$ahead_at"]}
    return db.update("schedules", {"_id": schedule_id}, [{"$set": {"ahead_at": ahead}}, {"$unset": ["told_from", "told_until"]}])
