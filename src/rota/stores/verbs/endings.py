"""Ends in SQL: of attempts that ran, of jobs that waited, and what the end of a chain sets off."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.model.audit import AuditRuns
from rota.model.decide import Transition
from rota.model.groups import PREDECESSOR_FAILED, REST_ENDS, OnFailure
from rota.model.lanes import Takes
from rota.model.states import RUN_END, ErrorType, Status
from rota.model.values import Instant
from rota.ports.turns import Ending, Turn, Turned
from rota.stores.verbs import definitions, edges, limits, webhooks
from rota.stores.verbs.db import Db, audit_runs, is_moved

log = logging.getLogger("rota.store")

_still_open = msgspec.json.Decoder(list[tuple[int, int, str, str | None]])
_numbers = msgspec.json.Decoder(list[int])

SETTLE_MAX = 500
"""How many who wait for an ended chain are told in the move that ends it; the rest is told turn by turn."""
EXPIRED_REASON = "expired: not started within its queue_ttl"
SHARES_MAX = 32
"""How many ended chains are told of side by side."""


class Finished(msgspec.Struct):
    """Completions that were ended, by their numbers, and what is still to be done about them."""

    fresh: list[int]
    """Ended just now. One that was ended before, and whose reply was lost, is not counted again."""
    done: list[int]
    figures: str
    """What they add to the figures."""

    def count(self, db: Db) -> None:
        """Add them to the figures."""
        db.count(self.figures)

    def audit(self, db: Db, request: Turn) -> None:
        """Enter their runs into the audit trail, as far as these are audited."""
        which = request.audit_runs
        if which == AuditRuns.ALL or request.scheduled is None:
            audit_runs(db, self.fresh, which)
        else:
            fresh = set(self.fresh)
            audit_runs(db, [number for number in request.scheduled if number in fresh], which)

    def tell(self, db: Db, now: Instant, turned: Turned) -> None:
        """Write the messages about them, for there are webhooks."""
        turned.told |= webhooks.tell_of(db, self.fresh, now, hooked=True)

    def follow(self, db: Db, now: Instant, *, over_limit: bool, waited_for: bool, reserved: bool) -> None:
        """Do what their end means to others: to who was parked, to who waits for them, to a direct execution."""
        if over_limit:
            limits.freed(db, self.fresh)
        if waited_for:
            edges.note_ended(db, self.done)
        if reserved:
            release(db, self.done, now)


def release(db: Db, numbers: Sequence[int], now: Instant) -> None:
    """End the reservation of a direct execution that is among these and has ended."""
    db.change("end_reservation_of", numbers=numbers, status="RELEASED", now=now)


def finish_plain(db: Db, request: Turn, turned: Turned) -> Finished:
    """End completions that left nothing behind, all of them at once."""
    done = dict(request.done)
    worker_id = bytes.fromhex(request.worker_id)
    fresh, figures = db.end_plain(done, worker_id)
    if len(fresh) != len(done):
        # A late one ends nothing: not its run, not the wait of others for its chain.
        for number in _note_late(db, done, worker_id, turned):
            del done[number]
    turned.chains_ended = True
    return Finished(fresh, list(done), figures)


class About(msgspec.Struct, frozen=True):
    """Who ends attempts, and who is to know of it."""

    worker_id: bytes
    """The worker whose runs they are; empty: any."""
    audit_runs: str
    """Whose ends are entered into the audit trail: see `AuditRuns`."""
    tell: bool = True
    """Webhooks are told."""


def finish(db: Db, endings: Sequence[Ending], now: Instant, turned: Turned, about: About) -> None:
    """End attempts with all that belongs to each. If one can't be written, the batch is replayed one by one."""
    late, as_written = list(turned.late), dict(turned.as_written)
    try:
        with db.savepoint(("endings", *(ending.number for ending in endings))):
            _finish_batch(db, endings, now, turned, about)
    except (*db.unwritable, *db.refused):
        turned.late, turned.as_written = late, as_written
        for ending in endings:
            _finish_alone(db, ending, now, turned, about)


def _finish_alone(db: Db, ending: Ending, now: Instant, turned: Turned, about: About) -> None:
    try:
        with db.savepoint(("ending", ending.number)):
            _finish_batch(db, [ending], now, turned, about)
    except (*db.unwritable, *db.refused) as error:
        text = f"result could not be stored: {type(error).__name__}".encode(errors="replace").decode()
        turned.refused.append((ending.number, text))
        turned.as_written[ending.number] = Status.DEAD_LETTER
        end = Transition(Status.DEAD_LETTER, error=text, error_type=ErrorType.PERMANENT)
        try:
            with db.savepoint(("dead letter", ending.number)):
                _finish_batch(db, [Ending(ending.number, ending.at, end, end, ending.successor_id)], now, turned, about)
        except db.refused as refusal:
            if is_moved(refusal):
                raise
            # Something refuses every end of this job. It stays RUNNING; the others must not wait for it.
            log.error("job %d can't be ended: %s. Remove what refuses it, then run `rota repair`", ending.number, refusal)  # noqa: TRY400 - it says all


