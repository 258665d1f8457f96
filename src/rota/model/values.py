"""The values that travel between surfaces, engine, executors and stores.

Instants are integer microseconds since 1970 UTC. Ids are UUIDv7, as 32 hex digits inside, as text with dashes outside.
Values on the per-job path are plain (not frozen) structs: a frozen one costs five times as much to make.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Protocol, TypeAlias
from uuid import UUID

import msgspec

from rota.model.audit import Outcome
from rota.model.states import ErrorType, RunStatus, Status

Instant: TypeAlias = int
SECOND: Instant = 1_000_000
LATEST: Instant = 253_402_300_799 * SECOND
"""The end of the year 9999: what a calendar can show."""


class Origin(StrEnum):
    """How a job came to be."""

    API = "api"
    DIRECT = "direct"
    SCHEDULE = "schedule"
    GROUP = "group"


class Held(StrEnum):
    """Why a QUEUED job is out of the ready index. All but DIRECT carry a name: `organization:acme`."""

    DIRECT = "direct"
    ORGANIZATION = "organization"
    """Its organization is paused."""
    SUSPENDED = "suspended"
    """Its organization is suspended."""
    ORGANIZATION_LIMIT = "organization-limit"
    """As many of its organization run as may."""
    TEMPLATE_LIMIT = "template-limit"
    """As many of its template run as may."""
    RATE_LIMIT = "rate-limit"
    """As many of its template have started inside the window as may."""
    BROKEN = "broken"
    """Its row can't be started: the reason follows. See `rota doctor`."""


BROKEN_ROW = "broken row: "
"""How the reason of a job begins whose row is broken, wherever there is no other place to say so."""
BROKEN_MAX = 200
"""Letters of the reason that a broken row is parked with."""


def broken_word(reason: str) -> str:
    """Return the word under which a broken row is parked."""
    return f"{Held.BROKEN}:{reason[:BROKEN_MAX]}"


def broken_reason(job: Job) -> str | None:
    """Return why the row of a job is broken, or None if nothing is known to be wrong with it."""
    if job.held is not None and job.held.startswith(f"{Held.BROKEN}:"):
        return job.held.partition(":")[2]
    if not job.status.ended and job.reason is not None and job.reason.startswith(BROKEN_ROW):
        return job.reason.removeprefix(BROKEN_ROW)
    return None


class Policy(msgspec.Struct, frozen=True):
    """What a job carries of its template's rules, so that nothing later reads the template again."""

    priority: int
    max_retries: int
    max_crashes: int
    backoff: str
    timeout: float
    executor: str


class NewRow(msgspec.Struct, kw_only=True, gc=False):
    """One job as it is handed to the store: ids chosen, params encoded, policy resolved."""

    job_id: str
    job_type: str
    params: str
    policy: Policy
    run_at: Instant
    template_id: str | None = None
    organization_id: str = "default"
    origin: str = Origin.API
    owner: str = "local"
    unique_key: str | None = None
    expires_at: Instant | None = None
    group_id: str | None = None
    sequence_number: int | None = None
    after: str | None = None
    depends_on: tuple[str, ...] = ()
    """Ids of jobs whose chains must complete first, as 32 hex digits."""
    on_parent_failure: str = "wait"
    follows: str | None = None
    """The group whose end it waits for, as 32 hex digits."""
    job_hash: str | None = None
    """Of organization, template and params, where the template has a dedup window."""
    dedup_window: Instant | None = None
    """How long the same hash is refused, in microseconds."""
    submit_limit: int | None = None
    submit_window: Instant | None = None
    """At most so many of its organization and type inside the window, in microseconds."""
    schedule_id: str | None = None
    due_at: Instant | None = None
    """Of a job that a schedule made; without a due time it was fired by hand."""
    run_as: str | None = None
    meta: str | None = None
    webhook: str | None = None
    """A URL that is told of this chain's ends."""
    chosen: bool = False
    """The caller chose the id: it may have been enqueued before."""
    queue: str = "default"
    digest: str = ""
    """Of the parameters that it was enqueued for; empty: not known."""
    lane: int = 0
    """Of its type, queue and digest; 0: not known to the caller, and the store looks it up."""
    tags: str | None = None
    """Labels, as JSON text."""
    put_off: bool = False
    """`run_at` was given as a time from now, and not as a moment: see `rota.model.ordering`."""

    @property
    def is_tied(self) -> bool:
        """Something else than an id or a key must be looked up before it is written: a group, a schedule, a limit, another job."""
        tied = self.after or self.group_id or self.follows or self.job_hash or self.submit_limit is not None or self.schedule_id
        return bool(tied or self.origin == Origin.DIRECT)


