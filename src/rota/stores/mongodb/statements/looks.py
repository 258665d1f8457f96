"""What turns and ends ask of the whole store at once: one trip to the server, in which each question is a look along an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, ident
from rota.stores.mongodb.schema import IN_SQL, PENDING, QUEUED, RUNNING, THERE
from rota.stores.mongodb.statements.claimed import as_json
from rota.stores.mongodb.statements.questions import ANY, Question, answers

FIRST: Document = {"$limit": 1}
PRIORITIES = list(range(101))
AHEAD_MAX = 2000
"""Jobs that come along with a look: all of its answers share one document."""
LARGE = ["reason", "unique_key"]
"""What may be large of a live job. It is not kept when the job completes."""


def _any(collection: str, where: Document) -> Question:
    return collection, [{"$match": where}, FIRST, {"$project": {"_id": 1}}]


def _least(collection: str, column: str, where: Document) -> Question:
    return collection, [{"$match": where}, {"$sort": {column: 1}}, FIRST, {"$project": {column: 1}}]


DEFINITIONS: Question = ("meta", [{"$match": ANY}])
ENDED: Question = ("ended_roots", [FIRST])
OVER_ORGANIZATION_LIMIT = _any("job_live", QUEUED | {"held": {"$gte": "organization-limit:", "$lt": "organization-limit;"}})
OVER_TEMPLATE_LIMIT = _any("job_live", QUEUED | {"held": {"$gte": "template-limit:", "$lt": "template-limit;"}})
PARKED_BEFORE = _any("job_live", QUEUED | {"held": {"$gte": "", "$lt": "direct"}})
PARKED_BEHIND = _any("job_live", QUEUED | {"held": {"$gt": "direct"}})
# Each open edge has a parent: asked for it, the server walks the index of open ones.
OPEN_EDGES = _any("job_edges", {"resolved_at": None, "parent_root": {"$gte": ""}})
ENDPOINTS = _any("endpoints", {"organization_id": {"$gt": ""}, "state": "ENABLED", "dropped_at": None})
AUDITED = _any("templates", IN_SQL)
NEXT_EXPIRY = _least("job_live", "expires_at", {"expires_at": THERE, "started_at": None})
# Each priority has its jobs in the order of time: the server merges them.
NEXT_DUE = _least("job_live", "run_at", PENDING | {"blockers": 0, "priority": {"$in": PRIORITIES}})
DIRECT: Question = (
    "direct_reservations",
    [
        {"$match": {"status": "ACTIVE"}},
        {"$lookup": {"from": "job_live", "localField": "job_number", "foreignField": "_id", "as": "job"}},
        {"$project": {"job.status": 1, "job.lane": 1}},
    ],
)


@statement
def turn_look(db: Db, worker_id: bytes, done: Sequence[int]) -> Row:
    """Return what a turn asks first. Live jobs that it is about to end come along."""
    own = {"given_up": _any("workers", {"_id": ident(worker_id), "ended_at": THERE})}
    ending = RUNNING | {"worker_id": ident(worker_id), "_id": {"$in": list(done)}}
    if 0 < len(done) <= AHEAD_MAX:
        own["ending"] = ("job_live", [{"$match": ending}, {"$unset": LARGE}])
    seen = _ask(db, _TURN | own)
    if "ending" in seen:
        db.read_ahead(ending, seen["ending"])
    return (
        _value(seen["definitions"], "value"),
        bool(seen["given_up"]),
        bool(seen["ended"]),
        _value(seen["next_expiry"], "expires_at"),
        _value(seen["next_due"], "run_at"),
        *_meanings(seen),
        bool(seen["endpoints"]),
        bool(seen["audited"]),
    )


@statement
def ends_look(db: Db) -> list[Row]:
    """Return what ends mean to others: to webhooks, to who is parked, to who waits, to a direct execution, to the audit trail."""
    seen = _ask(db, _ENDS)
    return [(bool(seen["endpoints"]), *_meanings(seen), bool(seen["audited"]))]


@statement
def peek(db: Db, *, lanes: Sequence[int], worker_id: str | bytes) -> list[Row]:
    """Return whether a turn is worth its commit."""
    own: dict[str, Question] = {
        "ready": _any("job_live", QUEUED | {"held": None, "lane": {"$in": list(lanes)}}),
        "cancelling": (
            "job_live",
            [{"$match": RUNNING | {"worker_id": ident(worker_id), "cancel_requested_at": THERE}}, {"$project": {"_id": 1}}],
        ),
    }
    seen = _ask(db, _PEEK | own)
    direct = [job for reservation in seen["direct"] for job in reservation["job"]]
    return [
        (
            _value(seen["definitions"], "value"),
            bool(seen["ready"]),
            any(job["status"] == "QUEUED" and job.get("lane") in lanes for job in direct),
            bool(seen["parked_before"] or seen["parked_behind"]),
            bool(seen["ended"]),
            _value(seen["next_expiry"], "expires_at"),
            _value(seen["next_due"], "run_at"),
            as_json([job["_id"] for job in seen["cancelling"]])[0][0],
        )
    ]


_ENDS: dict[str, Question] = {
    "over_organization_limit": OVER_ORGANIZATION_LIMIT,
    "over_template_limit": OVER_TEMPLATE_LIMIT,
    "open_edges": OPEN_EDGES,
    "direct": DIRECT,
    "endpoints": ENDPOINTS,
    "audited": AUDITED,
}
_SOON: dict[str, Question] = {"definitions": DEFINITIONS, "ended": ENDED, "next_expiry": NEXT_EXPIRY, "next_due": NEXT_DUE}
_TURN = _ENDS | _SOON
_PEEK = _SOON | {"direct": DIRECT, "parked_before": PARKED_BEFORE, "parked_behind": PARKED_BEHIND}


def _ask(db: Db, questions: dict[str, Question]) -> dict[str, list[Document]]:
    """Return what each question found."""
    return dict(zip(questions, answers(db, list(questions.values())), strict=True))


def _meanings(seen: dict[str, list[Document]]) -> tuple[bool, bool, str | None]:
    """Return whether anybody is parked over a limit, whether anybody waits for a chain, and the status of the direct execution.

    That is '' once its job has ended, and None if there is no reservation.
    """
    over_limit = bool(seen["over_organization_limit"] or seen["over_template_limit"])
    direct = [next((job["status"] for job in reservation["job"]), "") for reservation in seen["direct"]]
    return over_limit, bool(seen["open_edges"]), direct[0] if direct else None


def _value(found: list[Document], column: str) -> Any:
    return found[0][column] if found else None
