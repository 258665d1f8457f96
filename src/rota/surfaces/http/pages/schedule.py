"""One schedule: when it is due next, what became of its due times, and what can be done to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from rota import wire
from rota.errors import InvalidOption
from rota.lab.forecasts import ForecastItem
from rota.model.gate import Right
from rota.model.schedules import Fate, ScheduleState
from rota.ports.schedules import LedgerCursor
from rota.surfaces.http.pages.params_input import params_of, pretty
from rota.surfaces.http.pages.rendering import link
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit

router = page_router()

PAGE = 50
NEXT = 10
YEAR_H = 24 * 366
"""How far the next due times are looked for."""
EDITED = ("cron", "every", "timezone", "catch_up", "overlap", "jitter", "description", "priority", "calendar")

Name = Annotated[str, Meta(max_length=255)]
Organization = Annotated[str, Meta(max_length=255)] | None


@router.get("/schedules/one")
def show(
    visit: Visit,
    name: Name,
    organization: Organization = None,
    *,
    fate: Annotated[str, Meta(max_length=40)] = "",
    before: Annotated[str, Meta(max_length=4096)] | None = None,
) -> Response:
    """Show one schedule."""
    found = visit.rota.acting_as(visit.actor).schedules.get(name, organization=organization)
    rows = visit.rota.acting_as(visit.actor).schedules.occurrences(
        name,
        fate=fate if fate and fate != "not_ran" else None,
        not_ran=fate == "not_ran",
        limit=PAGE,
        before=None if not before else wire.unseal(before, LedgerCursor),
        organization=found.organization,
    )
    return visit.page(
        "schedule.html",
        it=found,
        params=pretty(found.params),
        coming=_coming(visit, name, found.organization) if found.state is not ScheduleState.DISABLED else [],
        rows=rows,
        next=None if rows.next is None else wire.seal(rows.next),
        first=bool(before),
        fates=list(Fate),
        fate=fate,
    )


@router.post("/schedules/one/{verb}")
def act(visit: Visit, verb: Annotated[str, Meta(max_length=20)]) -> Response:
    """Fire, pause, enable, disable, change or remove a schedule."""
    if verb not in ACTS:
        raise InvalidOption(f"a schedule can't {verb!r}: it can {', '.join(ACTS)}")
    name, organization = visit.form.need("name"), visit.form.text("organization")
    return visit.done(*ACTS[verb](visit, name, organization))


Done = tuple[str, str]


def _fire(visit: Visit, name: str, organization: str | None) -> Done:
    params = params_of(visit.form.text("params")) if visit.form.text("params") else None
    job = visit.rota.acting_as(visit.actor).schedules.fire(name, params, organization=organization)
    return f"{name} is fired: {job.number}.", f"/jobs/{job.id}"


def _state(verb: str, words: str) -> Callable[[Visit, str, str | None], Done]:
    def set_state(visit: Visit, name: str, organization: str | None) -> Done:
        getattr(visit.rota.acting_as(visit.actor).schedules, verb)(name, organization=organization)
        return f"{name} is {words}.", _page(name, organization)

    return set_state


def _disable(visit: Visit, name: str, organization: str | None) -> Done:
    visit.must(Right.SCHEDULE)
    visit.sure(f"Disable {name}? It has no due times from now on, and what is missed is not made up for.", "Disable it")
    return _state("disable", "disabled")(visit, name, organization)


def _delete(visit: Visit, name: str, organization: str | None) -> Done:
    visit.must(Right.DELETE_SCHEDULES)
    visit.sure(f"Remove the schedule {name}? Its jobs and its history stay. Code that declares it makes it anew.", "Remove it")
    visit.rota.acting_as(visit.actor).schedules.delete(name, organization=organization)
    return f"{name} is removed.", "/schedules"


def _change(visit: Visit, name: str, organization: str | None) -> Done:
    found = visit.rota.acting_as(visit.actor).schedules.get(name, organization=organization)
    options: dict[str, Any] = {}
    for field in EDITED:
        if field in visit.form and visit.form.text(field) != _shown(getattr(found, field)):
            options[field] = visit.form.text(field)
    if "params" in visit.form and (params := params_of(visit.form.text("params"))) != found.params:
        options["params"] = params
    if visit.form.text("new_name") not in {None, name}:
        options["new_name"] = visit.form.need("new_name")
    if not options:
        return "Nothing is changed.", _page(name, organization)
    version = visit.form.number("version")
    changed = visit.rota.acting_as(visit.actor).schedules.if_match(version).update(name, organization=organization, **options)
    return f"{changed.name} is changed: {changed.words}.", _page(changed.name, organization)


def _shown(value: object) -> str | None:
    """Return a value as the form shows it."""
    return None if value in (None, 0.0) else f"{value:g}" if isinstance(value, float) else str(value)


def _page(name: str, organization: str | None) -> str:
    return link("/schedules/one", name=name, organization=organization)


def _coming(visit: Visit, name: str, organization: str) -> list[ForecastItem]:
    return visit.rota.acting_as(visit.actor).forecast(YEAR_H, schedule=name, organization=organization, skipped=True, limit=NEXT)


ACTS: dict[str, Callable[[Visit, str, str | None], Done]] = {
    "fire": _fire,
    "pause": _state("pause", "paused: its due times are skipped, and written down so"),
    "enable": _state("enable", "enabled"),
    "disable": _disable,
    "change": _change,
    "delete": _delete,
}
