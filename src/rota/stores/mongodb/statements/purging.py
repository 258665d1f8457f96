"""Schedules that were dropped, with their history or long ago, and what goes with them."""

from __future__ import annotations

from collections.abc import Sequence

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, ident
from rota.stores.mongodb.schema import THERE
from rota.stores.mongodb.statements.joining import among, in_chunks, present
from rota.stores.mongodb.statements.retention import CHAIN_ENDS, retried_among, with_live_children

PURGING = {"purging": THERE}
WALK = 500
"""Documents that are looked at together, at least."""
ROWS_AT_ONCE = 5000
"""Rows of the ledger that one transaction removes."""


# ---- with their history ----------------------------------------------------------------------------------------------


@statement
def begin_purge(db: Db, *, schedule_id: str | bytes, now: int) -> int:
    """Mark a schedule whose history is to be removed."""
    return db.update("schedules", {"_id": ident(schedule_id)}, {"$set": {"purging": now}})


@statement
def any_purging(db: Db) -> list[Row]:
    """Say whether any history is to be removed."""
    return [(db.has("schedules", PURGING),)]


@statement
def purging_ends(db: Db, *, limit: int) -> list[Row]:
    """Return ends of chains whose history is to be removed, and whose children have ended too, with the lengths of the chains."""
    columns = ("job_id", "root_id", "attempt")
    where = {"schedule_id": {"$in": _purged(db)}, "group_id": None}
    ends: list[Row] = []
    for facts in in_chunks(db.cursor("job_facts", where, columns), max(limit, WALK)):
        ends += [(fact["_id"], fact["attempt"]) for fact in _unneeded(db, facts)]
        if len(ends) >= limit:
            break
    return ends[:limit]


def _unneeded(db: Db, facts: Sequence[Document]) -> list[Document]:
    """Return those of some jobs that are the ends of their chains, and that no child and no message needs."""
    numbers = [fact["_id"] for fact in facts]
    ended = {end["_id"] for end in among(db, "job_ends", "_id", numbers, status={"$in": list(CHAIN_ENDS)})}
    retried = retried_among(db, facts)
    tails = [fact for fact in facts if fact["_id"] in ended and fact["job_id"] not in retried]
    awaited = with_live_children(db, {fact["root_id"] for fact in tails})
    job_ids = [fact["job_id"] for fact in tails]
    untold = {message["job_id"] for message in among(db, "outbox", "job_id", job_ids, ("job_id",), delivered_at=None, gave_up_at=None)}
    return [fact for fact in tails if fact["root_id"] not in awaited and fact["job_id"] not in untold]


@statement
def forget_ledger_of_purged(db: Db) -> int:
    """Remove rows of the ledger whose history is to be removed, as many as a transaction should."""
    where = {"schedule_id": {"$in": _purged(db)}}
    keys = [found["_id"] for found in db.find("occurrences", where, (), limit=ROWS_AT_ONCE)]
    return db.delete("occurrences", {"_id": {"$in": keys}}) if keys else 0


@statement
def end_purge(db: Db) -> int:
    """Take the mark off schedules of whose history nothing is left."""
    purged = _purged(db)
    left = present(db, "job_facts", "schedule_id", purged) | present(db, "occurrences", "schedule_id", purged)
    over = [schedule_id for schedule_id in purged if schedule_id not in left]
    return db.update("schedules", {"_id": {"$in": over}}, {"$unset": {"purging": ""}}) if over else 0


def _purged(db: Db) -> list[str]:
    return [found["_id"] for found in db.find("schedules", PURGING, ())]


# ---- long ago --------------------------------------------------------------------------------------------------------


@statement
def forget_occurrences(db: Db, *, before: int, limit: int) -> int:
    """Remove rows of due times long ago whose jobs, if they had any, are gone too. The newest of a schedule that is there stays."""
    columns = ("schedule_id", "due_at", "job_id")
    old = {"due_at": {"$lt": before}, "last_due_at": {"$lt": before}}
    cursor = db.cursor("occurrences", old, columns, sort=[("due_at", 1), ("schedule_id", 1), ("fate", 1)], hint="occurrences_time")
    unneeded: list[object] = []
    for some in in_chunks(cursor, max(limit, WALK)):
        kept = present(db, "job_facts", "job_id", [found["job_id"] for found in some if "job_id" in found])
        newest = _newest(db, {found["schedule_id"] for found in some})
        unneeded += [
            found["_id"] for found in some if found.get("job_id") not in kept and found["due_at"] < newest.get(found["schedule_id"], before)
        ]
        if len(unneeded) >= limit:
            break
    return db.delete("occurrences", {"_id": {"$in": unneeded[:limit]}}) if unneeded else 0


def _newest(db: Db, schedules: set[str]) -> dict[str, int]:
    """Return the newest due times in the ledger, of schedules that were not dropped."""
    dropped = {found["_id"] for found in among(db, "schedules", "_id", schedules, dropped_at=THERE)}
    stages: list[Document] = [
        {"$match": {"schedule_id": {"$in": list(schedules - dropped)}}},
        {"$sort": {"schedule_id": -1, "due_at": -1, "fate": -1}},
        {"$group": {"_id": "$schedule_id", "due_at": {"$first": "$due_at"}}},
    ]
    return {found["_id"]: found["due_at"] for found in db.aggregate("occurrences", stages)}


@statement
def forget_schedules(db: Db, *, before: int, limit: int) -> int:
    """Remove schedules dropped long ago of which nothing is left: no job, no row of the ledger, nobody who waits for one."""
    unneeded: list[str] = []
    old = db.cursor("schedules", {"dropped_at": {"$lt": before}}, (), sort=[("dropped_at", 1)], hint="schedules_dropped")
    for some in in_chunks((found["_id"] for found in old), max(limit, WALK)):
        used = present(db, "occurrences", "schedule_id", some) | present(db, "job_facts", "schedule_id", some)
        used |= present(db, "job_edges", "parent_root", some)
        unneeded += [schedule_id for schedule_id in some if schedule_id not in used]
        if len(unneeded) >= limit:
            break
    gone = {"$in": unneeded[:limit]}
    if unneeded:
        db.delete("secrets", {"schedule_id": gone})
    return db.delete("schedules", {"_id": gone}) if unneeded else 0
