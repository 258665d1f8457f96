"""What follows from the end of an attempt: one pure function, one table.

`decide(job, outcome, now, rng)` says how job and run end and whether a successor is born, and nothing else does:
the live engine, recovery and the tests all ask it. The table it follows is in `docs/internals/states.md`.
"""

from __future__ import annotations

from random import Random
from typing import TypeAlias, assert_never

import msgspec

from rota.model.backoff import Backoff
from rota.model.lanes import Takes
from rota.model.states import ErrorType, Status
from rota.model.values import SECOND, Claimed, Instant, Origin

CRASH_ERROR = "Scheduler crash recovery"
INTERRUPTED_ERROR = "Interrupted by shutdown"
CUT_OFF_ERROR = "Interrupted: its worker could not renew its lease"


class Completed(msgspec.Struct):
    """The handler returned; `result` is JSON text or None."""

    result: str | None = None
    message: str | None = None
    """What a runner says of it, such as "3 rows affected"."""
    rows_affected: int | None = None


class Failed(msgspec.Struct):
    """The handler raised, or asked for a Retry."""

    error: str
    permanent: bool = False
    after_s: float | None = None
    traceback: str | None = None
    error_code: str | None = None
    exit_code: int | None = None
    exception_type: str | None = None
    """The class of the exception, as a traceback names it: `ValueError`, `shop.OutOfStock`."""
    exception: BaseException | None = None
    """The exception itself, for the log, until the outcome has been written. It never leaves its process."""


class TimedOut(msgspec.Struct):
    """The handler ran longer than its timeout."""

    after_s: float


class Crashed(msgspec.Struct):
    """The process that ran the handler is gone."""

    error: str = CRASH_ERROR
    exit_code: int | None = None
    counts: bool = True
    """False: others are likelier to have caused it, and the job's budget of crashes is not charged."""


class Interrupted(msgspec.Struct):
    """The worker stopped the handler: the grace period of its shutdown was over, or it was cut off from the store."""

    error: str = INTERRUPTED_ERROR


class Released(msgspec.Struct):
    """Claimed, never started: the worker shut down first, or its handler does not take the job's parameters."""

    reason: str = "released"
    takes: Takes | None = None
    """The job's parameters, where they are why: its successor waits for a worker that takes them."""


class Snoozed(msgspec.Struct):
    """The handler put its job back without using the budget."""

    delay_s: float
    reason: str = "snoozed"


class Skipped(msgspec.Struct):
    """There was nothing to do."""

    reason: str


class Stopped(msgspec.Struct):
    """The handler ended because it was asked to (Cancelled reached it)."""

    error: str | None = None


Outcome: TypeAlias = Completed | Failed | TimedOut | Crashed | Interrupted | Released | Snoozed | Skipped | Stopped


class Successor(msgspec.Struct):
    """The next job of the chain. `in_place`: QUEUED now, at the same priority and position."""

    run_at: Instant
    failures: int
    crashes: int
    snoozes: int
    in_place: bool = False
    takes: Takes | None = None
    """Wait in the lane of these parameters; None: in the same lane."""


class Transition(msgspec.Struct):
    """How one attempt ends, as the store will write it in one move."""

    status: Status
    error: str | None = None
    error_type: ErrorType | None = None
    error_code: str | None = None
    traceback: str | None = None
    exit_code: int | None = None
    result: str | None = None
    result_message: str | None = None
    rows_affected: int | None = None
    reason: str | None = None
    successor: Successor | None = None


class Limits(msgspec.Struct, frozen=True):
    """Bounds that are settings of the engine rather than of the job."""

    snooze_floor_s: float = 1.0
    max_snoozes: int = 1000


DEFAULT_LIMITS = Limits()


def decide(job: Claimed, outcome: Outcome, now: Instant, rng: Random, limits: Limits = DEFAULT_LIMITS) -> Transition:
    """Return what the end of this attempt means for job, run and chain."""
    match outcome:
        case Completed(result=result, message=message, rows_affected=rows):
            return Transition(Status.COMPLETED, result=result, result_message=message, rows_affected=rows)
        case Failed():
            return _failed(job, outcome, now, rng)
        case TimedOut(after_s=after_s):
            return _timed_out(job, after_s, now, rng)
        case Crashed():
            return _crashed(job, outcome, now)
        case Interrupted(error=error):
            return _interrupted(job, error, now)
        case Released():
            return _released(job, outcome, now)
        case Snoozed():
            return _snoozed(job, outcome, now, limits)
        case Skipped(reason=reason):
            return Transition(Status.SKIPPED, reason=reason)
        case Stopped(error=error):
            return Transition(Status.CANCELLED, error=error, reason="cancelled")
        case _:
            assert_never(outcome)


