"""Workers, the moves of recovery, and direct reservations, in SQL."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import msgspec

from rota.errors import DuplicateId
from rota.model.audit import AuditRuns
from rota.model.decide import CRASH_ERROR, Transition
from rota.model.states import ErrorType, RunStatus, Status
from rota.model.values import Claimed, Instant, NewRow, WorkerProcess
from rota.ports.store import Held
from rota.ports.turns import Ending, Reservation, Turned
from rota.stores.verbs.db import Db, audit_runs, is_moved
from rota.stores.verbs.endings import SETTLE_MAX, About, after_chain_ends, after_runs, end_waiting, finish, settle
from rota.stores.verbs.intake import enqueue
from rota.stores.verbs.turn import active_reservation
from rota.stores.verbs.webhooks import tell_of

log = logging.getLogger("rota.store")

UNREGISTERED_MAX = 100
"""Workers that are not on record and are recovered from in one sweep."""
_encode = msgspec.json.Encoder().encode
_held = msgspec.json.Decoder(list[tuple[Claimed, int, str | None, str, int | None]])
_claimed = msgspec.json.Decoder(list[Claimed])


def held_by(db: Db, worker_id: str, *, limit: int) -> list[Held]:
    """Return RUNNING jobs of a worker, whatever became of their runs; "" for those that name no worker."""
    if worker_id:
        with suppress(ValueError):
            return [_as_held(*row) for row in _held.decode(db.value("held_by", worker_id=worker_id, limit=limit))]
    # One of them can't be read: read them one by one.
    return [_held_alone(db, number) for (number,) in db.rows("held_numbers", worker_id=worker_id, limit=limit)]


def _held_alone(db: Db, number: int) -> Held:
    try:
        ((row,),) = (_held.decode(db.value("held_rows", numbers=[number])),)
        return _as_held(*row)
    except ValueError:
        job_id, root_id, attempt, run_missing, run_ended, run_id, started_at = db.rows("held_bare", number=number)[0]
        # As much of it as a move needs. Without retries it ends DEAD_LETTER, where somebody can look at it.
        job = Claimed(
            number=number,
            job_id=job_id,
            root_id=root_id,
            root_number=number,
            run_id="",
            job_type="",
            origin="api",
            organization_id="",
            params="{}",
            priority=0,
            position=0,
            attempt=attempt,
            failures=0,
            crashes=0,
            snoozes=0,
            max_retries=0,
            max_crashes=1,
            backoff="{}",
            timeout=0.0,
            executor="",
            started_at=0,
            checkpoint=None,
        )
        return _as_held(job, run_missing, run_ended, run_id, started_at)


def failed_without_successor(db: Db, *, since: Instant) -> list[Held]:
    """Return attempts that ended in a retryable way and have no successor: a move that was torn by other hands."""
    return [_as_held(*row) for row in _held.decode(db.value("failed_without_successor", since=since))]


def holding(db: Db, worker_id: str) -> list[Claimed]:
    """Return what a worker holds, with the ids of its runs."""
    jobs = _claimed.decode(db.value("holding", worker_id=bytes.fromhex(worker_id)))
    runs = {row[0]: row for row in db.rows("run_ids", worker_id=bytes.fromhex(worker_id))}
    for job in jobs:
        if job.number in runs:
            _, job.run_id, job.started_at = runs[job.number]
    return jobs


def recover(db: Db, endings: Sequence[Ending], held: Sequence[Held], *, now: Instant, audit_runs: str = AuditRuns.SQL) -> dict[int, Status]:
    """Write recovery's moves; what somebody ended meanwhile stays as it is."""
    by_number = {each.job.number: each for each in held}
    plain: list[Ending] = []
    changed: dict[int, Status] = {}
    for ending in endings:
        each = by_number[ending.number]
        if each.run_ended is not None and each.run_ended in set(RunStatus):
            if (status := _close_alone(db, ending, each, now, audit_runs)) is not None:
                changed[ending.number] = status
            continue
        if each.run_missing:
            # The trigger that keeps this from being was not there when it happened; the record still says so.
            db.change("insert_missing_run", number=ending.number, run_id=ending.successor_id)
            ending = msgspec.structs.replace(ending, successor_id=_another(ending.successor_id))  # noqa: PLW2901 - work may be begun again
        plain.append(ending)
    turned = Turned()
    if plain:
        # First: the end of a direct execution would release its reservation as if nothing had happened.
        db.change("end_reservation_of", numbers=[ending.number for ending in plain], status="EXPIRED", now=now)
        finish(db, plain, now, turned, About(b"", audit_runs))
    settle(db, now, SETTLE_MAX)
    late = set(turned.late)
    late |= {number for number, _ in turned.refused if db.value("is_running", number=number)}
    return changed | {e.number: turned.as_written.get(e.number, e.transition.status) for e in plain if e.number not in late}