class Enqueued(msgspec.Struct, gc=False):
    """What became of one new row: `existing` when another live job holds its key (or it was enqueued before)."""

    job_id: str
    root_id: str
    number: int
    status: str
    position: int
    existing: bool


class Claimed(msgspec.Struct, array_like=True, gc=False):
    """One job that this worker holds: what an executor and `decide` need, and no more."""

    number: int
    job_id: str
    root_id: str
    root_number: int
    run_id: str
    job_type: str
    origin: str
    organization_id: str
    params: str
    priority: int
    position: int
    attempt: int
    failures: int
    crashes: int
    snoozes: int
    max_retries: int
    max_crashes: int
    backoff: str
    timeout: float
    executor: str
    started_at: Instant
    checkpoint: str | None
    owner: str = "local"
    meta: str | None = None
    """JSON text."""
    lane: int = 0
    trace: str | None = None
    """What its trace goes on from, as JSON, where the worker traces."""
    counted_at: Instant = 0
    """Of a rate-limited type: the moment under which its start is counted, the latest at which it may happen; 0: it is not counted."""
    start_by: float = 0.0
    """The same by the monotonic clock of the worker's machine, a little earlier: later than that it is given back, not started."""


class Job(msgspec.Struct, kw_only=True):
    """One attempt as it stands in the store."""

    id: str
    number: str
    status: Status
    job_type: str
    organization: str
    priority: int
    position: int
    attempt: int
    root_id: str
    created_at: datetime
    existing: bool = False
    template_id: str | None = None
    origin: str = Origin.API
    retry_of: str | None = None
    failures: int = 0
    crashes: int = 0
    snoozes: int = 0
    held: str | None = None
    blockers: int = 0
    run_at: datetime | None = None
    expires_at: datetime | None = None
    unique_key: str | None = None
    params: dict[str, object] = msgspec.field(default_factory=dict)
    schedule_id: str | None = None
    due_at: datetime | None = None
    group_id: str | None = None
    sequence_number: int | None = None
    owner: str | None = None
    run_as: str | None = None
    max_retries: int = 0
    max_crashes: int = 0
    backoff: dict[str, float] = msgspec.field(default_factory=dict)
    timeout: float = 0.0
    executor: str = "thread"
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker_id: str | None = None
    cancel_requested_at: datetime | None = None
    cancel_requested_by: str | None = None
    ended_by: str | None = None
    reason: str | None = None
    error_type: ErrorType | None = None
    meta: dict[str, object] | None = None
    queue: str = "default"
    digest: str | None = None
    """Of the parameters that it was enqueued for, where they are known."""
    tags: tuple[str, ...] = ()


class Identified(Protocol):
    """A Job, or a Handle of one."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def number(self) -> str:
        """Its number, such as JOB-2026-00042."""

    @property
    def existing(self) -> bool:
        """Whether it was there before it was enqueued."""


JobRef: TypeAlias = Job | Identified | str | int
"""What names a job: itself, a handle of it, its id, or its number."""


class Run(msgspec.Struct, kw_only=True):
    """What happened when one job was executed."""

    id: str
    job_id: str
    started_at: datetime
    status: RunStatus | None = None
    template_id: str | None = None
    params: dict[str, object] = msgspec.field(default_factory=dict)
    finished_at: datetime | None = None
    exit_code: int | None = None
    error: str | None = None
    error_type: ErrorType | None = None
    error_code: str | None = None
    traceback: str | None = None
    result: object = None
    result_message: str | None = None
    rows_affected: int | None = None
    output_reference: str | None = None
    artifacts: list[str] = msgspec.field(default_factory=list)
    log_path: str | None = None
    progress: int | None = None
    progress_message: str | None = None
    checkpoint: object = None


class ResultsPage(msgspec.Struct, frozen=True):
    """Some results of what a job waited for, each as JSON text; None for one that did not complete, or returned nothing."""

    results: list[str | None]
    next: tuple[int, int] | None = None
    """Where the next page begins; None: there is none."""


class LogEntry(msgspec.Struct, kw_only=True, frozen=True):
    """One line of a job's log: a move of the job, or a line its handler wrote."""

    at: datetime
    attempt: int
    message: str
    from_status: Status | None = None
    to_status: Status | None = None
    actor: str | None = None
    level: str | None = None


