"""What those who watch ask: what is new, along indexes that are there for other reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rota.ports.events import Span
from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, row, rows
from rota.stores.mongodb.schema import QUEUED, RUNNING
from rota.stores.mongodb.statements.jobs import root_numbers, states
from rota.stores.mongodb.statements.joining import among
from rota.stores.mongodb.statements.questions import Question, answers

WATCHED = (
    "job_id",
    "number",
    "root_number",
    "root_id",
    "attempt",
    "organization_id",
    "owner",
    "job_type",
    "status",
    "priority",
    "created_at",
    "started_at",
    "finished_at",
    "reason",
    "error_type",
)
"""The columns of `rota.model.events.JobNow`."""
FACTS = ("job_id", "root_id", "attempt", "organization_id", "owner", "job_type", "created_at")
STATE = ("status", "priority", "started_at", "finished_at", "reason", "error_type")
DEFINITIONS = ("template", "schedule", "calendar", "organization", "user", "all")
"""Subjects of the audit trail that jobs are made from."""


@statement
def marks(db: Db) -> list[Row]:
    """Return the numbers of the newest job, of the newest change by people and of the newest report, and the version of the definitions."""
    version = db.first("meta", {"_id": "definitions_version"}, ("value",))
    return [(_newest(db, "job_facts"), _newest(db, "audit"), version and version["value"], _newest(db, "schedule_reports"))]


def _newest(db: Db, collection: str) -> int:
    newest = db.first(collection, {}, (), sort=[("_id", -1)])
    return 0 if newest is None else newest["_id"]


@statement
def made_in(db: Db, *, spans: Iterable[Span], limit: int) -> list[Row]:
    """Return the first jobs with numbers in these spans."""
    within = [{"_id": {"$gte": span.first, "$lte": span.last}} for span in spans]
    return _watched(db, db.find("job_facts", {"$or": within}, FACTS, sort=[("_id", 1)], limit=limit)) if within else []


@statement
def jobs_now(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return jobs as they are, in the order of these numbers."""
    facts = {fact["_id"]: fact for fact in among(db, "job_facts", "_id", numbers, FACTS)}
    return _watched(db, [facts[number] for number in numbers if number in facts])


def _watched(db: Db, facts: Sequence[Document]) -> list[Row]:
    roots = root_numbers(db, facts)
    now = states(db, [fact["_id"] for fact in facts], STATE)
    derived = ({"number": fact["_id"], "root_number": roots.get(fact["root_id"])} for fact in facts)
    return [row(fact | now.get(fact["_id"], {}) | numbers, WATCHED) for fact, numbers in zip(facts, derived, strict=True)]


@statement
def progress_now(db: Db, *, limit: int) -> list[Row]:
    """Return what runs, and how far it says it is."""
    running = [job["_id"] for job in db.find("job_live", RUNNING, (), limit=limit, hint="live_running")]
    notes = {note["_id"]: note for note in among(db, "run_notes", "_id", running, ("progress", "progress_message"))}
    return rows((notes.get(number, {}) | {"_id": number} for number in running), ("_id", "progress", "progress_message"))


@statement
def ended_since(db: Db, *, since: int, limit: int) -> list[Row]:
    """Return the numbers of the last ends of each type since a moment, the last first, as JSON: both steps read the index alone."""
    lately = {"job_type": {"$gte": ""}, "finished_at": {"$gte": since}}
    stages: list[Document] = [{"$match": lately}, {"$sort": {"job_type": 1}}, {"$group": {"_id": "$job_type"}}]
    types = [found["_id"] for found in db.aggregate("job_ends", stages, hint="ends_finished")]
    ends = answers(db, [_last_of(job_type, since, limit) for job_type in types])
    return [(msgspec.json.encode([end["_id"] for end in own]).decode(),) for own in ends]


def _last_of(job_type: str, since: int, limit: int) -> Question:
    return "job_ends", [
        {"$match": {"job_type": job_type, "finished_at": {"$gte": since}}},
        {"$sort": {"job_type": -1, "finished_at": -1}},
        {"$limit": limit},
        {"$project": {"_id": 1}},
    ]


@statement
def definition_changes(db: Db, *, after: int, limit: int) -> list[Row]:
    """Return what people changed about what jobs are made from."""
    columns = ("_id", "at", "organization_id", "action", "subject", "subject_id")
    where = {"_id": {"$gt": after}, "subject": {"$in": list(DEFINITIONS)}}
    return rows(db.find("audit", where, columns, sort=[("_id", 1)], limit=limit, hint="_id_"), columns)


@statement
def count_queued(db: Db) -> list[Row]:
    """Return how many jobs are QUEUED."""
    return [(db.size("job_live", QUEUED, hint="live_tail"),)]


@statement
def count_queued_line(db: Db, *, priority: int, organization_id: str) -> list[Row]:
    """Return how many jobs of a priority and organization are QUEUED."""
    return [(db.size("job_live", {**QUEUED, "priority": priority, "organization_id": organization_id}, hint="live_tail"),)]
