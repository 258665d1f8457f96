"""Whole jobs, put together from what never changes about them and where they stand: what other stores have as the view `jobs`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.stores.mongodb.db import Db
from rota.stores.mongodb.documents import Document, Row
from rota.stores.mongodb.statements.joining import among

JOB = (
    "job_id",
    "number",
    "root_number",
    "status",
    "job_type",
    "organization_id",
    "priority",
    "place",
    "attempt",
    "root_id",
    "created_at",
    "template_id",
    "origin",
    "retry_of",
    "failures",
    "crashes",
    "snoozes",
    "held",
    "blockers",
    "run_at",
    "expires_at",
    "unique_key",
    "params",
    "schedule_id",
    "due_at",
    "group_id",
    "sequence_number",
    "owner",
    "run_as",
    "max_retries",
    "max_crashes",
    "backoff",
    "timeout",
    "executor",
    "queued_at",
    "started_at",
    "finished_at",
    "worker_id",
    "cancel_requested_at",
    "cancel_requested_by",
    "ended_by",
    "reason",
    "error_type",
    "meta",
    "queue",
    "digest",
    "tags",
)
"""The columns of a job as the verbs read it: those of a whole job, and `root_number`, `place`, `queue`, `digest` of `job_rows`."""
NOWHERE: Document = {"blockers": 0}
"""A job that is neither live nor ended, which nothing of ours makes."""


def whole(db: Db, facts: Iterable[Document]) -> list[Document]:
    """Return jobs, in the order of their facts: each with its `number`, and all that its live document or its end says."""
    known = list(facts)
    found = states(db, [fact["_id"] for fact in known])
    return [fact | NOWHERE | found.get(fact["_id"], {}) | {"number": fact["_id"]} for fact in known]


def states(db: Db, numbers: Sequence[int], columns: Sequence[str] | None = None) -> dict[int, Document]:
    """Return where jobs stand, by number: these columns of their live documents, or of their ends."""
    found = {live["_id"]: live for live in among(db, "job_live", "_id", numbers, columns)}
    ended = [number for number in numbers if number not in found]
    return found | {end["_id"]: end for end in among(db, "job_ends", "_id", ended, columns)}


def whole_by_number(db: Db, numbers: Sequence[int]) -> list[Document]:
    """Return jobs in the order of these numbers."""
    facts = {fact["_id"]: fact for fact in among(db, "job_facts", "_id", numbers, None)}
    return whole(db, [facts[number] for number in numbers if number in facts])


def job_rows(db: Db, jobs: Sequence[Document]) -> list[Row]:
    """Return whole jobs as rows of `JOB`, in their order."""
    roots = root_numbers(db, jobs)
    lanes = {lane["_id"]: lane for lane in among(db, "lanes", "_id", {job["lane"] for job in jobs if "lane" in job}, None)}
    found: list[Row] = []
    for job in jobs:
        lane = lanes.get(job.get("lane", 0), {})
        derived = {
            "root_number": roots.get(job["root_id"]),
            "place": job["position"] if "queued_at" in job else 0,
            "queue": lane.get("queue", "default"),
            "digest": lane.get("digest"),
        }
        get = (job | derived).get
        found.append(tuple([get(column) for column in JOB]))
    return found


def root_numbers(db: Db, jobs: Iterable[Document]) -> dict[str, int]:
    """Return the numbers of the first attempts of jobs by their ids; `number` or `_id` tells that of a first attempt itself."""
    numbers: dict[str, int] = {}
    others: set[str] = set()
    for job in jobs:
        if job["attempt"] == 1:
            numbers[job["root_id"]] = job["_id"]
        else:
            others.add(job["root_id"])
    missing = others - numbers.keys()
    return numbers | {fact["job_id"]: fact["_id"] for fact in among(db, "job_facts", "job_id", missing, ("job_id",))}


def chains(
    db: Db, roots: Iterable[str], columns: Sequence[str] | None = None, *, known: Iterable[Document] = ()
) -> dict[str, list[Document]]:
    """Return the facts of all attempts of chains, in their order, by the id of the first.

    `columns` must have root_id and attempt; first attempts that are known are not asked for.
    """
    wanted = list(dict.fromkeys(roots))
    lines: dict[str, list[Document]] = {root: [] for root in wanted}
    for fact in known:
        lines[fact["root_id"]] = [fact]
    for fact in among(db, "job_facts", "job_id", [root for root in wanted if not lines[root]], columns):
        if fact["attempt"] == 1:
            lines[fact["root_id"]].append(fact)
    for fact in among(db, "job_facts", "root_id", wanted, columns, attempt={"$gt": 1}):
        lines[fact["root_id"]].append(fact)
    for line in lines.values():
        line.sort(key=lambda fact: int(fact["attempt"]))
    return lines


def chains_of(db: Db, job_ids: Iterable[str], columns: Sequence[str] | None = None) -> dict[str, list[Document]]:
    """Return the same for the chains that these jobs belong to, by the ids that were asked for."""
    facts = {fact["job_id"]: fact for fact in among(db, "job_facts", "job_id", job_ids, columns)}
    first = [fact for fact in facts.values() if fact["attempt"] == 1]
    lines = chains(db, [fact["root_id"] for fact in facts.values()], columns, known=first)
    return {job_id: lines[fact["root_id"]] for job_id, fact in facts.items()}


def live_of_chains(db: Db, roots: Sequence[str]) -> dict[str, int]:
    """Return the numbers of the live jobs of chains, by the ids of the first: that one itself, or the retry that was made since."""
    first = {fact["_id"]: fact["job_id"] for fact in among(db, "job_facts", "job_id", roots, ("job_id",))}
    live = {first[job["_id"]]: job["_id"] for job in among(db, "job_live", "_id", list(first))}
    return live | {job["root_id"]: job["_id"] for job in among(db, "job_live", "root_id", roots, ("root_id",), attempt={"$gt": 1})}
