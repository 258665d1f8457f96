"""The ledger as firing writes it: the outcome of each due time. How it is read: see `occurrences`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymongo import UpdateOne

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows, setting
from rota.stores.mongodb.schema import THERE
from rota.stores.mongodb.statements.joining import in_chunks

PIECE = 1000
"""Documents that are sent at a time."""
LATEST_FIRST = [("due_at", -1), ("fate", -1)]
NO_GAP = {"$ne": "SKIPPED_DST_GAP"}
"""A due time that a zone's rules skip is inside of nothing."""
TOLD = ("due_at", "last_due_at", "count", "fate", "reason", "recorded_at")


def _key(schedule_id: str | bytes, due_at: int, fate: str) -> Document:
    return {"schedule_id": ident(schedule_id), "due_at": due_at, "fate": fate}


# ---- new rows --------------------------------------------------------------------------------------------------------


@statement
def insert_occurrences(db: Db, *, rows: Sequence[Sequence[Any]], now: int) -> int:
    """Add rows: each is a schedule, the due time, the last one, their count, the fate, the reason, and the job's id."""
    columns = ("schedule_id", "due_at", "last_due_at", "count", "fate", "reason", "job_id")
    new = (document(**dict(zip(columns, row, strict=True)), recorded_at=now) for row in rows)
    return sum(db.insert("occurrences", *piece) for piece in in_chunks(new, PIECE))


@statement
def insert_fired(db: Db, *, first: int, last: int, now: int) -> int:
    """Add the rows of jobs that were just added."""
    columns = ("schedule_id", "due_at", "job_id")
    added = 0
    for facts in in_chunks(db.cursor("job_facts", {"_id": {"$gte": first, "$lte": last}}, columns), PIECE):
        fired = [
            {column: fact[column] for column in columns} | {"last_due_at": fact["due_at"], "count": 1, "fate": "FIRED", "recorded_at": now}
            for fact in facts
        ]
        added += db.insert("occurrences", *fired)
    return added


@statement
def note_reasons(db: Db, *, rows: Sequence[tuple[str, int, str | None]]) -> int:
    """Write the reasons of due times that fired late: each row is a schedule, the due time, and the reason."""
    changes = [UpdateOne(_key(schedule_id, due_at, "FIRED"), setting(reason=reason)) for schedule_id, due_at, reason in rows]
    return db.write_each("occurrences", changes)


@statement
def fate_of_dependency(db: Db, *, schedule_id: str | bytes, due_at: int, reason: str, now: int) -> int:
    """Write that a due time became nothing, for what it depends on did not complete."""
    change = {"fate": "SKIPPED_DEPENDENCY", "reason": reason, "recorded_at": now}
    return db.update("occurrences", _key(schedule_id, due_at, "FIRED"), {"$set": change})


# ---- rows that grow --------------------------------------------------------------------------------------------------


@statement
def newest_occurrence(db: Db, *, schedule_id: str | bytes, cursor_at: int) -> list[Row]:
    """Return the newest row up to the cursor, unless it was recorded before the last edit: then it stays as it is.

    What fired beyond the cursor did so when the clock was ahead.
    """
    columns = ("due_at", "fate", "reason", "last_due_at")
    where = {"schedule_id": ident(schedule_id), "due_at": {"$lte": cursor_at}}
    newest = db.first("occurrences", where, (*columns, "recorded_at"), sort=LATEST_FIRST)
    if newest is None or not db.has("schedules", {"_id": ident(schedule_id), "updated_at": {"$lt": newest["recorded_at"]}}):
        return []
    return rows([newest], columns)


@statement
def extend_occurrence(db: Db, *, schedule_id: str | bytes, due_at: int, fate: str, last_due_at: int, count: int, now: int) -> int:
    """Make a row longer."""
    change = {"$max": {"last_due_at": last_due_at}, "$inc": {"count": count}, "$set": {"recorded_at": now}}
    return db.update("occurrences", _key(schedule_id, due_at, fate), change)


# ---- how far late firings were spread --------------------------------------------------------------------------------

CATCH_UP = {"key": "catch-up"}


@statement
def spread_until(db: Db) -> list[Row]:
    """Return until when late firings were put off."""
    latest = db.first("rate_log", CATCH_UP, ("at",), sort=[("at", -1)])
    return [(0 if latest is None else latest["at"],)]


@statement
def note_spread(db: Db, *, at: int) -> int:
    """Note until when late firings are put off."""
    return db.insert("rate_log", CATCH_UP | {"at": at, "count": 1})


@statement
def forget_spread(db: Db) -> int:
    """Forget until when late firings were put off."""
    return db.delete("rate_log", CATCH_UP)


# ---- a clock that was ahead ------------------------------------------------------------------------------------------


@statement
def take_back_occurrences(db: Db, *, schedule_id: str | bytes, now: int) -> int:
    """Remove fates of times that have not come after all. Where there is a job, there can't be another."""
    return db.delete("occurrences", {"schedule_id": ident(schedule_id), "due_at": {"$gt": now}, "job_id": None})


@statement
def reaching_occurrences(db: Db, *, schedule_id: str | bytes, now: int) -> list[Row]:
    """Return rows that reach over a moment."""
    columns = ("due_at", "fate", "count")
    where = {"schedule_id": ident(schedule_id), "due_at": {"$lte": now}, "last_due_at": {"$gt": now}}
    return rows(db.find("occurrences", where, columns, sort=LATEST_FIRST), columns)


