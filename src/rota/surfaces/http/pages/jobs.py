"""Lists of jobs: all of them, and the queue; and what can be done to all that match."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from rota.errors import InvalidOption, NotFound, Refused
from rota.model.gate import Right
from rota.model.local_time import field_text, read_moment
from rota.model.states import MOVES, RETRYABLE_ENDS, ErrorType, Status
from rota.model.templates import span_of
from rota.model.values import Job
from rota.model.zones import zone_of
from rota.results import Page
from rota.surfaces.http.pages.context import ZONE_FIELD, Visit, plural
from rota.surfaces.http.pages.routes import Before, page
from rota.surfaces.http.pages.selection import JOB_ACTS
from rota.surfaces.runs import error_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

PAGE = 50
AT_ONCE = 1000
"""Most jobs that one press of a button acts on; pressing it again continues."""
NAMES = ("job_type", "queue", "organization", "owner", "group", "schedule", "text", "error_type", "since", "until")
WHEN = ("since", "until")
MOMENT = re.compile(r"\d{4}-")
"""How a time begins; anything else is a length of time."""
QUEUE_SHOWN = 100
LONG = 1024
"""Characters of one filter, at most."""
STATUSES = frozenset(Status)


class Filters:
    """What a list is narrowed to."""

    def __init__(self, pairs: Sequence[tuple[str, str]], zone: ZoneInfo, names: Sequence[str] = (*NAMES, "status")) -> None:
        """Take pairs of name and value, and the zone of the page; what is empty, or not one of the names, is left out.

        Times without an offset are of the zone that the filters carry, which may be another: an address can be sent to somebody elsewhere.
        """
        named = next((value for name, value in pairs if name == ZONE_FIELD and value), zone.key)
        self._zone = zone_of(named[:LONG])
        self.pairs = [(name, value.strip()[:LONG]) for name, value in pairs if name in names and value.strip()]
        if named != zone.key:
            self.pairs = [(name, self._in(zone, value) if name in WHEN else value) for name, value in self.pairs]
            self._zone = zone
        self._by_name = {name: value for name, value in self.pairs if name != "status"}
        self.status: list[Status] = []
        for status in (value for name, value in self.pairs if name == "status"):
            if status.upper() not in STATUSES:
                raise InvalidOption(f"status={status!r} is not one of {', '.join(Status)}")
            self.status.append(Status(status.upper()))

    def __getitem__(self, name: str) -> str:
        """Return one filter, empty if it is not set."""
        return self._by_name.get(name, "")

    def __bool__(self) -> bool:
        """Say whether anything is narrowed."""
        return bool(self.pairs)

    def options(self) -> dict[str, Any]:
        """Return them as `jobs.list` takes them."""
        found: dict[str, Any] = {name: value for name, value in self._by_name.items() if name not in WHEN}
        if self["error_type"] and self["error_type"] not in set(ErrorType):
            raise InvalidOption(f"error_type={self['error_type']!r} is not one of {', '.join(ErrorType)}")
        for name in WHEN:
            if self[name]:
                found[name] = self._when(name, self[name])
        return found | ({"status": self.status} if self.status else {})

    def words(self) -> str:
        """Say what is left, for a question."""
        return " and ".join(f"{name} {value}" for name, value in self.pairs) or "of every type"

    @property
    def sent(self) -> list[tuple[str, str]]:
        """The fields of a form that acts on what is left."""
        return [*self.pairs, (ZONE_FIELD, self._zone.key)]

    def _when(self, name: str, given: str) -> datetime | timedelta:
        """Return a moment as people write one (2026-11-15 or 2026-11-15T08:00, of the zone if no offset is said), or how long ago (2h)."""
        if MOMENT.match(given):
            return read_moment(given, self._zone, day=True).at
        return timedelta(seconds=span_of(name, given))

    def _in(self, zone: ZoneInfo, given: str) -> str:
        """Return a time as the page's own zone writes it; a length of time, or what is neither, as it is."""
        return field_text(read_moment(given, self._zone, day=True).at, zone) if MOMENT.match(given) else given