def add_successors(db: Db, endings: Sequence[Ending], *, now: Instant) -> int:
    """Give each FAILED or TIMED_OUT attempt the successor it lacks; one that has got it meanwhile keeps it."""
    rows = [
        (e.number, e.successor_id, Status.PENDING, s.run_at, s.failures, s.crashes, s.snoozes, 0, 0)
        for e in endings
        if (s := e.transition.successor) is not None
    ]
    return db.change("insert_successors", rows=rows, now=now) if rows else 0


def register(
    db: Db,
    worker_id: str,
    *,
    host: str,
    kind: str,
    job_types: Sequence[str],
    now: Instant,
    slots: int | None = None,
    queues: Collection[str] | None = None,
    digests: Mapping[str, str] | None = None,
    process: WorkerProcess | None = None,
) -> None:
    """Record a worker."""
    db.change(
        "register",
        worker_id=worker_id,
        now=now,
        host=host,
        kind=kind,
        job_types=_encode(list(job_types)).decode(),
        queues=None if queues is None else _encode(sorted(queues)).decode(),
        digests=_encode(digests or {}).decode(),
        slots=slots,
        pid=None if process is None else process.pid,
        rota_version=None if process is None else process.version,
        memory=None if process is None else process.memory,
    )


def beat(db: Db, worker_id: str, *, job_types: Sequence[str], digests: Mapping[str, str] | None = None, memory: int | None = None) -> bool:
    """Advance a worker's beat."""
    values = {"job_types": _encode(list(job_types)).decode(), "digests": None if digests is None else _encode(digests).decode()}
    return bool(db.change("beat", worker_id=worker_id, memory=memory, **values))


def stopping(db: Db, worker_id: str, *, now: Instant) -> None:
    """Record the beginning of a shutdown."""
    db.change("stopping", worker_id=worker_id, now=now)


def end_worker(db: Db, worker_id: str, *, now: Instant) -> None:
    """Record the end of a worker."""
    db.change("end_worker", worker_id=worker_id, now=now)


def give_up_worker(db: Db, worker_id: str, *, beat: int, now: Instant) -> bool:
    """Record the end of a worker whose beat has stood still."""
    return bool(db.change("give_up_worker", worker_id=worker_id, beat=beat, now=now))


def unregistered(db: Db) -> list[tuple[str, int]]:
    """Return workers that are not on record and hold RUNNING jobs."""
    return [(worker_id, count) for worker_id, count in db.rows("unregistered", limit=UNREGISTERED_MAX)]


def recovered(db: Db, *, now: Instant) -> Instant:
    """Record a finished recovery."""
    before = int(db.value("recovered_at"))
    db.change("set_recovered_at", now=now)
    return before


