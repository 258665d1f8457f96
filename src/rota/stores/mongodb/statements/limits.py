"""Limits: what is counted inside a turn, and parked jobs that are offered again. See decision 0015.

Jobs are parked in lanes of their own: the word that they are held under, and their type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from pymongo import UpdateOne

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row
from rota.stores.mongodb.schema import QUEUED, RUNNING, THERE
from rota.stores.mongodb.statements.joining import among
from rota.stores.mongodb.statements.lanes import IN_ORDER
from rota.stores.mongodb.statements.moves import rewrite
from rota.stores.mongodb.statements.questions import Question, answers

HELD = {"$gte": ""}
"""Any word."""
READY_AGAIN = {"$unset": {"held": ""}}


def _json(values: object) -> list[Row]:
    return [(msgspec.json.encode(values).decode(),)]


@statement
def running_by_kind(db: Db) -> list[Row]:
    """Return how many jobs run, by organization and type."""
    kind = {"organization_id": "$organization_id", "job_type": "$job_type"}
    stages: list[Document] = [{"$match": {**RUNNING, "worker_id": {"$gte": ""}}}, {"$group": {"_id": kind, "count": {"$sum": 1}}}]
    return _json(
        [(found["_id"]["organization_id"], found["_id"]["job_type"], found["count"]) for found in db.aggregate("job_live", stages)]
    )


# ---- rates -----------------------------------------------------------------------------------------------------------


@statement
def starts_inside(db: Db, *, rates: Sequence[tuple[str, int, int]], now: int, ahead: int) -> list[Row]:
    """Return how many of each type were started in its window; `rates` has the types, limits and windows.

    The second figure is when there is room again: the newest start that fills the limit, with those after it, then leaves the window.
    A moment beyond the next window is of a clock that was wrong.
    """
    windows = {job_type: _window(job_type, now, span, ahead) for job_type, _, span in rates}
    total = {"$group": {"_id": None, "count": {"$sum": "$count"}}}
    sums = answers(db, [("rate_log", [{"$match": window}, total]) for window in windows.values()])
    counts = {job_type: found[0]["count"] if found else 0 for job_type, found in zip(windows, sums, strict=True)}
    return _json(
        [
            (job_type, counts[job_type], _room_at(db, windows[job_type], most) + span if counts[job_type] >= most else None)
            for job_type, most, span in rates
        ]
    )


def _window(job_type: str, now: int, span: int, ahead: int) -> Document:
    return {"key": _key(job_type), "at": {"$gt": now - span, "$lte": now + span + ahead}}


def _key(job_type: str) -> str:
    return f"start:{job_type}"


def _room_at(db: Db, window: Document, most: int) -> int:
    """Return the newest start that, with those after it, fills a limit."""
    at = since = 0
    for start in db.cursor("rate_log", window, ("at", "count"), sort=[("at", -1)]):
        at, since = start["at"], since + start["count"]
        if since >= most:
            break
    return at


@statement
def log_starts(db: Db, *, starts: Sequence[tuple[str, int, int]]) -> int:
    """Count starts of types at moments."""
    counted = [UpdateOne({"key": _key(job_type), "at": at}, {"$inc": {"count": count}}, upsert=True) for job_type, at, count in starts]
    return db.write_each("rate_log", counted)


@statement
def forget_starts(db: Db, *, job_type: str, now: int, span: int, ahead: int) -> int:
    """Remove starts that are outside of the window."""
    return db.delete("rate_log", {"key": _key(job_type), "$or": [{"at": {"$lte": now - span}}, {"at": {"$gt": now + span + ahead}}]})


@statement
def forget_unstarted(db: Db, *, job_type: str, at: int, count: int) -> int:
    """Remove starts that did not happen, if all of their moment did not."""
    return db.delete("rate_log", {"key": _key(job_type), "at": at, "count": {"$lte": count}})


@statement
def uncount_starts(db: Db, *, job_type: str, at: int, count: int) -> int:
    """Take starts that did not happen from those of their moment."""
    return db.update("rate_log", {"key": _key(job_type), "at": at}, {"$inc": {"count": -count}})


# ---- what is parked --------------------------------------------------------------------------------------------------


@statement
def rates_waiting(db: Db, *, types: Sequence[str]) -> list[Row]:
    """Return which of these types have jobs parked by their rate limit."""
    parked = _parked_under(db, [f"rate-limit:{name}" for name in types])
    return _json([name for name in types if f"rate-limit:{name}" in parked])


@statement
def types_waiting(db: Db, *, types: Sequence[str]) -> list[Row]:
    """Return which of these types have jobs parked by a limit of their own."""
    parked = _parked_under(db, [f"{kind}:{name}" for name in types for kind in ("template-limit", "rate-limit")])
    return _json([name for name in types if not parked.isdisjoint((f"template-limit:{name}", f"rate-limit:{name}"))])


def _parked_under(db: Db, words: Sequence[str]) -> set[str]:
    """Return those of some words that jobs are parked under."""
    questions: list[Question] = [("job_live", [{"$match": {"held": word}}, {"$limit": 1}, {"$project": {"_id": 1}}]) for word in words]
    return {word for word, found in zip(words, answers(db, questions), strict=True) if found}


@statement
def any_over_limit(db: Db) -> list[Row]:
    """Say whether jobs are parked under the limit of an organization or of a template."""
    kinds = [{"held": {"$gte": f"{kind}:", "$lt": f"{kind};"}} for kind in ("organization-limit", "template-limit")]
    return [(db.has("job_live", {"$or": kinds}),)]


@statement
def lanes_of_gone(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return the lanes parked under the limits of jobs that ran or were ready, and how many of each may be offered."""
    were_ready = {"held": None, "queued_at": THERE}
    gone = [job["_id"] for collection in ("job_live", "job_ends") for job in among(db, collection, "_id", numbers, (), **were_ready)]
    words: Counter[str] = Counter()
    for fact in among(db, "job_facts", "_id", gone, ("organization_id", "job_type")):
        words.update((f"organization-limit:{fact['organization_id']}", f"template-limit:{fact['job_type']}"))
    return _json([(held, job_type, words[held]) for held, job_type in _lanes_under(db, words)])


