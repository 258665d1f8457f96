"""The face of Monque: a chain as one document of its collection, and such a document as a job that Rota takes over.

Documents are read as its exports write them: extended JSON, relaxed or canonical, or plain JSON with ISO times.
`docs/reference/monque.md` has the mapping, field by field, both ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec

from rota.errors import InvalidImport, InvalidName, InvalidSchedule
from rota.faces.extended_json import date_of, has_types, instant_of, object_id, plain
from rota.model.checks import check_name
from rota.model.cron import read_cron
from rota.model.decide import Crashed, Successor, Transition, decide
from rota.model.schedules import Kind, Schedule, ScheduleState, Timing
from rota.model.states import ErrorType, Status
from rota.model.values import LATEST, Claimed, Instant, Job, NewRow, Run, moment_of
from rota.model.zones import zone_of
from rota.ports.store import Adopted, Past

META = "monque"
"""Where a job's meta keeps what Rota has no column for."""
WRAPPED = "data"
"""The one param of a job whose data was no object."""
LOST = "it failed in Monque, which kept no reason"
NAME_MAX = 240
"""Of a schedule's name, so that there is room to tell it from others of that name."""

_CHANCE = Random(0)  # noqa: S311 - `decide` asks for one; a crash draws nothing from it


class DocumentStatus(StrEnum):
    """Where a document stands."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Document(msgspec.Struct, kw_only=True, frozen=True):
    """One document, checked: times as instants, numbers as numbers."""

    id: object
    """As it stands there, an ObjectId for instance."""
    name: str
    data: object
    """As plain JSON: ids, times, decimals and binary are texts."""
    typed: object
    """The same as it stands there, if it has values that plain JSON has not; else None."""
    status: DocumentStatus
    next_run_at: Instant
    locked_at: Instant | None
    fail_count: int
    fail_reason: str | None
    repeat_interval: str | None
    timezone: str | None
    """Of `repeat_interval`; None: the document names none."""
    priority: int | None
    unique_key: str | None
    created_at: Instant
    updated_at: Instant
    unknown: tuple[str, ...] = ()
    """Fields that this mapping does not know."""

    @property
    def params(self) -> dict[str, object]:
        """Return its data as params: an object is taken as it is, anything else under one name."""
        if self.data is None:
            return {}
        return self.data if isinstance(self.data, dict) else {WRAPPED: self.data}

    @property
    def rank(self) -> int | None:
        """Return its priority as Rota counts it, 0 to 100; None: the template's."""
        return None if self.priority is None else max(0, min(100, self.priority))

    @property
    def recurs(self) -> bool:
        """Say whether it would come again: what ended there, failed for instance, does not."""
        return self.repeat_interval is not None and self.status in {DocumentStatus.PENDING, DocumentStatus.PROCESSING}

    @property
    def is_only_due(self) -> bool:
        """Say whether it recurs and nothing of it is under way: then there is no job to take over, only its due times."""
        return self.recurs and self.status is DocumentStatus.PENDING and not self.fail_count

    @property
    def meta(self) -> str:
        """Return what is kept beside the job, as JSON."""
        kept = {
            "_id": self.id,
            "repeatInterval": self.repeat_interval,
            "timezone": self.timezone,
            "priority": self.priority,
            "uniqueKey": self.unique_key,
            "wrapped": None if isinstance(self.data, dict) else True,
            "data": self.typed,
            # A job with an attempt behind it was due when it came here: its own due time is not that of the document.
            "nextRunAt": None
            if self.status in {DocumentStatus.PENDING, DocumentStatus.CANCELLED}
            else date_of(moment_of(self.next_run_at)),
        }
        return msgspec.json.encode({META: {name: value for name, value in kept.items() if value is not None}}).decode()


# ---- from a document -----------------------------------------------------------------------------------------------------


def read_document(value: object) -> Document:
    """Return a document from decoded JSON, or refuse it saying which field and why."""
    if not isinstance(value, dict):
        raise InvalidImport(f"{_shown(value)} is not a document: each must be a JSON object")
    take = _Fields(value)
    return Document(
        id=take.identity("_id"),
        name=take.text("name", required=True) or "",
        data=take.data("data"),
        typed=value["data"] if has_types(value["data"]) else None,
        status=take.status("status"),
        next_run_at=take.required_moment("nextRunAt"),
        locked_at=take.moment("lockedAt"),
        fail_count=take.count("failCount"),
        fail_reason=take.text("failReason"),
        repeat_interval=take.cron("repeatInterval"),
        timezone=take.zone("timezone"),
        priority=take.number("priority"),
        unique_key=take.text("uniqueKey", filled=True),
        created_at=take.required_moment("createdAt"),
        updated_at=take.required_moment("updatedAt"),
        unknown=take.unknown(),
    )


