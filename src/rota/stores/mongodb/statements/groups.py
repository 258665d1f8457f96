"""Groups: made, joined and read, the job that follows a group, and the results of what a job waited for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, rows
from rota.stores.mongodb.schema import THERE
from rota.stores.mongodb.statements import jobs
from rota.stores.mongodb.statements.edges import IN_TURN, OPEN, attempts_of, put_ended, waited_for
from rota.stores.mongodb.statements.joining import among, in_chunks

GROUP = ("_id", "name", "mode", "on_failure", "created_at", "organization_id", "created_by")
FEW = 100
"""Members that are looked at first: one of them is live, most often."""


@statement
def insert_group(db: Db, *, group_id: str, organization_id: str, name: str | None, mode: str, on_failure: str, actor: str, now: int) -> int:
    """Create a group."""
    said = document(organization_id=organization_id, name=name, mode=mode, on_failure=on_failure)
    return db.insert("job_groups", {"_id": group_id, "created_by": actor, "created_at": now, "passed": 0} | said)


@statement
def group_exists(db: Db, *, group_id: str) -> list[Row]:
    """Say whether a group is there."""
    return [(db.has("job_groups", {"_id": group_id}),)]


@statement
def joinable(db: Db, *, job_id: str) -> list[Row]:
    """Return what decides whether a job may join a group."""
    facts = db.find("job_facts", {"job_id": job_id}, ("group_id", "organization_id", "root_id", "attempt"))
    states = jobs.states(db, [fact["_id"] for fact in facts], ("status",))
    columns = ("_id", "status", "group_id", "organization_id", "root_id", "attempt")
    return rows((fact | states.get(fact["_id"], {}) for fact in facts), columns)


@statement
def join_group(db: Db, *, number: int, group_id: str, sequence_number: int, blockers: int) -> int:
    """Let a job that has not started join a group."""
    if not db.update("job_live", {"_id": number, "status": {"$in": ["PENDING", "QUEUED"]}}, {"$inc": {"blockers": blockers}}):
        return 0
    return db.update("job_facts", {"_id": number}, {"$set": {"group_id": group_id, "sequence_number": sequence_number}})


@statement
def group(db: Db, *, group_id: str) -> list[Row]:
    """Return a group."""
    return rows(db.find("job_groups", {"_id": group_id}, GROUP), GROUP)


@statement
def groups(db: Db, *, organization_id: str | None, owner: str | None, limit: int) -> list[Row]:
    """Return the newest groups."""
    where = document(organization_id=organization_id, created_by=owner)
    return rows(db.find("job_groups", where, (), sort=[("_id", -1)], limit=limit), ("_id",))


@statement
def members(db: Db, *, group_id: str) -> list[Row]:
    """Return the jobs of a group by place, the tail of each chain first; and whether any job of the chain has a run."""
    order = [("sequence_number", 1), ("attempt", -1)]
    facts = db.find("job_facts", {"group_id": group_id}, ("sequence_number", "root_id", "job_type", "attempt"), sort=order)
    states = jobs.states(db, [fact["_id"] for fact in facts], ("status", "started_at"))
    roots = jobs.root_numbers(db, facts)
    started = {fact["sequence_number"] for fact in facts if "started_at" in states[fact["_id"]]}
    found: list[Row] = []
    place, from_tail = 0, 0
    for fact in facts:
        from_tail = from_tail + 1 if fact["sequence_number"] == place else 1
        place = fact["sequence_number"]
        state = states[fact["_id"]]["status"]
        found.append(
            (place, fact["root_id"], roots.get(fact["root_id"]), fact["job_type"], state, fact["attempt"], place in started, from_tail)
        )
    return found


@statement
def live_members(db: Db, *, group_id: str) -> list[Row]:
    """Return the live jobs of a group in their order."""
    numbers = [fact["_id"] for fact in db.find("job_facts", {"group_id": group_id}, (), sort=[("sequence_number", 1)])]
    live = {job["_id"]: job["status"] for job in among(db, "job_live", "_id", numbers, ("status",))}
    return [(number, live[number]) for number in numbers if number in live]


# ---- the job that follows a group ------------------------------------------------------------------------------------


@statement
def groups_waited_for(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return the groups of these jobs that somebody waits for."""
    asked = {fact["group_id"] for fact in among(db, "job_facts", "_id", numbers, ("group_id",), group_id=THERE)}
    return [(group_id,) for group_id in sorted(waited_for(db, asked))]