@statement
def lanes_of_word(db: Db, *, held: str) -> list[Row]:
    """Return the types that are parked under a word."""
    return [(job_type,) for _, job_type in _lanes_under(db, [held])]


@statement
def lanes(db: Db) -> list[Row]:
    """Return every lane that jobs are parked in."""
    words = db.aggregate("job_live", [{"$match": {"held": HELD}}, {"$sort": {"held": 1}}, {"$group": {"_id": "$held"}}])
    return _json(_lanes_under(db, sorted(found["_id"] for found in words)))


def _lanes_under(db: Db, words: Iterable[str]) -> list[tuple[str, str]]:
    """Return the lanes under some words: a hop from type to type along the index, not a scan."""
    wanted = list(words)
    types = ({"$sort": {"job_type": 1}}, {"$group": {"_id": "$job_type"}})
    found = answers(db, [("job_live", [{"$match": {"held": word}}, *types]) for word in wanted])
    return [(word, job_type) for word, own in zip(wanted, found, strict=True) for job_type in sorted(each["_id"] for each in own)]


# ---- offering --------------------------------------------------------------------------------------------------------


@statement
def offer(db: Db, *, held: str, job_type: str, times: int) -> int:
    """Make the first jobs of a lane ready again."""
    first = db.find("job_live", {"held": held, "job_type": job_type}, (), sort=IN_ORDER, limit=times)
    return _offer(db, [job["_id"] for job in first])


@statement
def offer_one(db: Db, *, number: int) -> int:
    """Make a parked job ready again."""
    return db.update("job_live", {"_id": number, **QUEUED, "held": {**THERE, "$ne": "direct"}}, READY_AGAIN)


@statement
def offer_first(db: Db, *, lanes: Sequence[tuple[str, str]]) -> int:
    """Make the first job of each of many lanes ready again."""
    first = ({"$sort": dict(IN_ORDER)}, {"$limit": 1}, {"$project": {"_id": 1}})
    found = answers(db, [("job_live", [{"$match": {"held": held, "job_type": job_type}}, *first]) for held, job_type in lanes])
    return _offer(db, [job["_id"] for own in found for job in own])


def _offer(db: Db, numbers: Sequence[int]) -> int:
    return rewrite(db, QUEUED, numbers, lambda job: {column: value for column, value in job.items() if column != "held"})
