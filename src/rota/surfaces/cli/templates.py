"""`rota template list|show|set|reset|enable|disable|archive|delete|load`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from rota.model.templates import FIELDS, from_text
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption, examples
from rota.surfaces.cli.output import age, coloured, escaped, one_line, show_json, show_json_lines, show_pairs, show_table, span, table
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.resources.definitions import Loaded
    from rota.template_views import TemplateView

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The template's name.")]
STATES = {"ENABLED": "green", "DISABLED": "yellow", "ARCHIVED": "bright_black"}
SPANS = {"timeout", "queue_ttl", "dedup_window"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("list", epilog=examples("rota template list", "rota template list --archived --json | jq .name"))(list_templates)
    app.command("show", epilog=examples("rota template show send_email"))(show)
    app.command(
        "set",
        epilog=examples(
            "rota template set send_email max_running=2 rate_limit=10/60s timeout=5m",
            "rota template set send_email max_running=none priority=high",
            "rota template set resize handler=shop.images:resize display_name='Resize pictures'",
            """rota template set resize default_params='{"width": 800}'""",
        ),
    )(set_fields)
    app.command("reset", epilog=examples("rota template reset send_email timeout", "rota template reset send_email"))(reset)
    app.command("enable", epilog=examples("rota template enable send_email"))(enable)
    app.command("disable", epilog=examples("rota template disable send_email"))(disable)
    app.command("archive", epilog=examples("rota template archive send_email"))(archive)
    app.command("delete", epilog=examples("rota template delete send_email"))(delete)
    app.command("load", epilog=examples("rota template load jobs.toml --dry-run", "rota template load --samples"))(load)


def list_templates(
    *,
    archived: Annotated[bool, typer.Option("--archived", help="Show archived ones too.")] = False,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List templates: what is in force, with their limits."""
    with session(store, app=app) as rota:
        found = rota.acting_as(actor()).templates.list(archived=archived)
    if as_json:
        return show_json_lines(found)
    columns = ("name", "state", "priority", "timeout", "retries", "limits", "handler", "what for")
    made = table(*columns, right=("priority", "timeout", "retries"), gives=("limits", "handler", "what for"))
    for view in found:
        made.add_row(
            escaped(view.name),
            coloured(view.state, STATES[view.state]),
            str(view.priority),
            _shown(view, "timeout"),
            str(view.max_retries),
            escaped(", ".join(_limits(view))),
            escaped(view.handler or ""),
            escaped(one_line(view.description or "")),
        )
    return show_table(made, "No templates: a worker records those of its application, `rota template load` those of a file.")


