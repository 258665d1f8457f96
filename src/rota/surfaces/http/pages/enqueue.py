"""Enqueue one job: a form for its params and options."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from rota.errors import InvalidInput, InvalidParams, Refused, UnknownTemplate
from rota.model.gate import Right
from rota.surfaces.http.pages.jobs import choices, moment
from rota.surfaces.http.pages.params_input import ParamsInput, Unread
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit
from rota.template_views import TemplateView

router = page_router()

OPTIONS = ("priority", "run_at", "unique_key", "organization")


@router.get("/jobs/new")
def show(
    visit: Visit,
    name: Annotated[str, Meta(max_length=255)] = "",
    params_as: Annotated[str, Meta(max_length=10)] = "",
) -> Response:
    """Show the form for a job of a template, or let one be chosen."""
    visit.must(Right.SUBMIT)
    if not name:
        return visit.page("enqueue.html", it=None, params=None, wrong="", **choices(visit))
    view = visit.rota.acting_as(visit.actor).templates.get(name)
    return _page(visit, view, _input(view, as_json=params_as == "json"))


@router.post("/jobs")
def enqueue(visit: Visit) -> Response:
    """Enqueue one job. What is refused comes back in the form, with what was typed."""
    name = visit.form.need("name")
    visit.must(Right.SUBMIT)
    try:
        view = visit.rota.acting_as(visit.actor).templates.get(name)
    except UnknownTemplate:
        view = None  # enqueueing says what is wrong with the name
    params = _input(view)
    try:
        return _enqueued(visit, name, params)
    except (InvalidInput, Refused) as error:
        if view is None:
            raise
        return _page(visit, view, params, params.refused(visit, error))
    except Unread as unread:
        if view is None:
            raise InvalidParams(unread.detail) from None
        return _page(visit, view, params, unread)


def _enqueued(visit: Visit, name: str, params: ParamsInput) -> Response:
    options: dict[str, Any] = {option: visit.form.text(option) for option in OPTIONS if visit.form.text(option)}
    typed = params.read(visit.form)
    if "run_at" in options:
        options["run_at"] = moment(options["run_at"])
    job = visit.rota.acting_as(visit.actor).enqueue(name, typed or {}, **options)
    said = f"{job.number} already exists: it holds this unique key." if job.existing else f"{job.number} is enqueued."
    return visit.done(said, f"/jobs/{job.id}")


def _input(view: TemplateView | None, *, as_json: bool = False) -> ParamsInput:
    if view is None:
        return ParamsInput(None)
    return ParamsInput(view.params_schema, defaults=view.default_params, as_json=as_json)


def _page(visit: Visit, view: TemplateView, params: ParamsInput, unread: Unread | None = None) -> Response:
    return visit.page(
        "enqueue.html",
        status=200 if unread is None else unread.status,
        headers=None if unread is None else unread.headers,
        it=view,
        params=params,
        wrong="" if unread is None else unread.detail,
    )
