"""Queues: what waits in each, who serves it, and jobs in the order in which they will be claimed."""

from __future__ import annotations

import builtins
from typing import Annotated

from rota.model.checks import whole
from rota.model.gate import Right
from rota.model.lanes import QueueInfo, queue_of
from rota.model.shapes import Limit, Shape
from rota.model.values import Job
from rota.operation import Ask, Resource, operation

QueueName = Annotated[str, Shape("The queue's name.", "mail", "QUEUE")]


class Queues(Resource):
    """The queues of the store."""

    __slots__ = ()

    @operation(Right.OPERATE, http="GET /queues", cli="queue list")
    def list(self, ask: Ask) -> builtins.list[QueueInfo]:
        """Return the queues: what waits in each, what runs, and how many live workers serve it."""
        return ask.store.queues(look=ask.settings.metrics_count_max)

    @operation(Right.READ_STATS, http="GET /queue", cli="queue jobs")
    def jobs(self, ask: Ask, *, limit: Limit = 100) -> builtins.list[Job]:
        """Return the QUEUED jobs in the order in which they will be claimed."""
        return ask.store.queue(limit=whole("limit", limit, least=1), scope=ask.scope)

    @operation(Right.OPERATE, http="POST /queues/{name}/pause", cli="queue pause", status=204)
    def pause(self, ask: Ask, name: QueueName) -> None:
        """Start no jobs of a queue until it is resumed. Jobs that run already continue."""
        ask.store.pause("queue", queue_of("queue", name), actor=ask.who, now=ask.now)

    @operation(Right.OPERATE, http="POST /queues/{name}/resume", cli="queue resume", status=204)
    def resume(self, ask: Ask, name: QueueName) -> None:
        """End the pause of a queue."""
        ask.store.resume("queue", queue_of("queue", name), actor=ask.who, now=ask.now)
        ask.session.poke()
