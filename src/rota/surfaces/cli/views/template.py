"""Templates: the values in force, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from rota.model.kinds import DEFAULT_CONNECTION
from rota.model.schedules import JobKind
from rota.model.templates import FIELDS, OF_THE_HANDLER
from rota.surfaces.cli.output import Table, age, coloured, one_line, plain, show_pairs, span
from rota.surfaces.cli.views import View, listing
from rota.template_views import TemplateView

if TYPE_CHECKING:
    from rota.resources.definitions import Loaded
    from rota.surfaces.cli.commands import Called

STATES = {"ENABLED": "green", "DISABLED": "yellow", "ARCHIVED": "bright_black"}
KINDS = {JobKind.PYTHON: "Python", JobKind.SQL: "SQL", JobKind.PROCEDURE: "procedure", JobKind.EXTERNAL: "command"}
SPANS = {"timeout", "queue_ttl", "dedup_window"}


def show_one(view: TemplateView, _called: Called) -> None:
    """Print the value of each field, and whether it comes from a setting, the code or operators."""
    here = ", its handler is here" if view.handled_here else ""
    show_pairs(
        [
            ("template", view.name),
            ("kind", KINDS[view.kind]),
            ("state", coloured(view.state, STATES[view.state])),
            ("version", f"{view.version}, changed {age(view.updated_at)}{here}"),
            *_work(view),
        ]
    )
    rows = Table("field", "value", "from")
    for field in FIELDS if view.kind is JobKind.PYTHON else (field for field in FIELDS if field not in OF_THE_HANDLER):
        source = view.sources[field]
        rows.add_row(field, _shown(view, field), coloured(source, "bold") if source == "people" else source)
    rows.show()


def _work(view: TemplateView) -> list[tuple[str, str]]:
    """Return what a template does that is SQL or a command. Its text comes as it is, but for characters that terminals obey."""
    if view.kind is JobKind.PYTHON:
        return []
    pairs = [("connection", view.connection or DEFAULT_CONNECTION)] if view.kind is JobKind.SQL else []
    pairs += [("secrets", one_line(", ".join(view.secrets)))] if view.secrets else []
    return [*pairs, ("text", plain(view.body))] if view.body is not None else pairs


def show_state(view: TemplateView, _called: Called) -> None:
    """Print the state of a template."""
    typer.echo(f"template {view.name} is {view.state}")


def note_schedules(called: Called) -> None:
    """Remember the schedules that archiving a template will disable."""
    schedules = called.rota.schedules.list(template=called.asked["name"])
    called.extras["disabled"] = [schedule for schedule in schedules if schedule.state != "DISABLED"]


def show_archived(view: TemplateView, called: Called) -> None:
    """Print the state of a template and the schedules that were disabled with it."""
    show_state(view, called)
    for schedule in called.extras["disabled"]:
        typer.echo(f"schedule {schedule.name} of organization {schedule.organization} is DISABLED")


def show_loaded(loaded: Loaded, called: Called) -> None:
    """Print what a file of definitions added and changed."""
    would = "would be " if loaded.dry_run else ""
    for word, things in ((f"{would}added", loaded.added), (f"{would}changed", loaded.changed), ("unchanged", loaded.unchanged)):
        for thing in things:
            typer.echo(f"{word}: {thing}")
    if called.asked.get("samples"):
        typer.echo("run it: ROTA_HANDLER_MODULES=rota.samples rota up, then rota enqueue sample_job")


def _shown(view: TemplateView, field: str) -> str:
    value = getattr(view, field)
    if value is None:
        return "none"
    if field in SPANS:
        return span(value) if value else "no limit" if field == "timeout" else "at once"
    if field == "payload_max":
        return f"{value:,} bytes"
    if field == "default_params":
        return one_line(msgspec.json.encode(value).decode())
    if field == "backoff":
        return ", ".join(f"{name} {number:g}" for name, number in msgspec.structs.asdict(value).items())
    return one_line(value)


def _limits(view: TemplateView) -> list[str]:
    """Return the limits of a template, in few words."""
    limits = [
        (view.max_running, f"{view.max_running} at once"),
        (view.concurrency, f"{view.concurrency} per process"),
        (view.rate_limit, f"starts {view.rate_limit}"),
        (view.submit_limit, f"submits {view.submit_limit}"),
        (view.dedup_window, f"dedup {_shown(view, 'dedup_window')}"),
        (view.requires_permission, f"needs {view.requires_permission}"),
    ]
    return [words for limit, words in limits if limit is not None]


LIST = listing(
    "No templates: a worker records those of its application, `rota template load` those of a file.",
    "name kind state priority> timeout> retries=max_retries> limits~ handler~ what_for=description~",
    kind=lambda view: KINDS[view.kind],
    state=lambda view: coloured(view.state, STATES[view.state]),
    timeout=lambda view: _shown(view, "timeout"),
    limits=_limits,
)
VIEWS: dict[str | type, View] = {
    TemplateView: View(show_one),
    "template list": View(LIST),
    "template enable": View(show_state),
    "template disable": View(show_state),
    "template archive": View(show_archived, prepare=note_schedules),
    "template load": View(show_loaded),
}
