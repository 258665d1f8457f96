"""Executions of Monque's documents as chains of the store: each is written when it is over, and nothing of it waits here."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec

from rota.compat.monque_claims import End
from rota.faces.monque import DocumentStatus
from rota.model.decide import Successor, Transition, decide
from rota.model.states import Status
from rota.model.values import SECOND, Claimed, NewRow, instant
from rota.ports.executor import Ended
from rota.ports.store import Adopted, Past

if TYPE_CHECKING:
    from rota.ports.clock import Ids

LEFT = "Monque retries its document"
TAKEN_OVER = "its document was taken over by another process while it ran: the outcome was not kept there"
MANY = 1_000_000
"""A budget that no document uses up: Monque counts its own."""

_CHANCE = Random(0)  # noqa: S311 - `decide` asks for one; the delay that it draws is not used


def record(row: NewRow, ended: Ended, end: End, *, refused: bool, ids: Ids) -> Adopted:
    """Return an execution as the store takes it in: a chain that has ended.

    A failure that Monque will retry is FAILED, followed by an attempt that is SKIPPED: the next execution is a chain of its own.
    """
    job = ended.job
    transition = Transition(Status.CANCELLED, reason=TAKEN_OVER) if refused else _transition(job, ended, end)
    started_at = ended.at - round(ended.seconds * SECOND)
    run_id, successor_id = ids.take(2, started_at)
    past = Past(
        run_id=job.run_id or run_id,
        started_at=started_at,
        ended_at=ended.at,
        failures=job.failures,
        transition=transition,
        successor_id=successor_id if transition.successor else "",
        left=LEFT if transition.successor else None,
        log_path=ended.log_path,
    )
    return Adopted(row=row, created_at=started_at, past=past)


def _transition(job: Claimed, ended: Ended, end: End) -> Transition:
    budget = 0 if end.status is DocumentStatus.FAILED else MANY
    transition = decide(msgspec.structs.replace(job, max_retries=budget, max_crashes=MANY), ended.outcome, ended.at, _CHANCE)
    if transition.successor is not None:
        due_at = ended.at if end.next_run_at is None else instant(end.next_run_at)
        transition.successor = Successor(due_at, transition.successor.failures, crashes=0, snoozes=0)
    return transition