@page("GET /jobs")
def find(visit: Visit, before: Before = None) -> Response:
    """Show a page of jobs, newest first."""
    filters = Filters(visit.request.query_params.multi_items(), visit.zone)
    found = visit.rota.jobs.list(**filters.options(), limit=PAGE, before=before)
    errors = {job.id: error_of(visit.rota, job) for job in found}
    shown = {"jobs": found, "why": errors, "next": found.next, "first": before is not None, "filters": filters}
    return visit.page("jobs.html", acts=JOB_ACTS, **shown, **choices(visit))


def choices(visit: Visit) -> dict[str, Any]:
    """Return what the filters of a list offer."""
    names = [each.name for each in visit.rota.templates.list()]
    organizations = visit.rota.organizations.list() if visit.everywhere and visit.may(Right.READ_ORGANIZATIONS) else []
    return {"templates": names, "organizations": [each.name for each in organizations], "statuses": list(Status), "errors": list(ErrorType)}


@page("POST /jobs/act")
def act(visit: Visit) -> Response:
    """Cancel, or retry, all that match."""
    filters, what = Filters(visit.form.pairs, visit.zone), visit.form.need("what")
    if what not in ACTS:
        raise InvalidOption(f"what={what!r} is not one of {', '.join(ACTS)}")
    states, do, right, noun = ACTS[what]
    visit.must(right)
    status = [each for each in states if not filters.status or each in filters.status]
    options = filters.options() | {"status": status, "limit": AT_ONCE}
    found = visit.rota.jobs.list(**options) if status else Page[Job]([])
    if not found:
        return visit.done(f"Nothing to {what}: none of the matching jobs allows it.", "/jobs")
    newest = "the newest " if found.next is not None else "" if filters else "all "
    count = f"{newest}{plural(len(found), 'job' if filters else noun)}"
    which = f"({filters.words()})" if filters else filters.words()
    visit.sure(f"{what.capitalize()} {count} {which}?", f"{what.capitalize()} {count}")
    return visit.done(do(visit, options, found), "/jobs")


def _cancel(visit: Visit, options: dict[str, Any], _found: list[Job]) -> str:
    done = visit.rota.jobs.cancel_all(**options, all=True)
    return f"Cancelled {plural(done.done, 'job')}."


def _retry(visit: Visit, _options: dict[str, Any], found: list[Job]) -> str:
    count = 0
    for job in found:
        try:
            visit.rota.jobs.retry(job.id)
        except (Refused, NotFound):
            continue  # it was retried already
        count += 1
    return f"Retried {plural(count, 'job')}."


Do = Callable[[Visit, dict[str, Any], list[Job]], str]
ACTS: dict[str, tuple[Sequence[Status], Do, Right, str]] = {
    "cancel": (tuple(MOVES), _cancel, Right.CANCEL, "live job"),
    "retry": (tuple(RETRYABLE_ENDS), _retry, Right.STEER, "ended job"),
}
"""What can be done to all that match: to jobs in which states, by whom, and how such jobs are called."""


# ---- the queue -------------------------------------------------------------------------------------------------------


class Place(msgspec.Struct):
    """One place of the queue, and its neighbours: jobs of the same organization and priority, among which it can be moved."""

    number: int
    job: Job
    before: Job | None
    after: Job | None = None


@page("GET /queue")
def show_queue(visit: Visit) -> Response:
    """Show the head of the queue."""
    found = visit.rota.queues.jobs(limit=QUEUE_SHOWN + 1)
    places: list[Place] = []
    last: dict[tuple[str, int], Place] = {}
    for number, job in enumerate(found[:QUEUE_SHOWN], 1):
        line = (job.organization, job.priority)
        neighbour = last.get(line)
        place = Place(number, job, None if neighbour is None else neighbour.job)
        if neighbour is not None:
            neighbour.after = job
        last[line] = place
        places.append(place)
    return visit.page("queue.html", places=places, more=len(found) > QUEUE_SHOWN, pauses=visit.rota.store.pauses())


@page("POST /queue/move")
def move(visit: Visit) -> Response:
    """Move one job: `ID front`, `ID before OTHER` or `ID after OTHER`."""
    job, _, rest = visit.form.need("move").partition(" ")
    where, _, other = rest.partition(" ")
    if where != "front" and (where not in {"before", "after"} or not other):
        raise InvalidOption(f"move={rest[:40]!r} is not front, before or after another job")
    done = visit.rota.jobs.move(job, **{where: True if where == "front" else other})  # type: ignore[arg-type] # as the word wants it
    return visit.done(f"{done.number} is moved.", "/queue")
