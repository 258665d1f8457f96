"""Rows as the values people see, and the graph of what waits for what around a chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from rota.model.audit import Outcome, event_of
from rota.model.dependencies import RUN, Dependency, Graph
from rota.model.gate import EVERYTHING, Scope
from rota.model.params import decode, decode_params
from rota.model.states import ErrorType, RunStatus, Status
from rota.model.values import (
    BROKEN_ROW,
    Audited,
    Job,
    LogEntry,
    Run,
    WorkerInfo,
    dashed,
    moment,
    moment_of,
    number_text,
)
from rota.ports.store import Tail
from rota.stores.verbs.db import Db

_strings = msgspec.json.Decoder(list[str])
_types = msgspec.json.Decoder(tuple[str, ...])
_digests = msgspec.json.Decoder(dict[str, str])
_STATUSES = frozenset(map(str, Status))

LAST = 2**63 - 1
"""No number and no id of a row is larger."""
EDGES_PER_JOB = 20
"""A graph shows at most so many edges for each job that it may show."""


def job_from(row: tuple[Any, ...]) -> Job:
    """Build a Job from the columns of `job_columns`. One that can't be read is shown as broken: it keeps no page from being shown."""
    try:
        return _job_from(row)
    except (ValueError, TypeError, OverflowError):
        return _job_from(repaired_row(row))


def _job_from(row: tuple[Any, ...]) -> Job:
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
        created_at=moment_of(created_at),
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
        meta=decode(take()),  # type: ignore[arg-type] # an object
        queue=take(),
        digest=take() or None,
        tags=_tags(take()),
    )


def run_from(job_id: str, row: tuple[Any, ...]) -> Run:
    """Build a Run from the columns of `run`; what can't be read of one is left out."""
    try:
        return _run_from(job_id, row)
    except (ValueError, TypeError, OverflowError):
        return _run_from(job_id, _repaired_run(row))


