"""The states of a job and the table of legal moves. Everything else follows it.

The store's triggers, the diagram in the docs and the tests are generated from, or checked against, `MOVES`.
"""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Where one job (one attempt) stands."""

    PENDING = "PENDING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    DEAD_LETTER = "DEAD_LETTER"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        """Say whether nothing leaves this state."""
        return self in TERMINAL


class RunStatus(StrEnum):
    """How a run ended. While it runs its status is None."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class GroupStatus(StrEnum):
    """What a group is, derived from the tails of its members' chains."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    PARTIAL = "PARTIAL"
    CANCELLED = "CANCELLED"


class ErrorType(StrEnum):
    """Why an attempt did not complete."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    TIMEOUT = "timeout"
    CRASH = "crash"
    INTERRUPTED = "interrupted"
    DEPENDENCY = "dependency"


BORN = frozenset({Status.PENDING, Status.QUEUED})

MOVES: dict[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.QUEUED, Status.CANCELLED, Status.SKIPPED}),
    Status.QUEUED: frozenset({Status.RUNNING, Status.CANCELLED, Status.SKIPPED}),
    Status.RUNNING: frozenset(
        {
            Status.COMPLETED,
            Status.FAILED,
            Status.TIMED_OUT,
            Status.DEAD_LETTER,
            Status.SKIPPED,
            Status.CANCELLED,
        }
    ),
}

TERMINAL = frozenset(set(Status) - set(MOVES))

# FAILED and TIMED_OUT are ends of an attempt, never of a chain: they are written only with a successor.
CHAIN_ENDS = TERMINAL - {Status.FAILED, Status.TIMED_OUT}

RETRYABLE_ENDS = frozenset({Status.DEAD_LETTER, Status.CANCELLED, Status.SKIPPED})
"""Ends after which a person may ask for one more attempt."""

RUN_END: dict[Status, RunStatus] = {
    Status.COMPLETED: RunStatus.COMPLETED,
    Status.FAILED: RunStatus.FAILED,
    Status.TIMED_OUT: RunStatus.FAILED,
    Status.DEAD_LETTER: RunStatus.FAILED,
    Status.SKIPPED: RunStatus.SKIPPED,
    Status.CANCELLED: RunStatus.CANCELLED,
}
"""What the run says when its job ends so."""


def is_legal(before: Status | None, after: Status) -> bool:
    """Say whether a job may go from `before` (None: it is being made) to `after`."""
    if before is None:
        return after in BORN
    return after in MOVES.get(before, frozenset())
