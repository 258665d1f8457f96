"""Rows as the values people see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from rota.model.params import decode, decode_params
from rota.model.states import ErrorType, RunStatus, Status
from rota.model.values import Instant, Job, Run, Stats, dashed, moment, number_text
from rota.ports.store import Where
from rota.stores.sqlite.connection import Db

_strings = msgspec.json.Decoder(list[str])


def job_from(row: tuple[Any, ...]) -> Job:
    """Build a Job from the columns of `job_columns`."""
    it = iter(row)
    take = it.__next__
    job_id, _, root_number, status, job_type, organization = take(), take(), take(), take(), take(), take()
    priority, position, attempt, root_id, created_at = take(), take(), take(), take(), take()
    return Job(
        id=dashed(job_id),
        number=number_text(root_id, root_number, attempt),
        status=Status(status),
        job_type=job_type,
        organization=organization,
        priority=priority,
        position=position,
        attempt=attempt,
        root_id=dashed(root_id),
        created_at=_moment(created_at),
        template_id=_id(take()),
        origin=take(),
        retry_of=_id(take()),
        failures=take(),
        crashes=take(),
        snoozes=take(),
        held=take(),
        blockers=take(),
        run_at=moment(take()),
        expires_at=moment(take()),
        unique_key=take(),
        params=decode_params(take()),
        schedule_id=_id(take()),
        due_at=moment(take()),
        group_id=_id(take()),
        sequence_number=take(),
        owner=take(),
        run_as=take(),
        max_retries=take(),
        max_crashes=take(),
        backoff=decode(take()),  # type: ignore[arg-type] # an object of numbers, as Backoff is
        timeout=take(),
        executor=take(),
        queued_at=moment(take()),
        started_at=moment(take()),
        finished_at=moment(take()),
        worker_id=take() or None,
        cancel_requested_at=moment(take()),
        cancel_requested_by=take(),
        ended_by=take(),
        reason=take(),
        error_type=_error_type(take()),
    )


def run_from(job_id: str, row: tuple[Any, ...]) -> Run:
    """Build a Run from the columns of `run`."""
    return Run(
        id=dashed(row[0]),
        job_id=dashed(job_id),
        status=None if row[1] is None else RunStatus(row[1]),
        template_id=_id(row[2]),
        started_at=_moment(row[3]),
        finished_at=moment(row[4]),
        exit_code=row[5],
        error=row[6],
        error_type=_error_type(row[7]),
        error_code=row[8],
        traceback=row[9],
        result=decode(row[10]),
        result_message=row[11],
        rows_affected=row[12],
        output_reference=row[13],
        artifacts=_strings.decode(row[14]),
        log_path=row[15],
        progress=row[16],
        progress_message=row[17],
        checkpoint=decode(row[18]),
        params=decode_params(row[19]),
    )


def find(db: Db, where: Where, limit: int, before: int | None) -> list[tuple[int, Job]]:
    """Return a page of jobs, newest first, each with its cursor."""
    rows = db.rows(
        "find",
        before=before,
        limit=limit,
        statuses=msgspec.json.encode(where.status).decode() if where.status else None,
        job_type=where.job_type,
        group_id=where.group_id,
        root_id=where.root_id,
        text=where.text,
    )
    return [(row[1], job_from(row)) for row in rows]


def queue(db: Db, limit: int) -> list[Job]:
    """Return the head of the queue in its order: priority by priority, the heads of its organizations' lines merged."""
    jobs: list[Job] = []
    priority = db.value("next_priority", priority=101)
    while priority is not None and len(jobs) < limit:
        heads = [job_from(row) for line in _lines(db, priority) for row in db.rows("line", **line, limit=limit - len(jobs))]
        heads.sort(key=lambda job: (job.position, job.created_at, job.id))
        jobs += heads[: limit - len(jobs)]
        priority = db.value("next_priority", priority=priority)
    return jobs


def _lines(db: Db, priority: int) -> Iterator[dict[str, Any]]:
    name = db.value("next_line", priority=priority, organization_id="")
    while name is not None:
        yield {"priority": priority, "organization_id": name}
        name = db.value("next_line", priority=priority, organization_id=name)


def stats(db: Db, now: Instant) -> Stats:
    """Return counts and ages."""
    oldest = db.value("oldest_waiting")
    return Stats(
        by_status=dict.fromkeys(map(str, Status), 0) | dict(db.rows("count_by_status")),
        by_priority=dict(db.rows("count_by_priority")),
        waiting_by_type=dict(db.rows("count_waiting_by_type")),
        oldest_waiting_s=None if oldest is None else max(0.0, (now - oldest) / 1e6),
        workers=sum(1 for row in db.rows("workers", ended=0) if row[2] == "worker"),
        late_results=db.value("late_results"),
    )


def _id(value: str | None) -> str | None:
    return dashed(value) if value else None


def _error_type(value: str | None) -> ErrorType | None:
    return None if value is None else ErrorType(value)


def _moment(value: Instant) -> Any:
    return moment(value)
