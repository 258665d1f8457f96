"""Templates: the values in effect, where each comes from, and the operators' changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rota.errors import InvalidOption
from rota.model.gate import Right
from rota.model.templates import NULLABLE, Rate, from_text
from rota.surfaces.http.pages.rendering import link
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit
from rota.template_views import TemplateView

router = page_router()

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


@router.get("/templates")
def find(visit: Visit, archived: Annotated[str, Meta(max_length=5)] = "") -> Response:
    """Show all templates."""
    found = visit.rota.acting_as(visit.actor).templates.list(archived=archived == "yes")
    return visit.page("templates.html", found=found, archived=archived == "yes")


@router.get("/templates/one")
def show(visit: Visit, name: Annotated[str, Meta(max_length=255)]) -> Response:
    """Show one template."""
    found = visit.rota.acting_as(visit.actor).templates.get(name)
    values = {field: shown(found, field) for field in FIELDS}
    paused = ("template", name) in visit.rota.acting_as(visit.actor).store.pauses()
    return visit.page("template.html", it=found, fields=FIELDS, values=values, nullable=NULLABLE, paused=paused)


@router.post("/templates/one/{verb}")
def act(visit: Visit, verb: Annotated[str, Meta(max_length=20)]) -> Response:
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
    view = visit.rota.acting_as(visit.actor).templates.get(name)
    options: dict[str, Any] = {}
    for field in FIELDS:
        given = visit.form.text(field)
        if field in visit.form and (given or "") != shown(view, field):
            if given is None and field not in NULLABLE:
                raise InvalidOption(f"{field} is empty: enter a value, or reset the field")
            options[field] = None if given is None else from_text(field, given)
    if not options:
        return "Nothing is changed."
    visit.rota.acting_as(visit.actor).templates.if_match(visit.form.number("version")).update(name, **options)
    return f"{name}: {', '.join(options)} set."


def _reset(visit: Visit, name: str) -> str:
    field = visit.form.text("field")
    visit.rota.acting_as(visit.actor).templates.reset(name, *([field] if field else []))
    return f"{name}: {field or 'all fields'} reset."


def _enable(visit: Visit, name: str) -> str:
    visit.rota.acting_as(visit.actor).templates.enable(name)
    return f"{name} accepts new jobs."


def _disable(visit: Visit, name: str) -> str:
    visit.sure(f"Disable {name}? New jobs are refused; waiting and running jobs continue.", "Disable it")
    visit.rota.acting_as(visit.actor).templates.disable(name)
    return f"{name} no longer accepts new jobs."


def _archive(visit: Visit, name: str) -> str:
    visit.sure(f"Archive {name}? New jobs are refused, its schedules are disabled, and lists no longer show it.", "Archive it")
    visit.rota.acting_as(visit.actor).templates.archive(name)
    return f"{name} is archived."


def _delete(visit: Visit, name: str) -> str:
    visit.sure(f"Remove the template {name}? Code that registers it creates it again.", "Remove it")
    visit.rota.acting_as(visit.actor).templates.delete(name)
    return f"{name} is removed."


ACTS: dict[str, Callable[[Visit, str], str]] = {
    "set": _set,
    "reset": _reset,
    "enable": _enable,
    "disable": _disable,
    "archive": _archive,
    "delete": _delete,
}
