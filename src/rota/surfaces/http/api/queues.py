"""Queues: lines of jobs that some workers serve and others do not."""

from __future__ import annotations

from rota.model.lanes import QueueInfo
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.keyset import Cursor, Limit, cut
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives, page_of

router = strict_router("Queues", "/queues")


@router.get("", summary="List queues", responses=gives(page_of(QueueInfo)))
def find(rota: Served, who: Who, *, limit: Limit = 100, cursor: Cursor = None) -> Answer:
    """Return the queues by name: what waits in each, what runs, how many live workers serve it, and whether it is paused.

    Queues serve all organizations: only a system manager sees them.
    """
    return Answer(cut(rota.acting_as(who).queues.list(), _place, limit=limit, cursor=cursor))


def _place(queue: QueueInfo) -> tuple[str, str]:
    return queue.name, ""
