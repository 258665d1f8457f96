"""The list of jobs: narrowed by its address, page by page; and acts on all that match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from rota.errors import InvalidOption, NotFound, Refused
from rota.model.gate import Right
from rota.model.states import MOVES, RETRYABLE_ENDS, ErrorType, Status
from rota.model.values import Job
from rota.results import Page
from rota.surfaces.http.pages.filters import Filters
from rota.surfaces.http.pages.rendering import plural
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit

router = page_router()

PAGE = 50
AT_ONCE = 1000
"""Most jobs that one press of a button acts on; pressing it again continues."""
BIG = 2**62


@router.get("/jobs")
def find(visit: Visit, before: Annotated[int, Meta(ge=1, le=BIG)] | None = None) -> Response:
    """Show a page of jobs, newest first."""
    filters = Filters(visit.request.query_params.multi_items())
    found = visit.rota.acting_as(visit.actor).jobs.list(**filters.options(), limit=PAGE, before=before)
    return visit.page("jobs.html", jobs=found, next=found.next, first=before is not None, filters=filters, **choices(visit))


def choices(visit: Visit) -> dict[str, Any]:
    """Return what the filters of a list offer."""
    names = [each.name for each in visit.rota.acting_as(visit.actor).templates.list()]
    organizations = (
        visit.rota.acting_as(visit.actor).organizations.list() if visit.everywhere and visit.may(Right.READ_ORGANIZATIONS) else []
    )
    return {"templates": names, "organizations": [each.name for each in organizations], "statuses": list(Status), "errors": list(ErrorType)}


@router.post("/jobs/act")
def act(visit: Visit) -> Response:
    """Cancel, or retry, all that match."""
    filters, what = Filters(visit.form.pairs), visit.form.need("what")
    if what not in ACTS:
        raise InvalidOption(f"what={what!r} is not one of {', '.join(ACTS)}")
    states, do, right = ACTS[what]
    visit.must(right)
    status = [each for each in states if not filters.status or each in filters.status]
    options = filters.options() | {"status": status, "limit": AT_ONCE}
    found = visit.rota.acting_as(visit.actor).jobs.list(**options) if status else Page[Job]([])
    if not found:
        return visit.done(f"Nothing to {what}: none of the matching jobs allows it.", "/jobs")
    count = f"{'the newest ' if found.next is not None else ''}{plural(len(found), 'job')}"
    visit.sure(f"{what.capitalize()} {count} ({filters.words()})?", f"{what.capitalize()} {count}")
    return visit.done(do(visit, options, found), "/jobs")


def moment(text: str) -> datetime:
    """Return a moment that a form gives, in UTC if it says no zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(f"{text[:40]!r} is not a moment: use 2026-11-15T08:00, in UTC") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _cancel(visit: Visit, options: dict[str, Any], _found: list[Job]) -> str:
    done = visit.rota.acting_as(visit.actor).jobs.cancel_all(**options)
    return f"Cancelled {plural(done.done, 'job')}."


def _retry(visit: Visit, _options: dict[str, Any], found: list[Job]) -> str:
    count = 0
    for job in found:
        try:
            visit.rota.acting_as(visit.actor).jobs.retry(job.id)
        except (Refused, NotFound):
            continue  # it was retried already
        count += 1
    return f"Retried {plural(count, 'job')}."


Do = Callable[[Visit, dict[str, Any], list[Job]], str]
ACTS: dict[str, tuple[Sequence[Status], Do, Right]] = {
    "cancel": (tuple(MOVES), _cancel, Right.CANCEL),
    "retry": (tuple(RETRYABLE_ENDS), _retry, Right.STEER),
}
"""What can be done to all that match: to jobs in which states, by whom."""