@statement
def live_member_after(db: Db, *, group_id: str, first: int) -> list[Row]:
    """Return up to which member a group was passed, and the first live one behind that, or of all. Those passed are not looked at again."""
    found = db.first("job_groups", {"_id": group_id}, ("passed",))
    if found is None:
        return []
    where = {"group_id": group_id, "sequence_number": {"$gt": 0 if first else found["passed"]}}
    behind = iter(db.cursor("job_facts", where, ("sequence_number",), sort=[("sequence_number", 1)]))
    for chunk in chain([list(islice(behind, FEW))], in_chunks(behind)):
        live = {job["_id"] for job in among(db, "job_live", "_id", [member["_id"] for member in chunk])}
        for member in chunk:
            if member["_id"] in live:
                return [(found["passed"], member["sequence_number"])]
    return [(found["passed"], None)]


@statement
def pass_members(db: Db, *, group_id: str, passed: int) -> int:
    """Note up to which member a group was passed."""
    return db.update("job_groups", {"_id": group_id}, {"$set": {"passed": passed}})


@statement
def group_tails(db: Db, *, group_id: str) -> list[Row]:
    """Return how the chains of a group's members stand: each state once."""
    facts = db.find("job_facts", {"group_id": group_id}, ("job_id", "retry_of"))
    retried = {fact["retry_of"] for fact in facts if "retry_of" in fact}
    tails = [fact["_id"] for fact in facts if fact["job_id"] not in retried]
    ends = {end["_id"]: end["status"] for end in among(db, "job_ends", "_id", tails, ("status",))}
    return [(status,) for status in {ends.get(number, "RUNNING") for number in tails}]


@statement
def note_group_ended(db: Db, *, group_id: str, status: str) -> int:
    """Note that a group has ended."""
    return put_ended(db, {group_id: status})


@statement
def waiting_followers(db: Db, *, group_id: str) -> list[Row]:
    """Return the jobs that wait for a group."""
    return rows(db.find("job_edges", {"parent_root": group_id, **OPEN}, ("child",), sort=IN_TURN), ("child",))


@statement
def follower_of(db: Db, *, group_id: str) -> list[Row]:
    """Return the job that follows a group: the first, for a group is made with one."""
    edge = db.first("job_edges", {"parent_root": group_id}, ("child", "needs", "on_failure"), sort=[("child", 1)], hint="edges_of_parent")
    if edge is None:
        return []
    facts = db.find("job_facts", {"_id": edge["child"]}, ("root_id",))
    return [(fact["root_id"], edge["needs"], edge["on_failure"]) for fact in facts]


@statement
def awaited_groups(db: Db, *, job_id: str) -> list[Row]:
    """Return the groups whose end a job waits for."""
    fact = db.first("job_facts", {"job_id": job_id}, ())
    edges = [] if fact is None else db.find("job_edges", {"child": fact["_id"], **OPEN}, ("parent_root",))
    return rows(among(db, "job_groups", "_id", [edge["parent_root"] for edge in edges]), ("_id",))


# ---- the results of what a job waited for ----------------------------------------------------------------------------


@statement
def named_parents(db: Db, *, roots: Sequence[str]) -> list[Row]:
    """Return what the jobs of chains were told to wait for, in that order: the root of a chain or a group, and whether it is a group."""
    edges = list(among(db, "job_edges", "child", list(attempts_of(db, roots)), ("child", "parent_root", "place"), source="user"))
    edges.sort(key=lambda edge: (edge["child"], edge.get("place", -1), edge["parent_root"]))
    grouped = {found["_id"] for found in among(db, "job_groups", "_id", {edge["parent_root"] for edge in edges})}
    return [(edge["parent_root"], edge["parent_root"] in grouped) for edge in edges]


@statement
def members_after(db: Db, *, group_id: str, after: int, limit: int) -> list[Row]:
    """Return the first jobs of a group behind a place."""
    where = {"group_id": group_id, "sequence_number": {"$gt": after}, "attempt": 1}
    columns = ("sequence_number", "root_id")
    return rows(db.find("job_facts", where, columns, sort=[("sequence_number", 1)], limit=limit), columns)


@statement
def types_of_roots(db: Db, *, roots: Sequence[str]) -> list[Row]:
    """Return the types of the first jobs of chains."""
    columns = ("job_id", "job_type")
    return rows(among(db, "job_facts", "job_id", roots, columns), columns)


@statement
def result_sizes(db: Db, *, roots: Sequence[str]) -> list[Row]:
    """Return the completed jobs of chains that have a result: root, number, its bytes."""
    attempts = attempts_of(db, roots)
    completed = [end["_id"] for end in among(db, "job_ends", "_id", list(attempts), status="COMPLETED")]
    sized: list[Document] = [
        {"$match": {"_id": {"$in": completed}, "result": THERE}},
        {"$project": {"size": {"$strLenBytes": "$result"}}},
    ]
    return [(attempts[note["_id"]], note["_id"], note["size"]) for note in db.aggregate("run_notes", sized)]


@statement
def results_of(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return the results of jobs."""
    return rows(among(db, "run_notes", "_id", numbers, ("result",)), ("_id", "result"))
