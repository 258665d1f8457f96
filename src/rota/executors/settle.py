"""What the end of a handler that was asked to stop is reported as."""

from __future__ import annotations

from typing import assert_never

from rota.model.decide import CUT_OFF_ERROR, Completed, Interrupted, Outcome, Released, Stopped, TimedOut
from rota.model.values import Claimed
from rota.ports.executor import StopReason


def settle(job: Claimed, outcome: Outcome, *, reason: StopReason | None, reached: bool, seconds: float) -> Outcome:
    """Return the outcome to report. `reached`: the wish to stop got into the handler before it ended."""
    match reason:
        case None | StopReason.CANCEL:
            return outcome
        case StopReason.TIMEOUT:
            return TimedOut(job.timeout) if reached or seconds >= job.timeout else outcome
        case StopReason.SHUTDOWN:
            return Interrupted() if reached and not isinstance(outcome, Completed) else outcome
        case StopReason.LEASE:
            return Interrupted(CUT_OFF_ERROR) if reached and not isinstance(outcome, Completed | Released) else outcome
        case _:
            assert_never(reason)


def forced(job: Claimed, reason: StopReason) -> Outcome:
    """Return the outcome of a handler that did not end by itself and was given up or killed."""
    match reason:
        case StopReason.CANCEL:
            return Stopped()
        case StopReason.TIMEOUT:
            return TimedOut(job.timeout)
        case StopReason.SHUTDOWN:
            return Interrupted()
        case StopReason.LEASE:
            return Interrupted(CUT_OFF_ERROR)
        case _:
            assert_never(reason)
