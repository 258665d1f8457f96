"""One turn of the wheel in SQL: end what is over, keep what was reported, promote what is due, claim."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import apsw
import msgspec

from rota.model.decide import Transition
from rota.model.groups import PREDECESSOR_FAILED, REST_ENDS, OnFailure
from rota.model.states import RUN_END, ErrorType, Status
from rota.model.values import Claimed, Instant
from rota.ports.executor import Report
from rota.ports.store import Ending, Reservation, Turn, Turned
from rota.stores.sqlite.connection import Db
from rota.stores.sqlite.queue import numbers_json, promote
from rota.stores.sqlite.statements import candidates

_encode = msgspec.json.Encoder().encode
_claimed = msgspec.json.Decoder(list[Claimed])
_open_endings = msgspec.json.Decoder(list[tuple[int, int, str, str | None]])
_numbers = msgspec.json.Decoder(list[int])
_texts = msgspec.json.Decoder(list[str])

ARMS_MAX = 200
"""SQLite joins at most 500 SELECTs; more types than this are asked for in several queries."""
UNWRITABLE = (apsw.ConstraintError, apsw.SQLError, apsw.TooBigError, ValueError, TypeError, KeyError)
"""What a text, a number or a move that the store can't hold raises: it spoils its own row and no other."""


def turn(db: Db, request: Turn) -> Turned:
    """Make one turn. Everything in it is one transaction."""
    turned = Turned()
    if request.reports:
        keep(db, request.reports)
    if request.done:
        _finish_plain(db, request, turned)
    if request.endings:
        finish(db, request.endings, request.now, turned, worker_id=bytes.fromhex(request.worker_id))
    _expire(db, request.now, request.limit)
    due, expiry = promote(db, request.now, request.limit), db.value("next_expiry")
    turned.next_due = expiry if due is None else due if expiry is None else min(due, expiry)
    turned.definitions = db.value("definitions_version")
    turned.given_up = bool(db.value("is_given_up", worker_id=bytes.fromhex(request.worker_id)))
    if request.want and request.choose and turned.definitions == request.definitions and not turned.given_up:
        turned.claimed = _claim(db, request)
    return turned


# ---- end -------------------------------------------------------------------------------------------------------------


def _finish_plain(db: Db, request: Turn, turned: Turned) -> None:
    """End completions that left nothing behind: two statements for all of them."""
    done = dict(request.done)
    text = _encode(done).decode()
    worker_id = bytes.fromhex(request.worker_id)
    changed = db.change("finish_jobs_plain", done=text, worker_id=worker_id)
    if changed != len(done):
        # A late one ends nothing: not its run, not the wait of others for its chain.
        for number in _note_late(db, done, worker_id, turned):
            del done[number]
        text = _encode(done).decode()
    db.change("finish_runs_plain", done=text)
    numbers = numbers_json(done)
    turned.chains_ended = True
    if db.value("any_open_edges"):
        resolve(db, _texts.decode(db.value("roots_of", numbers=numbers)), request.now)
    db.change("release_for", numbers=numbers, now=request.now)


def finish(db: Db, endings: Sequence[Ending], now: Instant, turned: Turned, *, worker_id: bytes) -> None:
    """End attempts with all that belongs to each. If one can't be written, the batch is replayed one by one."""
    late = list(turned.late)
    db.raw.execute("SAVEPOINT endings")
    try:
        _finish_batch(db, endings, now, turned, worker_id)
    except UNWRITABLE:
        db.raw.execute("ROLLBACK TO endings")
        turned.late = late
        for ending in endings:
            _finish_alone(db, ending, now, turned, worker_id)
    db.raw.execute("RELEASE endings")


def _finish_alone(db: Db, ending: Ending, now: Instant, turned: Turned, worker_id: bytes) -> None:
    db.raw.execute("SAVEPOINT ending")
    try:
        _finish_batch(db, [ending], now, turned, worker_id)
    except UNWRITABLE as error:
        db.raw.execute("ROLLBACK TO ending")
        text = f"result could not be stored: {type(error).__name__}".encode(errors="replace").decode()
        turned.refused.append((ending.number, text))
        end = Transition(Status.DEAD_LETTER, error=text, error_type=ErrorType.PERMANENT)
        _finish_batch(db, [Ending(ending.number, ending.at, end, end, ending.successor_id)], now, turned, worker_id)
    db.raw.execute("RELEASE ending")


