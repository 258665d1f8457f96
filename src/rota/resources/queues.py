"""Queues: jobs in the order in which they will be claimed."""

from __future__ import annotations

import builtins

from rota.model.checks import whole
from rota.model.gate import Right
from rota.model.shapes import Limit
from rota.model.values import Job
from rota.operation import Ask, Resource, operation


class Queues(Resource):
    """The queues of the store."""

    __slots__ = ()

    @operation(Right.READ_STATS, http="GET /queue", cli="queue")
    def jobs(self, ask: Ask, *, limit: Limit = 100) -> builtins.list[Job]:
        """Return the QUEUED jobs in the order in which they will be claimed."""
        return ask.store.queue(limit=whole("limit", limit, least=1), scope=ask.scope)
