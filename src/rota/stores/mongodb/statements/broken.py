"""Documents that are not what they should be: found when a batch fails, parked, named by `rota doctor` and repaired by `rota repair`.

A run is a part of its job's document here, so some damage of other stores can't be there: the statements about it find nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec
from bson.min_key import MinKey

from rota.model.states import TERMINAL, Status
from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows, setting
from rota.stores.mongodb.schema import KEYS
from rota.stores.mongodb.statements.endings import KEPT_OF_LIVE
from rota.stores.mongodb.statements.joining import among, unmatched

QUEUE_ORDER = (("priority", -1), ("position", 1), ("created_at", 1), ("job_id", 1))
OPEN_EDGE = {"resolved_at": None, "parent_root": {"$gte": ""}}
"""Any open edge. Each has a parent: asked for it, the server walks the index of open ones."""

RUNNING = {"status": "RUNNING", "worker_id": {"$gte": MinKey()}}
"""Any job that runs, along the index by worker, also if it names none."""
LIVE = [str(status) for status in Status if status not in TERMINAL]
ENDED = [str(status) for status in TERMINAL]

# ---- parking ---------------------------------------------------------------------------------------------------------


@statement
def ready_of_lane(db: Db, *, lane: int, limit: int) -> list[Row]:
    """Return the first ready jobs of a lane."""
    return rows(db.find("job_live", {"status": "QUEUED", "held": None, "lane": lane}, (), sort=QUEUE_ORDER, limit=limit), ("_id",))


@statement
def park_broken(db: Db, *, number: int, held: str) -> int:
    """Park a QUEUED job. A direct one keeps no word of its own here: its reservation is ended with it."""
    return db.update("job_live", {"_id": number, "status": "QUEUED"}, {"$set": {"held": held}})


@statement
def park_pending(db: Db, *, number: int, reason: str) -> int:
    """Keep a PENDING job out of what is due: it has no word to be parked under, so it waits for one more than it has edges."""
    return db.update("job_live", {"_id": number, "status": "PENDING"}, {"$inc": {"blockers": 1}, "$set": {"reason": reason}})


@statement
def unset_expiry(db: Db, *, number: int) -> int:
    """Let a job expire no more."""
    return db.update("job_live", {"_id": number}, setting(expires_at=None))


@statement
def let_wait(db: Db, *, number: int, root_id: str | bytes) -> int:
    """Let the end of its parent end a job no more."""
    return db.update("job_edges", {"child": number, "parent_root": ident(root_id)}, {"$set": {"on_failure": "wait"}})


@statement
def release_broken(db: Db, *, number: int) -> int:
    """Make a parked job ready again."""
    return db.update("job_live", {"_id": number, "status": "QUEUED"}, setting(held=None))


@statement
def parked_broken(db: Db, *, limit: int) -> list[Row]:
    """Return the jobs that are parked because they are broken, with the word that says why."""
    where = {"status": "QUEUED", "held": {"$gte": "broken:", "$lt": "broken;"}}
    return rows(db.find("job_live", where, ("held",), sort=[("held", 1), ("job_type", 1)], limit=limit), ("_id", "held"))


# ---- what jobs wait for ----------------------------------------------------------------------------------------------


@statement
def bereft(db: Db, *, look: int, limit: int) -> list[Row]:
    """Return PENDING jobs that wait for one that is not there, of the first :look open edges.

    What waits for a schedule may wait for one to come.
    """
    edges = [
        edge for edge in db.find("job_edges", OPEN_EDGE, ("child", "parent_root", "source"), limit=look) if edge["source"] != "schedule"
    ]
    parents = {edge["parent_root"] for edge in edges}
    parents -= {fact["job_id"] for fact in among(db, "job_facts", "job_id", parents, ("job_id",))}
    parents -= {group["_id"] for group in among(db, "job_groups", "_id", parents)}
    children = {edge["child"]: None for edge in edges if edge["parent_root"] in parents}
    return rows(islice(among(db, "job_live", "_id", children, status="PENDING"), limit), ("_id",))


@statement
def wrong_blockers(db: Db, *, look: int, limit: int) -> list[Row]:
    """Return PENDING jobs that wait for more, or for less, than they have open edges; of the first :look that wait for anything."""
    blocked = {"status": "PENDING", "blockers": {"$gt": 0}}
    found = _miscounted(db, db.find("job_live", blocked, BLOCKED, sort=[("organization_id", 1)], limit=look))
    children = Counter(edge["child"] for edge in db.cursor("job_edges", OPEN_EDGE, ("child",), limit=look))
    for job in among(db, "job_live", "_id", children, BLOCKED, status="PENDING", blockers=0):
        found.append((job["_id"], job["blockers"], children[job["_id"]], job.get("reason")))
    return found[:limit]


BLOCKED = ("blockers", "reason")


def _miscounted(db: Db, jobs: list[Document]) -> list[Row]:
    """Return those of some jobs that wait for more, or for less, than they have open edges."""
    edges = Counter(edge["child"] for edge in among(db, "job_edges", "child", [job["_id"] for job in jobs], ("child",), resolved_at=None))
    return [(job["_id"], job["blockers"], edges[job["_id"]], job.get("reason")) for job in jobs if job["blockers"] != edges[job["_id"]]]


@statement
def set_blockers(db: Db, *, number: int, blockers: int) -> int:
    """Let a PENDING job wait for this many others."""
    return db.update("job_live", {"_id": number, "status": "PENDING"}, setting(blockers=blockers, reason=None))


# ---- who holds jobs --------------------------------------------------------------------------------------------------


@statement
def unregistered(db: Db, *, limit: int) -> list[Row]:
    """Return workers that hold RUNNING jobs and are not on record, with how many; '' for jobs that name none."""
    counts = {
        found["_id"]: found["count"]
        for found in db.aggregate("job_live", [{"$match": RUNNING}, {"$group": {"_id": "$worker_id", "count": {"$sum": 1}}}])
    }
    known = {worker["_id"] for worker in among(db, "workers", "_id", counts)}
    return sorted((worker_id or "", count) for worker_id, count in counts.items() if worker_id not in known)[:limit]


@statement
def held_numbers(db: Db, *, worker_id: str | bytes, limit: int) -> list[Row]:
    """Return the numbers of what a worker runs."""
    where = {"worker_id": ident(worker_id), "status": "RUNNING"}
    return rows(db.find("job_live", where, (), sort=[("_id", 1)], limit=limit), ("_id",))


@statement
def held_bare(db: Db, *, number: int) -> list[Row]:
    """Return as much of a RUNNING job as can be read of any document."""
    columns = ("job_id", "root_id", "attempt", "run_id", "started_at")
    found = rows(db.find("job_live", {"_id": number}, columns), columns)
    return [(job_id, root_id, attempt, 0, None, run_id, started_at) for job_id, root_id, attempt, run_id, started_at in found]


# ---- what a store with runs apart can have ---------------------------------------------------------------------------


@statement
def run_of_waiting(db: Db, *, number: int) -> list[Row]:
    """Return nothing: a job that has not started has no run. Notes that are there all the same stay: they go with their job."""
    del db, number
    return []


@statement
def end_stray_run(db: Db, *, number: int, now: int) -> int:
    """Do nothing."""
    del db, number, now
    return 0


@statement
def remove_run(db: Db, *, number: int) -> int:
    """Do nothing."""
    del db, number
    return 0


@statement
def stray_runs(db: Db, *, look: int, limit: int) -> list[Row]:
    """Return nothing."""
    del db, look, limit
    return []


@statement
def open_runs_of_ended(db: Db, *, limit: int) -> list[Row]:
    """Return nothing."""
    del db, limit
    return []


@statement
def close_open_run(db: Db, *, number: int) -> int:
    """Do nothing."""
    del db, number
    return 0


@statement
def end_orphan_runs(db: Db, *, numbers: Sequence[int]) -> int:
    """Do nothing."""
    del db, numbers
    return 0


# ---- statuses --------------------------------------------------------------------------------------------------------


@statement
def unknown_statuses(db: Db, *, limit: int) -> list[Row]:
    """Return jobs whose status is none, and whether they have ended: nothing here keeps another program from writing one."""
    live = db.find("job_live", {"status": {"$nin": LIVE}}, ("status",), limit=limit)
    ended = db.find("job_ends", {"status": {"$nin": ENDED}}, ("status",), limit=limit)
    found = [*((job["_id"], job.get("status"), False) for job in live), *((job["_id"], job.get("status"), True) for job in ended)]
    return found[:limit]


@statement
def end_unknown(db: Db, *, number: int, now: int, reason: str) -> int:
    """End a live job whose status is none."""
    where = {"_id": number, "status": {"$nin": LIVE}}
    live = db.first("job_live", where)
    if live is None:
        return 0
    kept = {column: live[column] for column in KEPT_OF_LIVE if column in live}
    db.insert("job_ends", kept | document(status="CANCELLED", finished_at=now, ended_by="system", reason=reason))
    return db.delete("job_live", where)


@statement
def both_live_and_ended(db: Db, *, limit: int) -> list[Row]:
    """Return jobs that run and have ended as well."""
    running = [job["_id"] for job in db.cursor("job_live", RUNNING, ())]
    return rows(islice(among(db, "job_ends", "_id", running, ("status",)), limit), ("_id", "status"))


@statement
def remove_live(db: Db, *, number: int) -> int:
    """Remove what is known of a job as a live one."""
    return db.delete("job_live", {"_id": number})


@statement
def lost_facts(db: Db, *, limit: int) -> list[Row]:
    """Return jobs that are neither live nor ended."""
    numbers = islice(unmatched(db, "job_facts", "_id", ("job_live", "job_ends")), limit)
    return [(fact["_id"], _content("job_facts", fact)) for fact in among(db, "job_facts", "_id", numbers, None)]


@statement
def end_lost(db: Db, *, number: int, now: int, reason: str) -> int:
    """End a job that is neither live nor ended."""
    fact = db.first("job_facts", {"_id": number}, ("job_type", "created_at"))
    if fact is None:
        return 0
    end = document(
        _id=number,
        job_type=fact["job_type"],
        status="CANCELLED",
        created_at=fact["created_at"],
        finished_at=now,
        priority=0,
        position=0,
        run_at=fact["created_at"],
        ended_by="system",
        reason=reason,
    )
    return db.insert("job_ends", end)


# ---- what has lost its job -------------------------------------------------------------------------------------------


@statement
def orphan_runs(db: Db, *, limit: int) -> list[Row]:
    """Return what runs of no job left behind."""
    return [(note["_id"], _content("run_notes", note)) for note in _orphans(db, "run_notes", "_id", limit)]


@statement
def remove_orphan_runs(db: Db, *, numbers: Sequence[int]) -> int:
    """Remove what runs left behind."""
    return db.delete("run_notes", {"_id": {"$in": list(numbers)}})


@statement
def orphan_edges(db: Db, *, limit: int) -> list[Row]:
    """Return edges of no job."""
    return [(edge["child"], _content("job_edges", edge)) for edge in _orphans(db, "job_edges", "child", limit)]


@statement
def remove_orphan_edges(db: Db, *, numbers: Sequence[int]) -> int:
    """Remove the edges of jobs."""
    return db.delete("job_edges", {"child": {"$in": list(numbers)}})


@statement
def orphan_ends(db: Db, *, limit: int) -> list[Row]:
    """Return ends of no job."""
    return [(end["_id"], _content("job_ends", end)) for end in _orphans(db, "job_ends", "_id", limit)]


@statement
def remove_orphan_ends(db: Db, *, numbers: Sequence[int]) -> int:
    """Remove the ends of jobs."""
    return db.delete("job_ends", {"_id": {"$in": list(numbers)}})


@statement
def orphan_live(db: Db, *, limit: int) -> list[Row]:
    """Return live documents of no job."""
    return [(live["_id"], _content("job_live", live)) for live in _orphans(db, "job_live", "_id", limit)]


@statement
def park_lost(db: Db, *, number: int, held: str) -> int:
    """Park what is ready and has lost its job, unless it is parked so already."""
    return db.update("job_live", {"_id": number, "status": "QUEUED", "held": {"$ne": held}}, {"$set": {"held": held}})


def _orphans(db: Db, collection: str, column: str, limit: int) -> Iterator[Document]:
    """Return documents whose number is no job's."""
    return islice(among(db, collection, column, unmatched(db, collection, column, ("job_facts",)), None), limit)


