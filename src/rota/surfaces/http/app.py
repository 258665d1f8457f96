"""The app: every part of the front door, put together over one `Rota`."""

from __future__ import annotations

import threading
from importlib import import_module

from fastapi import FastAPI
from starlette.routing import Route

from rota.app import Rota
from rota.surfaces.http import describing, pages, problems
from rota.surfaces.http.access import Door
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api import jobs
from rota.surfaces.http.bounds import BodyLimit
from rota.surfaces.http.metrics import Meters
from rota.surfaces.http.metrics import router as metrics
from rota.surfaces.http.shield import Hosts, Shield
from rota.surfaces.http.witness import Witness
from rota.surfaces.mcp.http import Endpoint

API = "/api/v1"
ROUTERS = (
    "overview",
    "jobs",
    "bulk",
    "runs",
    "groups",
    "direct",
    "dead",
    "events",
    "templates",
    "schedules",
    "occurrences",
    "calendars",
    "organizations",
    "users",
    "tokens",
    "webhooks",
    "queues",
    "workers",
    "scheduler",
    "stats",
    "audit",
    "doctor",
    "health",
)
"""Modules of `rota.surfaces.http.api`, each with a `router`; in this order they stand in the documentation."""


def make_app(rota: Rota, *, hosts: Hosts | None = None) -> FastAPI:
    """Return an app that serves a `Rota`, under some names or under any. It closes nothing: whoever made the Rota does."""
    from rota import __version__  # noqa: PLC0415 - this is imported by nobody that `rota` imports

    app = FastAPI(
        title="Rota",
        summary="A durable job scheduler and background-job engine.",
        version=__version__,
        default_response_class=Answer,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API}/openapi.json",
        generate_unique_id_function=describing.operation_id,
    )
    app.state.rota = rota
    app.state.door = Door(rota)
    app.state.meters = Meters(rota)
    # Set when the server is about to stop: streams end by themselves then.
    app.state.closing = threading.Event()
    problems.install(app)
    app.add_middleware(BodyLimit, most=rota.settings.http_body_max, patience_s=rota.settings.http_patience, admit=app.state.door.known)
    for name in ROUTERS:
        app.include_router(import_module(f"rota.surfaces.http.api.{name}").router, prefix=API)
    # Before all others.
    app.router.routes[:0] = jobs.swift(API)
    app.include_router(metrics)
    endpoint = Endpoint(rota, app.state.door.who, body_max=rota.settings.http_body_max)
    app.router.routes.append(Route("/mcp", endpoint, include_in_schema=False))
    describing.install(app)
    pages.install(app)
    # The last one is the outermost.
    app.add_middleware(Shield, hosts=hosts)
    app.add_middleware(Witness, meters=app.state.meters, logs=rota.settings.http_log == "yes", prefix=API)
    return app
