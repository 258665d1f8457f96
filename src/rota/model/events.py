"""Live events: what happens to jobs and definitions, told while it happens. Pure: what there is to tell, and to whom.

An event is told at least once to everybody who listens and may see it, in the order in which it was noticed. It says how a job stood
when it was looked at, which may be further on than the event's own name.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum

import msgspec

from rota.errors import InvalidOption
from rota.model.gate import EVERYTHING, Scope
from rota.model.reports import Phase, ScheduleEvent, ScheduleReport
from rota.model.schedules import Fate
from rota.model.states import ErrorType, Status
from rota.model.values import Instant, dashed, moment, moment_of, number_text


class EventType(StrEnum):
    """What an event is about."""

    CREATED = "job.created"
    STARTED = "job.started"
    PROGRESS = "job.progress"
    ENDED = "job.ended"
    SCHEDULE_MISSED = ScheduleEvent.MISSED.value
    SCHEDULE_REFUSED = ScheduleEvent.REFUSED.value
    SCHEDULE_SKIPPED = ScheduleEvent.SKIPPED.value
    SCHEDULE_SKIPPED_PLANNED = ScheduleEvent.SKIPPED_PLANNED.value
    SCHEDULE_OVERDUE = ScheduleEvent.OVERDUE.value
    DEFINITIONS = "definitions"
    COUNTS = "counts"
    SKIPPED = "skipped"
    GAP = "gap"


OF_JOBS = frozenset({EventType.CREATED, EventType.STARTED, EventType.PROGRESS, EventType.ENDED})
OF_SCHEDULES = frozenset(map(EventType, ScheduleEvent))
ALWAYS = frozenset({EventType.SKIPPED, EventType.GAP})
"""What nobody can choose not to hear: that something was not told."""


class JobNow(msgspec.Struct, gc=False):
    """A job as a store shows it to those who watch: narrow, because many are read and few are told."""

    job_id: str
    number: int
    root_number: int
    root_id: str
    attempt: int
    organization: str
    owner: str
    job_type: str
    status: str
    priority: int
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    reason: str | None
    error_type: str | None


class EventJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as an event shows it: no params, no result. `GET /jobs/{id}` has the rest."""

    id: str
    number: str
    root_id: str
    attempt: int
    job_type: str
    organization: str
    owner: str
    status: Status
    priority: int
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    error_type: ErrorType | None = None
    progress: int | None = None
    message: str | None = None


class EventSchedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Due times of a schedule that did not run, as an event shows them."""

    id: str
    name: str
    job_type: str
    organization: str
    outcome: Fate
    phase: Phase
    due_at: datetime
    last_due_at: datetime
    count: int
    key: str
    """The same at each repeat, and the `webhook-id` of the webhook message about it."""
    reason: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened."""

    type: EventType
    at: datetime
    id: str = ""
    """Where to go on: given as `after`, everything that came after this event is told again."""
    job: EventJob | None = None
    schedule: EventSchedule | None = None
    subject: str | None = None
    """Of `definitions`: the kind of thing that changed, as `schedule`. None: anything may have."""
    name: str | None = None
    action: str | None = None
    counts: dict[str, int] | None = None
    """Of `counts`: how many jobs there are in each state."""
    count: int | None = None
    """Of `skipped`: how many events were left out."""
    reason: str | None = None
    """Of `gap`: why something may be missing."""


