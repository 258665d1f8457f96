"""The first screen: five questions from top to bottom, then how it went lately."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from rota.model.gate import Right
from rota.operation import ask_for
from rota.resources.trend import RANGES, USUAL
from rota.resources.trend import trend as trend_of
from rota.surfaces.http.pages import charts
from rota.surfaces.http.pages.context import Visit
from rota.surfaces.http.pages.routes import Name, page

SHOWN = 20
"""Rows of each answer: more than one look takes in is a page of its own."""

RangeName = Annotated[str, Meta(max_length=10)]

PAGES = {
    "`rota dead list` says why": ("/dead", "See the dead letters"),
    "`rota schedule occurrences --not-ran` says which": ("/schedules", "See the schedules"),
    "`rota resume` ends it": ("/workers", "See what is paused"),
}
"""The pages of remedies that a command line would be told as a command."""


@page("GET /")
def home(visit: Visit, range: RangeName = USUAL, type: Name = "") -> Response:  # noqa: A002 - as the address has them
    """Show the overview."""
    seen = visit.rota.overview()
    return visit.page(
        "home.html",
        seen=seen,
        pages=PAGES,
        shown=SHOWN,
        timeline=charts.timeline(seen.ahead, visit.zone),
        **trend_charts(visit, range, type or None),
    )


def trend_charts(visit: Visit, range_name: str, job_type: str | None) -> dict[str, Any]:
    """Return how it went lately, with its charts, for a visitor who may see figures."""
    if not visit.may(Right.READ_STATS):
        return {"trend": None}
    trend = trend_of(ask_for(visit.rota, Right.READ_STATS), range_name=range_name, job_type=job_type)
    return {
        "trend": trend,
        "ranges": RANGES.values(),
        "throughput": charts.throughput(trend, visit.zone),
        "latency": charts.latency(trend, visit.zone),
        "by_type": charts.by_type(trend, visit.zone) if job_type is None and len(trend.types) > 1 else None,
    }
