"""Dead letters: what was given up, tried again or removed, one by one or all that match."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from rota.model.gate import Right
from rota.surfaces.http.pages.filters import Filters
from rota.surfaces.http.pages.jobs import AT_ONCE, BIG, choices
from rota.surfaces.http.pages.rendering import plural
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit
from rota.surfaces.runs import run_of

router = page_router()

PAGE = 50
NAMES = ("job_type", "error_type", "text", "organization")


@router.get("/dead")
def find(visit: Visit, before: Annotated[int, Meta(ge=1, le=BIG)] | None = None) -> Response:
    """Show a page of dead letters, newest first."""
    filters = Filters([pair for pair in visit.request.query_params.multi_items() if pair[0] in NAMES])
    found = visit.rota.acting_as(visit.actor).dead_letters.list(**filters.options(), limit=PAGE, before=before)
    runs = {job.id: run_of(visit.rota.acting_as(visit.actor), job.id) for job in found}
    return visit.page("dead.html", jobs=found, runs=runs, next=found.next, first=before is not None, filters=filters, **choices(visit))


@router.post("/dead/retry")
def retry(visit: Visit) -> Response:
    """Try all that match again."""
    visit.must(Right.STEER)
    options, count, words = _matching(visit)
    visit.sure(f"Retry {count} ({words})?", f"Retry {count}")
    done = visit.rota.acting_as(visit.actor).dead_letters.retry(**options, limit=AT_ONCE)
    return visit.done(f"{plural(len(done), 'job')} will be tried again.", "/dead")


@router.post("/dead/discard")
def discard(visit: Visit) -> Response:
    """Remove all that match, for good."""
    visit.must(Right.DELETE)
    options, count, words = _matching(visit)
    visit.sure(f"Remove {count} ({words}) with their runs and logs, for good?", f"Remove {count}")
    done = visit.rota.acting_as(visit.actor).dead_letters.delete(**options, limit=AT_ONCE)
    kept = f" {plural(done.kept, 'other')} stayed: somebody still needs them." if done.kept else ""
    return visit.done(f"{plural(done.chains, 'dead letter')} removed.{kept}", "/dead")


def _matching(visit: Visit) -> tuple[dict[str, Any], str, str]:
    """Return the filters, how many they match (as far as one press goes), and both in words."""
    filters = Filters([pair for pair in visit.form.pairs if pair[0] in NAMES])
    found = visit.rota.acting_as(visit.actor).dead_letters.list(**filters.options(), limit=AT_ONCE)
    first = "the newest " if found.next is not None else ""
    return filters.options(), f"{first}{plural(len(found), 'dead letter')}", filters.words()