def job_id_of(document: Document, organization: str) -> str:
    """Return the id that a document's job has here, always the same: a UUIDv7 of its time and a hash of its `_id`."""
    return _id_of(META, document, organization)


def schedule_id_of(document: Document, organization: str) -> str:
    """Return the id that the schedule of a document that recurs has here, always the same."""
    return _id_of(f"{META} schedule", document, organization)


def schedule_name_of(document: Document) -> str:
    """Return what a schedule is called after: the key that tells its document from others, where it can be a name."""
    try:
        check_name(document.unique_key, "schedule", NAME_MAX)
    except InvalidName:
        return document.name[:NAME_MAX]
    return str(document.unique_key)


def schedule_of(document: Document, name: str, *, timezone: str, organization: str, owner: str, now: Instant) -> Schedule:
    """Return the schedule of a document that recurs: not due before its time there, at once if that has passed.

    `timezone` is for a document that names none.
    """
    is_ahead = document.is_only_due and document.next_run_at > now
    timing = Timing(
        kind=Kind.CRON,
        cron=document.repeat_interval,
        timezone=document.timezone or timezone,
        starts_at=document.next_run_at if is_ahead else None,
    )
    return Schedule(
        id=schedule_id_of(document, organization),
        name=name,
        organization=organization,
        template=document.name,
        timing=timing,
        params=document.params,
        priority=document.rank,
        description="Imported from Monque.",
        created_by=owner,
        cursor_at=min(now, document.next_run_at - 1) if document.is_only_due else now,
    )


def _id_of(kind: str, document: Document, organization: str) -> str:
    text = msgspec.json.encode([kind, organization, plain(document.id)])
    chance = int.from_bytes(blake2b(text, digest_size=10).digest())
    stamp = document.created_at // 1000
    return f"{stamp:012x}7{chance >> 64 & 0xFFF:03x}{0x8 << 60 | chance & (1 << 62) - 1:016x}"


def adopted(document: Document, row: NewRow, *, fresh_ids: tuple[str, str], now: Instant) -> Adopted:
    """Return the job that Rota takes over, with the attempt that lies behind it; `fresh_ids` are for run and successor."""
    created_at = min(document.created_at, now)
    row.run_at = document.next_run_at
    row.meta = document.meta
    if document.status is DocumentStatus.CANCELLED:
        return Adopted(row=row, created_at=created_at, cancelled_at=max(created_at, min(document.updated_at, now)))
    end = _end(document, row, now)
    if end is None:
        return Adopted(row=row, created_at=created_at)
    is_running = document.status is DocumentStatus.PROCESSING
    ended_at = now if is_running else max(created_at, min(document.updated_at, now))
    started_at = min(ended_at, max(created_at, document.locked_at or (ended_at if not is_running else document.updated_at)))
    is_failure = end.status in {Status.FAILED, Status.DEAD_LETTER} and end.error_type is ErrorType.TRANSIENT
    past = Past(
        run_id=fresh_ids[0],
        started_at=started_at,
        ended_at=ended_at,
        failures=max(0, document.fail_count - 1) if is_failure else document.fail_count,
        transition=end,
        successor_id=fresh_ids[1] if end.successor else "",
    )
    return Adopted(row=row, created_at=created_at, past=past)


def _end(document: Document, row: NewRow, now: Instant) -> Transition | None:
    """Return how the last attempt ended there; None: there was none."""
    match document.status:
        case DocumentStatus.PENDING:
            return _failed_before(document) if document.fail_count else None
        case DocumentStatus.CANCELLED:
            return None
        case DocumentStatus.PROCESSING:
            return _crashed(document, row, now)
        case DocumentStatus.COMPLETED:
            return Transition(Status.COMPLETED)
        case DocumentStatus.FAILED:
            return Transition(Status.DEAD_LETTER, error=document.fail_reason or LOST, error_type=ErrorType.TRANSIENT)


def _failed_before(document: Document) -> Transition:
    """Return the failure that a waiting document still tells of, with the retry that waits."""
    waits = Successor(document.next_run_at, document.fail_count, crashes=0, snoozes=0)
    return Transition(Status.FAILED, error=document.fail_reason or LOST, error_type=ErrorType.TRANSIENT, successor=waits)


