"""The first screen: five questions from top to bottom, then how it went lately."""

from __future__ import annotations

from starlette.responses import Response

from rota.model.gate import Right
from rota.operation import ask_for
from rota.resources.overview import trend as trend_of
from rota.surfaces.http.pages import charts
from rota.surfaces.http.pages.context import Visit
from rota.surfaces.http.pages.routes import page

SHOWN = 20
"""Rows of each answer: more than one look takes in is a page of its own."""

PAGES = {
    "`rota dead list` says why": ("/dead", "See the dead letters"),
    "`rota schedule occurrences --not-ran` says which": ("/schedules", "See the schedules"),
    "`rota resume` ends it": ("/workers", "See what is paused"),
}
"""The pages of remedies that a command line would be told as a command."""


@page("GET /")
def home(visit: Visit) -> Response:
    """Show the overview."""
    seen = visit.rota.overview()
    trend = trend_of(ask_for(visit.rota, Right.READ_STATS)) if visit.may(Right.READ_STATS) else []
    return visit.page(
        "home.html",
        seen=seen,
        pages=PAGES,
        shown=SHOWN,
        trend=trend,
        timeline=charts.timeline(seen.ahead),
        throughput=charts.throughput(trend),
        latency=charts.latency(trend),
    )
