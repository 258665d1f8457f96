"""The doctor: what is wrong with the store, and what would help."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from rota.model.findings import Finding
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives, list_of

router = strict_router("Doctor", "/doctor")


@router.get("", summary="Look for what is wrong", responses=gives(list_of(Finding)))
def find(
    rota: Served,
    who: Who,
    *,
    full: Annotated[bool, Query(description="Also what takes long on a large store.")] = False,
) -> Answer:
    """Look at the store and its workers and say what was found. Changes nothing; may take seconds."""
    return Answer({"items": rota.acting_as(who).store.doctor(full=full)})