PurgeCursor: TypeAlias = tuple[Instant, Instant, int]
"""The last end that a purge has looked at: when it ended, when it was made, its number."""


class Purged(msgspec.Struct, kw_only=True):
    """What retention removed, or would remove."""

    chains: int = 0
    jobs: int = 0
    kept: int = 0
    """Chains old enough that others still need."""
    run_ids: list[str] = msgspec.field(default_factory=list)
    """Of the runs removed: their logs can go."""
    cursor: PurgeCursor | None = None
    """Where to go on; None: there is nothing more."""
    broken: dict[int, str] = msgspec.field(default_factory=dict)
    """Chains that can't be removed, by the number of their last job, with the reason. They are kept."""


class Audited(msgspec.Struct, kw_only=True, frozen=True):
    """One entry of the audit trail."""

    id: int
    at: datetime
    actor: str
    organization: str | None
    event: str
    action: str
    outcome: Outcome
    subject: str
    subject_id: str
    job_uuid: str | None = None
    """The schedule that it is about."""
    job_run_uuid: str | None = None
    """The job of the queue that it is about."""
    before: object = None
    after: object = None


class WorkerProcess(msgspec.Struct, frozen=True):
    """The process of a worker."""

    pid: int
    version: str
    memory: int | None = None
    """In bytes; None: not known on this system."""


class WorkerInfo(msgspec.Struct, kw_only=True, frozen=True):
    """One process incarnation that claims jobs."""

    id: str
    host: str
    kind: str
    beat: int
    job_types: tuple[str, ...]
    started_at: datetime
    stopping_at: datetime | None = None
    ended_at: datetime | None = None
    running: int = 0
    """Handlers that run."""
    claimed_ahead: int = 0
    """Jobs it holds beyond its slots: their handlers have not started, or are over and their outcome is about to be written."""
    slots: int | None = None
    """Handlers it runs at once; None: a worker of an older version, whose jobs all count as running."""

    queues: tuple[str, ...] | None = None
    """The queues it serves; None: all of them."""
    digests: dict[str, str] = {}
    """Of the parameters of its handlers, by job type."""
    pid: int | None = None
    """The id of its process on that host; None: a worker of an older version."""
    version: str | None = None
    """The version of Rota that it runs."""
    memory: int | None = None
    """The memory of its process, without those of its handler processes, in bytes, as of its last beat."""

    @property
    def holds(self) -> int:
        """Return how many RUNNING jobs are its own."""
        return self.running + self.claimed_ahead


def number_text(root_id: str, root_number: int, attempt: int) -> str:
    """Return the name people see: JOB-2026-00042, its third attempt JOB-2026-00042.3."""
    text = f"JOB-{_year_of(int(root_id[:12], 16) // 86_400_000)}-{root_number:05d}"
    return text if attempt == 1 else f"{text}.{attempt}"


@lru_cache(maxsize=1024)
def _year_of(day: int) -> int:
    """Return the year of a day, counted from 1970."""
    return (_EPOCH + timedelta(days=day)).year


def dashed(hex_id: str) -> str:
    """Return an id as the outside sees it."""
    return f"{hex_id[:8]}-{hex_id[8:12]}-{hex_id[12:16]}-{hex_id[16:20]}-{hex_id[20:]}"


def undashed(text: str) -> str | None:
    """Return the 32 hex digits of an id given from outside, or None if it is not one."""
    try:
        return UUID(text).hex
    except (ValueError, AttributeError, TypeError):
        return None


def moment(instant: Instant | None) -> datetime | None:
    """Return an instant as an aware datetime, None for None."""
    return None if instant is None else _EPOCH + timedelta(microseconds=instant)


def moment_of(instant: Instant) -> datetime:
    """Return an instant as an aware datetime."""
    return _EPOCH + timedelta(microseconds=instant)


def log_path(log_dir: str, run_id: str) -> str:
    """Return where the log of a run is kept. The last digits of an id spread; the first are its time.

    Use it as text: `pathlib` interns each part of a path, and Python 3.12 never frees interned text.
    """
    return f"{log_dir}/{run_id[-2:]}/{run_id}.log"


def instant(at: datetime) -> Instant:
    """Return an aware datetime as microseconds since 1970 UTC, exactly."""
    delta = at - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
