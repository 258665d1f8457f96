"""Schedules: created, changed, moved on when they fire, and dropped. How they are read: see `schedule_rows`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from pymongo import UpdateOne

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows, setting
from rota.stores.mongodb.schema import IN_USE, LIVING, THERE
from rota.stores.mongodb.statements.joining import among, in_chunks

FORGOTTEN = "$$REMOVE"


# ---- definition ------------------------------------------------------------------------------------------------------


@statement
def schedule_named(db: Db, *, organization_id: str, name: str) -> list[Row]:
    """Return the id of a schedule by its name."""
    return rows(db.find("schedules", {"organization_id": organization_id, "name": name, **LIVING}, ()), ["_id"])


@statement
def put_schedule(
    db: Db,
    *,
    schedule_id: str | bytes,
    organization_id: str,
    cron: str | None,
    interval: int | None,
    params: str,
    next_at: int | None,
    template_id: str | bytes,
    now: int,
    **columns: Any,
) -> int:
    """Create or overwrite a schedule. What firing has noted of it stays."""
    changed = {
        **columns,
        "template_id": ident(template_id),
        "cron_expression": cron,
        "interval_us": interval,
        "param_overrides": params,
        "next_trigger_at": next_at,
        "updated_at": now,
    }
    key = ident(schedule_id)
    if db.update("schedules", {"_id": key}, setting(**changed) | {"$inc": {"version": 1}}):
        return 1
    created = {"row_id": db.next_numbers("schedules"), "organization_id": organization_id, "version": 1, "created_at": now}
    return db.insert("schedules", document(_id=key, **created, **changed))


@statement
def all_depending(db: Db, *, organization_id: str) -> list[Row]:
    """Return every schedule of an organization that depends on others."""
    columns = ("name", "depends_on")
    where = {"organization_id": organization_id, "depends_on": THERE, **LIVING}
    return rows(db.find("schedules", where, columns, hint="schedules_depending"), columns)


@statement
def set_dependencies(db: Db, *, organization_id: str, name: str, depends_on: str, now: int) -> int:
    """Write the dependencies of a schedule after another one was renamed."""
    where = {"organization_id": organization_id, "name": name, **LIVING}
    return db.update("schedules", where, {"$set": {"depends_on": depends_on, "updated_at": now}, "$inc": {"version": 1}})


@statement
def drop_schedule(db: Db, *, schedule_id: str | bytes, now: int) -> int:
    """Drop a schedule. Its document stays."""
    change = {"$set": {"dropped_at": now, "updated_at": now}, "$unset": {"next_trigger_at": ""}}
    return db.update("schedules", {"_id": ident(schedule_id), **LIVING}, change)


@statement
def end_schedule(db: Db, *, schedule_id: str | bytes, now: int) -> int:
    """Disable a schedule that is over."""
    change = {"$set": {"state": "DISABLED", "updated_at": now}, "$inc": {"version": 1}}
    return db.update("schedules", {"_id": ident(schedule_id)}, change)


@statement
def set_next(db: Db, *, schedule_id: str | bytes, next_at: int | None) -> int:
    """Set when a schedule is due next."""
    return db.update("schedules", {"_id": ident(schedule_id)}, setting(next_trigger_at=next_at))


# ---- firing ----------------------------------------------------------------------------------------------------------


@statement
def advance_schedules(db: Db, *, rows: Sequence[Sequence[Any]], now: int) -> int:
    """Move schedules on. A row is the number of one, its cursor, when it is due next and was last, its state, whether it is dropped."""
    changes: list[UpdateOne] = []
    for row_id, cursor_at, next_at, last_at, state, dropped in rows:
        change = _moved_on(cursor_at, next_at)
        if last_at is not None:
            change["last_triggered_at"] = last_at
        if state is not None:
            change["state"] = {"$literal": str(state)}
        if dropped:
            change["dropped_at"] = now
        changes.append(UpdateOne({"row_id": row_id}, [{"$set": change}]))
    return db.write_each("schedules", changes)


@statement
def advance_alike(db: Db, *, rowids: Sequence[int], cursor_at: int, next_at: int | None, last_at: int) -> int:
    """Move many schedules on that were due at one time and are due next at one time."""
    change = _moved_on(cursor_at, next_at) | {"last_triggered_at": last_at}
    return db.update("schedules", {"row_id": {"$in": list(rowids)}}, [{"$set": change}])


def _moved_on(cursor_at: int, next_at: int | None) -> Document:
    """Return what changes of a schedule whose cursor moves on: what a clock that was ahead has left goes when it is passed."""

    def unless_passed(column: str, until: str) -> Document:
        return {"$cond": [{"$gt": [f"${until}", cursor_at]}, f"${column}", FORGOTTEN]}

    return {
        "cursor_at": cursor_at,
        "next_trigger_at": FORGOTTEN if next_at is None else next_at,
        "ahead_at": unless_passed("ahead_at", "ahead_at"),
        "told_until": unless_passed("told_until", "told_until"),
        "told_from": unless_passed("told_from", "told_until"),
    }


@statement
def live_of(db: Db, *, schedule_id: str | bytes) -> list[Row]:
    """Return the live chains of a schedule, but for those that another one of them follows: who follows that one follows them too."""
    roots = [root for (root,) in live_roots(db, schedule_id=schedule_id)]
    open_edge = {"needs": "end", "source": "overlap", "resolved_at": None}
    followed = {edge["parent_root"] for edge in among(db, "job_edges", "parent_root", roots, ("parent_root",), **open_edge)}
    return [(root,) for root in roots if root not in followed]


@statement
def live_roots(db: Db, *, schedule_id: str | bytes) -> list[Row]:
    """Return the chains of a schedule that have not ended."""
    # Without the hint the server may walk every job in the order of the numbers.
    live = db.find("job_live", {"schedule_id": ident(schedule_id)}, ("root_id",), sort=[("_id", 1)], hint="live_schedule")
    return rows(live, ["root_id"])


@statement
def fired_beyond(db: Db, *, schedule_id: str | bytes, cursor_at: int) -> list[Row]:
    """Return due times behind the cursor that have become jobs, when the clock was ahead."""
    where = {"schedule_id": ident(schedule_id), "due_at": {"$gt": cursor_at}, "job_id": THERE}
    return rows(db.find("occurrences", where, ("due_at",)), ["due_at"])


# ---- jobs that are over ----------------------------------------------------------------------------------------------


@statement
def ids_over(db: Db, *, limit: int) -> list[Row]:
    """Return jobs that SQL has created whose one due time has passed, and none of whose chains lives that it has become."""
    return [(schedule_id,) for schedule_id in islice(schedules_over(db), limit)]


def schedules_over(db: Db) -> Iterator[str]:
    """Return the ids of the same, as they are asked for."""
    where = {"at": THERE, "next_trigger_at": None, **IN_USE, **LIVING}
    for some in in_chunks(db.cursor("schedules", where, ("template_id",), hint="schedules_over")):
        templates = {schedule["template_id"] for schedule in some}
        own = {template["_id"] for template in among(db, "templates", "_id", templates, organization_id=THERE)}
        candidates = [schedule["_id"] for schedule in some if schedule["template_id"] in own]
        busy = _with_live_due_times(db, candidates)
        yield from (schedule_id for schedule_id in candidates if schedule_id not in busy)


def _with_live_due_times(db: Db, schedules: Sequence[str]) -> set[str]:
    """Return those of some schedules of which a chain of a due time lives; one that was started by hand does not count."""
    of_job = {job["_id"]: job["schedule_id"] for job in among(db, "job_live", "schedule_id", schedules, ("schedule_id",))}
    return {of_job[fact["_id"]] for fact in among(db, "job_facts", "_id", of_job, due_at=THERE)}
