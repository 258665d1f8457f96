"""Filters of lists of jobs: what people ask for, as the store takes it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rota.errors import InvalidOption, NotFound
from rota.model.checks import ago, whole
from rota.model.gate import Right
from rota.model.groups import Group
from rota.model.states import ErrorType, Status
from rota.model.values import Job, JobRef, undashed
from rota.operation import Ask
from rota.ports.store import Store, Where
from rota.results import Page

LIST_MAX = 100_000
LATEST_PLACE = 2**63 - 1
"""Rows of one page, at most: more are read page by page."""


def where_of(
    ask: Ask,
    *,
    status: Status | str | Sequence[str] | None = None,
    job_type: str | None = None,
    queue: str | None = None,
    tag: str | None = None,
    organization: str | None = None,
    owner: str | None = None,
    group: str | Group | None = None,
    chain: JobRef | None = None,
    schedule: str | None = None,
    text: str | None = None,
    error_type: ErrorType | str | None = None,
    since: datetime | timedelta | None = None,
    until: datetime | timedelta | None = None,
) -> Where:
    """Return the rows that match every filter, inside the actor's scope."""
    now = ask.now
    return Where(
        scope=ask.scope,
        status=statuses(status),
        job_type=job_type,
        queue=queue,
        tag=tag,
        organization=organization,
        owner=owner,
        group_id=None if group is None else ask.session.group_id(group),
        root_id=None if chain is None else undashed(ask.also(Right.READ).found(chain).root_id),
        schedule_id=None if schedule is None else _schedule_id(ask, schedule, organization),
        text=text,
        named=None if text is None else named_by(ask, text),
        error_type=None if error_type is None else error_word(error_type),
        created_from=None if since is None else ago("since", since, now),
        created_until=None if until is None else ago("until", until, now),
    )


def named_by(ask: Ask, text: str) -> str | None:
    """Return the root of the chain that a text names by a number or an id.

    A bare number names one in lists only: it may be anything, and an act on all that match must not reach a job by chance.
    """
    given = text.strip()
    if not given or (given.isdecimal() and ask.right is not Right.READ):
        return None
    try:
        return undashed(ask.found(given).root_id)
    except NotFound:
        return None


def page_of(store: Store, where: Where, limit: int, before: int | None) -> Page[Job]:
    """Return a page of jobs, newest first."""
    whole("limit", limit, least=1, most=LIST_MAX)
    if before is not None:
        check_place(before)
    # One more than is shown says whether there is a next page.
    rows = store.find(where, limit=limit + 1, before=before)
    return Page([job for _, job in rows[:limit]], next_=rows[limit - 1][0] if len(rows) > limit else None)


def refuse_empty(status: object, text: str | None) -> None:
    """Refuse filters of an act on all that match that are there and filter nothing: a program may have meant to fill them."""
    if status is not None and not isinstance(status, str) and not list(status):  # type: ignore[call-overload] # a sequence
        raise InvalidOption("status=[] matches nothing and filters nothing: name the states, or leave it out for all")
    if text is not None and not text.strip():
        raise InvalidOption(f"text={text!r} is empty and filters nothing: give a text, or leave it out for all")


def refuse_unfiltered(*filters: object, everything: bool) -> None:
    """Refuse an act on all that match without any filter, unless everything is meant: a program may have lost its filters on the way."""
    if not everything and all(each is None for each in filters):
        raise InvalidOption("no filter is given: pass one, or `all` (`--all`, `all=True`) to act on everything")


def check_place(before: int) -> None:
    """Refuse a place in a list that no store has."""
    whole("before", before, least=1, most=LATEST_PLACE)


def statuses(given: Status | str | Sequence[str] | None) -> tuple[str, ...]:
    """Return states as the store keeps them; one, several or none."""
    wanted = (given,) if isinstance(given, str) else tuple(given or ())
    for each in wanted:
        if str(each).upper() not in set(Status):
            raise InvalidOption(f"status {each!r} is not one of {', '.join(Status)}")
    return tuple(str(each).upper() for each in wanted)


def error_word(given: ErrorType | str) -> str:
    """Return an error type as the store keeps it."""
    if given not in set(ErrorType):
        raise InvalidOption(f"error_type {given!r} is not one of {', '.join(ErrorType)}")
    return str(given)


def _schedule_id(ask: Ask, given: str, organization: str | None) -> str:
    from rota.resources.schedules import named  # noqa: PLC0415 - few lists name a schedule

    return undashed(given) or named(ask.also(Right.READ), given, organization).id