def _finish_batch(db: Db, endings: Sequence[Ending], now: Instant, turned: Turned, worker_id: bytes) -> None:
    numbers = numbers_json(ending.number for ending in endings)
    still_open = {row[0]: row for row in _open_endings.decode(db.value("open_endings", numbers=numbers, worker_id=worker_id))}
    runs: list[tuple[Any, ...]] = []
    jobs: list[tuple[Any, ...]] = []
    successors: list[tuple[Any, ...]] = []
    ended_roots: list[str] = []
    bad_groups: list[str] = []
    late: dict[int, Instant] = {}
    for ending in endings:
        found = still_open.get(ending.number)
        if found is None:
            late[ending.number] = ending.at
            continue
        end = ending.if_cancelled if found[1] else ending.transition
        runs.append(_run_row(ending, end))
        jobs.append((ending.number, ending.at, end.status, end.error_type, end.reason))
        if end.successor is not None:
            successors.append(_successor_row(ending, end))
            continue
        ended_roots.append(found[2])
        if found[3] and end.status in {Status.DEAD_LETTER, Status.CANCELLED}:
            bad_groups.append(found[3])
    if late:
        _note_late(db, late, worker_id, turned)
    if not jobs:
        return
    db.change("finish_jobs", rows=_encode(jobs).decode())
    db.change("finish_runs", rows=_encode(runs).decode())
    if successors:
        db.change("insert_successors", rows=_encode(successors).decode(), now=now)
    if ended_roots:
        turned.chains_ended = True
        after_chain_ends(db, ended_roots, bad_groups, [row[0] for row in jobs], now)


def _run_row(ending: Ending, end: Transition) -> tuple[Any, ...]:
    return (
        ending.number,
        ending.at,
        RUN_END[end.status],
        end.error,
        end.error_type,
        end.error_code,
        end.traceback,
        end.exit_code,
        end.result,
        ending.log_path,
    )


def _successor_row(ending: Ending, end: Transition) -> tuple[Any, ...]:
    successor = end.successor
    assert successor is not None  # noqa: S101 - the caller looked
    status = Status.QUEUED if successor.in_place else Status.PENDING
    never_started = successor.in_place and end.status is Status.SKIPPED
    return (
        ending.number,
        ending.successor_id,
        status,
        successor.run_at,
        successor.failures,
        successor.crashes,
        successor.snoozes,
        int(successor.in_place),
        int(never_started),
    )


def _note_late(db: Db, wanted: dict[int, Instant], worker_id: bytes, turned: Turned) -> list[int]:
    """Tell a repeated ending (of this worker, of the same moment) from a late one; return and count the late."""
    found = {row[0]: row for row in db.rows("ended_as", numbers=numbers_json(wanted), worker_id=worker_id)}
    late = [number for number, at in wanted.items() if not _is_repeat(found.get(number), at)]
    turned.late += late
    # Recovery, which is no worker, may find a run ended meanwhile: that is its business, not a late result.
    if late and worker_id:
        db.change("count_late", count=len(late))
    return late


def _is_repeat(row: tuple[Any, ...] | None, at: Instant) -> bool:
    """Say whether I ended it then: the status may be another (cancelled, not storable), the moment is not."""
    return row is not None and bool(row[2]) and row[1] == at


def after_chain_ends(db: Db, roots: list[str], bad_groups: list[str], numbers: list[int], now: Instant) -> None:
    """Do what the end of a chain sets off: its group's rule, the edges that waited for it, its reservation."""
    for group_id in dict.fromkeys(bad_groups):
        ((rule, after),) = db.rows("group_rule", group_id=group_id, numbers=numbers_json(numbers))
        rest = REST_ENDS.get(OnFailure(rule))
        if rest is not None:
            ended = db.rows("end_rest_of_group", group_id=group_id, after=after, status=rest, now=now, reason=PREDECESSOR_FAILED)
            roots = roots + [row[0] for row in ended]
    if db.value("any_open_edges"):
        resolve(db, roots, now)
    db.change("release_for", numbers=numbers_json(numbers), now=now)


def resolve(db: Db, roots: list[str], now: Instant) -> None:
    """Resolve the edges that wait for these chains; a child with none left may be promoted."""
    text = _encode(roots).decode()
    children = _numbers.decode(db.value("edges_of_roots", roots=text))
    if not children:
        return
    db.change("resolve_edges", roots=text, now=now)
    for number in children:
        db.change("unblock", number=number)


