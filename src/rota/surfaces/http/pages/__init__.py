"""The dashboard: pages made here on the server, which work without JavaScript and are livelier with it."""

from __future__ import annotations

from importlib import import_module

from starlette.applications import Starlette

from rota.surfaces.http.pages import failing, static

ROUTERS = (
    "entering",
    "home",
    "jobs",
    "enqueue",
    "job",
    "queue",
    "schedules",
    "schedule",
    "groups",
    "dead",
    "workers",
    "templates",
    "organizations",
    "users",
    "tokens",
    "webhooks",
    "audit",
)
"""Modules of this package, each with a `router`."""


def install(app: Starlette) -> None:
    """Add the pages to an app that has its API already."""
    static.install(app)
    for name in ROUTERS:
        app.router.routes += import_module(f"rota.surfaces.http.pages.{name}").router.routes
    failing.install(app)
