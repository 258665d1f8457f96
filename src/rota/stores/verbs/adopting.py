"""Taking in what another system has begun, in SQL: enqueued, started and ended as it was there, inside one move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.model.gate import Actor
from rota.model.states import Status
from rota.model.values import Enqueued, Instant
from rota.ports.store import Adopted
from rota.ports.turns import Ending, Turned
from rota.stores.verbs import intake
from rota.stores.verbs.db import Db
from rota.stores.verbs.endings import end_waiting, finish
from rota.stores.verbs.verbs import audit

CANCELLED_THERE = "cancelled before it was imported"

_encode = msgspec.json.Encoder().encode


def adopt(db: Db, jobs: Sequence[Adopted], adopter_id: str, actor: Actor, now: Instant) -> list[Enqueued]:
    """Write each job and the attempt behind it; those that are here already stay as they are."""
    found: list[Enqueued] = []
    begun: list[tuple[int, Adopted]] = []
    cancelled: dict[Instant, list[int]] = {}
    for job in jobs:
        entered = _enter(db, job)
        found.append(entered)
        if job.past is not None and not entered.existing:
            begun.append((entered.number, job))
        if job.cancelled_at is not None and not entered.existing:
            cancelled.setdefault(job.cancelled_at, []).append(entered.number)
    for at, numbers in cancelled.items():
        end_waiting(db, numbers, Status.CANCELLED, at, reason=CANCELLED_THERE, actor=actor.name, report=False)
    if begun:
        _live_through(db, begun, adopter_id, now)
    added = sum(not each.existing for each in found)
    if added:
        audit(db, actor, now, "job.adopt", ("import", adopter_id), after={"jobs": added})
    return found


def _enter(db: Db, job: Adopted) -> Enqueued:
    """Enqueue a job as of its making. One whose chain has ended must not be kept out by who holds its key today."""
    # What has an attempt behind it was ready once: it is born QUEUED, or it could not be started.
    row = job.row if job.past is None else msgspec.structs.replace(job.row, run_at=job.created_at)
    (entered,) = intake.enqueue(db, [row], job.created_at)
    held_by_another = entered.existing and entered.job_id != row.job_id
    is_over = job.cancelled_at is not None or (job.past is not None and job.past.transition.successor is None)
    if held_by_another and is_over:
        (entered,) = intake.enqueue(db, [msgspec.structs.replace(row, unique_key=None)], job.created_at)
    return entered


def _live_through(db: Db, begun: list[tuple[int, Adopted]], adopter_id: str, now: Instant) -> None:
    rows: list[tuple[Any, ...]] = []
    endings: list[Ending] = []
    for number, job in begun:
        past = job.past
        assert past is not None  # noqa: S101 - the caller looked
        rows.append((number, past.run_id, past.started_at, past.failures))
        endings.append(Ending(number, past.ended_at, past.transition, past.transition, past.successor_id))
    db.adopt(_encode(rows).decode(), adopter_id)
    # What another system has done is no news.
    finish(db, endings, now, Turned(), worker_id=bytes.fromhex(adopter_id), tell=False)
