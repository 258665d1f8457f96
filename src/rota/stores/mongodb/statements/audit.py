"""Entries of the audit trail: what people did, and the results of audited runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows
from rota.stores.mongodb.statements.jobs import chains

FACTS = ("organization_id", "job_id", "attempt", "owner", "run_as", "template_id", "schedule_id")
ENDS = ("finished_at", "status", "cancel_requested_by")
ENTRY = (
    "_id",
    "at",
    "actor",
    "organization_id",
    "action",
    "subject",
    "subject_id",
    "before",
    "after",
    "job_uuid",
    "job_run_uuid",
    "outcome",
)

# ---- writing ---------------------------------------------------------------------------------------------------------


@statement
def audit(
    db: Db,
    *,
    at: int,
    actor: str,
    organization_id: str | None,
    action: str,
    subject: str,
    subject_id: str,
    before: str | None,
    after: str | None,
    job_uuid: str | bytes | None,
    job_run_uuid: str | bytes | None,
    outcome: str,
) -> int:
    """Record what a person did."""
    entry = document(
        at=at,
        actor=actor,
        organization_id=organization_id,
        action=action,
        subject=subject,
        subject_id=subject_id,
        before=before,
        after=after,
        job_uuid=ident(job_uuid),
        job_run_uuid=ident(job_run_uuid),
        outcome=outcome,
    )
    return _add(db, [entry])


@statement
def audit_runs(db: Db, *, numbers: Sequence[int], ends: Sequence[tuple[str, str, str]], every: int) -> int:
    """Record the results of runs; `ends` has the action and the outcome of each status, `every` is 0 for runs of jobs in SQL only."""
    words = {status: (action, outcome) for status, action, outcome in ends}
    facts = {each["_id"]: each for each in db.find("job_facts", {"_id": {"$in": list(numbers)}}, FACTS)}
    if not every:
        in_sql = _templates_in_sql(db, facts.values())
        facts = {number: each for number, each in facts.items() if each.get("template_id") in in_sql}
    if not facts:
        return 0
    runs = db.find("job_ends", {"_id": {"$in": list(facts)}, "status": {"$in": list(words)}}, ENDS, sort=[("_id", 1)])
    return _add(db, [_entry(facts[run["_id"]], run, *words[run["status"]]) for run in runs])


def _templates_in_sql(db: Db, facts: Iterable[Document]) -> set[str]:
    ids = {each["template_id"] for each in facts if "template_id" in each}
    return {each["_id"] for each in db.find("templates", {"_id": {"$in": list(ids)}, "kind": {"$ne": "python"}}, ())} if ids else set()


def _entry(fact: Document, run: Document, action: str, outcome: str) -> Document:
    by = run.get("cancel_requested_by") if run["status"] == "CANCELLED" else fact.get("run_as")
    return document(
        at=run["finished_at"],
        actor=by or fact["owner"],
        organization_id=fact["organization_id"],
        action=action,
        subject="job",
        subject_id=fact["job_id"],
        after=msgspec.json.encode({"status": run["status"], "attempt": fact["attempt"]}).decode(),
        job_uuid=fact.get("schedule_id"),
        job_run_uuid=fact["job_id"],
        outcome=outcome,
    )


def _add(db: Db, entries: list[Document]) -> int:
    if not entries:
        return 0
    first = db.next_numbers("audit", len(entries))
    return db.insert("audit", *({"_id": number, **entry} for number, entry in enumerate(entries, first)))


# ---- reading: each trail goes from the newest entry before a place on ---------------------------------------------------


@statement
def audit_trail(db: Db, *, organization_id: str | None, subject: str | None, before_id: int, limit: int) -> list[Row]:
    """Return entries of all kinds, or about one kind of subject."""
    return _entries(db, document(subject=subject, organization_id=organization_id), before_id, limit, along="_id_")


@statement
def audit_of_action(db: Db, *, action: str, organization_id: str | None, subject: str | None, before_id: int, limit: int) -> list[Row]:
    """Return entries about one action."""
    where = document(action=action, subject=subject, organization_id=organization_id)
    return _entries(db, where, before_id, limit, along="audit_action")


@statement
def audit_of_job(db: Db, *, job_uuid: str | bytes, organization_id: str | None, before_id: int, limit: int) -> list[Row]:
    """Return entries about a schedule and its jobs."""
    where = document(job_uuid=ident(job_uuid), organization_id=organization_id)
    return _entries(db, where, before_id, limit, along="audit_job")


@statement
def audit_of(db: Db, *, subject: str, subject_id: str, organization_id: str | None, before_id: int, limit: int) -> list[Row]:
    """Return entries about one subject."""
    where = document(subject=subject, subject_id=subject_id, organization_id=organization_id)
    return _entries(db, where, before_id, limit, along="audit_subject")


@statement
def audit_of_chain(db: Db, *, subject: str, subject_id: str, organization_id: str | None, before_id: int, limit: int) -> list[Row]:
    """Return entries about a chain: changes are filed under the attempt that was live."""
    job_id = subject_id.lower()
    fact = db.first("job_facts", {"job_id": job_id}, ("root_id",))
    root = job_id if fact is None else fact["root_id"]
    attempts = {attempt["job_id"] for attempt in chains(db, [root], ("job_id", "root_id", "attempt"))[root]}
    where = document(subject=subject, subject_id={"$in": sorted({job_id, root} | attempts)}, organization_id=organization_id)
    return _entries(db, where, before_id, limit, along="audit_subject")


def _entries(db: Db, where: Document, before_id: int, limit: int, *, along: str) -> list[Row]:
    return rows(db.find("audit", where | {"_id": {"$lt": before_id}}, ENTRY, sort=[("_id", -1)], limit=limit, hint=along), ENTRY)
