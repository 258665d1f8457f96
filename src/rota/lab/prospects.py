"""Prospects: schedules with all that is known now about their coming due times; and the windows of time that callers ask about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING

import msgspec

from rota.engine.due import DueRows
from rota.errors import InvalidInput, InvalidOption, PermissionDenied, Refused
from rota.model.local_time import written
from rota.model.matching import WITH_JOB
from rota.model.prospects import Prospect
from rota.model.schedules import Kind, Schedule, Timing, trouble_of
from rota.model.states import Status
from rota.model.values import LATEST, SECOND, Instant, instant, moment_of
from rota.ports.clock import UuidV7
from rota.ports.pages import each_occurrence
from rota.ports.schedules import Ledger
from rota.ports.store import Store, Where

if TYPE_CHECKING:
    from rota.session import Session

HOURS = 24.0
DAY_US = 86_400 * SECOND
DAYS_MAX = 36_525
FURTHEST = LATEST - 400 * DAY_US
"""Windows end before the calendar does."""
_LONG_AGO = Timing(kind=Kind.AT, at=0)
"""Replaces a timing that can't be read: nothing of it is due. `rota doctor` names the schedule."""


def prospects(session: Session, store: Store, schedules: Sequence[Schedule], now: Instant | None) -> list[Prospect]:
    """Return schedules, and after them those they depend on, with what is known of them now. The store is one that `synced` returned.

    Without `now` it is about a time of which nothing is known: only definitions count. What others depend on may be outside the actor's
    scope: it counts, and is not shown.
    """
    needed = _needed(schedules, store.schedules()) if any(each.depends_on for each in schedules) else {}
    known = {each.id for each in schedules}
    calendars = {(organization, calendar.name): calendar for organization, calendar in store.calendars()}
    already = {} if now is None else _already(store, now)
    rows = DueRows(session.registry, UuidV7(Random(0)), Random(0))  # noqa: S311 - built to see what is refused, never written
    rows.begin()
    found = []
    for each in (*schedules, *(other for other in needed.values() if other.id not in known)):
        since, completed_at = now or 0, None
        if now is not None and each.id in needed:
            since, completed_at = _history(store, each, now)
        found.append(
            Prospect(
                schedule=each if trouble_of(each.timing) is None else msgspec.structs.replace(each, timing=_LONG_AGO),
                calendar=calendars.get((each.organization, each.calendar or "")),
                refused=_why_refused(rows, each, session.clock.now()),
                already=frozenset(already.get(each.id, ())),
                since=since,
                completed_at=completed_at,
            )
        )
    return found


def _already(store: Store, now: Instant) -> dict[str, list[Instant]]:
    """Return coming due times that have fired already, because the clock was ahead: nearly always none."""
    found: dict[str, list[Instant]] = {}
    for row in each_occurrence(store, Ledger(fates=tuple(WITH_JOB), since=now + 1)):
        found.setdefault(row.schedule_id, []).append(row.due_at)
    return found


def _needed(schedules: Sequence[Schedule], everything: Sequence[Schedule]) -> dict[str, Schedule]:
    """Return, by id, what these schedules depend on, directly or not."""
    by_name = {(each.organization, each.name): each for each in everything}
    found: dict[str, Schedule] = {}
    left = [*schedules]
    while left:
        each = left.pop()
        for other in (by_name.get((each.organization, name)) for name in each.depends_on):
            if other is not None and other.id not in found:
                found[other.id] = other
                left.append(other)
    return found


def _why_refused(rows: DueRows, schedule: Schedule, now: Instant) -> str | None:
    """Return why no job could be created of a schedule at present, in the trigger's own words."""
    try:
        rows.build(schedule, schedule.params, now=now, run_at=now)
    except (InvalidInput, PermissionDenied, Refused) as error:
        return str(error)
    return None


def _history(store: Store, schedule: Schedule, now: Instant) -> tuple[Instant, Instant | None]:
    """Return until when a schedule's outcomes are known, and when its latest chain completed. A running one is expected to complete."""
    latest = store.find(Where(schedule_id=schedule.id, tails=True), limit=1)
    job = latest[0][1] if latest else None
    if job is None:
        return now, None
    if not job.status.ended:
        # The outcome of a job that waits for other schedules is still open.
        if job.blockers and schedule.depends_on and job.due_at is not None:
            return instant(job.due_at) - 1, None
        return now, now
    return now, instant(job.finished_at) if job.status is Status.COMPLETED and job.finished_at is not None else None


# ---- windows --------------------------------------------------------------------------------------------------------


def window(now: Instant, hours: float | None, start: datetime | None, end: datetime | None) -> tuple[Instant, Instant]:
    """Return the moments after which, and up to which, a window reaches."""
    after = now if start is None else instant_of("start", start)
    if end is not None and hours is not None:
        raise InvalidOption(f"hours={hours!r} and end are both given: pass one of them")
    if end is not None:
        until = instant_of("end", end)
    else:
        length = HOURS if hours is None else hours
        if isinstance(length, bool) or not 0 < length <= DAYS_MAX * 24:
            raise InvalidOption(f"hours={hours!r} is not allowed: use more than 0, at most a hundred years")
        until = min(FURTHEST, after + round(length * 3600 * SECOND))
    if until <= after:
        raise InvalidOption(f"the window ends at {written(moment_of(until))}, which is not after its start, {written(moment_of(after))}")
    return after, until


def instant_of(name: str, moment: datetime) -> Instant:
    """Return an aware datetime as an instant, or refuse it."""
    if getattr(moment, "tzinfo", None) is None:
        raise InvalidOption(f"{name}={moment!r} is not allowed: use a datetime with a time zone")
    found = instant(moment)
    if not DAY_US <= found <= FURTHEST:
        raise InvalidOption(f"{name}={moment.isoformat()} is out of range: use a moment between the years 1970 and 9998")
    return found
