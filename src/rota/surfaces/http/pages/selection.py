"""Rows that were ticked in a list: one button does the same to each, and says of each what could not be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.responses import Response

from rota.errors import InvalidInput, InvalidOption, NotFound, PermissionDenied, Refused, RotaError
from rota.model.gate import Right
from rota.model.states import Status
from rota.surfaces.http.pages.context import Visit, plural
from rota.surfaces.http.pages.routes import chosen, page

ROW = "row"
"""The field of a ticked row."""
ROWS_MAX = 100
"""Rows of one page, at most."""
ROW_ERRORS = (Refused, NotFound, PermissionDenied, InvalidInput)
"""Errors that concern one row; after another one, the rows that are left are not tried."""


class RowAct(msgspec.Struct, frozen=True):
    """A button of a list: what it does to each row that is ticked."""

    label: str
    right: Right
    do: Callable[[Visit, str], str]
    """Act on one row, and return what became of it, in a word or two."""
    asks: str = ""
    """The question before it; `{rows}` is how many, of what."""

    def offered(self, visit: Visit) -> bool:
        """Say whether the visitor may press it."""
        return visit.may(self.right)


class RowError(msgspec.Struct, frozen=True):
    """A row on which nothing was done, and why."""

    name: str
    href: str
    why: str


def act_on(visit: Visit, acts: Mapping[str, RowAct], noun: str, named: Callable[[Visit, str], tuple[str, str]], to: str) -> Response:
    """Do what a button says to each ticked row; `named` returns the name and the page of a row on which it could not be done."""
    act = chosen(acts, visit.form.need("what"), f"ticked {noun}s")
    visit.must(act.right)
    rows = list(dict.fromkeys(value for name, value in visit.form.pairs if name == ROW))
    if not rows:
        raise InvalidOption(f"no row is selected: tick the {noun}s first")
    if len(rows) > ROWS_MAX:
        raise InvalidOption(f"{len(rows):,} rows are selected; at most {ROWS_MAX} can be acted on at once")
    if act.asks:
        visit.sure(act.asks.format(rows=plural(len(rows), noun)), f"{act.label} {plural(len(rows), noun)}")
    done, errors = _each(visit, act, rows, named)
    words = _words(done, noun)
    if not errors:
        return visit.done(words, to)
    return visit.page("rows.html", act=act, noun=noun, words=words, errors=errors, to=to)


def _each(
    visit: Visit, act: RowAct, rows: list[str], named: Callable[[Visit, str], tuple[str, str]]
) -> tuple[Counter[str], list[RowError]]:
    done: Counter[str] = Counter()
    errors: list[RowError] = []
    for place, row in enumerate(rows):
        try:
            done[act.do(visit, row)] += 1
        except ROW_ERRORS as error:
            errors.append(RowError(*named(visit, row), str(error)))
        except RotaError as error:
            left = len(rows) - place - 1
            rest = f"; {plural(left, 'row')} after it {'was' if left == 1 else 'were'} not tried" if left else ""
            errors.append(RowError(row, "", f"{error}{rest}"))
            break
    return done, errors


def _words(done: Counter[str], noun: str) -> str:
    said = [f"{plural(count, noun)} {'is' if count == 1 else 'are'} {became}" for became, count in done.items()]
    return f"{'; '.join(said)}." if said else "Nothing is changed."


# ---- jobs ------------------------------------------------------------------------------------------------------------


def _cancel(visit: Visit, job_id: str) -> str:
    done = visit.rota.jobs.cancel(job_id, reason=visit.form.text("reason"))
    return "asked to stop" if done.status is Status.RUNNING else "cancelled"


def _retry(visit: Visit, job_id: str) -> str:
    visit.rota.jobs.retry(job_id)
    return "retried"


def _run_now(visit: Visit, job_id: str) -> str:
    # A row of a group names the chain: its last attempt is the one that waits.
    visit.rota.jobs.update(visit.rota.jobs.attempts(job_id)[-1].id, run_at=timedelta())
    return "due now"


def _discard(visit: Visit, job_id: str) -> str:
    visit.rota.jobs.delete(job_id)
    return "removed"


RETRY = RowAct("Retry", Right.STEER, _retry)
DISCARD = RowAct("Remove", Right.DELETE, _discard, "Remove {rows} with their runs and logs, for good?")
JOB_ACTS = {
    "retry": RETRY,
    "now": RowAct("Run now", Right.STEER, _run_now),
    "cancel": RowAct("Cancel", Right.CANCEL, _cancel, "Cancel {rows}? They are not retried automatically."),
    "discard": DISCARD,
}
DEAD_ACTS = {"retry": RETRY, "discard": DISCARD}


@page("POST /jobs/rows")
def act_on_jobs(visit: Visit) -> Response:
    """Act on the jobs that are ticked in a list."""
    return act_on(visit, JOB_ACTS, "job", _job_named, "/jobs")


def _job_named(visit: Visit, job_id: str) -> tuple[str, str]:
    try:
        job = visit.rota.jobs.get(job_id)
    except RotaError:
        return job_id, ""
    return job.number, f"/jobs/{job.id}"


# ---- schedules: a name is unique within its organization, so a row has both -------------------------------------------


def _schedule_act(verb: str, became: str) -> Callable[[Visit, str], str]:
    def do(visit: Visit, row: str) -> str:
        name, organization = _schedule(row)
        getattr(visit.rota.schedules, verb)(name, organization=organization)
        return became

    return do


SCHEDULE_ACTS = {
    "pause": RowAct("Pause", Right.SCHEDULE, _schedule_act("pause", "paused")),
    "enable": RowAct("Enable", Right.SCHEDULE, _schedule_act("enable", "enabled")),
}


@page("POST /schedules/rows")
def act_on_schedules(visit: Visit) -> Response:
    """Act on the schedules that are ticked in the list."""
    return act_on(visit, SCHEDULE_ACTS, "schedule", _schedule_named, "/schedules")


def _schedule(row: str) -> tuple[str, str | None]:
    given = dict(parse_qsl(row))
    return given.get("name", row), given.get("organization")


def _schedule_named(_visit: Visit, row: str) -> tuple[str, str]:
    name, organization = _schedule(row)
    about = [("name", name)] + ([("organization", organization)] if organization else [])
    return name, f"/schedules/one?{urlencode(about)}"
