"""Dead letters: the list, grouped by error, and what can be done to all that match."""

from __future__ import annotations

from typing import Any, Literal

from starlette.responses import Response

from rota.model.gate import Right
from rota.surfaces.http.pages.context import Visit, plural
from rota.surfaces.http.pages.jobs import AT_ONCE, PAGE, Filters, choices
from rota.surfaces.http.pages.routes import Before, page
from rota.surfaces.http.pages.selection import DEAD_ACTS
from rota.surfaces.runs import run_of

DEAD_NAMES = ("job_type", "error_type", "text", "message", "organization")

By = Literal["", "error", "row"]
"""How dead letters are shown: by error, or each in a row; without a word, as it suits them."""


@page("GET /dead")
def find_dead(visit: Visit, before: Before = None, by: By = "") -> Response:
    """Show dead letters: by error if there are several errors, else a page of them, newest first."""
    filters = Filters(visit.request.query_params.multi_items(), visit.zone, DEAD_NAMES)
    if by == "error" or not (by or before or filters["message"]):
        groups = visit.rota.dead_letters.groups(**_without_message(filters))
        if by or len(groups.groups) > 1:
            return visit.page("dead_groups.html", found=groups, filters=filters, **choices(visit))
    found = visit.rota.dead_letters.list(**filters.options(), limit=PAGE, before=before)
    runs = {job.id: run_of(visit.rota, job.id) for job in found}
    shown: dict[str, Any] = {"jobs": found, "runs": runs, "next": found.next, "first": before is not None, "filters": filters}
    return visit.page("dead.html", acts=DEAD_ACTS, **shown, **choices(visit))


def _without_message(filters: Filters) -> dict[str, Any]:
    return {name: value for name, value in filters.options().items() if name != "message"}


@page("POST /dead/retry")
def retry_dead(visit: Visit) -> Response:
    """Try all that match again."""
    visit.must(Right.STEER)
    options, count, words = _matching(visit)
    visit.sure(f"Retry {count} ({words})?", f"Retry {count}")
    done = visit.rota.dead_letters.retry(**options, all=True, limit=AT_ONCE)
    return visit.done(f"{plural(len(done), 'job')} will be tried again.", "/dead")


@page("POST /dead/discard")
def discard_dead(visit: Visit) -> Response:
    """Remove all that match, for good."""
    visit.must(Right.DELETE)
    options, count, words = _matching(visit)
    visit.sure(f"Remove {count} ({words}) with their runs and logs, for good?", f"Remove {count}")
    done = visit.rota.dead_letters.delete(**options, all=True, limit=AT_ONCE)
    kept = f" {plural(done.kept, 'other')} stayed: somebody still needs them." if done.kept else ""
    return visit.done(f"{plural(done.chains, 'dead letter')} removed.{kept}", "/dead")


def _matching(visit: Visit) -> tuple[dict[str, Any], str, str]:
    """Return the filters, how many they match (as far as one press goes), and both in words."""
    filters = Filters(visit.form.pairs, visit.zone, DEAD_NAMES)
    found = visit.rota.dead_letters.list(**filters.options(), limit=AT_ONCE)
    first = "the newest " if found.next is not None else ""
    return filters.options(), f"{first}{plural(len(found), 'dead letter')}", filters.words()
