"""One job: the form that enqueues it; its chain, its log, its run, why it waits, and what can be done to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from rota.errors import InvalidInput, InvalidParams, NotFound, Refused, UnknownTemplate
from rota.model.gate import Right
from rota.model.kinds import RUNNER, is_kind
from rota.model.local_time import field_text
from rota.model.states import RETRYABLE_ENDS, Status
from rota.model.values import Job, Origin
from rota.operation import tag_of
from rota.surfaces.http.pages import charts
from rota.surfaces.http.pages.context import Visit, link, sentences
from rota.surfaces.http.pages.jobs import choices
from rota.surfaces.http.pages.params_form import digest_of, is_same
from rota.surfaces.http.pages.params_input import UNSENT, ParamsInput, Unread
from rota.surfaces.http.pages.routes import Name, page
from rota.surfaces.runs import error_of, run_of
from rota.template_views import TemplateView

LINES_MAX = 1000
"""Lines of a log that the page shows: the last ones. All of it is a link away."""
ROWS_MAX = 200
"""Rows of a result that the page shows: the first ones. The API has all that are kept."""
CELL_MAX = 2000
"""Characters of a value in such a row."""
ATTEMPTS_MAX = 40
"""Attempts that the picture of a chain shows: the last ones."""

NEAR_MAX = 20
"""Jobs that it waits for, or that wait for it, that the page lists."""
ORIGINS = {Origin.DIRECT: "by direct execution", Origin.SCHEDULE: "by a schedule", Origin.GROUP: "in a group"}

OPTIONS = ("priority", "run_at", "unique_key", "organization")

JobId = Annotated[str, Meta(max_length=64)]
ParamsAs = Annotated[str, Meta(max_length=10)]


@page("GET /jobs/new")
def show_enqueue(visit: Visit, name: Name = "", params_as: ParamsAs = "") -> Response:
    """Show the form for a job of a template, or let one be chosen."""
    visit.must(Right.SUBMIT)
    if not name:
        return visit.page("enqueue.html", it=None, params=None, wrong="", **choices(visit))
    view = visit.rota.templates.get(name)
    return _enqueue_page(visit, view, _input(visit, view, as_json=params_as == "json"))


@page("POST /jobs")
def enqueue(visit: Visit) -> Response:
    """Enqueue one job. What is refused comes back in the form, with what was typed."""
    name = visit.form.need("name")
    visit.must(Right.SUBMIT)
    try:
        view = visit.rota.templates.get(name)
    except UnknownTemplate:
        view = None  # enqueueing says what is wrong with the name
    params = _input(visit, view)
    try:
        return _enqueued(visit, name, params)
    except (InvalidInput, Refused) as error:
        if view is None:
            raise
        return _enqueue_page(visit, view, params, params.refused(visit, error))
    except Unread as unread:
        if view is None:
            raise InvalidParams(unread.detail) from None
        return _enqueue_page(visit, view, params, unread)


def _enqueued(visit: Visit, name: str, params: ParamsInput) -> Response:
    options: dict[str, Any] = {option: visit.form.text(option) for option in OPTIONS if visit.form.text(option)}
    typed = params.read(visit.form)
    remarks = params.remarks
    if "run_at" in options:
        reading = visit.moment("run_at")
        options["run_at"] = reading.at
        remarks.append(reading.note)
    job = visit.rota.enqueue(name, typed or {}, **options)
    said = f"{job.number} already exists: it holds this unique key." if job.existing else f"{job.number} is enqueued."
    return visit.done(sentences(said, *remarks), f"/jobs/{job.id}")


def _input(visit: Visit, view: TemplateView | None, *, as_json: bool = False) -> ParamsInput:
    if view is None:
        return ParamsInput(None)
    return ParamsInput(view.params_schema, defaults=view.default_params, as_json=as_json, zone=visit.zone)


def _enqueue_page(visit: Visit, view: TemplateView, params: ParamsInput, unread: Unread = UNSENT) -> Response:
    return visit.page("enqueue.html", status=unread.status, headers=unread.headers, it=view, params=params, wrong=unread.detail)


@page("GET /jobs/find")
def go_to(visit: Visit, job: JobId = "") -> Response:
    """Go to the page of the job that the field of the header names; list what contains the text if it names none."""
    try:
        to = f"/jobs/{visit.rota.jobs.get(job.strip()).id}"
    except NotFound:
        to = link("/jobs", text=job.strip())
    return RedirectResponse(to, status_code=HTTPStatus.SEE_OTHER)


# ---- a job that is there ---------------------------------------------------------------------------------------------


@page("GET /jobs/{job_id}")
def show(visit: Visit, job_id: JobId) -> Response:
    """Show one job."""
    job = visit.rota.jobs.get(job_id)
    chain = visit.rota.jobs.attempts(job.id)
    live = chain[-1]
    errors = {each.id: error_of(visit.rota, each) for each in chain}
    waits_again = len(chain) > 1 and live.status in {Status.PENDING, Status.QUEUED}
    log = list(visit.rota.jobs.log(job.id)) if visit.may(Right.READ_LOG) else None
    run = run_of(visit.rota, job.id)
    return visit.page(
        "job.html",
        table=None if run is None or job.executor != RUNNER else table_of(run.result),
        is_kind=is_kind(job.job_type),
        job=job,
        live=live,
        chain=chain,
        errors=errors,
        last_error=errors[chain[-2].id] if waits_again else "",
        run=run,
        log=None if log is None else log[-LINES_MAX:],
        cut=0 if log is None else max(0, len(log) - LINES_MAX),
        picture=_picture(chain, visit.zone),
        why=None if live.status.ended else visit.rota.explain(job.id),
        around=_around(visit, job),
        near=NEAR_MAX,
        origins=ORIGINS,
        retryable=live.status in RETRYABLE_ENDS,
    )


class Rows(msgspec.Struct, frozen=True):
    """The rows of SQL as the page shows them."""

    columns: list[str]
    rows: list[list[Any]]
    total: int
    numbers: frozenset[int]
    """The places of columns of numbers."""
    truncated: bool
    cell_max: int = CELL_MAX


def table_of(result: object) -> Rows | None:
    """Return the rows that a runner of SQL has kept; None: it is another result."""
    try:
        kept = msgspec.convert(result, _Kept)
    except msgspec.ValidationError:
        return None
    rows, places = kept.rows[:ROWS_MAX], range(len(kept.columns))
    if not kept.columns or any(len(row) != len(kept.columns) for row in rows):
        return None
    numbers = frozenset(place for place in places if any(type(row[place]) in {int, float} for row in rows))
    return Rows(kept.columns, rows, len(kept.rows), numbers, kept.truncated)


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    columns: list[str]
    rows: list[list[Any]]
    truncated: bool = False


@page("GET /jobs/{job_id}/log")
def log(visit: Visit, job_id: JobId) -> Response:
    """Return the whole log as text."""
    return PlainTextResponse(str(visit.rota.jobs.log(job_id)) + "\n", headers={"Cache-Control": "no-store"})


@page("POST /jobs/{job_id}/cancel")
def cancel(visit: Visit, job_id: JobId) -> Response:
    """Cancel its chain."""
    job = _seen(visit, job_id, Right.CANCEL)
    visit.sure(f"Cancel {job.number} ({job.job_type})? It is not retried automatically.", "Cancel the job")
    done = visit.rota.jobs.cancel(job_id, reason=visit.form.text("reason"))
    said = f"{done.number} was asked to stop." if done.status is Status.RUNNING else f"{done.number} is cancelled."
    return visit.done(said, f"/jobs/{done.id}")


@page("POST /jobs/{job_id}/retry")
def retry(visit: Visit, job_id: JobId) -> Response:
    """Give its chain one more attempt."""
    done = visit.rota.jobs.retry(job_id)
    return visit.done(f"{done.number} is the next attempt.", f"/jobs/{done.id}")


@page("GET /jobs/{job_id}/change")
def show_change(visit: Visit, job_id: JobId, params_as: ParamsAs = "") -> Response:
    """Show the form that changes a waiting job."""
    visit.must(Right.STEER)
    job = visit.rota.jobs.attempts(job_id)[-1]
    return _change_page(visit, job, _params_of(visit, job, as_json=params_as == "json"))


@page("POST /jobs/{job_id}/change")
def change(visit: Visit, job_id: JobId) -> Response:
    """Change a waiting job. What is refused comes back in the form, with what was typed."""
    visit.must(Right.STEER)
    job = visit.rota.jobs.attempts(job_id)[-1]
    params = _params_of(visit, job)
    try:
        return _changed(visit, job, params)
    except (InvalidInput, Refused) as error:
        return _change_page(visit, job, params, params.refused(visit, error))
    except Unread as unread:
        return _change_page(visit, job, params, unread)


def _changed(visit: Visit, job: Job, params: ParamsInput) -> Response:
    """Change what differs in the form: setting the priority that a job has would cost it its place."""
    form = visit.form
    options: dict[str, Any] = {}
    if (priority := form.text("priority")) not in {None, str(job.priority)}:
        options["priority"] = int(priority) if priority and priority.isdecimal() else priority
    if (typed := params.read(form)) is not None and not is_same(typed, job.params):
        if form.get("seen") not in {None, digest_of(job.params)}:
            raise Unread(
                f"The params of {job.number} were changed after this page was opened. "
                "Open the page again to see them, or press Save to overwrite them.",
                HTTPStatus.PRECONDITION_FAILED,
            )
        options["params"] = typed
    remarks = params.remarks
    if form.text("run_at") and not _is_shown(form.need("run_at"), job.run_at, visit.zone):
        reading = visit.moment("run_at")
        options["run_at"] = reading.at
        remarks.append(reading.note)
    if not options:
        return visit.done("Nothing is changed.", f"/jobs/{job.id}")
    # What was compared is what is written over: another change in between is refused.
    unchanged = tag_of(job, job) if "params" in options else None
    done = visit.rota.jobs.if_match(unchanged).update(job.id, **options)
    return visit.done(sentences(f"{done.number} is changed.", *remarks), f"/jobs/{done.id}")


def _is_shown(typed: str, at: datetime | None, zone: tzinfo) -> bool:
    """Say whether a field holds the time that it showed; a browser may leave out seconds that are zero."""
    return at is not None and field_text(at, zone) in {typed, f"{typed}:00"}


def _params_of(visit: Visit, job: Job, *, as_json: bool = False) -> ParamsInput:
    try:
        schema = visit.rota.templates.get(job.job_type).params_schema
    except UnknownTemplate:
        schema = None  # it was removed, and its jobs are left
    return ParamsInput(schema, job.params, as_json=as_json, zone=visit.zone)


def _change_page(visit: Visit, job: Job, params: ParamsInput, unread: Unread = UNSENT) -> Response:
    seen = digest_of(job.params)
    if unread is not UNSENT and unread.status != HTTPStatus.PRECONDITION_FAILED:
        # What is typed was typed over the params that the form was opened with.
        seen = visit.form.get("seen") or seen
    run_at = field_text(job.run_at, visit.zone) if job.run_at else ""
    return visit.page("change.html", status=unread.status, job=job, run_at=run_at, params=params, seen=seen, wrong=unread.detail)


@page("POST /jobs/{job_id}/now")
def run_now(visit: Visit, job_id: JobId) -> Response:
    """Make a job due that waits for its time."""
    done = visit.rota.jobs.update(job_id, run_at=timedelta())
    return visit.done(f"{done.number} is due now.", f"/jobs/{done.id}")


@page("POST /jobs/{job_id}/front")
def front(visit: Visit, job_id: JobId) -> Response:
    """Move a job that is queued before all others of its priority."""
    done = visit.rota.jobs.move(job_id, front=True)
    return visit.done(f"{done.number} is now the first of its priority.", f"/jobs/{done.id}")


@page("POST /jobs/{job_id}/discard")
def discard(visit: Visit, job_id: JobId) -> Response:
    """Remove its chain for good."""
    job = _seen(visit, job_id, Right.DELETE)
    visit.sure(f"Remove {job.number} ({job.job_type}) with its runs and logs, for good?", "Remove it")
    visit.rota.jobs.delete(job_id)
    return visit.done(f"{job.number} is removed.", "/jobs")


def _seen(visit: Visit, job_id: str, operation: Right) -> Job:
    """Return a job to ask about; what would be refused is refused before anybody is asked."""
    visit.must(operation)
    return visit.rota.jobs.get(job_id)


def _picture(chain: list[Job], zone: tzinfo) -> Any:
    """Draw the attempts of a chain; None if none has started or ended yet."""
    shown = chain[-ATTEMPTS_MAX:]
    if all(each.started_at is None and each.finished_at is None for each in shown):
        return None
    return charts.chain(
        [
            charts.Attempt(
                f"attempt {each.attempt}",
                made=each.run_at if each.run_at and each.run_at > each.created_at else each.created_at,
                began=each.started_at,
                ended=each.finished_at,
                status=str(each.status),
            )
            for each in shown
        ],
        datetime.now(UTC),
        zone,
    )


def _around(visit: Visit, job: Job) -> dict[str, list[Job]]:
    """Return the chains that this one waits for, and those that wait for it, nearest only."""
    graph = visit.rota.jobs.graph(job.id)
    found: dict[str, list[Job]] = {}
    for edge in graph.edges:
        for way, mine, other in (("Waits for", edge.child, edge.parent), ("Is awaited by", edge.parent, edge.child)):
            if mine == graph.root_id and other in graph.jobs:
                found.setdefault(way, []).append(graph.jobs[other])
    return found