def decide_cancelled(outcome: Outcome) -> Transition:
    """Return the end of an attempt whose chain was asked to stop: a result stands, everything else is CANCELLED."""
    match outcome:
        case Completed(result=result, message=message, rows_affected=rows):
            return Transition(Status.COMPLETED, result=result, result_message=message, rows_affected=rows)
        case Failed() | Crashed():
            return Transition(Status.CANCELLED, error=outcome.error, exit_code=outcome.exit_code, reason="cancelled")
        case _:
            return Transition(Status.CANCELLED, reason="cancelled")


def _failed(job: Claimed, failed: Failed, now: Instant, rng: Random) -> Transition:
    end = Transition(
        Status.DEAD_LETTER,
        error=failed.error,
        error_type=ErrorType.PERMANENT if failed.permanent else ErrorType.TRANSIENT,
        error_code=failed.error_code,
        traceback=failed.traceback,
        exit_code=failed.exit_code,
    )
    if not failed.permanent and _budget_left(job):
        end.status = Status.FAILED
        end.successor = _retry(job, now, rng, failed.after_s)
    return end


def _timed_out(job: Claimed, after_s: float, now: Instant, rng: Random) -> Transition:
    end = Transition(Status.DEAD_LETTER, error=f"timed out after {after_s:g} s", error_type=ErrorType.TIMEOUT)
    if _budget_left(job):
        end.status = Status.TIMED_OUT
        end.successor = _retry(job, now, rng, None)
    return end


def _crashed(job: Claimed, crashed: Crashed, now: Instant) -> Transition:
    end = Transition(Status.DEAD_LETTER, error=crashed.error, error_type=ErrorType.CRASH, exit_code=crashed.exit_code)
    crashes = job.crashes + crashed.counts
    if job.max_retries > 0 and crashes < job.max_crashes and not _is_direct(job):
        end.status = Status.FAILED
        end.successor = _in_place(job, now, crashes=crashes)
    return end


def _interrupted(job: Claimed, error: str, now: Instant) -> Transition:
    end = Transition(Status.DEAD_LETTER, error=error, error_type=ErrorType.INTERRUPTED)
    if job.max_retries > 0 and not _is_direct(job):
        end.status = Status.FAILED
        end.successor = _in_place(job, now, crashes=job.crashes)
    return end


def _released(job: Claimed, released: Released, now: Instant) -> Transition:
    if _is_direct(job):
        return Transition(Status.DEAD_LETTER, error=INTERRUPTED_ERROR, error_type=ErrorType.INTERRUPTED)
    successor = _in_place(job, now, crashes=job.crashes)
    successor.takes = released.takes
    return Transition(Status.SKIPPED, reason=released.reason, successor=successor)


def _snoozed(job: Claimed, snoozed: Snoozed, now: Instant, limits: Limits) -> Transition:
    if _is_direct(job):
        return Transition(Status.DEAD_LETTER, error="a direct execution can't snooze", error_type=ErrorType.PERMANENT)
    if job.snoozes >= limits.max_snoozes:
        error = f"snoozed {job.snoozes} times; max_snoozes is {limits.max_snoozes}"
        return Transition(Status.DEAD_LETTER, error=error, error_type=ErrorType.PERMANENT)
    delay_s = max(limits.snooze_floor_s, snoozed.delay_s)
    successor = Successor(now + round(delay_s * SECOND), job.failures, job.crashes, job.snoozes + 1)
    return Transition(Status.SKIPPED, reason=snoozed.reason, successor=successor)


def _budget_left(job: Claimed) -> bool:
    return job.failures < job.max_retries and not _is_direct(job)


def _is_direct(job: Claimed) -> bool:
    return job.origin == Origin.DIRECT


def _retry(job: Claimed, now: Instant, rng: Random, after_s: float | None) -> Successor:
    failures = job.failures + 1
    delay_s = _delay_s(job, failures, rng) if after_s is None else max(0.0, after_s)
    return Successor(now + round(delay_s * SECOND), failures, job.crashes, job.snoozes)


def _delay_s(job: Claimed, failures: int, rng: Random) -> float:
    try:
        backoff = backoff_of(job.backoff)
    except msgspec.DecodeError:
        # Its row is broken, and it is to be tried again all the same: as one whose template says nothing of it.
        backoff = Backoff()
    return backoff.delay(failures, rng)


def _in_place(job: Claimed, now: Instant, *, crashes: int) -> Successor:
    return Successor(now, job.failures, crashes, job.snoozes, in_place=True)


_backoffs = msgspec.json.Decoder(Backoff)


def backoff_of(text: str) -> Backoff:
    """Return the backoff a job carries as JSON."""
    return _backoffs.decode(text)
