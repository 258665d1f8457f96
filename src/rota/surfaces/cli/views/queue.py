"""Queues, and the jobs in them."""

from __future__ import annotations

from rota.model.lanes import QueueInfo
from rota.surfaces.cli.views import View, listing


def _state(queue: QueueInfo) -> str:
    return "paused" if queue.paused else "not served" if queue.waiting and not queue.workers else ""


QUEUES = listing(
    "There are no queues.",
    "queue=name~ waiting> oldest running> workers> state",
    waiting=lambda queue: f"{'at least ' if queue.at_least else ''}{queue.waiting:,}",
    state=_state,
)
JOBS = listing("The queue is empty.", "number type=job_type~ priority> position> queued=queued_at held_by=held~ params~")
VIEWS: dict[str | type, View] = {"queue list": View(QUEUES), "queue jobs": View(JOBS)}
