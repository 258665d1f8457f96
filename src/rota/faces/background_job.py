"""The face of a background job engine: a chain as one Background Job, its moves as that system's execution log.

`docs/reference/background-job.md` says which word stands for what; `WORDS` and `PRIORITY_WORDS` are tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from rota.model.states import ErrorType, Status
from rota.model.values import Job, LogEntry, Run

NAMING_SERIES = "JOB-.YYYY.-"
PENDING, QUEUED, RUNNING, COMPLETED, FAILED = "Pending", "Queued", "Running", "Completed", "Failed"
TIMED_OUT, DEAD_LETTER, CANCELED = "Timed Out", "Dead Letter", "Canceled"
TRANSIENT, PERMANENT = "Transient", "Permanent"

WORDS: dict[Status, str] = {
    Status.PENDING: PENDING,
    Status.QUEUED: QUEUED,
    Status.RUNNING: RUNNING,
    Status.COMPLETED: COMPLETED,
    Status.FAILED: FAILED,
    Status.TIMED_OUT: TIMED_OUT,
    Status.DEAD_LETTER: DEAD_LETTER,
    Status.CANCELLED: CANCELED,
}
"""SKIPPED is missing because it has two: see `_skipped`."""

PRIORITY_WORDS = ((100, "Critical"), (75, "High"), (50, "Normal"), (0, "Low"))
"""The word of a number is the first whose bound it reaches."""

_LASTING = frozenset({ErrorType.PERMANENT, ErrorType.DEPENDENCY})
_CARRIERS = ("PermanentError: ", "TransientError: ", "Retry: ")
"""Names of the errors a handler raises to say how it failed: here `error_type` says that already."""


class BackgroundJob(msgspec.Struct, kw_only=True, frozen=True):
    """One chain, field by field as that engine knows it."""

    naming_series: str = NAMING_SERIES
    name: str
    job_type: str
    organization: str
    owner_user: str
    status: str
    priority: str
    progress: int
    progress_message: str | None
    input_parameters: dict[str, object]
    output_reference: str | None
    error_message: str | None
    error_type: str | None
    retry_count: int
    max_retries: int
    next_retry_at: datetime | None
    depends_on: str | None
    job_hash: str | None
    timeout_seconds: int
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    canceled_at: datetime | None
    canceled_by: str | None


class ExecutionLogEntry(msgspec.Struct, kw_only=True, frozen=True):
    """One change of a Background Job's status."""

    background_job: str
    from_status: str | None
    to_status: str
    timestamp: datetime
    actor: str | None
    message: str | None
    retry_attempt: int | None


def background_job(
    chain: Sequence[Job],
    *,
    run: Run | None,
    failed_run: Run | None = None,
    depends_on: str | None = None,
    job_hash: str | None = None,
) -> BackgroundJob:
    """Return a chain as a Background Job: `run` is its tail's, `failed_run` that of its `last_failure`."""
    first, tail = chain[0], chain[-1]
    status = _status(tail)
    message, error_type = _error(chain, failed_run, status)
    return BackgroundJob(
        name=first.number,
        job_type=tail.job_type,
        organization=tail.organization,
        owner_user=tail.owner or "",
        status=status,
        priority=next(word for bound, word in PRIORITY_WORDS if tail.priority >= bound),
        progress=100 if status == COMPLETED else (run and run.progress) or 0,
        progress_message=(run and run.progress_message) or (tail.reason if status == COMPLETED else None),
        input_parameters=tail.params,
        output_reference=_output(run),
        error_message=message,
        error_type=error_type,
        retry_count=tail.failures,
        max_retries=tail.max_retries,
        next_retry_at=tail.run_at if tail.status is Status.PENDING and tail.attempt > 1 else None,
        depends_on=depends_on,
        job_hash=job_hash,
        timeout_seconds=math.ceil(tail.timeout),
        created_at=first.created_at,
        started_at=tail.started_at,
        completed_at=tail.finished_at if status in {COMPLETED, DEAD_LETTER} else None,
        canceled_at=tail.finished_at if status == CANCELED else None,
        canceled_by=_person(tail.cancel_requested_by or tail.ended_by) if status == CANCELED else None,
    )


