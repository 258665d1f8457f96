"""What executors share: jobs that wait for a slot, how a handler ends that was asked to stop, and copies of the process that it forks."""

from __future__ import annotations

import os
from collections import deque
from typing import Protocol, assert_never
from weakref import WeakSet

from rota.model.decide import CUT_OFF_ERROR, Completed, Interrupted, Outcome, Released, TimedOut
from rota.model.values import Claimed
from rota.ports.clock import Clock
from rota.ports.executor import StopReason


def is_late(job: Claimed, clock: Clock) -> bool:
    """Say whether a job of a rate-limited type may not start any more: it is to be given back."""
    return 0 < job.start_by < clock.monotonic()


# ---- jobs that wait for a slot: a deque whose ends are atomic, so whoever pops a job owns it. Only the engine's thread adds. ----


def take_all(waiting: deque[Claimed]) -> list[Claimed]:
    """Take every job that nobody has taken yet, in order."""
    taken: list[Claimed] = []
    while True:
        try:
            taken.append(waiting.popleft())
        except IndexError:
            return taken


def take_one(waiting: deque[Claimed], number: int) -> Claimed | None:
    """Take one job out of the middle; the others keep their order.

    Workers may find the deque empty for a moment, also if the job is not found in the end: wake them in any case.
    """
    if not any(job.number == number for job in tuple(waiting)):
        return None
    jobs = take_all(waiting)
    found = next((job for job in jobs if job.number == number), None)
    waiting.extendleft(job for job in reversed(jobs) if job is not found)
    return found


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


# ---- copies of the process that a handler made by `os.fork()`. One that comes back from its handler, as it does if it could not become
# another program, is no worker: the original speaks for both. It must not take up what waits here, which would then run twice, and it must
# not stay, with all that the original holds open. ----


class Busy(Protocol):
    """An executor whose threads take up work by themselves."""

    def forget(self) -> None:
        """Have nothing to do any more. Other threads are gone, with the locks that they held."""


_busy: WeakSet[Busy] = WeakSet()


def forget_in_copies(executor: Busy) -> None:
    """See to it that copies made from now on have nothing of this executor's to do."""
    _busy.add(executor)


def end_copy(pid: int) -> None:
    """End this process at once unless it is the one that had this number; nothing that it has copied is flushed twice."""
    if os.getpid() != pid:
        os._exit(0)


def _forget() -> None:
    for executor in tuple(_busy):
        executor.forget()


os.register_at_fork(after_in_child=_forget)
