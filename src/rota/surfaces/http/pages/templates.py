"""Templates: what is in force, whose word it is, and people's changes to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import Path, Query, Response

from rota.errors import InvalidOption
from rota.model.gate import Right
from rota.model.templates import NULLABLE, Rate, from_text
from rota.surfaces.http.pages.rendering import link
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit, Visiting
from rota.template_views import TemplateView

router = page_router()

FIELDS = {
    "display_name": "Name for people",
    "description": "Description",
    "priority": "Priority",
    "timeout": "Timeout",
    "max_retries": "Retries",
    "max_crashes": "Crashes until it is given up",
    "queue": "Queue",
    "queue_ttl": "Expires after waiting",
    "max_running": "Run at once, over all workers",
    "concurrency": "Run at once, in one worker",
    "rate_limit": "Starts, as 10/60s",
    "submit_limit": "Submissions, as 100/1h",
    "dedup_window": "Refuse the same params for",
    "requires_permission": "Needs the permission",
    "default_params": "Default params",
}
"""What the page shows and changes, and how it is called there."""


@router.get("/templates")
def find(visit: Visiting, archived: Annotated[str, Query(max_length=5)] = "") -> Response:
    """Show all templates."""
    found = visit.rota.acting_as(visit.actor).templates.list(archived=archived == "yes")
    return visit.page("templates.html", found=found, archived=archived == "yes")


@router.get("/templates/one")
def show(visit: Visiting, name: Annotated[str, Query(max_length=255)]) -> Response:
    """Show one template."""
    found = visit.rota.acting_as(visit.actor).templates.get(name)
    values = {field: shown(found, field) for field in FIELDS}
    paused = ("template", name) in visit.rota.acting_as(visit.actor).store.pauses()
    return visit.page("template.html", it=found, fields=FIELDS, values=values, nullable=NULLABLE, paused=paused)


@router.post("/templates/one/{verb}")
def act(visit: Visiting, verb: Annotated[str, Path(max_length=20)]) -> Response:
    """Set, reset, enable, disable, archive or remove a template."""
    if verb not in ACTS:
        raise InvalidOption(f"a template can't {verb!r}: it can {', '.join(ACTS)}")
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
                raise InvalidOption(f"{field} is empty: give a value, or take back what people have set")
            options[field] = None if given is None else from_text(field, given)
    if not options:
        return "Nothing is changed."
    visit.rota.acting_as(visit.actor).templates.if_match(visit.form.number("version")).update(name, **options)
    return f"{name}: {', '.join(options)} set."


def _reset(visit: Visit, name: str) -> str:
    field = visit.form.text("field")
    visit.rota.acting_as(visit.actor).templates.reset(name, *([field] if field else []))
    return f"{name}: {field or 'everything'} is as the code says."


def _enable(visit: Visit, name: str) -> str:
    visit.rota.acting_as(visit.actor).templates.enable(name)
    return f"{name} takes new jobs."


def _disable(visit: Visit, name: str) -> str:
    visit.sure(f"Disable {name}? New jobs of it are refused; those that wait or run go on.", "Disable it")
    visit.rota.acting_as(visit.actor).templates.disable(name)
    return f"{name} takes no new jobs."


def _archive(visit: Visit, name: str) -> str:
    visit.sure(f"Archive {name}? New jobs of it are refused, it leaves the lists, and its schedules are disabled.", "Archive it")
    visit.rota.acting_as(visit.actor).templates.archive(name)
    return f"{name} is archived."


def _delete(visit: Visit, name: str) -> str:
    visit.sure(f"Remove the template {name}? Code that registers it makes it anew.", "Remove it")
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