def _crashed(document: Document, row: NewRow, now: Instant) -> Transition:
    """Return what follows for an attempt that nobody is working at any more: the same as when a worker of ours is lost."""
    policy = row.policy
    claimed = Claimed(
        number=0,
        job_id=row.job_id,
        root_id=row.job_id,
        root_number=0,
        run_id="",
        job_type=row.job_type,
        origin=row.origin,
        organization_id=row.organization_id,
        params=row.params,
        priority=policy.priority,
        position=0,
        attempt=1,
        failures=document.fail_count,
        crashes=0,
        snoozes=0,
        max_retries=policy.max_retries,
        max_crashes=policy.max_crashes,
        backoff=policy.backoff,
        timeout=policy.timeout,
        executor=policy.executor,
        started_at=now,
        checkpoint=None,
    )
    end = decide(claimed, Crashed(), now, _CHANCE)
    if end.successor is not None:
        # The place it had was in another line: here it is a newcomer.
        end.successor.in_place = False
    return end


# ---- to a document -------------------------------------------------------------------------------------------------------


def as_document(chain: Sequence[Job], *, failed_run: Run | None = None, schedule: Schedule | None = None) -> dict[str, object]:
    """Return a chain as a document; `failed_run` is the run of its last attempt that went wrong, `schedule` what it was made by."""
    first, tail = chain[0], chain[-1]
    kept = _kept(tail)
    status = _status_of(tail)
    interval, timezone = _repeats(schedule) or (kept.get("repeatInterval"), kept.get("timezone"))
    is_as_it_came = len(chain) == 1 and tail.finished_at is not None
    failed_last = tail.status is Status.DEAD_LETTER and tail.error_type is not ErrorType.CRASH
    found: dict[str, object] = {
        "_id": kept.get("_id") or object_id(first.root_id),
        "name": tail.job_type,
        "data": _data_of(tail, kept),
        "status": str(status),
        "nextRunAt": (is_as_it_came and kept.get("nextRunAt")) or date_of(tail.run_at),
        "lockedAt": date_of(tail.started_at) if status is DocumentStatus.PROCESSING else None,
        "failCount": tail.failures + failed_last,
    }
    optional = {
        "failReason": None if status is DocumentStatus.COMPLETED else (failed_run and failed_run.error) or tail.reason,
        "repeatInterval": interval,
        "timezone": timezone,
        "priority": kept.get("priority"),
        "uniqueKey": tail.unique_key or kept.get("uniqueKey"),
    }
    found |= {name: value for name, value in optional.items() if value is not None}
    moments = (tail.finished_at, tail.started_at, tail.queued_at, tail.created_at)
    changed = next(at for at in moments if at is not None)
    return found | {"createdAt": date_of(first.created_at), "updatedAt": date_of(changed)}


def schedule_document(schedule: Schedule, *, now: Instant) -> dict[str, object]:
    """Return a schedule as the document that Monque would have of it: pending until its next due time, cancelled if there is none."""
    interval, timezone = _repeats(schedule) or (None, None)
    is_live = schedule.state is ScheduleState.ENABLED and schedule.next_at is not None
    found: dict[str, object] = {
        "_id": object_id(schedule.id),
        "name": schedule.job_type,
        "data": schedule.params,
        "status": str(DocumentStatus.PENDING if is_live else DocumentStatus.CANCELLED),
        "nextRunAt": date_of(moment_of(schedule.next_at or schedule.last_at or now)),
        "lockedAt": None,
        "failCount": 0,
    }
    optional = {"repeatInterval": interval, "timezone": timezone, "priority": schedule.priority, "uniqueKey": schedule.name}
    found |= {name: value for name, value in optional.items() if value is not None}
    created_at = schedule.created_at or moment_of(now)
    return found | {"createdAt": date_of(created_at), "updatedAt": date_of(schedule.updated_at or created_at)}


def _data_of(job: Job, kept: dict[str, Any]) -> object:
    """Return the data of a document: with its types if it came with some, unless its params have been changed here."""
    data: object = job.params.get(WRAPPED) if kept.get("wrapped") else job.params
    typed = kept.get("data")
    return typed if typed is not None and plain(typed) == data else data


def _repeats(schedule: Schedule | None) -> tuple[str | None, str | None] | None:
    """Return when a schedule is due as Monque writes it: a cron expression, and its zone unless that is UTC."""
    if schedule is None or schedule.timing.kind is not Kind.CRON:
        return None
    zone = schedule.timing.timezone
    return schedule.timing.cron, None if zone == "UTC" else zone


