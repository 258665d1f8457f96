"""Jobs that wait for other schedules: for a chain of one, or for any chain that it completes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident
from rota.stores.mongodb.schema import THERE
from rota.stores.mongodb.statements.edges import OPEN, put_ended, waited_for
from rota.stores.mongodb.statements.joining import among

OF_SCHEDULE = {"source": "schedule", **OPEN}
"""Edges that wait for a schedule, or for one of its chains."""


@statement
def add_schedule_edge(db: Db, *, child: int, parent: str | bytes, resolved_at: int | None, until: int | None) -> int:
    """Let a job wait for a schedule or for one of its chains."""
    edge = {"child": child, "parent_root": ident(parent), "needs": "success", "on_failure": "wait", "source": "schedule"}
    return db.insert("job_edges", document(**edge, resolved_at=resolved_at, until=until))


@statement
def note_schedules_completed(db: Db, *, numbers: Sequence[int]) -> int:
    """Note schedules of which a chain has completed, by the numbers of the tails, as far as anybody waits for any of their chains."""
    completed = {fact["schedule_id"] for fact in _ended(db, numbers, ("COMPLETED",))}
    return put_ended(db, dict.fromkeys(waited_for(db, completed), "COMPLETED")) if completed else 0


@statement
def let_any_do(db: Db, *, numbers: Sequence[int]) -> int:
    """Have jobs that waited for a chain of a schedule which did not complete wait for any chain of that schedule from now on.

    An edge is known by what it waits for: so it goes, and comes again, in place of one that may be there already.
    """
    dead = {fact["root_id"]: fact["schedule_id"] for fact in _ended(db, numbers, ("DEAD_LETTER", "SKIPPED", "CANCELLED"))}
    gone = list(among(db, "job_edges", "parent_root", dead, None, **OF_SCHEDULE))
    if not gone:
        return 0
    new: dict[tuple[int, str], Document] = {}
    for edge in gone:
        schedule_id = dead[edge["parent_root"]]
        kept = {column: value for column, value in edge.items() if column != "_id"}
        new.setdefault((edge["child"], schedule_id), kept | {"parent_root": schedule_id})
    keys = [edge["_id"] for edge in gone]
    keys += [edge["_id"] for edge in _present(db, new)]
    db.delete("job_edges", {"_id": {"$in": keys}})
    return db.insert("job_edges", *new.values())


def _present(db: Db, keys: Iterable[tuple[int, str]]) -> list[Document]:
    """Return the edges of these children and parents that are there already."""
    wanted = set(keys)
    edges = among(db, "job_edges", "child", {child for child, _ in wanted}, ("child", "parent_root"))
    return [edge for edge in edges if (edge["child"], edge["parent_root"]) in wanted]


def _ended(db: Db, numbers: Sequence[int], statuses: Sequence[str]) -> list[Document]:
    """Return the facts of jobs of schedules that ended so."""
    facts = {fact["_id"]: fact for fact in among(db, "job_facts", "_id", numbers, ("root_id", "schedule_id"), schedule_id=THERE)}
    return [facts[end["_id"]] for end in among(db, "job_ends", "_id", facts, status={"$in": list(statuses)})]


# ---- waited too long -------------------------------------------------------------------------------------------------


@statement
def anybody_late(db: Db, *, now: int) -> list[Row]:
    """Say whether it is time to give up for anybody."""
    return [(db.has("job_edges", {**OPEN, "until": {"$lte": now}}),)]


@statement
def waited_too_long(db: Db, *, now: int, limit: int) -> list[Row]:
    """Return jobs that still wait for another schedule although it is time to give up, with what their fate is written by."""
    late = db.find("job_edges", {**OPEN, "until": {"$lte": now}}, ("child",), sort=[("until", 1)], limit=limit)
    children = {edge["child"] for edge in late}
    missing: dict[int, set[str]] = {}
    edges = list(among(db, "job_edges", "child", children, ("child", "parent_root"), **OF_SCHEDULE))
    names = _names(db, {edge["parent_root"] for edge in edges})
    for edge in edges:
        missing.setdefault(edge["child"], set()).update(names.get(edge["parent_root"], ()))
    facts = among(db, "job_facts", "_id", sorted(missing), ("schedule_id", "due_at", "job_id"))
    return [
        (fact["_id"], fact.get("schedule_id"), fact.get("due_at"), fact["job_id"], _text(sorted(missing[fact["_id"]])))
        for fact in sorted(facts, key=lambda fact: int(fact["_id"]))
    ]


def _names(db: Db, parents: set[str]) -> dict[str, list[str]]:
    """Return the names of schedules by what is waited for: their own ids, or the ids of their chains."""
    chains = {
        fact["job_id"]: fact["schedule_id"]
        for fact in among(db, "job_facts", "job_id", parents, ("job_id", "schedule_id"), schedule_id=THERE)
    }
    schedules = {found["_id"]: found["name"] for found in among(db, "schedules", "_id", parents | set(chains.values()), ("name",))}
    owners = {parent: chains.get(parent, parent) for parent in parents}
    return {parent: [schedules[owner]] for parent, owner in owners.items() if owner in schedules}


def _text(names: list[str]) -> str:
    return msgspec.json.encode(names).decode()


@statement
def awaited_schedules(db: Db, *, job_id: str | bytes) -> list[Row]:
    """Return the names of the schedules, any chain of which a job waits for."""
    fact = db.first("job_facts", {"job_id": ident(job_id)}, ())
    if fact is None:
        return []
    parents = [edge["parent_root"] for edge in db.find("job_edges", {"child": fact["_id"], **OF_SCHEDULE}, ("parent_root",))]
    names = {found["name"] for found in among(db, "schedules", "_id", parents, ("name",))}
    return [(name,) for name in sorted(names)]
