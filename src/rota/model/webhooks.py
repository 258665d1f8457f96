"""Webhooks: which ends are told, in which words, and when one who did not answer is told again. Pure.

A message is a run's end, or a report of a schedule (`rota.model.reports`). Its `webhook-id` is the run's id, or the job's where no run
began, or the report's key: the same however often it is sent, so that a receiver can tell a repeat.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import msgspec

from rota.errors import InvalidOption
from rota.model.checks import check_name, listed
from rota.model.reports import ScheduleEvent
from rota.model.states import Status
from rota.model.values import SECOND, Instant, dashed, moment, number_text

ERROR_MAX = 1000
"""Characters of an error that a message carries: it says what happened; the whole is in the run."""
RESULT_MAX = 262_144
"""Bytes of a result that a message carries; one that is larger is fetched by who wants it."""
WAIT_MAX = 8 * 86_400 * SECOND
"""No message waits for its next attempt, or is on lease, for this long: a delay is a week at most."""
TYPES_MAX = 100
"""Job types that one webhook may be narrowed to."""
SECRET_PREFIX = "whsec_"  # noqa: S105 - how every such secret begins
SECRET_BYTES = 32
SEALED_PREFIX = "sealed:"
"""How a secret begins in the store that is encrypted: the id of its master key follows."""
TEST = "webhook.test"
"""What `test` sends. No run ends so."""


class Event(StrEnum):
    """What a webhook can be told of."""

    COMPLETED = "run.completed"
    FAILED = "run.failed"
    SKIPPED = "run.skipped"
    CANCELLED = "run.cancelled"
    DEAD_LETTERED = "run.dead_lettered"
    SCHEDULE_MISSED = ScheduleEvent.MISSED.value
    SCHEDULE_REFUSED = ScheduleEvent.REFUSED.value
    SCHEDULE_SKIPPED = ScheduleEvent.SKIPPED.value
    SCHEDULE_SKIPPED_PLANNED = ScheduleEvent.SKIPPED_PLANNED.value
    SCHEDULE_OVERDUE = ScheduleEvent.OVERDUE.value


RUN_EVENTS: tuple[Event, ...] = tuple(event for event in Event if event.startswith("run."))
"""The events that a single job's own webhook receives."""
USUAL_EVENTS: tuple[Event, ...] = tuple(event for event in Event if event is not Event.SCHEDULE_SKIPPED_PLANNED)
"""The events of a webhook that names none: due times that were planned to be skipped are no cause for alarm."""

EVENTS: dict[Status, Event] = {
    Status.COMPLETED: Event.COMPLETED,
    Status.FAILED: Event.FAILED,
    Status.TIMED_OUT: Event.FAILED,
    Status.DEAD_LETTER: Event.DEAD_LETTERED,
    Status.SKIPPED: Event.SKIPPED,
    Status.CANCELLED: Event.CANCELLED,
}
"""The event of each end. `docs/guide/webhooks.md` is tested against it."""


class WebhookState(StrEnum):
    """Whether messages are sent to a webhook."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"


class Webhook(msgspec.Struct, kw_only=True, frozen=True):
    """One webhook as people see it: never its secret."""

    id: str
    organization: str
    url: str
    events: tuple[Event, ...]
    job_types: tuple[str, ...] = ()
    """Only jobs of these types; empty: all."""
    job: str | None = None
    """The one chain it is for, by its first job's id; None: all of the organization's."""
    with_result: bool = False
    """Messages carry what the handler returned."""
    description: str | None = None
    state: WebhookState = WebhookState.ENABLED
    reason: str | None = None
    """Why it is disabled."""
    failing_since: datetime | None = None
    """When it first failed since it last answered well; None: it answers well."""
    last_status: int | None = None
    """HTTP status of the last failure."""
    last_error: str | None = None
    version: int = 1
    created_by: str
    created_at: datetime
    updated_at: datetime


class SigningSecret(msgspec.Struct, frozen=True):
    """What the messages of one owner are signed with, as the store keeps it: encrypted or not."""

    owner: str
    secret: str
    previous: str | None = None

    def __repr__(self) -> str:
        """Return it without its contents."""
        return f"SigningSecret({self.owner!r})"

    __str__ = __repr__


class DeliveryState(StrEnum):
    """What has become of a message."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    GAVE_UP = "gave up"


class Delivery(msgspec.Struct, kw_only=True, frozen=True):
    """One message to one webhook, and what became of it."""

    id: int
    webhook: str | None
    organization: str
    event: str
    key: str
    """The `webhook-id` it is sent under: the run's id, or the job's, or a report's key."""
    job: str | None
    """The job that it is about."""
    schedule: str | None
    """The name of the schedule that it is about."""
    url: str
    state: DeliveryState
    attempts: int
    next_attempt_at: datetime | None
    last_attempt_at: datetime | None
    last_status: int | None
    last_error: str | None
    created_at: datetime
    delivered_at: datetime | None
    gave_up_at: datetime | None


class EndedRun(msgspec.Struct):
    """An end as a message tells it."""

    job_id: str
    run_id: str | None
    root_id: str
    root_number: int
    organization_id: str
    job_type: str
    attempt: int
    status: str
    reason: str | None
    error_type: str | None
    error: str | None
    created_at: Instant
    queued_at: Instant | None
    started_at: Instant | None
    finished_at: Instant
    goes_on: bool
    """A successor was made with this end."""


def event_of(status: Status, *, goes_on: bool) -> Event | None:
    """Return the event of an end; None for one that is no news: given back or snoozed, it goes on as it was."""
    return None if goes_on and status is Status.SKIPPED else EVENTS[status]


