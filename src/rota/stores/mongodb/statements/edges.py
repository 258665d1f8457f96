"""Edges: what waits for what, telling those who wait that a chain has ended, and the graph of it all.

An open edge belongs to a job that is PENDING: a job that ends closes what is left of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from pymongo import UpdateOne

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows
from rota.stores.mongodb.schema import PENDING
from rota.stores.mongodb.statements import jobs
from rota.stores.mongodb.statements.joining import among
from rota.stores.mongodb.statements.moves import rewrite
from rota.stores.verbs.edges import Edge

CHAIN_ENDS = ("COMPLETED", "DEAD_LETTER", "SKIPPED", "CANCELLED")
OPEN: Document = {"resolved_at": None}
IN_TURN = (("needs", 1), ("on_failure", 1), ("child", 1))
"""The order of `edges_open` behind the parent."""
AT_A_TIME = 1000
"""Edges that are read to see which of many chains are waited for."""
CHAIN = ("job_id", "root_id", "attempt")


# ---- what a job waits for --------------------------------------------------------------------------------------------


@statement
def chains(db: Db, *, ids: Sequence[str], organization_id: str) -> list[Row]:
    """Return the chains that these ids belong to, if they are this organization's: id, root, the root's number, the tail's status."""
    lines = {
        given: line
        for given, line in jobs.chains_of(db, ids, (*CHAIN, "organization_id")).items()
        if line[-1]["organization_id"] == organization_id
    }
    states = jobs.states(db, [line[-1]["_id"] for line in lines.values()], ("status",))
    return [(given, line[0]["root_id"], line[0]["_id"], states[line[-1]["_id"]]["status"]) for given, line in lines.items()]


@statement
def waiting_child(db: Db, *, job_id: str) -> list[Row]:
    """Return the tail of the chain that a job belongs to."""
    lines = jobs.chains_of(db, [job_id], (*CHAIN, "organization_id"))
    if not lines:
        return []
    line = lines[job_id]
    tail = line[-1]
    status = jobs.states(db, [tail["_id"]], ("status",))[tail["_id"]]["status"]
    return [(tail["_id"], tail["job_id"], tail["root_id"], tail["organization_id"], line[0]["_id"], status)]


@statement
def add_edges(db: Db, *, children: Iterable[int], parents: Sequence[Edge], now: int) -> int:
    """Let each child wait for the same parents.

    Where a child waits for the same chain's end (a group's turn, an overlap), what it needs can only become more.
    """
    numbers, roots = list(children), [edge.parent_root for edge in parents]
    present = {
        (edge["child"], edge["parent_root"]): edge["needs"]
        for edge in among(db, "job_edges", "child", numbers, ("child", "parent_root", "needs"), parent_root={"$in": roots})
    }
    new: list[Document] = []
    changes: list[UpdateOne] = []
    for number in numbers:
        for edge in parents:
            key = {"child": number, "parent_root": edge.parent_root}
            said = document(needs=edge.needs, on_failure=edge.on_failure, source=edge.source, resolved_at=now if edge.met else None)
            before = present.get((number, edge.parent_root))
            if before is None:
                new.append(key | said | document(place=edge.place))
            elif (before, edge.needs) == ("end", "success"):
                changes.append(UpdateOne(key, {"$set": said} | ({} if edge.met else {"$unset": {"resolved_at": ""}})))
    return db.insert("job_edges", *new) + db.write_each("job_edges", changes)


@statement
def edges_of_child(db: Db, *, child: int) -> list[Row]:
    """Return what a job waits, or waited, for: the root, the source, whether it still does."""
    edges = db.find("job_edges", {"child": child}, ("parent_root", "source", "resolved_at"))
    return [(edge["parent_root"], edge["source"], "resolved_at" not in edge) for edge in edges]


@statement
def block(db: Db, *, number: int, count: int) -> int:
    """Let a PENDING job wait for more."""
    return db.update("job_live", {"_id": number, **PENDING}, {"$inc": {"blockers": count}})


@statement
def close_edges(db: Db, *, children: Sequence[int], now: int) -> int:
    """Close the open edges of jobs that ended while they waited."""
    return db.update("job_edges", {"child": {"$in": list(children)}, **OPEN}, {"$set": {"resolved_at": now}})


