"""How jobs end: a live document goes, and one among the ends comes; and the successor of an attempt that is to be tried again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from pymongo import UpdateOne

from rota.model.values import Instant
from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, setting
from rota.stores.mongodb.schema import RUNNING
from rota.stores.mongodb.statements.claimed import as_json
from rota.stores.mongodb.statements.figures import figures_of
from rota.stores.mongodb.statements.joining import among
from rota.stores.mongodb.statements.moves import move

WAITING = {"status": {"$in": ["PENDING", "QUEUED"]}}
KEPT_OF_LIVE = (
    *("_id", "job_type", "created_at", "held", "priority", "position", "run_at", "expires_at", "queued_at", "started_at", "worker_id"),
    *("run_id", "cancel_requested_at", "cancel_requested_by"),
)
"""The columns that a live job has in common with an ended one."""
OUTPUT = ("error", "error_type", "error_code", "traceback", "exit_code", "result", "log_path", "result_message", "rows_affected")
"""What is kept of a run when it ends, in the order of `finish`."""


def ended(live: Document, status: str, at: Instant, **columns: Any) -> Document:
    """Return the end of a live job."""
    end = {column: live[column] for column in KEPT_OF_LIVE if column in live}
    end["status"], end["finished_at"] = status, at
    if live.get("started_at", at) > at:
        # For an index of this store alone, which has no expressions.
        end["clock_back"] = 1
    return end | document(**columns)


# ---- of attempts that ran --------------------------------------------------------------------------------------------


@statement
def end_plain(db: Db, done: dict[int, Instant], worker_id: bytes) -> tuple[list[int], str]:
    """Complete jobs that left nothing behind. Return the numbers of those that this worker still ran, and what they add to the figures."""
    where = RUNNING | {"worker_id": ident(worker_id)}
    live = db.live(where | {"_id": {"$in": list(done)}})
    ends = [ended(job, "COMPLETED", done[job["_id"]], ended_by="system") for job in live]
    move(db, where, ends, "job_ends")
    return [job["_id"] for job in live], figures_of((end, job["organization_id"]) for end, job in zip(ends, live, strict=True))


@statement
def open_endings(db: Db, *, numbers: Sequence[int], worker_id: str | bytes) -> list[Row]:
    """Return what this worker still runs of these jobs, anybody if it is nobody, and what the endings must know of it."""
    holder, own = ident(worker_id), {"_id": {"$in": list(numbers)}}
    live = db.find("job_live", RUNNING | own | ({} if holder is None else {"worker_id": holder}), ("cancel_requested_at", "root_id"))
    groups = {fact["_id"]: fact.get("group_id") for fact in among(db, "job_facts", "_id", [job["_id"] for job in live], ("group_id",))}
    return as_json(
        [(job["_id"], int("cancel_requested_at" in job), job["root_id"], groups[job["_id"]]) for job in live if job["_id"] in groups]
    )


@statement
def ended_as(db: Db, *, numbers: Sequence[int], worker_id: str | bytes) -> list[Row]:
    """Return when and as what jobs have ended, and whether this worker ran them last."""
    holder, columns = ident(worker_id), ("finished_at", "worker_id", "status")
    jobs = [*among(db, "job_ends", "_id", numbers, columns), *among(db, "job_live", "_id", numbers, columns)]
    return [(job["_id"], job.get("finished_at"), job.get("worker_id", "") == holder, job["status"]) for job in jobs]


@statement
def finish(db: Db, runs: Sequence[tuple[Any, ...]], jobs: Sequence[tuple[Any, ...]]) -> None:
    """End runs and their jobs."""
    _keep_output(db, {run[0]: dict(zip(OUTPUT, run[3:], strict=False)) for run in runs})
    live = {job["_id"]: job for job in db.find("job_live", RUNNING | {"_id": {"$in": [job[0] for job in jobs]}})}
    move(db, RUNNING, [_end(live[job[0]], *job[1:]) for job in jobs if job[0] in live], "job_ends")


def _end(live: Document, at: Instant, status: str, error_type: str | None, reason: str | None) -> Document:
    """Return the end of a run's job. The reason of a cancel request stands if that is how it ends."""
    ended_by = "system"
    if status == "CANCELLED":
        ended_by, reason = live.get("cancel_requested_by", ended_by), live.get("reason", reason)
    return ended(live, str(status), at, ended_by=ended_by, reason=reason, error_type=error_type)


def _keep_output(db: Db, outputs: dict[int, Document]) -> None:
    """Write what runs have left behind, beside what they have reported."""
    told = {number: output for number, output in outputs.items() if any(value is not None for value in output.values())}
    if not told:
        return
    known = {note["_id"]: note for note in db.find("run_notes", {"_id": {"$in": list(told)}}, ("log_path",))}
    db.insert(
        "run_notes", *({"_id": number, "artifacts": "[]"} | document(**output) for number, output in told.items() if number not in known)
    )
    logs = {number: {"log_path": note["log_path"]} for number, note in known.items() if "log_path" in note}
    db.write_each("run_notes", [UpdateOne({"_id": number}, setting(**told[number] | logs.get(number, {}))) for number in known])


# ---- successors ------------------------------------------------------------------------------------------------------


