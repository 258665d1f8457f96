"""Schedules and their ledger as people see them: moments as aware datetimes, lengths in seconds."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.errors import InvalidSchedule
from rota.model.schedules import CatchUp, Fate, Kind, OnCompletion, Overlap, Schedule, ScheduleState, next_due
from rota.model.states import Status
from rota.model.values import SECOND, Instant, dashed, moment
from rota.model.words import in_words
from rota.ports.schedules import LedgerCursor, Occurrence, cursor_of


class ScheduleView(msgspec.Struct, kw_only=True, frozen=True):
    """One schedule as it stands."""

    id: str
    name: str
    organization: str
    template: str
    kind: Kind
    words: str
    """When it is due, as a person would say it."""
    state: ScheduleState
    cron: str | None
    at: datetime | None
    every: float | None
    timezone: str
    starts: datetime | None
    ends: datetime | None
    params: dict[str, object]
    priority: int | None
    catch_up: CatchUp
    catch_up_lateness: float | None
    catch_up_count: int | None
    overlap: Overlap
    jitter: float
    calendar: str | None
    on_completion: OnCompletion
    depends_on: tuple[str, ...]
    run_as: str | None
    description: str | None
    next_at: datetime | None
    """When it is due next; None while it is disabled, and when nothing is left to come."""
    last_at: datetime | None
    """The latest due time that became a job."""
    cursor_at: datetime | None
    """Up to here every due time has its fate."""
    declared: bool
    """The code says what it is; what people have changed since stays."""
    version: int
    created_by: str
    created_at: datetime | None
    updated_at: datetime | None


class OccurrenceView(msgspec.Struct, kw_only=True, frozen=True):
    """What became of a due time, or of several in a row."""

    schedule: str
    organization: str
    due_at: datetime
    last_due_at: datetime
    count: int
    fate: Fate
    reason: str | None
    job_id: str | None
    status: Status | None
    """How the chain of its job stands; None without a job, or once retention has removed it."""
    ran: bool | None
    """Whether it ran to its end; None while that is not known yet, or no longer."""
    recorded_at: datetime | None
    cursor: LedgerCursor


def schedule_view(schedule: Schedule) -> ScheduleView:
    """Return a schedule as people see it."""
    timing = schedule.timing
    return ScheduleView(
        id=dashed(schedule.id),
        name=schedule.name,
        organization=schedule.organization,
        template=schedule.template,
        kind=timing.kind,
        words=in_words(timing),
        state=schedule.state,
        cron=timing.cron,
        at=moment(timing.at),
        every=None if timing.interval is None else timing.interval / SECOND,
        timezone=timing.timezone,
        starts=moment(timing.starts_at),
        ends=moment(timing.ends_at),
        params=schedule.params,
        priority=schedule.priority,
        catch_up=schedule.catch_up,
        catch_up_lateness=None if schedule.catch_up_lateness is None else schedule.catch_up_lateness / SECOND,
        catch_up_count=schedule.catch_up_count,
        overlap=schedule.overlap,
        jitter=schedule.jitter / SECOND,
        calendar=schedule.calendar,
        on_completion=schedule.on_completion,
        depends_on=schedule.depends_on,
        run_as=schedule.run_as,
        description=schedule.description,
        next_at=None if schedule.state is ScheduleState.DISABLED else moment(_next_due(schedule)),
        last_at=moment(schedule.last_at),
        cursor_at=moment(schedule.cursor_at),
        declared=schedule.declared is not None,
        version=schedule.version,
        created_by=schedule.created_by,
        created_at=schedule.created_at,
        updated_at=schedule.updated_at,
    )


def _next_due(schedule: Schedule) -> Instant | None:
    try:
        return next_due(schedule.timing, schedule.cursor_at)
    except InvalidSchedule:
        # This machine does not know its zone any more: when it would be due stands in the store.
        return schedule.next_at


def occurrence_view(occurrence: Occurrence) -> OccurrenceView:
    """Return a row of the ledger as people see it."""
    due_at, last_due_at = moment(occurrence.due_at), moment(occurrence.last_due_at)
    assert due_at is not None  # noqa: S101 - a moment
    assert last_due_at is not None  # noqa: S101 - a moment
    return OccurrenceView(
        schedule=occurrence.schedule,
        organization=occurrence.organization,
        due_at=due_at,
        last_due_at=last_due_at,
        count=occurrence.count,
        fate=occurrence.fate,
        reason=occurrence.reason,
        job_id=None if occurrence.job_id is None else dashed(occurrence.job_id),
        status=occurrence.status,
        ran=occurrence.ran,
        recorded_at=moment(occurrence.recorded_at),
        cursor=cursor_of(occurrence),
    )