@statement
def states_of(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return the status of each of these jobs."""
    return [(number, state["status"]) for number, state in jobs.states(db, numbers, ("status",)).items()]


# ---- turns -----------------------------------------------------------------------------------------------------------


@statement
def next_in_turn(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return who follows jobs that ended while they waited themselves: number, the root waited for, and whose turn it is.

    The turn is a group's or an overlap's; a dependency on an earlier member of a sequence stands for the group's turn too.
    """
    facts = list(among(db, "job_facts", "_id", numbers, ("root_id", "group_id", "sequence_number")))
    followers = _open_edges(db, [fact["root_id"] for fact in facts], needs="end", source={"$ne": "user"})
    found = [(edge["child"], edge["parent_root"], edge["source"]) for edge in followers]
    sequences = {fact["root_id"]: fact for fact in facts if fact.get("sequence_number", 0) > 0}
    dependents = _open_edges(db, list(sequences), source="user") if sequences else []
    places = {
        fact["_id"]: fact for fact in among(db, "job_facts", "_id", [edge["child"] for edge in dependents], ("group_id", "sequence_number"))
    }
    for edge in dependents:
        before, after = sequences[edge["parent_root"]], places.get(edge["child"], {})
        if after.get("group_id") == before["group_id"] and after["sequence_number"] > before["sequence_number"]:
            found.append((edge["child"], edge["parent_root"], "group"))
    live = {job["_id"] for job in among(db, "job_live", "_id", {child for child, _, _ in found})}
    return [follower for follower in found if follower[0] in live]


def _open_edges(db: Db, roots: Sequence[str], **where: object) -> list[Document]:
    edges = among(db, "job_edges", "parent_root", roots, ("child", "parent_root", "source", "needs", "on_failure"), **OPEN, **where)
    return sorted(edges, key=lambda edge: (edge["parent_root"], edge["needs"], edge["on_failure"], edge["child"]))


@statement
def turns_of(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return what these jobs waited for in turn: their root, that of the one before, whose turn it is, and whether that one is live."""
    facts = {fact["_id"]: fact for fact in among(db, "job_facts", "_id", numbers, ("root_id", "group_id", "sequence_number"))}
    edges = list(among(db, "job_edges", "child", list(facts), ("child", "parent_root", "source"), **OPEN))
    named = [edge for edge in edges if edge["source"] == "user"]
    sequential = _earlier_members(db, facts, named) if named else set()
    turns = [edge for edge in edges if edge["source"] in {"group", "overlap"} or (edge["child"], edge["parent_root"]) in sequential]
    live = jobs.live_of_chains(db, list({edge["parent_root"] for edge in turns}))
    return [
        (
            facts[edge["child"]]["root_id"],
            edge["parent_root"],
            "group" if edge["source"] == "user" else edge["source"],
            edge["parent_root"] in live,
        )
        for edge in turns
    ]


def _earlier_members(db: Db, facts: dict[int, Document], edges: Sequence[Document]) -> set[tuple[int, str]]:
    """Return the edges that lead to an earlier member of the same sequential group."""
    groups = {fact["group_id"] for fact in facts.values() if "group_id" in fact}
    sequential = {group["_id"] for group in among(db, "job_groups", "_id", groups, (), mode="sequential")}
    roots = {edge["parent_root"] for edge in edges}
    parents = {fact["job_id"]: fact for fact in among(db, "job_facts", "job_id", roots, ("job_id", "group_id", "sequence_number"))}
    found: set[tuple[int, str]] = set()
    for edge in edges:
        child, parent = facts[edge["child"]], parents.get(edge["parent_root"], {})
        same = child.get("group_id") in sequential and parent.get("group_id") == child["group_id"]
        if same and parent["sequence_number"] < child["sequence_number"]:
            found.add((edge["child"], edge["parent_root"]))
    return found


@statement
def wait_in_turn(db: Db, *, child: int, source: str, roots: Sequence[str]) -> int:
    """Let a job wait for the end of chains; one that it waits for already counts no more."""
    present = {
        edge["parent_root"] for edge in db.find("job_edges", {"child": child, "parent_root": {"$in": list(roots)}}, ("parent_root",))
    }
    said = {"child": child, "needs": "end", "on_failure": "cancel", "source": source}
    return db.insert("job_edges", *(said | {"parent_root": root} for root in roots if root not in present))


# ---- telling ---------------------------------------------------------------------------------------------------------


@statement
def any_open_edges(db: Db) -> list[Row]:
    """Say whether anybody waits for anything."""
    return [(db.first("job_edges", OPEN, (), hint="edges_open") is not None,)]


@statement
def note_ended(db: Db, *, numbers: Sequence[int]) -> int:
    """Note chains that ended, by the numbers of their tails, as far as anybody still waits for them."""
    facts = sorted(among(db, "job_facts", "_id", numbers, ("root_id", "attempt")), key=lambda fact: int(fact["attempt"]))
    awaited = waited_for(db, {fact["root_id"] for fact in facts})
    tails = {fact["_id"]: fact["root_id"] for fact in facts if fact["root_id"] in awaited}
    statuses = {end["_id"]: end["status"] for end in among(db, "job_ends", "_id", tails, ("status",), status={"$in": CHAIN_ENDS})}
    return put_ended(db, {root: statuses[number] for number, root in tails.items() if number in statuses})


def put_ended(db: Db, ended: dict[str, str]) -> int:
    """Note the ends of chains or groups, by their ids."""
    return db.write_each(
        "ended_roots", [UpdateOne({"_id": root}, {"$set": {"status": status}}, upsert=True) for root, status in ended.items()]
    )


def waited_for(db: Db, parents: Iterable[str]) -> set[str]:
    """Return those of some chains or groups that somebody waits for. A parent with many children is found by the first of them."""
    found: set[str] = set()
    left = list(parents)
    while left:
        edges = db.find("job_edges", {"parent_root": {"$in": left}, **OPEN}, ("parent_root",), limit=AT_A_TIME, hint="edges_open")
        found.update(edge["parent_root"] for edge in edges)
        left = [parent for parent in left if parent not in found] if len(edges) == AT_A_TIME else []
    return found


@statement
def some_ended(db: Db, *, limit: int) -> list[Row]:
    """Return some chains that have somebody to tell."""
    return rows(db.find("ended_roots", {}, ("status",), limit=limit), ("_id", "status"))


@statement
def forget_ended(db: Db, *, root_id: str | bytes) -> int:
    """Forget the end of a chain."""
    return db.delete("ended_roots", {"_id": ident(root_id)})


@statement
def to_satisfy(db: Db, *, root_id: str | bytes, limit: int) -> list[Row]:
    """Return those who waited for a chain that has completed. Each that is told is no longer open: the next call returns others."""
    return [(_text([edge["child"] for edge in _waiting(db, root_id, limit)]),)]


@statement
def to_satisfy_at_end(db: Db, *, root_id: str | bytes, limit: int) -> list[Row]:
    """Return those to whom any end will do, and not the many who may wait for a completion that has yet to come."""
    return [(_text([edge["child"] for edge in _waiting(db, root_id, limit, needs="end")]),)]


@statement
def to_doom(db: Db, *, root_id: str | bytes, limit: int) -> list[Row]:
    """Return those who needed success of a chain that ended otherwise, and are to end themselves, with what is to become of each."""
    doomed = _waiting(db, root_id, limit, needs="success", on_failure={"$in": ["cancel", "skip"]})
    return [(_text([(edge["child"], edge["on_failure"]) for edge in doomed]),)]


def _waiting(db: Db, root_id: str | bytes, limit: int, **where: object) -> list[Document]:
    # To the server a limit of 0 is none.
    if limit < 1:
        return []
    return db.find(
        "job_edges", {"parent_root": ident(root_id), **OPEN, **where}, ("child", "on_failure"), sort=IN_TURN, limit=limit, hint="edges_open"
    )


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


@statement
def satisfy(db: Db, *, root_id: str | bytes, children: Sequence[int], now: int) -> int:
    """Resolve the edges between a chain and those who are told."""
    where = {"child": {"$in": list(children)}, "parent_root": ident(root_id), **OPEN}
    return db.update("job_edges", where, {"$set": {"resolved_at": now}})


@statement
def unblock(db: Db, *, children: Sequence[int]) -> int:
    """Let these jobs wait for one less."""
    where = {**PENDING, "blockers": {"$gt": 0}}
    return rewrite(db, where, children, lambda job: job | {"blockers": job["blockers"] - 1})


@statement
def number_of_root(db: Db, *, root_id: str | bytes) -> list[Row]:
    """Return the number of the first job of a chain."""
    return rows(db.find("job_facts", {"job_id": ident(root_id)}, ("root_id",)), ("root_id", "_id"))


# ---- circles and graphs ----------------------------------------------------------------------------------------------


@statement
def is_waited_for(db: Db, *, root_id: str) -> list[Row]:
    """Say whether anybody waits for a chain, or for the group that it is in."""
    fact = db.first("job_facts", {"job_id": root_id}, ("group_id",)) or {}
    return [(bool(waited_for(db, {root_id, fact.get("group_id", root_id)})),)]


@statement
def waits_above(db: Db, *, root_id: str) -> list[Row]:
    """Return who waits for whom, from one chain upwards, over open edges of every source; a group waits for its live members.

    Level by level, three questions each: from chains and groups to their jobs, to those that are live, to the edges of these.
    """
    found: list[Row] = []
    known, level = {root_id}, [root_id]
    while level:
        waits = _waits_of(db, level)
        found += waits
        level = [parent for parent in dict.fromkeys(parent for _, parent in waits) if parent not in known]
        known.update(level)
    return found


def _waits_of(db: Db, roots: list[str]) -> list[tuple[str, str]]:
    """Return the parents of the live jobs of chains, and the live members of groups."""
    asked = {"$in": roots}
    facts = {
        fact["_id"]: fact
        for fact in db.find("job_facts", {"$or": [{"job_id": asked}, {"group_id": asked}]}, ("job_id", "root_id", "group_id"))
    }
    live = db.find("job_live", {"$or": [{"_id": {"$in": list(facts)}}, {"root_id": asked, "attempt": {"$gt": 1}}]}, ("root_id",))
    wanted = set(roots)
    numbers = {job["_id"]: job["root_id"] for job in live if job["root_id"] in wanted}
    edges = among(db, "job_edges", "child", list(numbers), ("child", "parent_root"), **OPEN)
    members = [facts[job["_id"]] for job in live if job["_id"] in facts]
    return [
        *((numbers[edge["child"]], edge["parent_root"]) for edge in edges),
        *((fact["group_id"], fact["root_id"]) for fact in members if fact.get("group_id") in wanted),
    ]


@statement
def numbers_of_roots(db: Db, *, roots: Sequence[str]) -> list[Row]:
    """Return the numbers of the first jobs of chains."""
    return rows(among(db, "job_facts", "job_id", roots, ("job_id",)), ("job_id", "_id"))


def attempts_of(db: Db, roots: Iterable[str]) -> dict[int, str]:
    """Return every job of chains, by number, with its root: an edge belongs to the attempt that was there when it was made."""
    return {fact["_id"]: root for root, line in jobs.chains(db, roots, ("root_id", "attempt")).items() for fact in line}


@statement
def parents_of(db: Db, *, roots: Sequence[str], limit: int) -> list[Row]:
    """Return what chains wait, or waited, for."""
    numbers = list(attempts_of(db, roots))
    return rows(db.find("job_edges", {"child": {"$in": numbers}}, ("parent_root",), limit=limit), ("parent_root",))


@statement
def children_of(db: Db, *, roots: Sequence[str], limit: int) -> list[Row]:
    """Return who waits, or waited, for chains."""
    edges = db.find("job_edges", {"parent_root": {"$in": list(roots)}}, ("child",), limit=limit)
    root_of = {fact["_id"]: fact["root_id"] for fact in among(db, "job_facts", "_id", {edge["child"] for edge in edges}, ("root_id",))}
    return [(root_of[edge["child"]],) for edge in edges if edge["child"] in root_of]


@statement
def edges_among(db: Db, *, roots: Sequence[str], limit: int) -> list[Row]:
    """Return the edges between chains that are all among those named."""
    attempts = attempts_of(db, roots)
    where = {"child": {"$in": list(attempts)}, "parent_root": {"$in": list(roots)}}
    edges = db.find("job_edges", where, sort=[("child", 1), ("parent_root", 1)], limit=limit)
    said = ("parent_root", "needs", "on_failure", "source", "resolved_at")
    return [(attempts[edge["child"]], *map(edge.get, said)) for edge in edges]


@statement
def tails_of(db: Db, *, roots: Sequence[str]) -> list[Row]:
    """Return the tails of chains, as whole jobs."""
    tails = [line[-1] for line in jobs.chains(db, roots).values() if line]
    return jobs.job_rows(db, jobs.whole(db, tails))
