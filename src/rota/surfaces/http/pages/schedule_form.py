"""The form of a schedule: a new one of a template, and a change of one that is there. Params are entered as those of a job are."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from rota.errors import InvalidInput, Refused, UnknownTemplate
from rota.model.definitions import TemplateState
from rota.model.gate import Right
from rota.schedule_views import ScheduleView
from rota.surfaces.http.pages.context import Visit, link, sentences
from rota.surfaces.http.pages.params_form import is_same
from rota.surfaces.http.pages.params_input import UNSENT, ParamsInput, Unread
from rota.surfaces.http.pages.routes import Name, page

GIVEN = ("cron", "every", "timezone", "catch_up", "overlap", "description", "priority", "calendar")
EDITED = ("cron", "every", "timezone", "catch_up", "overlap", "jitter", "description", "priority", "calendar")
ParamsAs = Annotated[str, Meta(max_length=10)]


@page("GET /schedules/new")
def show_new(visit: Visit, template: Name = "", params_as: ParamsAs = "") -> Response:
    """Show the form of a new schedule; without a template, choose one first."""
    visit.must(Right.SCHEDULE)
    if not template:
        templates = [each.name for each in visit.rota.templates.list() if each.state is TemplateState.ENABLED]
        return visit.page("schedule_form.html", it=None, job_type="", templates=templates, params=None, wrong="")
    visit.rota.templates.get(template)
    return _form(visit, template, None, _params(visit, template, None, as_json=params_as == "json"))


@page("POST /schedules")
def create(visit: Visit) -> Response:
    """Create a schedule. What is refused comes back in the form, with what was typed."""
    visit.must(Right.SCHEDULE)
    template = visit.form.need("template")
    params = _params(visit, template, None)
    try:
        return _created(visit, template, params)
    except (InvalidInput, Refused) as error:
        return _form(visit, template, None, params, params.refused(visit, error))
    except Unread as unread:
        return _form(visit, template, None, params, unread)


def _created(visit: Visit, template: str, params: ParamsInput) -> Response:
    form = visit.form
    options: dict[str, Any] = {name: form.text(name) for name in GIVEN if form.text(name)}
    note = ""
    if form.text("at"):
        reading = visit.moment("at")
        options["at"], note = reading.at, reading.note
    if typed := params.read(form):
        options["params"] = typed
    new = visit.rota.schedules.create(form.need("name"), template, organization=form.text("organization"), **options)
    return visit.done(sentences(f"Schedule {new.name} is created: {new.words}", note), page_of(new.name, new.organization))


@page("GET /schedules/one/change")
def show_change(visit: Visit, name: Name, organization: Name | None = None, params_as: ParamsAs = "") -> Response:
    """Show the form that changes a schedule."""
    visit.must(Right.SCHEDULE)
    it = visit.rota.schedules.get(name, organization=organization)
    return _form(visit, it.template, it, _params(visit, it.template, it, as_json=params_as == "json"))


@page("POST /schedules/one/change")
def change(visit: Visit) -> Response:
    """Change a schedule. What is refused comes back in the form, with what was typed."""
    visit.must(Right.SCHEDULE)
    it = visit.rota.schedules.get(visit.form.need("name"), organization=visit.form.text("organization"))
    params = _params(visit, it.template, it)
    try:
        return _changed(visit, it, params)
    except (InvalidInput, Refused) as error:
        return _form(visit, it.template, it, params, params.refused(visit, error))
    except Unread as unread:
        return _form(visit, it.template, it, params, unread)


def _changed(visit: Visit, it: ScheduleView, params: ParamsInput) -> Response:
    form = visit.form
    options: dict[str, Any] = {}
    for field in EDITED:
        if field in form and form.text(field) != shown(getattr(it, field)):
            options[field] = form.text(field)
    if (typed := params.read(form)) is not None and not is_same(typed, it.params):
        options["params"] = typed
    if form.text("new_name") not in {None, it.name}:
        options["new_name"] = form.need("new_name")
    if not options:
        return visit.done("Nothing is changed.", page_of(it.name, it.organization))
    changed = visit.rota.schedules.if_match(form.number("version")).update(it.name, organization=it.organization, **options)
    return visit.done(f"{changed.name} is changed: {changed.words}.", page_of(changed.name, changed.organization))


def page_of(name: str, organization: str | None) -> str:
    """Return the address of a schedule's page."""
    return link("/schedules/one", name=name, organization=organization)


def shown(value: object) -> str | None:
    """Return a value as the form shows it."""
    return None if value in (None, 0.0) else f"{value:g}" if isinstance(value, float) else str(value)


def _params(visit: Visit, template: str, it: ScheduleView | None, *, as_json: bool = False) -> ParamsInput:
    try:
        view = visit.rota.templates.get(template)
    except UnknownTemplate:
        return ParamsInput(None, None if it is None else it.params)
    return ParamsInput(
        view.params_schema, None if it is None else it.params, defaults=view.default_params, as_json=as_json, zone=visit.zone
    )


def _form(visit: Visit, template: str, it: ScheduleView | None, params: ParamsInput, unread: Unread = UNSENT) -> Response:
    values = dict.fromkeys((*GIVEN, "name", "at"), "")
    if it is not None:
        values |= {name: shown(getattr(it, name)) or "" for name in EDITED} | {"new_name": it.name}
    return visit.page(
        "schedule_form.html",
        status=unread.status,
        headers=unread.headers,
        it=it,
        job_type=template,
        values=values | visit.form,
        version=visit.form.get("version") or (None if it is None else it.version),
        params=params,
        wrong=unread.detail,
    )