def _finish_batch(db: Db, endings: Sequence[Ending], now: Instant, turned: Turned, about: About) -> None:
    found = _Found.of(db, endings, about.worker_id)
    if found.late:
        _note_late(db, found.late, about.worker_id, turned)
    if not found.numbers:
        return
    found.write(db, now, turned)
    if found.audited or about.audit_runs == AuditRuns.ALL:
        audit_runs(db, found.numbers, about.audit_runs)
    if found.over_limit:
        limits.freed(db, found.numbers)
    db.tally(found.numbers)
    if about.tell and found.hooked:
        turned.told |= webhooks.tell_of(db, found.numbers, now, hooked=True)
    if found.chain_ends:
        turned.chains_ended = True
        if found.bad_groups or found.waited_for or found.direct is not None:
            after_chain_ends(db, found.bad_groups, found.chain_ends, now)


class NotLight(Exception):  # noqa: N818 - a signal to the caller, not an error of anybody
    """Something is there that asks for a turn with the wheel to itself: what was written is to be undone."""


def is_light(end: Transition) -> bool:
    """Say whether an end means nothing to others as long as nobody waits for its chain."""
    if end.successor is not None:
        return end.successor.takes is None
    return end.status is Status.COMPLETED


def finish_lightly(db: Db, request: Turn, turned: Turned) -> list[int]:
    """End attempts for whose chains nobody waits; return their numbers, still to be counted. Raise NotLight if there is more to it."""
    found = _Found.of(db, request.endings, bytes.fromhex(request.worker_id))
    if found.late or not found.light:
        raise NotLight
    try:
        found.write(db, request.now, turned)
        if found.audited or request.audit_runs == AuditRuns.ALL:
            audit_runs(db, found.numbers, request.audit_runs)
        if found.hooked:
            turned.told |= webhooks.tell_of(db, found.numbers, request.now, hooked=True)
    except db.unwritable:
        raise NotLight from None
    return found.numbers


class _Found(msgspec.Struct):
    """Endings as they are to be written, after a look at what their jobs have come to meanwhile, and at what their ends mean to others."""

    hooked: bool
    """Somebody may want to be told of ends."""
    over_limit: bool
    waited_for: bool
    direct: str | None
    """The status of the job of a direct execution that is under way."""
    audited: bool
    """SQL has created jobs."""
    numbers: list[int] = msgspec.field(default_factory=list)
    runs: list[tuple[Any, ...]] = msgspec.field(default_factory=list)
    jobs: list[tuple[Any, ...]] = msgspec.field(default_factory=list)
    successors: list[tuple[Any, ...]] = msgspec.field(default_factory=list)
    moved: dict[int, Takes] = msgspec.field(default_factory=dict)
    """Jobs whose successors wait in another lane, with the parameters of that lane."""
    chain_ends: list[int] = msgspec.field(default_factory=list)
    bad_groups: list[str] = msgspec.field(default_factory=list)
    late: dict[int, Instant] = msgspec.field(default_factory=dict)
    cancelled: list[int] = msgspec.field(default_factory=list)
    """Asked to stop in the meantime, and not completed."""
    unstarted: list[tuple[str, Instant]] = msgspec.field(default_factory=list)
    """Starts that were counted and did not happen."""
    light: bool = True

    @classmethod
    def of(cls, db: Db, endings: Sequence[Ending], worker_id: bytes) -> _Found:
        """Look, and take what still runs."""
        numbers = [ending.number for ending in endings]
        still_open = {row[0]: row for row in _still_open.decode(db.value("open_endings", numbers=numbers, worker_id=worker_id))}
        found = cls(*db.rows("ends_look")[0])
        for ending in endings:
            row = still_open.get(ending.number)
            if row is None:
                found.late[ending.number] = ending.at
            else:
                found._add(ending, ending.if_cancelled if row[1] else ending.transition, group_id=row[3])
                if row[1] and ending.if_cancelled.status is Status.CANCELLED:
                    found.cancelled.append(ending.number)
        return found

    def _add(self, ending: Ending, end: Transition, *, group_id: str | None) -> None:
        number, at = ending.number, ending.at
        self.light = self.light and is_light(end)
        self.numbers.append(number)
        output = (end.error, end.error_type, end.error_code, end.traceback, end.exit_code, end.result, ending.log_path)
        self.runs.append((number, at, RUN_END[end.status], *output, end.result_message, end.rows_affected))
        self.jobs.append((number, at, end.status, end.error_type, end.reason))
        if ending.unstarted is not None:
            self.unstarted.append(ending.unstarted)
        if end.successor is not None:
            self.successors.append(_successor_row(ending, end))
            if end.successor.takes is not None:
                self.moved[number] = end.successor.takes
            return
        self.chain_ends.append(number)
        if group_id and end.status in {Status.DEAD_LETTER, Status.CANCELLED}:
            self.bad_groups.append(group_id)

    def write(self, db: Db, now: Instant, turned: Turned) -> None:
        db.finish(self.runs, self.jobs)
        if self.moved:
            lanes = {number: definitions.lane_for(db, number, takes, now) for number, takes in self.moved.items()}
            self.successors = [(*row, lanes.get(row[0])) for row in self.successors]
        if self.successors:
            db.change("insert_successors", rows=self.successors, now=now)
        if self.unstarted:
            limits.forget_unstarted(db, self.unstarted)
        turned.as_written |= dict.fromkeys(self.cancelled, Status.CANCELLED)


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
    found = {row[0]: row for row in db.rows("ended_as", numbers=list(wanted), worker_id=worker_id)}
    late = []
    for number, at in wanted.items():
        row = found.get(number)
        if row is not None and _is_repeat(row, at):
            turned.as_written[number] = Status(row[3])
        else:
            late.append(number)
    turned.late += late
    # Recovery, which is no worker, may find a run ended meanwhile: that is its business, not a late result.
    if late and worker_id:
        db.change("count_late", count=len(late))
    return late