@statement
def insert_successors(db: Db, *, rows: Sequence[tuple[Any, ...]], now: Instant) -> int:
    """Add the next attempts of ended ones that have none.

    Each row: the number of the one before, id, status, run_at, failures, crashes, snoozes, whether it keeps its place and its expiry, and
    its lane if that is another.
    """
    numbers = [row[0] for row in rows]
    facts = {fact["_id"]: fact for fact in among(db, "job_facts", "_id", numbers, None)}
    retried = {fact["retry_of"] for fact in among(db, "job_facts", "retry_of", [fact["job_id"] for fact in facts.values()], ("retry_of",))}
    ends = {end["_id"]: end for end in among(db, "job_ends", "_id", numbers, ("priority", "position", "expires_at"))}
    due = [row for row in rows if row[0] in facts and row[0] in ends and facts[row[0]]["job_id"] not in retried]
    if not due:
        return 0
    lanes, clocks = _lanes_of_types(db, [facts[row[0]] for row in due]), _clocks(db, [ends[row[0]] for row in due])
    next_facts: list[Document] = []
    next_live: list[Document] = []
    for number, row in enumerate(due, db.next_numbers("job_numbers", len(due))):
        fact = _next_fact(facts[row[0]], row, number, now) | document(lane=_lane(facts[row[0]], row, lanes))
        next_facts.append(fact)
        next_live.append(_next_live(fact, ends[row[0]], row, clocks))
    db.insert("job_facts", *next_facts)
    return db.insert("job_live", *next_live)


def _next_fact(before: Document, row: tuple[Any, ...], number: int, now: Instant) -> Document:
    _, job_id, _, _, failures, crashes, snoozes, *_ = row
    change = {
        "_id": number,
        # Refused here if it is none: the server would take any text.
        "job_id": UUID(job_id).hex,
        "retry_of": before["job_id"],
        "attempt": before["attempt"] + 1,
        "failures": failures,
        "crashes": crashes,
        "snoozes": snoozes,
        "created_at": now,
    }
    return before | change


def _next_live(fact: Document, before: Document, row: tuple[Any, ...], clocks: dict[int, int]) -> Document:
    _, _, status, run_at, _, _, _, in_place, keeps_expiry, *_ = row
    position = -fact["created_at"]
    if in_place:
        # A place beyond the clock was given before its priority was empty and counted anew: now it is before those who came since.
        position = before["position"] if before["position"] <= clocks.get(before["priority"], 0) else 0
    columns = ("_id", "job_id", "root_id", "attempt", "organization_id", "job_type", "created_at", "schedule_id", "unique_key", "lane")
    return {column: fact[column] for column in columns if column in fact} | document(
        status=str(status),
        blockers=0,
        priority=before["priority"],
        position=position,
        run_at=run_at,
        expires_at=before.get("expires_at") if keeps_expiry else None,
        queued_at=fact["created_at"] if in_place else None,
    )


def _lane(before: Document, row: tuple[Any, ...], lanes: dict[str, int]) -> int | None:
    """Return the lane of a successor: the one that was said, or that of the attempt before; if it has none, the lane of its type."""
    said: int | None = row[9] if len(row) > 9 else None
    return said or before.get("lane") or lanes.get(before["job_type"])


def _lanes_of_types(db: Db, facts: Iterable[Document]) -> dict[str, int]:
    """Return the lanes of the types of jobs that ended before there were lanes."""
    types = {fact["job_type"] for fact in facts if "lane" not in fact}
    return {lane["job_type"]: lane["_id"] for lane in among(db, "lanes", "job_type", types, ("job_type",), queue="default", digest="")}


def _clocks(db: Db, ends: Iterable[Document]) -> dict[int, int]:
    priorities = {end["priority"] for end in ends}
    return {clock["_id"]: clock["position"] for clock in among(db, "queue_clock", "_id", priorities, ("position",))}


# ---- of jobs that waited ---------------------------------------------------------------------------------------------


@statement
def group_rule(db: Db, *, group_id: str | bytes, numbers: Sequence[int]) -> list[Row]:
    """Return the rule of a group, and the place after which it applies: in a sequence, after the first of these that ended badly."""
    group = db.first("job_groups", {"_id": ident(group_id)}, ("on_failure", "mode"))
    if group is None:
        return []
    if group["mode"] != "sequential":
        return [(group["on_failure"], 0)]
    bad = [end["_id"] for end in among(db, "job_ends", "_id", numbers, status={"$in": ["DEAD_LETTER", "CANCELLED"]})]
    members = among(db, "job_facts", "_id", bad, ("sequence_number",), group_id=ident(group_id))
    return [(group["on_failure"], min((member["sequence_number"] for member in members), default=None))]


@statement
def end_rest_of_group(db: Db, *, group_id: str | bytes, after: int | None, status: str, now: int, reason: str) -> list[Row]:
    """End members whose chains have not started: still in their first attempt, still waiting."""
    if after is None:
        return []
    where = {"group_id": ident(group_id), "sequence_number": {"$gt": after}, "attempt": 1}
    members = [fact["_id"] for fact in db.find("job_facts", where, ())]
    live = list(among(db, "job_live", "_id", members, None, **WAITING))
    move(db, WAITING, [ended(job, str(status), now, ended_by="system", reason=reason) for job in live], "job_ends")
    return [(job["_id"],) for job in live]


@statement
def end_waiting(
    db: Db,
    *,
    numbers: Sequence[int],
    status: str,
    now: int,
    reason: str,
    actor: str,
    error_type: str | None,
    requested_at: int | None,
    requested_by: str | None,
) -> list[Row]:
    """End jobs that wait, without a run. Return their numbers and groups."""
    live = list(among(db, "job_live", "_id", numbers, None, **WAITING))
    # Who asked for this end is who counts, and nobody if it was not asked for.
    for job in live:
        job.pop("cancel_requested_at", None)
        job.pop("cancel_requested_by", None)
    columns = {"ended_by": actor, "reason": reason, "error_type": error_type}
    requested = {"cancel_requested_at": requested_at, "cancel_requested_by": requested_by}
    move(db, WAITING, [ended(job, str(status), now, **columns, **requested) for job in live], "job_ends")
    return [(fact["_id"], fact.get("group_id")) for fact in among(db, "job_facts", "_id", [job["_id"] for job in live], ("group_id",))]
