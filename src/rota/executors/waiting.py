"""Jobs waiting for a slot: a deque whose ends are atomic, so whoever pops a job owns it. Only the engine's thread adds."""

from __future__ import annotations

from collections import deque

from rota.model.values import Claimed
from rota.ports.clock import Clock


def is_late(job: Claimed, clock: Clock) -> bool:
    """Say whether a job of a rate-limited type may not start any more: it is to be given back."""
    return 0 < job.start_by < clock.monotonic()


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
