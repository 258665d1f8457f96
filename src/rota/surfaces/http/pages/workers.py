"""Workers, and what is paused."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from rota.app import Rota
from rota.errors import InvalidOption
from rota.model.gate import Right
from rota.model.values import Job
from rota.operation import ask_for
from rota.surfaces.http.pages.context import Visit
from rota.surfaces.http.pages.routes import page

RUNS_MAX = 500
"""Running jobs that are looked at for their workers."""
FEW = 5
"""Running jobs of a worker that are named."""


@page("GET /workers")
def show(visit: Visit) -> Response:
    """Show the workers that live, and the pauses."""
    found = visit.rota.workers.list()
    runs: dict[str, list[Job]] = {}
    for job in visit.rota.workers.jobs(limit=RUNS_MAX):
        runs.setdefault(str(job.worker_id), []).append(job)
    ask = ask_for(visit.rota, Right.OPERATE)
    beats = ask.session.beats.ages(worker for worker in found if worker.kind == "worker")
    templates = [each.name for each in visit.rota.templates.list()]
    shown: dict[str, Any] = {"runs": runs, "beats": beats, "few": FEW}
    return visit.page("workers.html", workers=found, **shown, pauses=visit.rota.store.pauses(), templates=templates)


@page("POST /pauses")
def pause(visit: Visit) -> Response:
    """Pause or resume everything, a template, or an organization."""
    form = visit.form
    kind, name, what = form.need("kind"), form.text("name"), form.need("what")
    if kind not in {"all", "template", "organization"} or what not in {"pause", "resume"} or (kind != "all" and name is None):
        raise InvalidOption(f"{what[:20]!r} of {kind[:20]!r} {name!r} can't be: pause or resume all, a template or an organization")
    which = {} if kind == "all" else {kind: name}
    words = "everything" if kind == "all" else f"{kind} {name}"
    if what == "resume":
        set_pause(visit.rota, paused=False, **which)
        return visit.done(f"{words.capitalize()} goes on.", "/workers")
    if kind == "all":
        visit.must(Right.OPERATE)
        visit.sure("Pause everything? Nothing starts until it is resumed; what runs goes on.", "Pause everything")
    set_pause(visit.rota, paused=True, **which)
    return visit.done(f"{words.capitalize()} is paused.", "/workers")


def set_pause(rota: Rota, *, paused: bool, template: str | None = None, organization: str | None = None, queue: str | None = None) -> None:
    """Pause or resume a template, an organization, a queue, or (none given) everything."""
    asked = {"template": template, "organization": organization, "queue": queue}
    named = [f"{kind}=…" for kind, name in asked.items() if name is not None]
    if len(named) > 1:
        raise InvalidOption(f"use {' or '.join(named)}, not {'both' if len(named) == 2 else 'all of them'}")
    if template is not None:
        (rota.templates.pause if paused else rota.templates.resume)(template)
    elif organization is not None:
        (rota.organizations.pause if paused else rota.organizations.resume)(organization)
    elif queue is not None:
        (rota.queues.pause if paused else rota.queues.resume)(queue)
    elif paused:
        rota.store.pause()
    else:
        rota.store.resume()