def last_failure(chain: Sequence[Job]) -> Job | None:
    """Return the last attempt of a chain that went wrong: whose run says what the Background Job's error is."""
    return next((job for job in reversed(chain) if job.error_type is not None), None)


def execution_log(chain: Sequence[Job], moves: Sequence[LogEntry]) -> list[ExecutionLogEntry]:
    """Return the moves of a chain as that engine's log. What is no change of status there is left out."""
    name, found = chain[0].number, list[ExecutionLogEntry]()
    for entry in sorted(moves, key=lambda move: move.attempt):
        job = chain[entry.attempt - 1]
        after = chain[entry.attempt] if entry.attempt < len(chain) else None
        for status in _steps(entry, job, after):
            before = found[-1].to_status if found else None
            if status != before:
                found.append(
                    ExecutionLogEntry(
                        background_job=name,
                        from_status=before,
                        to_status=status,
                        timestamp=entry.at,
                        # A retry carries the owner of the chain, who did not ask for it.
                        actor=None if entry.from_status is None and entry.attempt > 1 else _person(entry.actor),
                        message=_plain(entry.message) or None,
                        retry_attempt=entry.attempt - 1 or None,
                    )
                )
    return found


def document(value: BackgroundJob | ExecutionLogEntry) -> dict[str, object]:
    """Return it as JSON of that engine: its field names, times in UTC to the second."""
    fields = msgspec.structs.asdict(value)
    return {name: f"{each.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if isinstance(each, datetime) else each for name, each in fields.items()}


def _status(tail: Job) -> str:
    if tail.status is Status.SKIPPED:
        return _skipped(tail)
    # A chain that has run before waits in that engine's queue, whatever it waits for.
    return QUEUED if tail.status is Status.PENDING and tail.attempt > 1 else WORDS[tail.status]


def _skipped(job: Job) -> str:
    """Say what a skipped attempt is called: its handler found nothing to do, or it never came to its handler."""
    return COMPLETED if job.started_at is not None else CANCELED


def _error(chain: Sequence[Job], failed_run: Run | None, status: str) -> tuple[str | None, str | None]:
    if status == COMPLETED:
        return None, None
    tail, failed = chain[-1], last_failure(chain)
    if failed is None or failed.error_type is None:
        return (tail.reason if tail.status is Status.SKIPPED else None), None
    text = failed_run.error if failed_run is not None and failed_run.error else failed.reason
    return _plain(text), PERMANENT if failed.error_type in _LASTING else TRANSIENT


def named_output(run: Run) -> str | None:
    """Return the reference that a run names as its output, if its result is an object that has one."""
    if run.output_reference:
        return run.output_reference
    named = run.result.get("output_reference") if isinstance(run.result, dict) else None
    return named if isinstance(named, str) else None


def _output(run: Run | None) -> str | None:
    if run is None:
        return None
    named = named_output(run)
    if named is not None:
        return named
    if isinstance(run.result, str):
        return run.result
    return run.artifacts[0] if run.artifacts else None


def _steps(entry: LogEntry, job: Job, after: Job | None) -> Iterator[str]:
    """Go through the states that one move of ours passes in that engine's table of transitions."""
    match entry.to_status:
        case None:
            return
        case Status.PENDING | Status.QUEUED if job.attempt > 1:
            yield QUEUED
        case Status.QUEUED:
            yield from (PENDING, QUEUED)[entry.from_status is not None :]
        case Status.SKIPPED:
            is_put_back = after is not None and (after.snoozes > job.snoozes or job.reason == "released")
            yield QUEUED if is_put_back else _skipped(job)
        case Status.DEAD_LETTER:
            if job.error_type is ErrorType.TIMEOUT:
                yield TIMED_OUT
            elif job.error_type not in _LASTING:
                yield FAILED
            yield DEAD_LETTER
        case status:
            yield WORDS[status]


def _plain(text: str | None) -> str | None:
    """Return an error without the name of what merely carried it."""
    if text is None:
        return None
    return next((text.removeprefix(carrier) for carrier in _CARRIERS if text.startswith(carrier)), text)


def _person(actor: str | None) -> str | None:
    return None if actor == "system" else actor
