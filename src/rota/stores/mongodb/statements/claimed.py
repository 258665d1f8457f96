"""Jobs as a worker claims them: rows in the order of `rota.model.values.Claimed`, from live jobs or ends, and what is known of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rota.stores.mongodb.db import Db
from rota.stores.mongodb.documents import Document, Row
from rota.stores.mongodb.statements.joining import among

HEAD = ("job_type", "origin", "organization_id")
RULES = ("attempt", "failures", "crashes", "snoozes", "max_retries", "max_crashes", "backoff", "timeout", "executor")
SLIM = ("job_id", "root_id", *HEAD, *RULES, "owner", "lane")
"""The facts without what may be large, for jobs that are only looked at."""


def claimed_rows(db: Db, jobs: Sequence[Document], *, slim: bool = False) -> list[Row]:
    """Return rows for live or ended jobs, in their order. run_id and started_at are filled in by the caller."""
    facts = {fact["_id"]: fact for fact in among(db, "job_facts", "_id", [job["_id"] for job in jobs], SLIM if slim else None)}
    retries = [fact for fact in facts.values() if fact["attempt"] > 1]
    roots, checkpoints = _before(db, retries, slim=slim) if retries else ({}, {})
    found: list[Row] = []
    for job in jobs:
        fact = facts.get(job["_id"])
        if fact is not None:
            found.append(_row(job, fact, roots, checkpoints))
    return found


def _row(job: Document, fact: Document, roots: dict[str, int], checkpoints: dict[int, str]) -> Row:
    number, get = fact["_id"], fact.get
    return (
        number,
        fact["job_id"],
        fact["root_id"],
        number if fact["attempt"] == 1 else roots.get(fact["root_id"]),
        "",
        *[get(column) for column in HEAD],
        get("params", ""),
        job["priority"],
        job["position"],
        *[get(column) for column in RULES],
        0,
        checkpoints.get(number),
        fact["owner"],
        get("meta"),
        get("lane", 0),
    )


def as_json(values: object) -> list[Row]:
    """Return one row with one JSON text."""
    return [(msgspec.json.encode(values).decode(),)]


def _before(db: Db, retries: Sequence[Document], *, slim: bool) -> tuple[dict[str, int], dict[int, str]]:
    """Return the numbers of the first attempts of chains by their ids, and what the last run before each attempt left behind."""
    wanted = {fact["root_id"] for fact in retries}
    if not slim:
        wanted |= {fact["retry_of"] for fact in retries if "retry_of" in fact}
    attempts = _attempts(db, wanted)
    roots = {job_id: attempt["_id"] for job_id, attempt in attempts.items()}
    return roots, {} if slim else _checkpoints(db, retries, attempts)


def _attempts(db: Db, job_ids: Iterable[str]) -> dict[str, Document]:
    return {fact["job_id"]: fact for fact in among(db, "job_facts", "job_id", job_ids, ("job_id", "attempt", "retry_of"))}


def _checkpoints(db: Db, retries: Sequence[Document], attempts: dict[str, Document]) -> dict[int, str]:
    """Return the checkpoints by the numbers of the attempts that go on from them. One that ended without a run is passed over."""
    left: dict[int, str] = {}
    before = {fact["_id"]: attempts[fact["retry_of"]] for fact in retries if fact.get("retry_of") in attempts}
    while before:
        numbers = [attempt["_id"] for attempt in before.values()]
        notes = {
            note["_id"]: note["checkpoint"]
            for note in among(db, "run_notes", "_id", numbers, ("checkpoint",), checkpoint={"$exists": True})
        }
        left |= {number: notes[attempt["_id"]] for number, attempt in before.items() if attempt["_id"] in notes}
        further = {number: attempt for number, attempt in before.items() if attempt["attempt"] > 1 and number not in left}
        unstarted = {end["_id"] for end in among(db, "job_ends", "_id", [attempt["_id"] for attempt in further.values()], run_id=None)}
        further = {number: attempt for number, attempt in further.items() if attempt["_id"] in unstarted}
        attempts = _attempts(db, {attempt["retry_of"] for attempt in further.values()}) if further else {}
        before = {number: attempts[attempt["retry_of"]] for number, attempt in further.items() if attempt["retry_of"] in attempts}
    return left