def _is_repeat(row: tuple[Any, ...], at: Instant) -> bool:
    """Say whether I ended it then: the status may be another (cancelled, not storable), the moment is not."""
    return bool(row[2]) and row[1] == at


def tally(db: Db, numbers: Sequence[int]) -> None:
    """Count jobs that have just ended: in the hour of their end, and among all that are here."""
    if numbers:
        db.tally(numbers)


def after_runs(db: Db, numbers: list[int]) -> None:
    """Do what the end of any run sets off: its slot goes to one who was parked for it, and it is counted."""
    limits.freed(db, numbers)
    tally(db, numbers)


def after_chain_ends(db: Db, bad_groups: list[str], numbers: list[int], now: Instant) -> None:
    """Do what the end of these chains, by the numbers of their tails, sets off: group's rule, edges, reservation."""
    for group_id in dict.fromkeys(bad_groups):
        ((rule, after),) = db.rows("group_rule", group_id=group_id, numbers=numbers)
        rest = REST_ENDS.get(OnFailure(rule))
        if rest is not None:
            ended = db.rows("end_rest_of_group", group_id=group_id, after=after, status=rest, now=now, reason=PREDECESSOR_FAILED)
            dropped = [row[0] for row in ended]
            limits.freed(db, dropped)
            tally(db, dropped)
            webhooks.tell_of(db, dropped, now)
            edges.close(db, dropped, now)
            numbers = numbers + dropped
    edges.note_ended(db, numbers)
    release(db, numbers, now)


def settle(db: Db, now: Instant, limit: int) -> bool:
    """Tell up to `limit` waiting jobs that a chain they wait for has ended; say whether more are to be told."""
    told = 0
    while told < limit and (some := edges.some_ended(db, min(limit - told, SHARES_MAX))):
        # A share for each: one that has a hundred thousand to tell does not let the others wait.
        share = (limit - told) // len(some)
        for ended in some:
            told += _tell(db, ended, share, now)
    return told >= limit and bool(edges.some_ended(db, 1))


def _tell(db: Db, ended: edges.Ended, limit: int, now: Instant) -> int:
    """Tell of one end and return how much work that was. Who ends by it is noted in turn, and told of by the caller's next round."""
    told = edges.to_tell(db, ended, limit)
    edges.satisfy(db, told, now)
    if told.doomed:
        reason = edges.why_doomed(db, ended)
        for status, numbers in told.by_end():
            end_waiting(db, numbers, status, now, reason=reason, actor="system", error_type=ErrorType.DEPENDENCY, tell=False)
    if told.all_told:
        edges.forget_ended(db, ended.root_id)
    return max(1, len(told))


def expire(db: Db, now: Instant, limit: int) -> None:
    """End jobs whose queue_ttl is over before they started."""
    numbers = _numbers.decode(db.value("expired_jobs", now=now, limit=limit))
    if numbers:
        end_waiting(db, numbers, Status.SKIPPED, now, reason=EXPIRED_REASON, actor="system", tell=False)


def end_waiting(
    db: Db,
    numbers: list[int],
    status: Status,
    now: Instant,
    *,
    reason: str,
    actor: str,
    error_type: ErrorType | None = None,
    tell: bool = True,
    report: bool = True,
) -> None:
    """End jobs that wait, without a run, and what follows from it.

    Without `tell` the caller tells those who wait for them; without `report` no webhook is called.
    """
    requested = status is Status.CANCELLED and error_type is None
    ended = db.rows(
        "end_waiting",
        numbers=numbers,
        status=status,
        now=now,
        reason=reason,
        actor=actor,
        error_type=error_type,
        requested_at=now if requested else None,
        requested_by=actor if requested else None,
    )
    bad_groups = [group_id for _, group_id in ended if group_id] if status is Status.CANCELLED else []
    gone = [number for number, _ in ended]
    limits.freed(db, gone)
    tally(db, gone)
    if report:
        webhooks.tell_of(db, gone, now)
    edges.close(db, gone, now)
    after_chain_ends(db, bad_groups, gone, now)
    if tell:
        settle(db, now, SETTLE_MAX)
