"""The app: every part of the front door, put together over one `Rota`."""

from __future__ import annotations

import threading

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.app import Rota
from rota.surfaces.http import openapi, pages
from rota.surfaces.http.access import Door
from rota.surfaces.http.api import bulk, direct, endpoint, events, jobs, sql, verbs
from rota.surfaces.http.api.endpoint import API, Address
from rota.surfaces.http.api.results import Answer
from rota.surfaces.http.intake import Intake
from rota.surfaces.http.metrics import Meters, metrics
from rota.surfaces.http.middleware import Hosts, Middleware
from rota.surfaces.http.statements import Statements
from rota.surfaces.http.streams import Streams
from rota.surfaces.mcp.http import Endpoint

BY_HAND = (bulk, direct, events, jobs, sql, verbs)
"""Modules with routes that are written by hand: importing one lists its routes."""


def routes() -> list[Address]:
    """Return every route of the API: those that are written by hand, and those of the operations, the more particular first."""
    found: list[Address] = [*endpoint.ROUTES, *endpoint.BY_HAND, *endpoint.made()]
    # A name may have slashes: a path that has more behind the name is looked at first.
    return sorted(found, key=lambda each: ("{" in each.shown, -each.shown.count("/")))


def make_app(rota: Rota, *, hosts: Hosts | None = None) -> Starlette:
    """Return an app that serves a `Rota`, under some names or under any. The caller closes the Rota."""
    app, settings = Starlette(), rota.settings
    app.state.rota = rota
    app.state.door = door = Door(rota)
    app.state.meters = Meters(rota)
    app.state.intake = Intake(jobs.create_together, direct_max=settings.http_direct_max)
    app.state.statements = Statements(settings, app.state.intake.room)
    # Set when the server is about to stop: streams end by themselves then.
    app.state.closing = threading.Event()
    app.state.streams = Streams(door, app.state.closing)
    app.state.api = routes()
    served: list[Route] = [
        *app.state.api,
        Route(f"{API}/openapi.json", _document),
        Route("/metrics", metrics),
        Route("/mcp", Endpoint(rota, door.who, body_max=settings.http_body_max)),
        *pages.routes(),
    ]
    app.router.routes += served
    pages.install(app)
    paths = {route.endpoint: route.path for route in served}
    app.add_middleware(Middleware, settings=settings, hosts=hosts, admit=door.known, meters=app.state.meters, paths=paths)
    return app


def _document(request: Request) -> Response:
    """Return the OpenAPI document, made when it is first asked for."""
    state = request.app.state
    if not hasattr(state, "document"):
        state.document = openapi.document(state.api)
    return Answer(state.document)
