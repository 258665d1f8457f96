"""The dashboard: pages made here on the server, which work without JavaScript and are livelier with it."""

from __future__ import annotations

from starlette.routing import Route

from rota.surfaces.http.pages import (
    connections,
    dead_letters,
    groups,
    home,
    job,
    jobs,
    login,
    people,
    schedule_form,
    schedules,
    selection,
    sql,
    templates,
    webhooks,
    work_form,
    workers,
)
from rota.surfaces.http.pages.context import STATIC
from rota.surfaces.http.pages.routes import ROUTES, install, static_file

__all__ = ["MODULES", "install", "routes"]

MODULES = (
    connections,
    dead_letters,
    groups,
    home,
    job,
    jobs,
    login,
    people,
    schedule_form,
    schedules,
    selection,
    sql,
    templates,
    webhooks,
    work_form,
    workers,
)
"""Modules with pages: importing one lists its pages."""


def routes() -> list[Route]:
    """Return the routes of all pages and of the static files, those without parts that vary first."""
    return [*map(static_file, STATIC), *sorted(ROUTES, key=lambda route: "{" in route.path)]
