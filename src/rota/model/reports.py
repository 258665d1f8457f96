"""Reports: due times that did not run, sent to webhooks and to the live event stream. Pure: which outcomes are reported, and as what.

A row of the ledger covers a span of due times that can grow. It is reported twice: when it is opened and when it is closed. A report's
key is its schedule, its first due time, its outcome and which of the two it is, so a receiver can recognize a repeat.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rota.model.schedules import Fate
from rota.model.values import Instant, dashed, moment


class ScheduleEvent(StrEnum):
    """What is reported of schedules."""

    MISSED = "schedule.missed"
    REFUSED = "schedule.refused"
    SKIPPED = "schedule.skipped"
    SKIPPED_PLANNED = "schedule.skipped_planned"
    OVERDUE = "schedule.overdue"


class Phase(StrEnum):
    """Which end of a span a report is about."""

    OPENED = "opened"
    CLOSED = "closed"


EVENT_OF: dict[Fate, ScheduleEvent] = {
    Fate.MISSED: ScheduleEvent.MISSED,
    Fate.REFUSED: ScheduleEvent.REFUSED,
    Fate.SKIPPED_OVERLAP: ScheduleEvent.SKIPPED,
    Fate.SKIPPED_DST_GAP: ScheduleEvent.SKIPPED,
    Fate.SKIPPED_DEPENDENCY: ScheduleEvent.SKIPPED,
    Fate.SKIPPED_PAUSED: ScheduleEvent.SKIPPED_PLANNED,
    Fate.SKIPPED_CALENDAR: ScheduleEvent.SKIPPED_PLANNED,
    Fate.OVERDUE: ScheduleEvent.OVERDUE,
}
"""The event of each outcome. FIRED ran, and for COALESCED a later due time did: neither is reported."""


class ScheduleReport(msgspec.Struct, frozen=True, kw_only=True):
    """One report. Its fields are in the order of the statements that read it."""

    event: ScheduleEvent
    phase: Phase
    schedule_id: str
    schedule: str
    organization: str
    owner: str
    """Who created the schedule: a user sees reports of its own schedules."""
    template: str
    outcome: Fate
    due_at: Instant
    last_due_at: Instant
    count: int
    reason: str | None
    at: Instant
    """When it was written."""

    @property
    def key(self) -> str:
        """The `webhook-id` that it is sent under."""
        return key_of(self.schedule_id, self.due_at, self.outcome, self.phase)


def key_of(schedule_id: str, due_at: Instant, outcome: str, phase: str) -> str:
    """Return the key of a report."""
    return f"{dashed(schedule_id)}:{due_at}:{outcome}:{phase}"


def payload_of(report: ScheduleReport) -> str:
    """Return the body of a message."""
    body = {
        "event": report.event,
        "timestamp": moment(report.at),
        "phase": report.phase,
        "schedule": {
            "id": dashed(report.schedule_id),
            "name": report.schedule,
            "type": report.template,
            "organization": report.organization,
        },
        "outcome": report.outcome,
        "reason": report.reason,
        "due_at": moment(report.due_at),
        "last_due_at": moment(report.last_due_at),
        "count": report.count,
    }
    return msgspec.json.encode(body).decode()
