"""The form of a template that is SQL or a command: a new one, and a change of what one does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from rota.errors import InvalidInput, InvalidOption, Refused, UnknownTemplate
from rota.model.gate import Right
from rota.model.schedules import JobKind
from rota.model.templates import OF_THE_HANDLER, Spec, from_text
from rota.operation import session_of
from rota.surfaces.http import problems
from rota.surfaces.http.pages.context import Visit, link
from rota.surfaces.http.pages.routes import Name, page
from rota.template_views import TemplateView

KINDS = {JobKind.SQL: "SQL", JobKind.EXTERNAL: "a command"}
OPTIONS = ("description", "timeout", "max_retries")
"""Fields that a new one is given with its text; the page of the template changes all of them."""
BLAMES = {
    "name": r"template|the template|.* is not a template name",
    "text": r"sql|command|a template is SQL or a command",
    "connection": r"connection|the connection|.* is not a connection name",
    "secrets": r".*\bsecret\b",
    **{option: option for option in OPTIONS},
}
"""How the refusal of each field begins."""


@page("GET /templates/define")
def show_definition(visit: Visit, name: Name = "") -> Response:
    """Show the form: of a new template, or of one that is there."""
    visit.must(Right.MANAGE_TEMPLATES)
    it = visit.rota.templates.get(name) if name else None
    if it is not None and it.kind is JobKind.PYTHON:
        raise InvalidOption(f"template {name!r} is Python: its code is changed where it is written")
    return _form(visit, it, _values(it))


@page("POST /templates/define")
def define(visit: Visit) -> Response:
    """Define a template. What is refused comes back in the form, with what was typed."""
    visit.must(Right.MANAGE_TEMPLATES)
    form, version = visit.form, visit.form.number("version")
    name = form.text("name") or ""
    it = visit.rota.templates.get(name) if version is not None else None
    try:
        if it is None:
            _refuse_taken(visit, name)
        done = visit.rota.templates.if_match(0 if version is None else version).define(name, **_work(visit), **_options(visit, it))
    except (InvalidInput, Refused) as error:
        return _refused(visit, it, error)
    said = "changed. Jobs that were enqueued before keep the old definition." if it is not None else "defined."
    return visit.done(f"{done.name} is {said}", link("/templates/one", name=done.name))


def _refuse_taken(visit: Visit, name: str) -> None:
    with suppress(UnknownTemplate):
        visit.rota.templates.get(name)
        raise InvalidOption(f"template {name!r} is there already: choose another name, or change that template")


def _work(visit: Visit) -> dict[str, Any]:
    form = visit.form
    is_sql = form.get("kind") != JobKind.EXTERNAL
    # A browser ends lines with CR LF, whatever was in the text before.
    text = form.get("text", "").replace("\r\n", "\n").strip()
    connection = form.text("connection")
    if not is_sql and connection is not None:
        raise InvalidOption(f"connection={connection!r} is not allowed: a command uses no connection")
    return {"sql" if is_sql else "command": text, "connection": connection, "secrets": form.words("secrets")}


def _options(visit: Visit, it: TemplateView | None) -> dict[str, Any]:
    """Return the fields of the definition that are not its text: as they are, or those of a new one."""
    if it is None:
        return {option: from_text(option, given) for option in OPTIONS if (given := visit.form.text(option)) is not None}
    known = session_of(visit.rota).registry.find(it.name)
    code = Spec() if known is None else known.code
    said = {field: getattr(code, field) for field in Spec.__struct_fields__ if field not in OF_THE_HANDLER}
    return {field: value for field, value in said.items() if value is not UNSET}


def _refused(visit: Visit, it: TemplateView | None, error: InvalidInput | Refused) -> Response:
    answer = problems.of(error, store=visit.rota.store.url)
    detail = str(msgspec.json.decode(bytes(answer.body))["detail"])
    values = _values(it)
    field = next((field for field, begins in BLAMES.items() if field in values and re.match(begins, detail)), "")
    return _form(visit, it, values | visit.form, status=answer.status_code, wrong={field: detail})


def _values(it: TemplateView | None) -> dict[str, str]:
    if it is None:
        return dict.fromkeys(("name", "kind", "text", "connection", "secrets", *OPTIONS), "")
    return {"kind": it.kind, "text": it.body or "", "connection": it.connection or "", "secrets": ", ".join(it.secrets)}


def _form(
    visit: Visit,
    it: TemplateView | None,
    values: Mapping[str, str],
    *,
    status: int = HTTPStatus.OK,
    wrong: Mapping[str, str] | None = None,
) -> Response:
    version = visit.form.get("version") or (None if it is None else it.version)
    return visit.page("work_form.html", status=status, it=it, values=values, version=version, wrong=wrong or {}, kinds=KINDS)
