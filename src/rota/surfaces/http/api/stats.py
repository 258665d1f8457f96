"""Statistics: a store at a glance."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from rota.model.values import Stats
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives

router = strict_router("Statistics", "/stats")


@router.get("", summary="Get statistics", responses=gives(Stats))
def get(
    rota: Served,
    who: Who,
    *,
    hours: Annotated[int | None, Query(ge=1, le=9600, description="How far averages look back; else the setting `stats_hours`.")] = None,
) -> Answer:
    """Return counts by state, priority and type, how long the oldest has waited, and how types fared lately: of what you may see."""
    return Answer(rota.acting_as(who).store.stats(hours=hours))