class Change(msgspec.Struct, kw_only=True):
    """One thing that was noticed, before anybody is told of it."""

    type: EventType
    at: Instant
    job: JobNow | None = None
    report: ScheduleReport | None = None
    progress: int | None = None
    message: str | None = None
    subject: str | None = None
    name: str | None = None
    action: str | None = None
    organization: str | None = None
    """Of `definitions`: whose they are. None: everybody's."""

    def event(self) -> Event:
        """Return it as people see it."""
        job = None if self.job is None else _shown(self.job, self.progress, self.message)
        schedule = None if self.report is None else _reported(self.report)
        return Event(
            type=self.type, at=moment_of(self.at), job=job, schedule=schedule, subject=self.subject, name=self.name, action=self.action
        )


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody listens to, and how far the gate lets them see. Those who have the same view are told the same."""

    scope: Scope = EVERYTHING
    stats: Scope | None = None
    """Whose jobs are counted for them; None: nobody's."""
    types: frozenset[EventType] = frozenset()
    """Empty: all."""
    statuses: frozenset[str] = frozenset()
    job_type: str | None = None
    root_id: str | None = None
    """Only this chain."""

    def wants(self, type_: EventType) -> bool:
        """Say whether events of this type are asked for."""
        return not self.types or type_ in self.types or type_ in ALWAYS

    def shows(self, change: Change) -> bool:
        """Say whether a change is asked for, and may be seen."""
        if self.types and change.type not in self.types:
            return False
        job = change.job
        if job is None:
            return self.root_id is None and (self._may_know(change) if change.report is None else self._concerns(change.report))
        return (
            self.scope.holds(job.organization, job.owner)
            and (self.root_id is None or self.root_id == job.root_id)
            and (self.job_type is None or self.job_type == job.job_type)
            and (not self.statuses or job.status in self.statuses)
        )

    def _concerns(self, report: ScheduleReport) -> bool:
        """Say whether a report is asked for, and may be seen: a reader of their own jobs sees reports of their own schedules."""
        return self.scope.holds(report.organization, report.owner) and self.job_type in {None, report.template}

    def _may_know(self, change: Change) -> bool:
        """Say whether a changed definition is theirs. Who sees only own jobs is told of what is everybody's, and of pauses."""
        if change.organization is None:
            return change.subject is not None or self.scope == EVERYTHING
        if self.scope.organization not in {None, change.organization}:
            return False
        return self.scope.owner is None or change.action in {"pause", "resume"}


class Cursor(msgspec.Struct, frozen=True):
    """How far somebody has been told: up to which moment, and up to which number of a job."""

    at: Instant
    number: int

    def __str__(self) -> str:
        """Return it as it is given out. Nobody is to look into it."""
        return f"{self.at:x}.{self.number:x}"


def cursor_of(text: str) -> Cursor:
    """Return the cursor that a text is."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidOption(f"after={text[:64]!r} is not the id of an event: give one that came with an event, or none")
    return Cursor(int(found[1], 16), int(found[2], 16))


WORDS: dict[object, frozenset[EventType]] = {"job": OF_JOBS, "schedule": OF_SCHEDULES}
"""Words that stand for several types."""


def types_of(given: object) -> frozenset[EventType]:
    """Return types of events as people give them: names, or `job` and `schedule` for all that are about jobs and schedules."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple | set | frozenset) else ()
    found: set[EventType] = set()
    for name in names:
        if name in WORDS:
            found |= WORDS[name]
        elif name in set(EventType):
            found.add(EventType(name))
        else:
            raise InvalidOption(f"type {name!r} is not one of {', '.join(map(str, WORDS))}, {', '.join(EventType)}")
    return frozenset(found)


def _reported(report: ScheduleReport) -> EventSchedule:
    return EventSchedule(
        id=dashed(report.schedule_id),
        name=report.schedule,
        job_type=report.template,
        organization=report.organization,
        outcome=report.outcome,
        phase=report.phase,
        due_at=moment_of(report.due_at),
        last_due_at=moment_of(report.last_due_at),
        count=report.count,
        key=report.key,
        reason=report.reason,
    )


def _shown(job: JobNow, progress: int | None, message: str | None) -> EventJob:
    return EventJob(
        id=dashed(job.job_id),
        number=number_text(job.root_id, job.root_number, job.attempt),
        root_id=dashed(job.root_id),
        attempt=job.attempt,
        job_type=job.job_type,
        organization=job.organization,
        owner=job.owner,
        status=Status(job.status),
        priority=job.priority,
        created_at=moment_of(job.created_at),
        started_at=moment(job.started_at),
        finished_at=moment(job.finished_at),
        reason=job.reason,
        error_type=None if job.error_type is None else ErrorType(job.error_type),
        progress=progress,
        message=message,
    )


_CURSOR = re.compile(r"([0-9a-f]{1,15})\.([0-9a-f]{1,15})")
"""Fifteen digits: what a store can't hold is no cursor of ours."""
