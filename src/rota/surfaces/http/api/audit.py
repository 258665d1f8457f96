"""The audit trail: what people changed, and who."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from rota.errors import NotFound
from rota.model.values import Audited
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.asking import TEXT
from rota.surfaces.http.api.paging import Cursor, Limit, Paged
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives, page_of, refuses

router = strict_router("Audit", "/audit")


@router.get("", summary="List what people changed", responses=gives(page_of(Audited)) | refuses(NotFound))
def find(
    rota: Served,
    who: Who,
    *,
    subject: Annotated[
        str | None,
        Query(
            max_length=300,
            pattern=TEXT,
            description="A kind of thing (`job`, `template`, …) or one of them.",
            examples=["template:send_email"],
        ),
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Answer:
    """Return changes, newest first."""
    paged = Paged("audit", subject=subject)
    return paged.answer(rota.acting_as(who).audit.list(subject=subject, limit=limit, before=paged.place(cursor)))