def _kept(job: Job) -> dict[str, Any]:
    kept = (job.meta or {}).get(META)
    return kept if isinstance(kept, dict) else {}


def _status_of(tail: Job) -> DocumentStatus:
    match tail.status:
        case Status.RUNNING:
            return DocumentStatus.PROCESSING
        case Status.COMPLETED:
            return DocumentStatus.COMPLETED
        case Status.SKIPPED:
            # Its handler found nothing to do; or it never came to its handler, which Monque knows only as a failure.
            return DocumentStatus.COMPLETED if tail.started_at is not None else DocumentStatus.FAILED
        case Status.DEAD_LETTER:
            return DocumentStatus.FAILED
        case Status.CANCELLED:
            return DocumentStatus.CANCELLED
        case _:
            return DocumentStatus.PENDING


# ---- field by field ------------------------------------------------------------------------------------------------------


class _Fields:
    """Takes a document's fields one by one, each with its own refusal."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._asked: set[str] = set()

    def _get(self, name: str) -> Any:
        self._asked.add(name)
        return self._document.get(name)

    def unknown(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self._document if name not in self._asked)

    def identity(self, name: str) -> object:
        found: object = self._get(name)
        if _plain(name, found) in (None, ""):
            raise InvalidImport(f"{name} is missing: it is what keeps a second import from adding the job again")
        return found

    def data(self, name: str) -> object:
        if name not in self._document:
            raise InvalidImport(f"{name} is missing: give an object, {{}} if there is nothing to say")
        return _plain(name, self._get(name))

    def text(self, name: str, *, required: bool = False, filled: bool = False) -> str | None:
        found = self._get(name)
        if found is None and not required:
            return None
        if not isinstance(found, str) or ((required or filled) and not found.strip()):
            raise InvalidImport(f"{name} is {_shown(found)}: give a text that is not empty")
        # What no store can hold in a text; JSON can.
        return found.replace("\0", "\\0")

    def status(self, name: str) -> DocumentStatus:
        found = self._get(name)
        try:
            return DocumentStatus(found)
        except ValueError:
            raise InvalidImport(f"{name} is {_shown(found)}: give one of {', '.join(DocumentStatus)}") from None

    def count(self, name: str) -> int:
        found = _plain(name, self._get(name))
        count = _whole(found)
        if count is None or not 0 <= count < 2**31:
            raise InvalidImport(f"{name} is {_shown(found)}: give a whole number, 0 or more")
        return count

    def cron(self, name: str) -> str | None:
        found = self.text(name, filled=True)
        if found is None:
            return None
        try:
            return read_cron(found).text
        except InvalidSchedule as error:
            raise InvalidImport(f"{name} is {_shown(found)}: {error}; give a cron expression of five fields, such as '0 0 * * *'") from None

    def zone(self, name: str) -> str | None:
        found = self.text(name, filled=True)
        if found is not None:
            try:
                zone_of(found)
            except InvalidSchedule as error:
                raise InvalidImport(str(error)) from None
        return found

    def number(self, name: str) -> int | None:
        found = _plain(name, self._get(name))
        if found is None:
            return None
        number = _whole(found)
        if number is None:
            raise InvalidImport(f"{name} is {_shown(found)}: use a whole number")
        return number

    def required_moment(self, name: str) -> Instant:
        found = self.moment(name)
        if found is None:
            raise InvalidImport(f'{name} is missing: give a time, such as {{"$date": "2025-12-16T10:30:00Z"}}')
        return found

    def moment(self, name: str) -> Instant | None:
        found = self._get(name)
        return None if found is None else _moment(name, found)


def _whole(found: object) -> int | None:
    """Return a whole number, which may be written as a float; None if it is not one."""
    if isinstance(found, float):
        return int(found) if found.is_integer() else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _moment(name: str, given: object) -> Instant:
    try:
        at = instant_of(given)
    except ValueError:
        example = '{"$date": "2025-12-16T10:30:00Z"}'
        raise InvalidImport(f"{name} is {_shown(given)}, which is no time: give {example}, or ISO-8601 with its zone") from None
    if not 0 <= at <= LATEST:
        raise InvalidImport(f"{name} is {_shown(given)}: give a time between the years 1970 and 9999")
    return at


def _plain(name: str, given: object) -> object:
    try:
        return plain(given)
    except ValueError as error:
        raise InvalidImport(f"{name} has {error}") from None


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode() if value is not None else "missing"
    return text if len(text) <= 60 else f"{text[:59]}…"