def _content(collection: str, found: Document) -> str:
    """Return a document as a text for people, its key under the name of its column."""
    key = KEYS.get(collection)
    columns = {key if name == "_id" else name: value for name, value in found.items() if name != "_id" or key}
    plain = {name: value.hex() if isinstance(value, bytes) else value for name, value in columns.items()}
    return msgspec.json.encode(plain).decode()


# ---- schedules -------------------------------------------------------------------------------------------------------


@statement
def enabled_schedules(db: Db, *, limit: int) -> list[Row]:
    """Return schedules that can fire: their ids, organizations and names, so that each can be read by itself."""
    found = db.find("schedules", {"state": {"$ne": "DISABLED"}, "dropped_at": None}, ("organization_id", "name"), limit=limit)
    return rows(found, ("_id", "organization_id", "name"))


@statement
def schedule_raw(db: Db, *, schedule_id: str | bytes) -> list[Row]:
    """Return the texts of a schedule that may be unreadable."""
    columns = ("param_overrides", "depends_on", "declared")
    return rows(db.find("schedules", {"_id": ident(schedule_id)}, columns), columns)


@statement
def disable_schedule(
    db: Db, *, schedule_id: str | bytes, now: int, description: str, params: str | None, depends_on: str | None, declared: str | None
) -> int:
    """Disable a schedule. What can't be read of it goes, and is in the log: then it can be shown, edited and enabled again."""
    change = setting(
        state="DISABLED",
        next_trigger_at=None,
        updated_at=now,
        description=description,
        param_overrides=params,
        depends_on=depends_on,
        declared=declared,
    )
    return db.update("schedules", {"_id": ident(schedule_id)}, change | {"$inc": {"version": 1}})