def _expire(db: Db, now: Instant, limit: int) -> None:
    """End jobs whose queue_ttl is over before they started."""
    numbers = _numbers.decode(db.value("expired_jobs", now=now, limit=limit))
    if numbers:
        end_waiting(db, numbers, Status.SKIPPED, now, reason="expired: not started within its queue_ttl", actor="system")


def end_waiting(db: Db, numbers: list[int], status: Status, now: Instant, *, reason: str, actor: str) -> None:
    """End jobs that wait, without a run, and what follows from it."""
    requested = status is Status.CANCELLED
    ended = db.rows(
        "end_waiting",
        numbers=numbers_json(numbers),
        status=status,
        now=now,
        reason=reason,
        actor=actor,
        requested_at=now if requested else None,
        requested_by=actor if requested else None,
    )
    bad_groups = [group_id for _, _, group_id in ended if group_id] if requested else []
    after_chain_ends(db, [root for _, root, _ in ended], bad_groups, [number for number, _, _ in ended], now)


# ---- keep ------------------------------------------------------------------------------------------------------------


def keep(db: Db, reports: Sequence[Report]) -> None:
    """Write what running handlers reported. A run that has ended meanwhile keeps what it has."""
    for report in reports:
        # What can't be written is dropped: it was news on the way, and the wheel must not stand still for it.
        with suppress(*UNWRITABLE):
            _keep(db, report)


def _keep(db: Db, report: Report) -> None:
    if report.progress is not None or report.message is not None:
        db.change("keep_progress", number=report.number, progress=report.progress or 0, message=report.message)
    if report.checkpoint is not None:
        db.change("keep_checkpoint", number=report.number, checkpoint=report.checkpoint)
    if report.artifact is not None:
        db.change("keep_artifact", number=report.number, artifact=report.artifact)


# ---- claim -----------------------------------------------------------------------------------------------------------


def _claim(db: Db, request: Turn) -> list[Claimed]:
    reservation = active_reservation(db)
    offered = _direct_candidate(db, reservation, request.types) if reservation else _ready(db, request.types, request.want)
    if not offered and reservation is None:
        return []
    assert request.choose is not None  # noqa: S101 - the caller looked
    choice = request.choose(offered, reservation)
    if choice.park:
        db.change("park_jobs", parked=_encode(dict(choice.park)).decode())
    if choice.take:
        _start(db, choice.take, request)
    return choice.take


def _ready(db: Db, types: tuple[str, ...], want: int) -> list[Claimed]:
    if not types:
        return []
    if len(types) <= ARMS_MAX:
        return _claimed.decode(_single(db.raw.execute(candidates(len(types)), (*types, want))))
    offered: list[Claimed] = []
    for start in range(0, len(types), ARMS_MAX):
        some = types[start : start + ARMS_MAX]
        offered += _claimed.decode(_single(db.raw.execute(candidates(len(some)), (*some, want))))
    return _claimed.decode(db.value("candidates_among", numbers=numbers_json(job.number for job in offered), want=want))


def _single(cursor: Any) -> str:
    return str(list(cursor)[0][0])  # noqa: RUF015 - read to the end, so that the statement goes back to the cache


def _direct_candidate(db: Db, reservation: Reservation, types: tuple[str, ...]) -> list[Claimed]:
    offered = _claimed.decode(db.value("candidate_direct", number=reservation.job_number))
    return [job for job in offered if job.job_type in types]


def _start(db: Db, jobs: list[Claimed], request: Turn) -> None:
    numbers = numbers_json(job.number for job in jobs)
    ids = request.run_ids[: len(jobs)]
    db.change("insert_runs", numbers=numbers, ids=bytes.fromhex("".join(ids)), now=request.now)
    db.change("start_jobs", numbers=numbers, now=request.now, worker_id=bytes.fromhex(request.worker_id))
    clocks: dict[int, int] = {}
    for job, run_id in zip(jobs, ids, strict=True):
        job.run_id = run_id
        job.started_at = request.now
        if job.position > clocks.get(job.priority, 0):
            clocks[job.priority] = job.position
    for priority, position in clocks.items():
        db.change("clock_advance", priority=priority, position=position)


def active_reservation(db: Db) -> Reservation | None:
    """Return the direct execution that has the next slot, if there is one."""
    row = db.row("active_reservation")
    return None if row is None else Reservation(*row)
