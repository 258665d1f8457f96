"""Queues, and the jobs in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.model.lanes import QueueInfo
from rota.model.values import Job
from rota.surfaces.cli.output import age, compact, escaped, show_table, table
from rota.surfaces.cli.views import View

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called


def show_list(queues: Sequence[QueueInfo], _called: Called) -> None:
    """Print queues with the jobs that wait and the workers that serve them."""
    rows = table("queue", "waiting", "oldest", "running", "workers", "state", right=("waiting", "running", "workers"), gives=("queue",))
    for queue in queues:
        waiting = f"{'at least ' if queue.at_least else ''}{queue.waiting:,}"
        state = "paused" if queue.paused else "not served" if queue.waiting and not queue.workers else ""
        rows.add_row(escaped(queue.name), waiting, age(queue.oldest), f"{queue.running:,}", str(queue.workers), state)
    show_table(rows, "There are no queues.")


def show_jobs(jobs: Sequence[Job], _called: Called) -> None:
    """Print QUEUED jobs in the order in which they will be claimed."""
    columns = ("place", "number", "type", "priority", "position", "queued", "held by", "params")
    rows = table(*columns, right=("place", "priority", "position"), gives=("type", "held by", "params"))
    for place, job in enumerate(jobs, 1):
        order = (str(job.priority), str(job.position), age(job.queued_at))
        rows.add_row(str(place), job.number, escaped(job.job_type), *order, escaped(job.held or ""), escaped(compact(job.params)))
    show_table(rows, "The queue is empty.")


VIEWS: dict[str | type, View] = {"queue list": View(show_list), "queue jobs": View(show_jobs)}