def reserve(
    db: Db, row: NewRow, *, reservation_id: str, reserved_by: str, worker_id: str, now: Instant, expires_at: Instant
) -> Reservation | None:
    """Make the direct job and its reservation together, or nothing if one is ACTIVE."""
    known = db.row("reservation_by_id", reservation_id=reservation_id)
    if known is not None:
        return Reservation(*known)
    if active_reservation(db) is not None:
        return None
    added = enqueue(db, [row], now)[0]
    if added.existing:
        raise DuplicateId(f"id {row.job_id} is taken already: choose another")
    db.change(
        "insert_reservation",
        reservation_id=reservation_id,
        reserved_by=reserved_by,
        worker_id=worker_id,
        job_id=added.job_id,
        job_number=added.number,
        now=now,
        expires_at=expires_at,
    )
    return active_reservation(db)


def give_up(db: Db, reservation_id: str, *, now: Instant, stop_running: bool) -> bool:
    """End a reservation, and its job if it waits or is to be stopped. Return whether the job had started."""
    active = active_reservation(db)
    if active is None or active.id != reservation_id:
        return False
    db.change("end_reservation", reservation_id=reservation_id, status="EXPIRED", now=now)
    if db.value("is_waiting", number=active.job_number):
        end_waiting(db, [active.job_number], Status.CANCELLED, now, reason="its reservation ended before it could start", actor="system")
        return False
    if stop_running:
        end = Transition(Status.DEAD_LETTER, error="the reservation of this direct execution expired", error_type=ErrorType.TIMEOUT)
        finish(db, [Ending(active.job_number, now, end, end, "")], now, Turned(), About(b"", AuditRuns.SQL))
        settle(db, now, SETTLE_MAX)
    return True


def give_up_waiting(db: Db, reservation_id: str, *, now: Instant) -> bool:
    """Give up a direct execution that has not started; one that has goes on."""
    active = active_reservation(db)
    if active is None or active.id != reservation_id:
        return False
    if db.value("is_waiting", number=active.job_number) is None:
        return False
    give_up(db, reservation_id, now=now, stop_running=False)
    return True


def _as_held(job: Claimed, run_missing: int, run_ended: str | None, run_id: str, started_at: int | None) -> Held:
    job.run_id = run_id
    job.started_at = started_at or 0
    return Held(job, bool(run_missing), run_ended)


def _close_alone(db: Db, ending: Ending, held: Held, now: Instant, which: str) -> Status | None:
    """Close one job on its own: one that can't be closed keeps no other from being recovered."""
    try:
        with db.savepoint(("close", ending.number)):
            status = _close(db, ending, held, now)
            if status is not None:
                audit_runs(db, [ending.number], which)
            return status
    except db.refused as error:
        if is_moved(error):
            raise
        log.error("job %d can't be closed: %s. Remove what refuses it", ending.number, error)  # noqa: TRY400 - it says all
        return None


def _close(db: Db, ending: Ending, held: Held, now: Instant) -> Status | None:
    """Close a job whose run has already ended: its outcome counts, and a failed one gets its retry. None: it was closed before."""
    failed = held.run_ended == RunStatus.FAILED
    status = ending.transition.status if failed else Status(str(held.run_ended))
    error_type = ErrorType.CRASH if ending.transition.error == CRASH_ERROR and status is not Status.COMPLETED else None
    closed = db.row("close_job_as", number=ending.number, status=status, failed=int(failed), now=now, error_type=error_type)
    if closed is None:
        return None
    end, _, group_id = closed
    after_runs(db, [ending.number])
    if end in {Status.FAILED, Status.TIMED_OUT}:
        add_successors(db, [ending], now=now)
    else:
        bad = [group_id] if group_id and end in {Status.DEAD_LETTER, Status.CANCELLED} else []
        after_chain_ends(db, bad, [ending.number], now)
    tell_of(db, [ending.number], now)
    return Status(end)


def _another(hex_id: str) -> str:
    """Return a second id beside a fresh one: the last digit turned, which nobody else was given."""
    return hex_id[:-1] + format(int(hex_id[-1], 16) ^ 1, "x")