def show(name: NameArgument, *, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show what is in force for a template, and whose word it is: a setting's, the code's, or people's."""
    with session(store, app=app) as rota:
        view = rota.acting_as(actor()).templates.get(name)
    _show(view, as_json=as_json)


def set_fields(
    name: NameArgument,
    pairs: Annotated[
        list[str],
        typer.Argument(metavar="FIELD=VALUE...", help=f"What to set; 'none' takes a limit away. Fields: {', '.join(FIELDS)}."),
    ],
    *,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set fields of a template, on top of what its code says.

    It stays until it is reset, whatever the code says later. A template that is not there is made; it needs a handler. Jobs that
    exist keep what they were enqueued with.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        field, equals, text = pair.partition("=")
        if not equals or not field:
            raise typer.BadParameter(f"{pair!r} is not FIELD=VALUE", param_hint="FIELD=VALUE")
        options[field] = from_text(field, text)
    with session(store, app=app) as rota:
        view = rota.acting_as(actor()).templates.update(name, **options)
    _show(view, as_json=as_json)


def reset(
    name: NameArgument,
    fields: Annotated[list[str] | None, typer.Argument(metavar="[FIELD...]", help="What to take back; none given: everything.")] = None,
    *,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take back what people have set.

    What the code or the settings say holds again.
    """
    with session(store, app=app) as rota:
        view = rota.acting_as(actor()).templates.reset(name, *(fields or ()))
    _show(view, as_json=as_json)


def enable(name: NameArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Let a template take new jobs again."""
    _state(lambda rota: rota.acting_as(actor()).templates.enable(name), store, as_json=as_json)


def disable(name: NameArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Refuse new jobs of a template.

    Those that wait or run go on.
    """
    _state(lambda rota: rota.acting_as(actor()).templates.disable(name), store, as_json=as_json)


def archive(name: NameArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Refuse new jobs of a template and leave it out of lists.

    Those that wait or run go on. Its schedules are disabled. `enable` brings it back, but not its schedules.
    """
    with session(store) as rota:
        scheduled = [each for each in rota.acting_as(actor()).schedules.list(template=name) if each.state != "DISABLED"]
        view = rota.acting_as(actor()).templates.archive(name)
    if as_json:
        return show_json(view)
    typer.echo(f"template {view.name} is {view.state}")
    for each in scheduled:
        typer.echo(f"schedule {each.name} of organization {each.organization} is DISABLED")
    return None


def delete(name: NameArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Delete a template that has no jobs.

    One that has can be archived. Code that still registers it makes it anew.
    """
    with session(store) as rota:
        rota.acting_as(actor()).templates.delete(name)
    if as_json:
        return show_json({"deleted": name})
    return typer.echo(f"template {name} is deleted")


def load(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Definitions: .toml, or .json with a list of job types.", show_default=False)
    ] = None,
    *,
    samples: Annotated[bool, typer.Option("--samples", help="Load the template of rota.samples, a job to try things with.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and write nothing.")] = False,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Load templates, schedules, calendars, organizations and users from a file.

    Everything is checked before anything is written. What the file does not name stays as it is; loading it again changes nothing.
    """
    if (file is None) != samples:
        raise typer.BadParameter("give a file, or --samples")
    with session(store, app=app, make=not dry_run) as rota:
        loaded = rota.acting_as(actor()).store.load(file, samples=samples, dry_run=dry_run)
    _tell(loaded, as_json=as_json)
    if samples and not as_json:
        typer.echo("run it: ROTA_HANDLER_MODULES=rota.samples rota up, then rota enqueue sample_job")


def _state(verb: Callable[[Rota], TemplateView], store: str | None, *, as_json: bool) -> None:
    with session(store) as rota:
        view = verb(rota)
    if as_json:
        return show_json(view)
    return typer.echo(f"template {view.name} is {view.state}")


def _tell(loaded: Loaded, *, as_json: bool) -> None:
    if as_json:
        return show_json(loaded)
    would = "would be " if loaded.dry_run else ""
    for word, things in ((f"{would}added", loaded.added), (f"{would}changed", loaded.changed), ("unchanged", loaded.unchanged)):
        for thing in things:
            typer.echo(f"{word}: {thing}")
    return None


def _show(view: TemplateView, *, as_json: bool) -> None:
    if as_json:
        return show_json(view)
    here = ", its handler is here" if view.handled_here else ""
    show_pairs(
        [
            ("template", view.name),
            ("state", coloured(view.state, STATES[view.state])),
            ("version", f"{view.version}, changed {age(view.updated_at)}{here}"),
        ]
    )
    made = table("field", "value", "from")
    for field in FIELDS:
        source = view.sources[field]
        made.add_row(field, escaped(_shown(view, field)), f"[bold]{source}[/]" if source == "people" else str(source))
    return show_table(made, "")


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
    """Return what a template limits, in few words."""
    found = [
        (view.max_running, f"{view.max_running} at once"),
        (view.concurrency, f"{view.concurrency} per process"),
        (view.rate_limit, f"starts {view.rate_limit}"),
        (view.submit_limit, f"submits {view.submit_limit}"),
        (view.dedup_window, f"dedup {_shown(view, 'dedup_window')}"),
        (view.requires_permission, f"needs {view.requires_permission}"),
    ]
    return [words for limit, words in found if limit is not None]
