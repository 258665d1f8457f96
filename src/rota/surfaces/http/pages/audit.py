"""What people changed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from rota.surfaces.http.pages.jobs import BIG
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit

router = page_router()

PAGE = 50


@router.get("/audit")
def find(
    visit: Visit,
    subject: Annotated[str, Meta(max_length=512)] = "",
    before: Annotated[int, Meta(ge=1, le=BIG)] | None = None,
) -> Response:
    """Show a page of the audit trail, newest first."""
    found = visit.rota.acting_as(visit.actor).audit.list(subject=subject.strip() or None, limit=PAGE, before=before)
    return visit.page("audit.html", found=found, next=found.next, first=before is not None, subject=subject)
