"""Workers, and what is paused."""

from __future__ import annotations

from starlette.responses import Response

from rota.errors import InvalidOption
from rota.model.gate import Right
from rota.surfaces.http.pages.pauses import set_pause
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit

router = page_router()


@router.get("/workers")
def show(visit: Visit) -> Response:
    """Show the workers that live, and the pauses."""
    found = visit.rota.acting_as(visit.actor).workers.list()
    templates = [each.name for each in visit.rota.acting_as(visit.actor).templates.list()]
    return visit.page("workers.html", workers=found, pauses=visit.rota.acting_as(visit.actor).store.pauses(), templates=templates)


@router.post("/pauses")
def pause(visit: Visit) -> Response:
    """Pause or resume everything, a template, or an organization."""
    form = visit.form
    kind, name, what = form.need("kind"), form.text("name"), form.need("what")
    if kind not in {"all", "template", "organization"} or what not in {"pause", "resume"} or (kind != "all" and name is None):
        raise InvalidOption(f"{what[:20]!r} of {kind[:20]!r} {name!r} can't be: pause or resume all, a template or an organization")
    which = {} if kind == "all" else {kind: name}
    words = "everything" if kind == "all" else f"{kind} {name}"
    if what == "resume":
        set_pause(visit.rota.acting_as(visit.actor), paused=False, **which)
        return visit.done(f"{words.capitalize()} goes on.", "/workers")
    if kind == "all":
        visit.must(Right.OPERATE)
        visit.sure("Pause everything? Nothing starts until it is resumed; what runs goes on.", "Pause everything")
    set_pause(visit.rota.acting_as(visit.actor), paused=True, **which)
    return visit.done(f"{words.capitalize()} is paused.", "/workers")
