"""Retention: whole chains that nothing needs any more, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, ident, ids, rows
from rota.stores.mongodb.errors import Refused
from rota.stores.mongodb.statements.joining import among, in_chunks

CHAIN_ENDS = frozenset({"COMPLETED", "DEAD_LETTER", "SKIPPED", "CANCELLED"})
HOUR = 3_600_000_000
IN_ORDER = {"finished_at": 1, "created_at": 1, "_id": 1}
THERE = {"$exists": True}

# ---- old ends --------------------------------------------------------------------------------------------------------


@statement
def old_ends(db: Db, *, before: int, at: int, made: int, number: int, limit: int) -> list[Row]:
    """Return ends in the order of time: whether each is the end of its chain, and whether others still need that.

    A chain is needed while the chain of a child lives, which may still look at what its parent left, and while its group has anything
    newer or the job that follows its group has not ended: so a group keeps its status as long as it is there.
    """
    ends = _oldest(db, {"before": before, "at": at, "made": made, "number": number}, limit)
    facts = {fact["_id"]: fact for fact in db.find("job_facts", {"_id": {"$in": [end["_id"] for end in ends]}}, FACTS)}
    retried = retried_among(db, facts.values())
    groups = {fact["group_id"] for fact in facts.values() if "group_id" in fact}
    busy = with_live_children(db, {*groups, *(fact["root_id"] for fact in facts.values())}) | _unfinished_groups(db, groups, before)
    found: list[Row] = []
    for end in ends:
        fact = facts.get(end["_id"])
        if fact is not None:
            ended = end["status"] in CHAIN_ENDS and fact["job_id"] not in retried
            needed = fact["root_id"] in busy or fact.get("group_id") in busy
            found.append((end["finished_at"], end["created_at"], end["_id"], fact["attempt"], ended, needed))
    return found


FACTS = ("job_id", "root_id", "attempt", "group_id")


def _oldest(db: Db, place: dict[str, int], limit: int) -> list[Document]:
    """Return the first ends behind a place.

    Each type has its ends in order. A few of each tell until when the first of all can be, and only those types are read further that
    have given as many as they were asked for: else a thousand types would be read `limit` ends each.
    """
    types = [found["_id"] for found in db.aggregate("job_ends", [{"$sort": {"job_type": 1}}, {"$group": {"_id": "$job_type"}}])]
    if not types:
        return []
    few = limit // len(types) + 1
    by_type = _ends_of_types(db, types, place, min(few, limit))
    ends = sorted((end for own in by_type.values() for end in own), key=_moment)
    latest = _moment(ends[limit - 1]) if len(ends) >= limit else None
    cut_short = [name for name, own in by_type.items() if len(own) == few < limit and (latest is None or _moment(own[-1]) < latest)]
    if cut_short:
        by_type |= _ends_of_types(db, cut_short, place, limit)
        ends = sorted((end for own in by_type.values() for end in own), key=_moment)
    return ends[:limit]


def _ends_of_types(db: Db, types: list[str], place: dict[str, int], limit: int) -> dict[str, list[Document]]:
    """Return the first ends of each type behind a place."""
    at, made = place["at"], place["made"]
    behind = [
        {"finished_at": {"$gt": at}},
        {"finished_at": at, "created_at": {"$gt": made}},
        {"finished_at": at, "created_at": made, "_id": {"$gt": place["number"]}},
    ]
    stages: list[Document] = [
        {"$match": {"finished_at": {"$gte": at, "$lt": place["before"]}, "$or": behind}},
        {"$sort": IN_ORDER},
        {"$limit": limit},
        {"$project": {"finished_at": 1, "created_at": 1, "status": 1}},
    ]
    found = db.aggregate(
        "job_ends",
        [
            {"$match": {"job_type": {"$in": types}}},
            {"$sort": {"job_type": 1}},
            {"$group": {"_id": "$job_type"}},
            {"$lookup": {"from": "job_ends", "localField": "_id", "foreignField": "job_type", "pipeline": stages, "as": "ends"}},
        ],
    )
    return {own["_id"]: own["ends"] for own in found}


def _moment(end: Document) -> tuple[int, int, int]:
    return end["finished_at"], end["created_at"], end["_id"]


def retried_among(db: Db, facts: Iterable[Document]) -> set[str]:
    """Return those of some jobs that have a successor."""
    job_ids = [fact["job_id"] for fact in facts]
    return {fact["retry_of"] for fact in db.find("job_facts", {"retry_of": {"$in": job_ids}}, ("retry_of",))}


def _unfinished_groups(db: Db, groups: set[str], before: int) -> set[str]:
    """Return groups with a member that has not ended, or has ended since."""
    busy: set[str] = set()
    for members in in_chunks(among(db, "job_facts", "group_id", groups, ("group_id",))):
        over = {end["_id"] for end in among(db, "job_ends", "_id", [member["_id"] for member in members], finished_at={"$lt": before})}
        busy |= {member["group_id"] for member in members if member["_id"] not in over}
    return busy


def with_live_children(db: Db, parents: Iterable[str]) -> set[str]:
    """Return those of some chains and groups that a live chain waits, or waited, for."""
    return {parent for parent, _ in _live_of_edges(db, among(db, "job_edges", "parent_root", parents, ("parent_root", "child")), ())}


def _live_of_edges(db: Db, edges: Iterable[Document], columns: Sequence[str]) -> Iterator[tuple[str, Document]]:
    """Return the live jobs of the chains of children, each with its parent: the child itself, or a retry of it."""
    for chunk in in_chunks(edges):
        children = [edge["child"] for edge in chunk]
        live = {job["_id"]: job for job in among(db, "job_live", "_id", children, columns)}
        roots = {fact["_id"]: fact["root_id"] for fact in among(db, "job_facts", "_id", children, ("root_id",))}
        retries = among(db, "job_live", "root_id", set(roots.values()), ("root_id", *columns), attempt={"$gt": 1})
        retry_of = {job["root_id"]: job for job in retries}
        for edge in chunk:
            found = live.get(edge["child"]) or retry_of.get(roots.get(edge["child"], ""))
            if found is not None:
                yield edge["parent_root"], found


# ---- chains ----------------------------------------------------------------------------------------------------------


@statement
def chains_of(db: Db, *, tails: Sequence[int]) -> list[Row]:
    """Return every job of the chains with these tails, and whether an undelivered webhook or a reservation still needs it."""
    roots = {fact["root_id"]: fact["_id"] for fact in db.find("job_facts", {"_id": {"$in": list(tails)}}, ("root_id",))}
    jobs = [
        *db.find("job_facts", {"job_id": {"$in": list(roots)}}, ("job_id", "root_id")),
        *db.find("job_facts", {"root_id": {"$in": list(roots)}, "attempt": {"$gt": 1}}, ("job_id", "root_id")),
    ]
    numbers, job_ids = [job["_id"] for job in jobs], [job["job_id"] for job in jobs]
    runs = {end["_id"]: end.get("run_id") for end in db.find("job_ends", {"_id": {"$in": numbers}}, ("run_id",))}
    undelivered = {"job_id": {"$in": job_ids}, "delivered_at": None, "gave_up_at": None}
    told = {message["job_id"] for message in db.find("outbox", undelivered, ("job_id",))}
    reserved = {found.get("job_number") for found in db.find("direct_reservations", {"status": "ACTIVE"}, ("job_number",))}
    return [
        (roots[job["root_id"]], job["_id"], runs.get(job["_id"]), job["job_id"] in told, job["_id"] in reserved)
        for job in jobs
        if job["root_id"] in roots
    ]


@statement
def groups_of(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return the groups that these jobs are in, and those that they follow."""
    groups = {fact["group_id"] for fact in db.find("job_facts", {"_id": {"$in": list(numbers)}, "group_id": THERE}, ("group_id",))}
    parents = [edge["parent_root"] for edge in db.find("job_edges", {"child": {"$in": list(numbers)}}, ("parent_root",))]
    if parents:
        groups |= {group["_id"] for group in db.find("job_groups", {"_id": {"$in": parents}}, ())}
    return [(group,) for group in sorted(groups)]


