"""Templates: the values in effect, where each comes from, and the operators' changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rota.errors import InvalidOption
from rota.model.gate import Right
from rota.model.schedules import JobKind
from rota.model.templates import NULLABLE, Rate, from_text
from rota.resources.trend import USUAL
from rota.surfaces.http.pages.context import Visit, link
from rota.surfaces.http.pages.home import RangeName, trend_charts
from rota.surfaces.http.pages.routes import Act, Name, Verb, page
from rota.template_views import TemplateView

FIELDS = {
    "display_name": "Display name",
    "description": "Description",
    "priority": "Priority",
    "timeout": "Timeout",
    "max_retries": "Retries",
    "max_crashes": "Crashes until it is a dead letter",
    "queue": "Queue",
    "queue_ttl": "Expires after waiting",
    "max_running": "Running at a time, in all workers",
    "concurrency": "Running at a time, in one worker",
    "rate_limit": "Starts in a window, such as 10/60s",
    "submit_limit": "Submissions in a window, such as 100/1h",
    "dedup_window": "Refuse identical params for",
    "requires_permission": "Required permission",
    "default_params": "Default params",
}
"""What the page shows and changes, and how it is called there."""
KINDS = {JobKind.PYTHON: "Python", JobKind.SQL: "SQL", JobKind.PROCEDURE: "procedure", JobKind.EXTERNAL: "command"}


@page("GET /templates")
def find(visit: Visit, archived: Annotated[str, Meta(max_length=5)] = "") -> Response:
    """Show all templates."""
    found = visit.rota.templates.list(archived=archived == "yes")
    return visit.page("templates.html", found=found, archived=archived == "yes", kinds=KINDS)


@page("GET /templates/one")
def show(visit: Visit, name: Name, range: RangeName = USUAL) -> Response:  # noqa: A002 - as the address has it
    """Show one template."""
    found = visit.rota.templates.get(name)
    values = {field: shown(found, field) for field in FIELDS}
    paused = ("template", name) in visit.rota.store.pauses()
    charts = trend_charts(visit, range, name)
    return visit.page("template.html", it=found, fields=FIELDS, values=values, nullable=NULLABLE, paused=paused, kinds=KINDS, **charts)


@page("POST /templates/one/{verb}")
def act(visit: Visit, verb: Verb) -> Response:
    """Set, reset, enable, disable, archive or remove a template."""
    if verb not in ACTS:
        raise InvalidOption(f"unknown action {verb!r} of a template: use {', '.join(ACTS)}")
    name = visit.form.need("name")
    visit.must(Right.MANAGE_TEMPLATES)
    said = ACTS[verb](visit, name)
    return visit.done(said, "/templates" if verb in {"archive", "delete"} else link("/templates/one", name=name))


def shown(view: TemplateView, field: str) -> str:
    """Return a field as a form shows and takes it; empty for None."""
    value = getattr(view, field)
    if value is None:
        return ""
    if isinstance(value, Rate):
        return str(value)
    if isinstance(value, float):
        return f"{value:g}"
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else str(value)


def _set(visit: Visit, name: str) -> str:
    view = visit.rota.templates.get(name)
    options: dict[str, Any] = {}
    for field in FIELDS:
        given = visit.form.text(field)
        if field in visit.form and (given or "") != shown(view, field):
            if given is None and field not in NULLABLE:
                raise InvalidOption(f"{field} is empty: enter a value, or reset the field")
            options[field] = None if given is None else from_text(field, given)
    if not options:
        return "Nothing is changed."
    visit.rota.templates.if_match(visit.form.number("version")).update(name, **options)
    return f"{name}: {', '.join(options)} set."


def _reset(visit: Visit, name: str) -> str:
    field = visit.form.text("field")
    visit.rota.templates.reset(name, *([field] if field else []))
    return f"{name}: {field or 'all fields'} reset."


ACTS: dict[str, Callable[[Visit, str], str]] = {
    "set": _set,
    "reset": _reset,
    "enable": Act("templates", "enable", "{name} accepts new jobs."),
    "disable": Act(
        "templates",
        "disable",
        "{name} no longer accepts new jobs.",
        "Disable {name}? New jobs are refused; waiting and running jobs continue.",
        "Disable it",
    ),
    "archive": Act(
        "templates",
        "archive",
        "{name} is archived.",
        "Archive {name}? New jobs are refused, its schedules are disabled, and lists no longer show it.",
        "Archive it",
    ),
    "delete": Act(
        "templates", "delete", "{name} is removed.", "Remove the template {name}? Code that registers it creates it again.", "Remove it"
    ),
}
