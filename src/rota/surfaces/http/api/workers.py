"""Workers: the processes that run jobs."""

from __future__ import annotations

from rota.model.values import WorkerInfo
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.keyset import Cursor, Limit, cut
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives, page_of

router = strict_router("Workers", "/workers")


@router.get("", summary="List workers", responses=gives(page_of(WorkerInfo)))
def find(rota: Served, who: Who, *, limit: Limit = 100, cursor: Cursor = None) -> Answer:
    """Return the workers that are registered and not ended, oldest first. They serve all organizations: only a system manager sees them."""
    return Answer(cut(sorted(rota.acting_as(who).workers.list(), key=_place), _place, limit=limit, cursor=cursor))


def _place(worker: WorkerInfo) -> tuple[str, str]:
    return worker.started_at.isoformat(timespec="microseconds"), worker.id