@statement
def counted_inside(db: Db, *, schedule_id: str | bytes, due_at: int, now: int) -> list[Row]:
    """Return how many due times other rows count from a moment on: a row that reaches over them does not have those."""
    where = {"schedule_id": ident(schedule_id), "due_at": {"$gt": due_at, "$lte": now}, "fate": NO_GAP}
    found = db.aggregate("occurrences", [{"$match": where}, {"$group": {"_id": None, "count": {"$sum": "$count"}}}])
    return [(found[0]["count"] if found else 0,)]


@statement
def begins_inside(db: Db, *, schedule_id: str | bytes, due_at: int, last_due_at: int) -> list[Row]:
    """Return where the row begins that has this due time, if it begins after another one that reaches over it."""
    between = {"due_at": {"$gt": due_at, "$lte": last_due_at}, "last_due_at": {"$gte": last_due_at}}
    where = {"schedule_id": ident(schedule_id), **between, "fate": NO_GAP}
    latest = db.first("occurrences", where, ("due_at",), sort=LATEST_FIRST)
    return [(None if latest is None else latest["due_at"],)]


@statement
def cut_occurrence(db: Db, *, schedule_id: str | bytes, due_at: int, fate: str, last_due_at: int, count: int) -> int:
    """Make a row shorter."""
    return db.update("occurrences", _key(schedule_id, due_at, fate), {"$set": {"last_due_at": last_due_at, "count": count}})


@statement
def keep_told(db: Db, *, schedule_id: str | bytes, now: int) -> int:
    """Keep what was told of times that have not come after all.

    Where something is kept from before, only what lies before that: the rest is of a clock that may have been wrong itself.
    """
    schedule = db.first("schedules", {"_id": ident(schedule_id)}, ("told_from",))
    if schedule is None:
        return 0
    told_from = schedule.get("told_from")
    reach = {"$gt": now} if told_from is None else {"$gt": now, "$lte": told_from}
    told = db.find("occurrences", {"schedule_id": schedule["_id"], "last_due_at": reach, "job_id": None}, TOLD)
    changes: list[UpdateOne] = []
    for found in told:
        del found["_id"]
        key = {"schedule_id": schedule["_id"], "due_at": found.pop("due_at"), "fate": found.pop("fate")}
        changes.append(UpdateOne(key, {"$setOnInsert": found}, upsert=True))
    return db.write_each("occurrences_told", changes)


@statement
def told(db: Db, *, schedule_id: str | bytes, after: int) -> list[Row]:
    """Return what is kept of what was told."""
    where = {"schedule_id": ident(schedule_id), "last_due_at": {"$gt": after}}
    return rows(db.find("occurrences_told", where, TOLD, sort=[("due_at", 1)]), TOLD)


@statement
def told_from(db: Db, *, schedule_id: str | bytes) -> list[Row]:
    """Return from when on what was told is kept."""
    return rows(db.find("schedules", {"_id": ident(schedule_id)}, ("told_from",)), ["told_from"])


@statement
def told_again(
    db: Db, *, schedule_id: str | bytes, due_at: int, last_due_at: int, count: int, fate: str, reason: str | None, recorded_at: int
) -> int:
    """Write again what was told. A row that was cut is as long as it was."""
    change = setting(last_due_at=last_due_at, count=count, reason=reason, job_id=None, recorded_at=recorded_at)
    return db.update("occurrences", _key(schedule_id, due_at, fate), change, upsert=True)


@statement
def forget_told(db: Db, *, schedule_id: str | bytes) -> int:
    """Forget what was told before the clock was set back."""
    return db.delete("occurrences_told", {"schedule_id": ident(schedule_id)})


@statement
def next_number(db: Db) -> list[Row]:
    """Return no number to continue with: a counter needs none."""
    del db
    return [(None,)]


# ---- windows of other schedules --------------------------------------------------------------------------------------


@statement
def fired_in_window(db: Db, *, schedule_id: str | bytes, after: int, until: int) -> list[Row]:
    """Return the fate and the job of the latest due time in a window; a span that begins before the window did not fire anyway."""
    where = {"schedule_id": ident(schedule_id), "due_at": {"$gt": after, "$lte": until}, "fate": NO_GAP}
    latest = db.first("occurrences", where, ("fate", "job_id"), sort=LATEST_FIRST)
    return [] if latest is None else rows([latest], ("fate", "job_id"))


@statement
def ended_in_window(db: Db, *, schedule_id: str | bytes, look: int, after: int, until: int) -> list[Row]:
    """Return the latest chain of a schedule that ended in a window, among its latest due times and what was started by hand."""
    own = {"schedule_id": ident(schedule_id)}
    columns = ("job_id", "root_id")
    due = db.find("job_facts", {**own, "due_at": THERE}, columns, sort=[("due_at", -1), ("attempt", -1)], limit=look)
    by_hand = db.find("job_facts", {**own, "due_at": None}, columns, sort=[("attempt", -1), ("_id", -1)], limit=look, hint="facts_by_hand")
    facts = {fact["_id"]: fact for fact in (*due, *by_hand)}
    ended = {"finished_at": {"$gt": after, "$lte": until}, "status": {"$in": ["COMPLETED", "DEAD_LETTER", "SKIPPED", "CANCELLED"]}}
    ends = db.find("job_ends", {"_id": {"$in": list(facts)}, **ended}, ("finished_at",), sort=[("finished_at", -1)])
    for end in ends:
        fact = facts[end["_id"]]
        if not db.has("job_facts", {"retry_of": fact["job_id"]}):
            return [(fact["root_id"],)]
    return []
