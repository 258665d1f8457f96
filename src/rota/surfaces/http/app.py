"""The app: every part of the front door, put together over one `Rota`."""

from __future__ import annotations

import threading
from importlib import import_module

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from rota.app import Rota
from rota.surfaces.http import openapi, pages, problems
from rota.surfaces.http.access import Door
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api import endpoint, hand
from rota.surfaces.http.api.endpoint import API, Address
from rota.surfaces.http.bounds import BodyLimit
from rota.surfaces.http.metrics import Meters, metrics
from rota.surfaces.http.routes import KnownRoute
from rota.surfaces.http.shield import Hosts, Shield
from rota.surfaces.http.witness import Witness
from rota.surfaces.mcp.http import Endpoint

MODULES = ("rota_verbs", "jobs", "bulk", "runs", "groups", "direct", "events", "webhooks", "scheduler", "health")
"""Modules of `rota.surfaces.http.api` with routes that are written by hand."""


def routes() -> list[Address]:
    """Return every route of the API: those that are written by hand, and those of the operations, the more particular first."""
    for name in MODULES:
        import_module(f"rota.surfaces.http.api.{name}")
    found: list[Address] = [*hand.ROUTES, *endpoint.BY_HAND, *endpoint.made()]
    # A name may have slashes: a path that has more behind the name is looked at first.
    return sorted(found, key=lambda each: ("{" in each.shown, -each.shown.count("/")))


def make_app(rota: Rota, *, hosts: Hosts | None = None) -> Starlette:
    """Return an app that serves a `Rota`, under some names or under any. The caller closes the Rota."""
    app = Starlette()
    app.state.rota = rota
    app.state.door = Door(rota)
    app.state.meters = Meters(rota)
    # Set when the server is about to stop: streams end by themselves then.
    app.state.closing = threading.Event()
    problems.install(app)
    app.add_middleware(BodyLimit, most=rota.settings.http_body_max, patience_s=rota.settings.http_patience, admit=app.state.door.known)
    app.state.api = routes()
    mcp = Endpoint(rota, app.state.door.who, body_max=rota.settings.http_body_max)
    app.router.routes += [
        *app.state.api,
        KnownRoute(f"{API}/openapi.json", _document),
        KnownRoute("/metrics", metrics),
        KnownRoute("/mcp", mcp),
    ]
    pages.install(app)
    # The last one is the outermost.
    app.add_middleware(Shield, hosts=hosts)
    app.add_middleware(Witness, meters=app.state.meters, logs=rota.settings.http_log == "yes")
    return app


def _document(request: Request) -> Response:
    """Return the OpenAPI document, made when it is first asked for."""
    state = request.app.state
    if not hasattr(state, "document"):
        state.document = openapi.document(state.api)
    return Answer(state.document)
