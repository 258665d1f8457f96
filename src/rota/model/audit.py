"""Entries of the audit trail: the event that each action is, as people and programs filter by it, and how it came out."""

from __future__ import annotations

from enum import StrEnum

from rota.errors import InvalidOption
from rota.model.states import Status


class Outcome(StrEnum):
    """How an audited action came out."""

    OK = "ok"
    FAILED = "failed"
    DENIED = "denied"


class AuditRuns(StrEnum):
    """The runs whose results are entries of the audit trail."""

    SQL = "sql"
    """Those of jobs that SQL has created."""
    ALL = "all"
    NONE = "none"


EVENTS: dict[str, str] = {
    "schedule.create": "JOB_CREATED",
    "schedule.edit": "JOB_MODIFIED",
    "schedule.delete": "JOB_DELETED",
    "schedule.fire": "JOB_EXECUTED",
    "run.complete": "JOB_EXECUTED",
    "run.fail": "JOB_FAILED",
    "run.cancel": "JOB_CANCELLED",
    "job.cancel": "JOB_CANCELLED",
    "job.adopt": "RUN_IMPORTED",
    "job.change": "RUN_MODIFIED",
    "job.depend": "RUN_MODIFIED",
    "job.discard": "RUN_DELETED",
    "job.move": "RUN_MOVED",
    "job.retry": "RUN_RETRIED",
    "group.cancel": "GROUP_CANCELLED",
    "template.define": "TEMPLATE_MODIFIED",
    "template.set": "TEMPLATE_MODIFIED",
    "template.state": "TEMPLATE_MODIFIED",
    "template.drop": "TEMPLATE_DELETED",
    "calendar.set": "CALENDAR_MODIFIED",
    "calendar.delete": "CALENDAR_DELETED",
    "pause": "PAUSED",
    "resume": "RESUMED",
    "organization.create": "ORGANIZATION_CREATED",
    "organization.change": "ORGANIZATION_MODIFIED",
    "organization.suspend": "ORGANIZATION_SUSPENDED",
    "organization.resume": "ORGANIZATION_RESUMED",
    "organization.remove": "ORGANIZATION_DELETED",
    "user.add": "USER_CREATED",
    "user.change": "USER_MODIFIED",
    "user.remove": "USER_DELETED",
    "token.create": "TOKEN_CREATED",
    "token.revoke": "TOKEN_REVOKED",
    "grant.create": "JOB_GRANTED",
    "grant.delete": "JOB_REVOKED",
    "role.create": "ROLE_CREATED",
    "role.delete": "ROLE_DELETED",
    "connection.create": "CONNECTION_CREATED",
    "connection.change": "CONNECTION_CHANGED",
    "connection.delete": "CONNECTION_DROPPED",
    "secret.create": "SECRET_CREATED",
    "secret.change": "SECRET_CHANGED",
    "secret.drop": "SECRET_DROPPED",
    "secret.use": "SECRET_USED",
    "secret.rotate": "SECRET_ROTATED",
    "webhook.create": "WEBHOOK_CREATED",
    "webhook.change": "WEBHOOK_MODIFIED",
    "webhook.disable": "WEBHOOK_DISABLED",
    "webhook.redeliver": "WEBHOOK_REDELIVERED",
    "webhook.rotate": "WEBHOOK_ROTATED",
    "webhook.delete": "WEBHOOK_DELETED",
    "setting.set": "SETTING_CHANGED",
    "setting.reset": "SETTING_CHANGED",
    "access.deny": "ACCESS_DENIED",
}
"""The event of every action. The store keeps the action: an entry of an earlier version has its event too."""

RUN_ACTIONS: dict[Status, tuple[str, Outcome]] = {
    Status.COMPLETED: ("run.complete", Outcome.OK),
    Status.FAILED: ("run.fail", Outcome.FAILED),
    Status.TIMED_OUT: ("run.fail", Outcome.FAILED),
    Status.DEAD_LETTER: ("run.fail", Outcome.FAILED),
    Status.CANCELLED: ("run.cancel", Outcome.OK),
}
"""How the end of a run is recorded. One that was given back before it started, or skipped, is not: nothing was executed."""

NAMES: tuple[str, ...] = tuple(dict.fromkeys(EVENTS.values()))
"""Every event."""


def event_of(action: str) -> str:
    """Return the event of an action; one that this version does not know stands for itself."""
    return EVENTS.get(action, action)


def actions_of(event: str) -> tuple[str, ...]:
    """Return the actions of an event; refuse one that does not exist."""
    wanted = event.strip().upper()
    actions = tuple(action for action, name in EVENTS.items() if name == wanted)
    if not actions:
        from rota.model.checks import guess  # noqa: PLC0415 - which needs values, and those need outcomes

        raise InvalidOption(f"there is no event {event!r:.80}{guess(wanted, NAMES)}: use one of {', '.join(NAMES)}")
    return actions