@statement
def remove_outbox(db: Db, *, numbers: Sequence[int]) -> int:
    """Remove the messages about these jobs."""
    facts = db.find("job_facts", {"_id": {"$in": list(numbers)}}, ("job_id",))
    return db.delete("outbox", {"job_id": {"$in": [fact["job_id"] for fact in facts]}})


@statement
def remove_jobs(db: Db, *, numbers: Sequence[int]) -> int:
    """Remove jobs with their edges, and with what their runs left behind; refuse it of one that has not ended."""
    among = {"$in": list(numbers)}
    db.delete("job_edges", {"child": among})
    db.delete("run_notes", {"_id": among})
    ended = db.delete("job_ends", {"_id": among})
    removed = db.delete("job_facts", {"_id": among})
    if ended != removed:
        raise Refused("a job that has not ended cannot be deleted, and one that has goes with its end and its run")
    return removed


@statement
def remove_groups(db: Db, *, groups: Sequence[str]) -> int:
    """Remove those of these groups that have no jobs."""
    packed = ids(groups)
    stages: list[Document] = [{"$match": {"group_id": {"$in": packed}}}, {"$group": {"_id": "$group_id"}}]
    used = {found["_id"] for found in db.aggregate("job_facts", stages)}
    return db.delete("job_groups", {"_id": {"$in": [group for group in packed if group not in used]}})


