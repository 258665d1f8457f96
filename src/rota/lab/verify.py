"""Verification: does every due time have one outcome, and each that fired a job of its own?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rota.errors import Refused
from rota.lab.forecasts import Problem, Verified
from rota.lab.prospects import instant_of
from rota.model.checks import ago
from rota.model.matching import Matched, match
from rota.model.schedules import Schedule
from rota.model.settings import Settings
from rota.model.values import SECOND, Instant, instant, moment_of
from rota.ports.pages import each_job, each_occurrence
from rota.ports.schedules import Ledger
from rota.ports.store import Store, Where
from rota.schedule_views import in_scope, overdue_views

if TYPE_CHECKING:
    from rota.operation import Ask

TRIES = 20
"""Attempts at one schedule before it is reported as edited all the time."""


def verify(
    ask: Ask,
    schedule: str | None = None,
    *,
    since: datetime | timedelta | None = None,
    until: datetime | timedelta | None = None,
    organization: str | None = None,
) -> Verified:
    """Compare ledgers with due times and jobs: see `Schedules.verify`."""
    now = ask.now
    low = 0 if since is None else _instant("since", since, now)
    high = now if until is None else _instant("until", until, now)
    schedules = in_scope(ask, schedule, organization)
    problems: list[Problem] = []
    due = matched = 0
    for each in schedules:
        one = _match(ask.store, ask.settings, each, low, high, now)
        due, matched = due + one.due, matched + one.matched
        problems += [
            Problem(schedule=each.name, due_at=None if its.due_at is None else moment_of(its.due_at), what=its.what) for its in one.problems
        ]
    late = tuple(
        each
        for each in overdue_views(ask, schedule, organization)
        if each.expected and instant(each.last_due_at) > low and instant(each.due_at) <= high
    )
    return Verified(
        schedules=len(schedules),
        due=due + sum(each.expected for each in late),
        matched=matched,
        problems=tuple(problems),
        overdue=late,
        since=None if since is None else moment_of(low),
        until=moment_of(high),
    )


def _instant(name: str, given: datetime | timedelta, now: Instant) -> Instant:
    return ago(name, given, now) if isinstance(given, timedelta) else instant_of(name, given)


def _match(store: Store, settings: Settings, schedule: Schedule, since: Instant, until: Instant, now: Instant) -> Matched:  # noqa: PLR0917 - one caller
    """Match one schedule. It is read first, so later rows lie beyond its cursor; if it was edited in the meantime, start again."""
    kept = settings.retention
    forgotten = now - round(kept * SECOND) if kept else 0
    for _ in range(TRIES):
        rows = list(each_occurrence(store, Ledger(schedule_id=schedule.id, since=since + 1)))
        jobs = each_job(store, Where(schedule_id=schedule.id))
        matched = match(schedule, rows, jobs, since=since, until=until, forgotten_before=forgotten)
        again = store.schedule(schedule.id)
        if again is None or (again.version == schedule.version and again.cursor_at >= schedule.cursor_at):
            return matched.without(lambda job_id: _clock_came_back(store, settings, job_id))
        schedule = again
    raise Refused(f"schedule {schedule.name!r} is edited again and again: verify it later")


def _clock_came_back(store: Store, settings: Settings, job_id: str) -> bool:
    """Say whether the clock was ahead when a job was created: a job with a higher number has an earlier time."""
    job = store.job(job_id)
    if job is None:
        return False
    grace = round(settings.schedule_grace * SECOND)
    earlier = store.find(Where(created_until=instant(job.created_at) - grace), limit=1)
    return bool(earlier) and earlier[0][0] > int(job.number.split("-")[2])