def payload_of(event: Event, end: EndedRun, result: str | None = None) -> str:
    """Return the body of a message. It never carries params, and a result only where it was asked for."""
    body: dict[str, Any] = {
        "event": event,
        "timestamp": moment(end.finished_at),
        "run_id": None if end.run_id is None else dashed(end.run_id),
        "job": {
            "id": dashed(end.job_id),
            "number": number_text(end.root_id, end.root_number, end.attempt),
            "chain": dashed(end.root_id),
            "type": end.job_type,
            "organization": end.organization_id,
            "attempt": end.attempt,
            "status": end.status,
            "reason": end.reason,
            "goes_on": end.goes_on,
            "created_at": moment(end.created_at),
            "queued_at": moment(end.queued_at),
            "started_at": moment(end.started_at),
            "finished_at": moment(end.finished_at),
        },
        "error": None if end.error is None and end.error_type is None else {"type": end.error_type, "message": cut(end.error)},
    }
    if result is not None and len(result.encode()) <= RESULT_MAX:
        body["result"] = msgspec.Raw(result.encode())
    return msgspec.json.encode(body).decode()


def test_payload(organization: str, at: datetime) -> str:
    """Return the body of a message that only asks whether anybody listens."""
    return msgspec.json.encode({"event": TEST, "timestamp": at, "run_id": None, "organization": organization}).decode()


def cut(text: str | None, limit: int = ERROR_MAX) -> str | None:
    """Return a text, shortened if it is long."""
    return text if text is None or len(text) <= limit else f"{text[: limit - 1]}…"


def lane_of(url: str, organization: str) -> str:
    """Return who waits behind whom: messages to one host, of one organization."""
    return f"{(urlsplit(url).hostname or '').lower()} {organization}"


def organization_of(lane: str) -> str:
    """Return the organization of a lane: a host has no space."""
    return lane.partition(" ")[2]


# ---- sending ---------------------------------------------------------------------------------------------------------


class Sent(msgspec.Struct, frozen=True):
    """What came of one attempt to deliver a message."""

    status: int | None = None
    """The HTTP status, if there was an answer."""
    error: str | None = None
    """Why there was none."""
    took_s: float = 0.0

    @property
    def accepted(self) -> bool:
        """Say whether the receiver has it."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """Say whether the receiver wants nothing any more."""
        return self.status == 410


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt means for its message."""

    delivered: bool = False
    gave_up: bool = False
    next_at: Instant | None = None


def verdict(sent: Sent, *, attempts: int, now: Instant, delays_s: Sequence[float]) -> Verdict:
    """Say what follows; `attempts` counts those before this one."""
    if sent.accepted:
        return Verdict(delivered=True)
    if sent.gone or attempts >= len(delays_s):
        return Verdict(gave_up=True)
    return Verdict(next_at=now + round(delays_s[attempts] * SECOND))


def error_text(sent: Sent) -> str | None:
    """Return what is kept of an attempt that failed."""
    if sent.accepted:
        return None
    if sent.status is None:
        return cut(sent.error)
    return f"it answered {sent.status}{'; redirects are not followed' if 300 <= sent.status < 400 else ''}"


# ---- secrets ---------------------------------------------------------------------------------------------------------


def secret_text(chance: bytes) -> str:
    """Return a secret as it is shown, once."""
    return SECRET_PREFIX + b64encode(chance).decode()


def secret_of(given: object) -> str:
    """Return a secret that people brought themselves. A refusal does not repeat it."""
    if isinstance(given, str) and given.startswith(SECRET_PREFIX):
        try:
            if 24 <= len(b64decode(given.removeprefix(SECRET_PREFIX), validate=True)) <= 64:
                return given
        except ValueError:
            pass
    raise InvalidOption(f"this is not a secret of a webhook: give {SECRET_PREFIX} and 24 to 64 bytes in base64, or none and one is made")


def sealing_key(text: str) -> str | None:
    """Return the id of the master key that a stored secret is encrypted with; None: it is not encrypted."""
    return text.removeprefix(SEALED_PREFIX).partition(":")[0] if text.startswith(SEALED_PREFIX) else None


def owner_of(endpoint_id: str) -> str:
    """Return under which name an endpoint's own secret is kept."""
    return endpoint_id


def organization_owner(organization: str) -> str:
    """Return under which name an organization's signing secret is kept: messages of single jobs are signed with it."""
    return f"organization:{organization}"


# ---- what people give ------------------------------------------------------------------------------------------------


def events_of(given: object) -> tuple[Event, ...]:
    """Return events as people give them; none means the usual ones."""
    if given is None:
        return USUAL_EVENTS
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidOption(f"events={given!r} is not allowed: give a list of {', '.join(Event)}")
    named = list(given)
    wrong = [each for each in named if each not in set(Event)]
    if wrong or not named:
        raise InvalidOption(f"events={named!r} is not allowed: give one or more of {', '.join(Event)}")
    return tuple(event for event in Event if event in named)


def job_types_of(given: object, name_max: int) -> tuple[str, ...]:
    """Return the job types that a webhook is narrowed to; none means all."""
    if given is None:
        return ()
    named = list(dict.fromkeys(listed("job_types", given)))
    if len(named) > TYPES_MAX:
        raise InvalidOption(f"{len(named)} job types are too many for one webhook: give at most {TYPES_MAX}, or none for all")
    for each in named:
        check_name(each, "template", name_max)
    return tuple(named)