@statement
def live_children(db: Db, *, root_id: str | bytes, limit: int) -> list[Row]:
    """Return live jobs of chains that wait, or waited, for this one: the root's id and number, the attempt, the status."""
    edges = db.cursor("job_edges", {"parent_root": ident(root_id)}, ("parent_root", "child"))
    live = [job for _, job in islice(_live_of_edges(db, edges, ("root_id", "attempt", "status")), limit)]
    numbers = {fact["job_id"]: fact["_id"] for fact in among(db, "job_facts", "job_id", [job["root_id"] for job in live], ("job_id",))}
    return [(job["root_id"], numbers.get(job["root_id"]), job["attempt"], job["status"]) for job in live]


@statement
def group_lives(db: Db, *, number: int) -> list[Row]:
    """Return the group of a job, if it has a member that has not ended."""
    fact = db.first("job_facts", {"_id": number}, ("group_id",))
    group_id = None if fact is None else fact.get("group_id")
    if group_id is None:
        return []
    members = (member["_id"] for member in db.cursor("job_facts", {"group_id": group_id}, ()))
    return [(group_id,)] if any(among(db, "job_live", "_id", members)) else []


# ---- what has no use any more ----------------------------------------------------------------------------------------


@statement
def forget_dedup(db: Db, *, now: int, limit: int) -> int:
    """Remove digests of enqueues that are no longer compared with."""
    return _remove_first(db, "dedup", {"expires_at": {"$lte": now}}, limit, sort=[("expires_at", 1)])


@statement
def longest_window(db: Db) -> list[Row]:
    """Return the longest window of a limit that a template has."""
    windows = rows(db.find("templates", {"dropped_at": None}, ("rate_window", "submit_window")), ("rate_window", "submit_window"))
    return [(max((value or 0 for window in windows for value in window), default=None),)]


@statement
def forget_rates(db: Db, *, before: int) -> int:
    """Remove what limits no longer count."""
    # With a condition on the key too, the server hops from key to key along the index.
    return db.delete("rate_log", {"key": {"$gte": ""}, "at": {"$lt": before}})


@statement
def forget_workers(db: Db, *, before: int, limit: int) -> int:
    """Remove workers that ended long ago."""
    return _remove_first(db, "workers", {"ended_at": {"$lt": before}}, limit)


@statement
def forget_reservations(db: Db, *, before: int, until: str | bytes, limit: int) -> int:
    """Remove reservations that ended long ago. Their ids begin with their time: later ones are not looked at."""
    where = {"_id": {"$lt": ident(until)}, "status": {"$ne": "ACTIVE"}, "reserved_at": {"$lt": before}}
    return _remove_first(db, "direct_reservations", where, limit)


@statement
def forget_hour(db: Db, *, before: int) -> int:
    """Remove the oldest hour of the figures, if it is old enough."""
    oldest = db.first("figures", {"kind": "hour"}, ("at",), sort=[("at", 1)])
    return 0 if oldest is None or oldest["at"] >= before else db.delete("figures", {"kind": "hour", "at": oldest["at"]})


@statement
def forget_minutes(db: Db, *, before: int) -> int:
    """Remove the oldest hour of the figures by the minute, as far as it is old enough."""
    oldest = db.first("figures", {"kind": "minute"}, ("at",), sort=[("at", 1)])
    return 0 if oldest is None else db.delete("figures", {"kind": "minute", "at": {"$lt": min(before, oldest["at"] + HOUR)}})


@statement
def retention_clock(db: Db) -> list[Row]:
    """Return when the clock was last trusted to delete by age; of a store in which it never was, when its newest job was created."""
    found = db.first("meta", {"_id": "retention_clock"}, ("value",))
    if found is None:
        return []
    newest = None if found["value"] else db.first("job_facts", {}, ("created_at",), sort=[("_id", -1)])
    return [(found["value"] or (newest and newest["created_at"]),)]


@statement
def set_retention_clock(db: Db, *, now: int) -> int:
    """Record that the clock is trusted."""
    return db.update("meta", {"_id": "retention_clock"}, {"$set": {"value": now}})


def _remove_first(db: Db, collection: str, where: Document, limit: int, *, sort: Sequence[tuple[str, int]] = ()) -> int:
    keys: list[Any] = [found["_id"] for found in db.find(collection, where, (), sort=sort, limit=limit)]
    return db.delete(collection, {"_id": {"$in": keys}}) if keys else 0
