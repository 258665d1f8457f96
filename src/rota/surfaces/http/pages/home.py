"""The first screen: five questions from top to bottom, then how it went lately."""

from __future__ import annotations

from starlette.responses import Response

from rota.model.gate import Right
from rota.model.overview import Stuck, Why
from rota.operation import ask_for, session_of
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
        stuck=[each for each in seen.stuck if is_stuck(each, session_of(visit.rota).settings.waiting_warn)],
        pages=PAGES,
        shown=SHOWN,
        trend=trend,
        timeline=charts.timeline(seen.ahead, visit.zone),
        throughput=charts.throughput(trend, visit.zone),
        latency=charts.latency(trend, visit.zone),
    )


def is_stuck(group: Stuck, usual_s: float) -> bool:
    """Say whether jobs wait for more than their time, jobs that are still to end, or the usual wait for a slot."""
    match group.why:
        case Why.LATER:
            return False
        case Why.PARENT:
            # What has ended badly is named before what is still awaited.
            return not group.words.startswith("waits for ")
        case Why.TURN | Why.LIMIT | Why.DIRECT:
            return group.oldest_s > usual_s
        case _:
            return True