def _run_from(job_id: str, row: tuple[Any, ...]) -> Run:
    return Run(
        id=dashed(row[0]),
        job_id=dashed(job_id),
        status=None if row[1] is None else RunStatus(row[1]),
        template_id=_id(row[2]),
        started_at=moment_of(row[3]),
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


_READERS: dict[int, tuple[str, Callable[[Any], object], Any]] = {
    # By its place among `job_columns`: what it is, what reads it, and what is shown of one that can't be read.
    2: ("first attempt", int, 0),
    3: ("status", Status, None),
    6: ("priority", int, 0),
    7: ("position", int, 0),
    10: ("created_at", moment_of, 0),
    19: ("run_at", moment, None),
    20: ("expires_at", moment, None),
    22: ("params", decode_params, "{}"),
    24: ("due_at", moment, None),
    31: ("backoff", decode, "{}"),
    34: ("queued_at", moment, None),
    35: ("started_at", moment, None),
    36: ("finished_at", moment, None),
    38: ("cancel_requested_at", moment, None),
    42: ("error_type", lambda value: None if value is None else ErrorType(value), None),
    43: ("meta", decode, None),
    46: ("tags", lambda value: _tags(value), None),  # noqa: PLW0108 - defined below
}
_REASON = 41
_RUN_READERS: dict[int, tuple[Callable[[Any], object], Any]] = {
    1: (lambda value: None if value is None else RunStatus(value), None),
    3: (moment_of, 0),
    4: (moment, None),
    7: (lambda value: None if value is None else ErrorType(value), None),
    10: (decode, None),
    14: (_strings.decode, "[]"),
    18: (decode, None),
    19: (decode_params, "{}"),
}


def repaired_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the columns of a job so that they can be shown, with what is wrong with them as its reason."""
    shown, wrong = list(row), []
    for place, (name, read, instead) in _READERS.items():
        try:
            read(shown[place])
        except (ValueError, TypeError, OverflowError):
            wrong.append(f"its {name} can't be read" if shown[place] is not None else f"its {name} is missing")
            shown[place] = instead
    if shown[2] == 0:
        shown[2] = shown[1]
    if shown[3] is None:
        shown[3] = Status.PENDING if shown[36] is None else Status.DEAD_LETTER
    shown[_REASON] = f"{BROKEN_ROW}{', '.join(wrong)}"
    return tuple(shown)


def _repaired_run(row: tuple[Any, ...]) -> tuple[Any, ...]:
    shown = list(row)
    for place, (read, instead) in _RUN_READERS.items():
        try:
            read(shown[place])
        except (ValueError, TypeError, OverflowError):
            shown[place] = instead
    return tuple(shown)


def job(db: Db, job_id: str) -> Job | None:
    """Return one job."""
    row = db.row("job", job_id=job_id)
    return None if row is None else job_from(row)


def by_number(db: Db, number: int) -> Job | None:
    """Return a job by its number."""
    row = db.row("job_by_number", number=number)
    return None if row is None else job_from(row)


def chain(db: Db, job_id: str) -> list[Job]:
    """Return a chain, first to tail."""
    return [job_from(row) for row in db.rows("chain", job_id=job_id)]


def blockers(db: Db, job_id: str) -> list[Job]:
    """Return what a job waits for."""
    return [job_from(row) for row in db.rows("blockers", job_id=job_id)]


def run(db: Db, job_id: str) -> Run | None:
    """Return a job's run."""
    row = db.row("run", job_id=job_id)
    return None if row is None else run_from(job_id, row)


def ahead(db: Db, job_id: str, *, scope: Scope = EVERYTHING) -> int:
    """Return how many stand before a job."""
    return int(db.value("ahead", job_id=job_id, organization_id=scope.organization))


def tails(db: Db, job_ids: Sequence[str]) -> dict[str, Tail]:
    """Return the last jobs of the chains that these ids belong to; those that have finished with their runs."""
    found = {asked: _tail_from(columns) for asked, *columns in db.rows("tails", ids=list(job_ids))}
    ended = {tail.job_id for tail in found.values() if tail.status.ended}
    if not ended:
        return found
    runs = {job_id: run_from(job_id, tuple(columns)) for job_id, *columns in db.rows("runs", ids=list(ended))}
    return {asked: msgspec.structs.replace(tail, run=runs.get(tail.job_id)) for asked, tail in found.items()}


def _tail_from(columns: Sequence[Any]) -> Tail:
    """Build a Tail; of a broken row as much as can be read."""
    job_id, root_id, root_number, attempt, status, ended = columns
    number = dashed(job_id) if root_number is None else number_text(root_id, root_number, attempt)
    if status in _STATUSES:
        return Tail(job_id, number, Status(status))
    return Tail(job_id, number, Status.DEAD_LETTER if ended else Status.PENDING)


def queue(db: Db, *, limit: int, scope: Scope = EVERYTHING) -> list[Job]:
    """Return the head of the queue in its order: priority by priority, the heads of its organizations' lines merged."""
    jobs: list[Job] = []
    for _, same in groupby(lines(db, scope), key=itemgetter("priority")):
        heads = [job_from(row) for line in same for row in db.rows("line", **line, limit=limit - len(jobs))]
        heads.sort(key=lambda job: (job.position, job.created_at, job.id))
        jobs += heads[: limit - len(jobs)]
        if len(jobs) == limit:
            break
    return jobs


def lines(db: Db, scope: Scope) -> Iterator[dict[str, Any]]:
    """Go through the lines of the queue, one for each priority and organization, the highest priority first."""
    priority = db.value("next_priority", priority=101)
    while priority is not None:
        for name in [scope.organization] if scope.organization is not None else _in_line(db, priority):
            yield {"priority": priority, "organization_id": name}
        priority = db.value("next_priority", priority=priority)


def _in_line(db: Db, priority: int) -> Iterator[str]:
    name = db.value("next_line", priority=priority, organization_id="")
    while name is not None:
        yield name
        name = db.value("next_line", priority=priority, organization_id=name)


def log(db: Db, job_id: str) -> list[LogEntry]:
    """Return the moves of a chain, in the order of time."""
    moves = [
        LogEntry(
            at=moment_of(at),
            attempt=attempt,
            message=message or "",
            from_status=None if before is None else Status(before),
            to_status=Status(after),
            actor=actor,
        )
        for at, attempt, message, before, after, actor in db.rows("log", job_id=job_id)
        if after in _STATUSES
    ]
    # They come in the order in which they must have happened, which stands where moments are the same.
    return sorted(moves, key=attrgetter("at"))


def audit(
    db: Db,
    *,
    limit: int,
    before: int | None = None,
    scope: Scope = EVERYTHING,
    subject: str | None = None,
    actions: Sequence[str] | None = None,
    job: str | None = None,
) -> list[Audited]:
    """Return what people did, newest first. The subject is a kind, as `template`, or one of it, as `template:mail`.

    An id of a job means its chain. `actions`: only these; `job`: only what is about the schedule of this id.
    """
    kind, colon, subject_id = (subject or "").partition(":")
    place = LAST if before is None else before
    common = {"organization_id": scope.organization, "limit": limit}
    if job is None and not colon and actions is not None:
        # Each is read along its own index, as far as it could be needed: a trail may have millions of runs between two changes.
        found = [db.rows("audit_of_action", **common, action=action, subject=kind or None, before_id=place) for action in actions]
        rows = sorted((row for some in found for row in some), key=itemgetter(0), reverse=True)[:limit]
        return list(map(_audited, rows))
    values: dict[str, str | None]
    if job is not None:
        statement, values = "audit_of_job", {"job_uuid": job}
    elif colon:
        statement, values = "audit_of_chain" if kind == "job" else "audit_of", {"subject": kind, "subject_id": subject_id}
    else:
        statement, values = "audit_trail", {"subject": kind or None}
    entries: list[Audited] = []
    while True:
        rows = db.rows(statement, **common, **values, before_id=place)
        entries += [_audited(row) for row in rows if actions is None or row[4] in actions]
        if len(rows) < limit or len(entries) >= limit:
            return entries[:limit]
        place = rows[-1][0]


def _audited(row: tuple[Any, ...]) -> Audited:
    return Audited(
        id=row[0],
        at=moment_of(row[1]),
        actor=row[2],
        organization=row[3],
        event=event_of(row[4]),
        action=row[4],
        outcome=Outcome(row[11]),
        subject=row[5],
        subject_id=row[6],
        job_uuid=_id(row[9]),
        job_run_uuid=_id(row[10]),
        before=_side(row[7]),
        after=_side(row[8]),
    )


def workers(db: Db, *, live: bool = True) -> list[WorkerInfo]:
    """Return workers as people see them."""
    return [
        WorkerInfo(
            id=row[0],
            host=row[1],
            kind=row[2],
            beat=row[3],
            job_types=_types.decode(row[4]),
            started_at=moment(row[5]),  # type: ignore[arg-type] # NOT NULL
            stopping_at=moment(row[6]),
            ended_at=moment(row[7]),
            running=row[8] if row[9] is None else min(row[8], row[9]),
            claimed_ahead=0 if row[9] is None else max(0, row[8] - row[9]),
            slots=row[9],
            queues=None if row[10] is None else _types.decode(row[10]),
            digests=_digests.decode(row[11]),
            pid=row[12],
            version=row[13],
            memory=row[14],
        )
        for row in db.rows("workers" if live else "all_workers")
    ]


def _side(text: str | None) -> Any:
    """Return one side of an audited change; one that can't be read is shown as it is."""
    try:
        return decode(text)
    except ValueError:
        return {"unreadable": text}


def _tags(value: str | None) -> tuple[str, ...]:
    return () if value is None else tuple(_strings.decode(value))


def _id(value: str | None) -> str | None:
    return dashed(value) if value else None


def _error_type(value: str | None) -> ErrorType | None:
    return None if value is None else ErrorType(value)


def graph(db: Db, job_id: str, *, limit: int) -> Graph | None:
    """Return the chains around one, both ways, near ones first, and the edges between them."""
    row = db.row("locate", job_id=job_id)
    if row is None:
        return None
    root_id = str(row[0])
    roots = {root_id: None}
    cut = _walk(db, "parents_of", root_id, roots, limit)
    cut = _walk(db, "children_of", root_id, roots, limit) or cut
    most = limit * EDGES_PER_JOB
    jobs = _tails(db, list(roots))
    rows = db.rows("edges_among", roots=list(roots), limit=most + 1)
    return Graph(
        root_id=dashed(root_id),
        jobs={dashed(root): jobs[dashed(root)] for root in roots if dashed(root) in jobs},
        edges=_between(rows[:most], jobs),
        cut=cut or len(rows) > most,
    )


def _walk(db: Db, name: str, root_id: str, roots: dict[str, None], limit: int) -> bool:
    """Go from chain to chain, level by level, until there are no more or there are enough; say whether there are more."""
    level, known, most = [root_id], {root_id}, limit * EDGES_PER_JOB
    while level:
        rows = db.rows(name, roots=level, limit=most + 1)
        level = [root for (root,) in dict.fromkeys(rows) if root not in known]
        known.update(level)
        for root in level:
            if root not in roots and len(roots) >= limit:
                return True
            roots[root] = None
        if len(rows) > most:
            return True
    return False


def _tails(db: Db, roots: list[str]) -> dict[str, Job]:
    jobs = (job_from(row) for row in db.rows("tails_of", roots=roots))
    return {job.root_id: job for job in jobs}


def _between(rows: list[tuple[Any, ...]], jobs: dict[str, Job]) -> tuple[Dependency, ...]:
    """Return the edges whose parent is still there; of two attempts that wait for the same chain the later one counts."""
    found = {
        (child, parent): Dependency(
            child=dashed(child),
            parent=dashed(parent),
            needs=needs,
            on_failure=RUN if needs == "end" and source == "user" else on_failure,
            source=source,
            resolved_at=moment(resolved_at),
        )
        for child, parent, needs, on_failure, source, resolved_at in rows
    }
    return tuple(edge for edge in found.values() if edge.child in jobs and edge.parent in jobs)
