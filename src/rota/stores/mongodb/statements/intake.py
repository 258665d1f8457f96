"""Adding jobs: for each a document that never changes, and one that says where the job stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, document, ident
from rota.stores.mongodb.documents import ids as unpacked
from rota.stores.mongodb.errors import Refused
from rota.stores.mongodb.statements.joining import in_chunks

MOST = 1 << 62
PIECE = 1000
"""Documents that are sent at a time."""
FACTS = (
    *("organization_id", "job_type", "origin", "unique_key", "job_hash", "sequence_number", "owner", "max_retries", "max_crashes"),
    *("backoff", "timeout", "executor", "meta", "lane", "tags"),
)
LIVE = (
    *("organization_id", "job_type", "unique_key", "status", "held", "blockers", "priority", "run_at", "expires_at", "queued_at", "lane"),
)
"""The columns of facts and of live jobs that verbs pass under the same name."""
BOUNDS = {
    "priority": (0, 100),
    "job_type": (1, 255),
    "unique_key": (1, 1024),
    "max_retries": (0, MOST),
    "max_crashes": (1, MOST),
    "timeout": (0, MOST),
}
"""Least and most of a number, or of the length of a text."""
NAMES = ("job_id", "root_id", "schedule_id")
FIRST = {"attempt": 1, "failures": 0, "crashes": 0, "snoozes": 0}


@statement
def insert_job(db: Db, *, ids: bytes, params: str, count: int, **values: Any) -> Sequence[int]:
    """Add a job and return its number."""
    return insert_jobs(db, ids=ids, bodies=[params], gap=0, count=count, **values)


@statement
def insert_jobs(db: Db, *, ids: bytes, bodies: Sequence[str], gap: int, count: int = 0, **values: Any) -> Sequence[int]:
    """Add jobs of one shape and return their numbers."""
    del count
    return _add_alike(
        db, [{**_named(job_id), "params": params} for job_id, params in zip(unpacked(ids), bodies, strict=True)], values, gap=gap
    )


@statement
def insert_jobs_due(
    db: Db, *, ids: bytes, schedules: bytes, bodies: Sequence[str], due_at: int | None, gap: int, count: int, **values: Any
) -> Sequence[int]:
    """Add jobs of schedules, of one shape and one due time, and return their numbers."""
    del count
    due = document(due_at=due_at, run_as=values["run_as"])
    new = [
        {**_named(job_id), **due, "schedule_id": schedule_id, "params": params}
        for job_id, schedule_id, params in zip(unpacked(ids), unpacked(schedules), bodies, strict=True)
    ]
    return _add_alike(db, new, values, gap=gap)


@statement
def insert_jobs_each(db: Db, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
    """Add jobs of any shapes and return their numbers; those of due times have three values more."""
    names = [_named(values["ids"].hex()) | document(schedule_id=ident(values.get("schedule_id"))) for values in rows]
    due = [document(due_at=values.get("due_at"), run_as=values.get("run_as")) for values in rows]
    facts = [_facts_of(values) | own | when | {"params": values["params"]} for values, own, when in zip(rows, names, due, strict=True)]
    live = [_live_of(values) | own | {"position": values["position"]} for values, own in zip(rows, names, strict=True)]
    return _add(db, facts, live)


def _add_alike(db: Db, new: Sequence[Document], values: Mapping[str, Any], *, gap: int) -> Sequence[int]:
    """Add jobs that have all in common but what is given of each, and their positions."""
    facts, live, position = _facts_of(values), _live_of(values), values["position"]
    own_live = ({name: own[name] for name in NAMES if name in own} for own in new)
    return _add(
        db,
        [own | facts for own in new],
        [own | live | {"position": position + gap * place} for place, own in enumerate(own_live)],
    )


def _add(db: Db, facts: Sequence[Document], live: Sequence[Document]) -> Sequence[int]:
    """Add the documents of new jobs, in pieces, and return the numbers that they are given."""
    first = db.next_numbers("job_numbers", len(facts))
    for collection, documents in (("job_facts", facts), ("job_live", live)):
        for piece in in_chunks(enumerate(documents, first), PIECE):
            db.insert(collection, *({"_id": number, **each} for number, each in piece))
    return range(first, first + len(facts))


def _named(job_id: str) -> Document:
    return {"job_id": job_id, "root_id": job_id}


def _refuse_unfit(values: Mapping[str, Any]) -> None:
    """Refuse what no job may have, before anything is sent: a refusal by the server would undo the whole transaction."""
    for column, (least, most) in BOUNDS.items():
        value = values[column]
        size = len(value) if isinstance(value, str) else value
        if size is not None and not least <= size <= most:
            raise Refused(f"{column} is {size:,} of a job, and has to be between {least:,} and {most:,}: {str(value)[:80]!r}")


def _facts_of(values: Mapping[str, Any]) -> Document:
    _refuse_unfit(values)
    given = {column: values[column] for column in FACTS}
    tied = {"template_id": ident(values["template_id"]), "group_id": ident(values["group_id"]), "created_at": values["now"]}
    return FIRST | document(**given, **tied)


def _live_of(values: Mapping[str, Any]) -> Document:
    return document(**{column: values[column] for column in LIVE}, attempt=1, created_at=values["now"])
