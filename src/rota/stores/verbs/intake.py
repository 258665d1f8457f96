"""Taking jobs in: the gate of the call, what stands in the way of a row, what it waits for, and the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from rota.errors import DuplicateJob, QueueFull, RateLimited
from rota.model.audit import AuditRuns
from rota.model.gate import Actor
from rota.model.states import Status
from rota.model.values import SECOND, Enqueued, Instant, NewRow, dashed, moment, undashed
from rota.ports.places import Place
from rota.ports.store import Adopted, DefinitionsChanged, Past
from rota.ports.turns import Ending, Turned
from rota.stores.verbs import edges, queue, webhooks
from rota.stores.verbs.chains import Doom, Waits, end_doomed, waits_of
from rota.stores.verbs.db import Db, audit, blob
from rota.stores.verbs.definitions import same_definitions
from rota.stores.verbs.endings import About, end_waiting, finish

AHEAD_MAX = 60 * SECOND
"""How much later than this caller's the clock of one may be that was before it: it has waited for the store, or their machines differ."""
CANCELLED_THERE = "cancelled before it was imported"


class Taken(msgspec.Struct):
    """What became of the rows of a call, and the jobs that are still to be ended because a parent of theirs had ended."""

    enqueued: list[Enqueued] = msgspec.field(default_factory=list)
    doomed: list[tuple[Doom, list[int]]] = msgspec.field(default_factory=list)


class MustBeAlone(Exception):  # noqa: N818 - a signal to the caller, not an error of anybody
    """What is waiting has to be counted, and nobody may add to it meanwhile: call again with the store to yourself."""


def enqueue(
    db: Db, rows: Sequence[NewRow], now: Instant, definitions: int | None = None, *, alone: bool = True, place: Place | None = None
) -> list[Enqueued]:
    """Write new jobs, in the order given. Those that are there already come back as they are."""
    taken = take_in(db, rows, now, definitions, alone=alone, place=place)
    if taken.doomed:
        end_doomed(db, taken.doomed, now)
        # One that ended may have taken others of this call with it.
        states = dict(db.rows("states_of", numbers=[each.number for each in taken.enqueued]))
        for each in taken.enqueued:
            each.status = states[each.number]
    return taken.enqueued


def fire_now(db: Db, row: NewRow, name: str, *, actor: Actor, now: Instant, definitions: int | None = None) -> Enqueued:
    """Add the job of a schedule that a person has fired."""
    added = enqueue(db, [row], now, definitions)[0]
    subject, run = ("schedule", name), str(undashed(added.job_id))
    audit(db, actor, now, "schedule.fire", subject, organization=row.organization_id, job=row.schedule_id, run=run)
    return added


def take_in(
    db: Db, rows: Sequence[NewRow], now: Instant, definitions: int | None = None, *, alone: bool = True, place: Place | None = None
) -> Taken:
    """Write new jobs; those that must end at once are left to the caller, who may have more of their group to write."""
    if not rows:
        return Taken()
    repeated = False
    base = number = None
    for organization_id, own in _by_organization(rows):
        max_queued, known, base, number = _gate(db, own, definitions)
        if max_queued is not None:
            if not alone:
                raise MustBeAlone
            _refuse_overflow(db, organization_id, own, max_queued)
        repeated = repeated or known
    if place is not None:
        base = _settled(db, place, base, rows)
        if not repeated:
            # One behind the other, and nothing can stand in their way: there is nothing to undo a part of.
            return Taken(queue.add_plain(db, rows, now, base=base))
    if len(rows) == 1 and not repeated and not rows[0].depends_on and queue.is_uniform(rows[0]):
        return Taken(queue.add(db, [rows[0]], now, number, base=base))
    return _Intake(db, rows, now, number, base if len(rows) == 1 else None).take(repeated=repeated)


def pour(db: Db, rows: Sequence[NewRow], *, now: Instant, definitions: int, place: Place) -> bool:
    """Write new jobs that stand in line, and return True; or write nothing, where each needs a look."""
    max_queued, known, base, number = _gate(db, rows, definitions)
    if max_queued is not None or known or number is not None:
        return False
    queue.pour(db, rows, now, _settled(db, place, base, rows))
    return True


def _gate(db: Db, rows: Sequence[NewRow], definitions: int | None) -> tuple[int | None, bool, int | None, int | None]:
    """Return what one organization's rows meet: its max_queued, whether some are there already, the base of their positions, and a number.

    Raise DefinitionsChanged if they were built from others than those in force.
    """
    first, last = rows[0], rows[-1]
    version, max_queued, known, base, number = db.rows(
        "enqueue_gate",
        organization_id=first.organization_id,
        priority=first.policy.priority,
        # Ids ascend within a call: one that is repeated shows at its ends. A caller's own may not: see `_Intake`.
        first=bytes.fromhex(first.job_id),
        last=bytes.fromhex(last.job_id),
    )[0]
    if definitions is not None and not same_definitions(version, definitions):
        raise DefinitionsChanged
    return max_queued, bool(known), base, number


class _Intake:
    """The way in for all but a lone plain row: together what can be, the others one by one."""

    def __init__(self, db: Db, rows: Sequence[NewRow], now: Instant, number: int | None, base: int | None) -> None:
        self._db = db
        self._rows = rows
        self._now = now
        self._number = number
        self._base = base
        self._taken = Taken()
        self._submissions = Submissions(db, rows, now)

    def take(self, *, repeated: bool) -> Taken:
        for way, run in groupby(self._rows, key=self._one_by_one if repeated else self._way):
            self._taken.enqueued += way(list(run))
        self._submissions.close()
        return self._taken

    def _way(self, row: NewRow) -> Callable[[list[NewRow]], list[Enqueued]]:
        if queue.is_member(row):
            return self._members
        if not queue.is_uniform(row):
            return self._by_key if queue.is_single(row) else self._each
        return self._children if row.depends_on else self._plain

    def _one_by_one(self, row: NewRow) -> Callable[[list[NewRow]], list[Enqueued]]:
        del row
        return self._each

    def _plain(self, rows: list[NewRow]) -> list[Enqueued]:
        """Write rows at once; if one of them turns out to be there already, look at each."""
        try:
            with self._db.savepoint(("jobs", *(row.job_id for row in rows))):
                added = queue.add_plain(self._db, rows, self._now, self._number, base=self._base)
        except self._db.conflict:
            return self._each(rows)
        self._number = None
        return added

    def _members(self, rows: list[NewRow]) -> list[Enqueued]:
        """Write members of a group at once, each with its place there."""
        if len(rows) == 1:
            return self._each(rows)
        try:
            with self._db.savepoint(("members", *(row.job_id for row in rows))):
                added = queue.add_members(self._db, rows, self._now, self._number)
        except self._db.conflict:
            return self._each(rows)
        self._number = None
        return added

    def _by_key(self, rows: list[NewRow]) -> list[Enqueued]:
        """Write those at once that are not there already."""
        if len(rows) == 1:
            return self._each(rows)
        standing = queue.standing(self._db, rows)
        fresh = [row for at, row in enumerate(rows) if at not in standing]
        added = iter(self._plain(fresh) if fresh else ())
        # After the others: one that is among them twice finds itself.
        return [(standing[at] or self._one(row)) if at in standing else next(added) for at, row in enumerate(rows)]

    def _children(self, rows: list[NewRow]) -> list[Enqueued]:
        """Write rows that wait for others, those of one shape at once."""
        return [each for _, same in groupby(rows, key=queue.shape) for each in self._siblings(list(same))]

    def _siblings(self, rows: list[NewRow]) -> list[Enqueued]:
        waits = self._waits(rows)
        try:
            with self._db.savepoint(("children", *(row.job_id for row in rows))):
                return self._add(rows, waits)
        except self._db.conflict:
            return self._each(rows)

    def _each(self, rows: list[NewRow]) -> list[Enqueued]:
        return [self._one(row) for row in rows]

    def _one(self, row: NewRow) -> Enqueued:
        found = queue.found(self._db, row)
        if found is not None:
            return found
        self._submissions.admit(row)
        (added,) = self._add([row], self._waits([row]))
        self._submissions.note(row)
        if row.webhook is not None:
            webhooks.attach(self._db, row, self._now)
        return added

    def _waits(self, rows: list[NewRow]) -> Waits | None:
        first = rows[0]
        if not first.depends_on and first.after is None and first.follows is None:
            return None
        # All of them depend on the same: one that is among its own parents is found by its own look.
        own = next((row for row in rows if row.job_id in row.depends_on), first)
        return waits_of(self._db, own)

    def _add(self, rows: list[NewRow], waits: Waits | None) -> list[Enqueued]:
        added = queue.add(self._db, rows, self._now, self._number, base=self._base, blockers=waits.blockers if waits else 0)
        self._number = None
        if waits is not None:
            numbers = [each.number for each in added]
            edges.add(self._db, numbers, waits.edges, self._now)
            if waits.doom is not None:
                self._taken.doomed.append((waits.doom, numbers))
        return added


def _settled(db: Db, place: Place, base: int | None, rows: Sequence[NewRow]) -> int:
    """Return the base for rows of one organization and priority, and tell it to those who wait to come behind them."""
    if base is None and place.open and not place.behind:
        # Otherwise others, whom nobody sees yet, rely on the clock.
        db.change("clock_reset", priority=rows[0].policy.priority)
    return place.settle(base or 0, len(rows))


def _by_organization(rows: Sequence[NewRow]) -> list[tuple[str, Sequence[NewRow]]]:
    first = rows[0].organization_id
    if all(row.organization_id == first for row in rows):
        return [(first, rows)]
    names = dict.fromkeys(row.organization_id for row in rows)
    return [(name, [row for row in rows if row.organization_id == name]) for name in names]


def _refuse_overflow(db: Db, organization_id: str, rows: Sequence[NewRow], limit: int) -> None:
    waiting = db.value("queued_count", organization_id=organization_id)
    if waiting + len(rows) <= limit:
        return
    added = sum(queue.found(db, row) is None for row in rows)
    if added and waiting + added > limit:
        raise QueueFull(
            f"organization {organization_id!r} has {waiting:,} jobs queued and max_queued is {limit:,}: {added:,} more can't be added"
        )


class Counted(msgspec.Struct):
    """How many of one organization and type were submitted inside the window, and how many this call has added."""

    window: Instant
    before: int
    added: int = 0


class Submissions:
    """The rows of one call: each is asked for before it is written, and noted after. A refusal undoes the whole call."""

    def __init__(self, db: Db, rows: Sequence[NewRow], now: Instant) -> None:
        """Take the rows of the call; nothing is read before a row needs it."""
        self._db = db
        self._rows = rows
        self._now = now
        self._counts: dict[str, Counted] = {}
        self._noted: set[str] = set()

    def admit(self, row: NewRow) -> None:
        """Refuse a row that is a duplicate, or one too many."""
        if row.job_hash is not None and row.dedup_window:
            self._refuse_duplicate(row)
        if row.submit_limit is not None:
            self._count(row)

    def note(self, row: NewRow) -> None:
        """Remember a row that was written."""
        if row.job_hash is None or not row.dedup_window:
            return
        self._noted.add(row.job_id)
        expires_at = self._now + row.dedup_window
        self._db.change("remember_hash", **_hash_key(row), job_id=bytes.fromhex(row.job_id), expires_at=expires_at)

    def close(self) -> None:
        """Note how many were added, and forget what is older than the window."""
        for key, counted in self._counts.items():
            if counted.added:
                self._db.change("forget_submissions", key=key, since=self._now - counted.window)
                self._db.change("log_submissions", key=key, now=self._now, count=counted.added)

    def _refuse_duplicate(self, row: NewRow) -> None:
        # A window that ends later than one opened now was opened by a clock that was ahead.
        until = self._now + (row.dedup_window or 0) + AHEAD_MAX
        known = self._db.row("duplicate_of", **_hash_key(row), now=self._now, until=until)
        if known is None:
            return
        job_id, expires_at = known
        if job_id in self._noted:
            raise DuplicateJob(f"the same params stand twice in one call, and {row.job_type!r} refuses duplicates: leave one of them out")
        job = edges.chains(self._db, (job_id,), row.organization_id).get(job_id)
        if job is None:
            # Removed meanwhile: there is nothing to be a duplicate of.
            return
        raise DuplicateJob(
            f"the same params of {row.job_type!r} were submitted as {job.number} ({dashed(job_id)}), which is {job.status}: "
            f"they are refused until {moment(expires_at):%Y-%m-%dT%H:%M:%SZ}",
            dashed(job_id),
        )

    def _count(self, row: NewRow) -> None:
        assert row.submit_limit is not None  # noqa: S101 - the caller looked
        key, window = _submit_key(row), row.submit_window or SECOND
        counted = self._counts.get(key)
        if counted is None:
            before = int(self._db.value("submitted", key=key, **_around(self._now, window)))
            counted = self._counts[key] = Counted(window, before)
        if counted.before + counted.added >= row.submit_limit:
            raise self._too_many(row, key, counted)
        counted.added += 1

    def _too_many(self, row: NewRow, key: str, counted: Counted) -> RateLimited:
        limit, wanted = row.submit_limit or 0, sum(_submit_key(each) == key for each in self._rows)
        rule = f"{row.job_type!r} takes at most {limit:,} jobs in {counted.window / SECOND:g} s"
        if wanted > limit:
            return RateLimited(f"{rule}, and this call has {wanted:,}: give at most {limit:,} at once", counted.window / SECOND)
        at = self._room_at(key, counted, need=counted.before + wanted - limit)
        # A caller that waited for the lock comes with an earlier now than those it waited for.
        left_s = min(counted.window, at - self._now) / SECOND
        return RateLimited(
            f"{rule}, and {counted.before:,} were submitted: try again in {left_s:.3g} s, at {moment(at):%Y-%m-%dT%H:%M:%S.%fZ}", left_s
        )

    def _room_at(self, key: str, counted: Counted, *, need: int) -> Instant:
        """Return when so many will have left the window."""
        at = self._now
        for at, count in self._db.rows("submissions", key=key, **_around(self._now, counted.window)):  # noqa: B007 - the last one counts
            need -= count
            if need <= 0:
                break
        return int(at) + counted.window


def _around(now: Instant, window: Instant) -> dict[str, Instant]:
    """Return which submissions count: those of the window. What is further ahead than it is long was noted by a clock that was wrong."""
    return {"since": now - window, "until": now + window}


def _hash_key(row: NewRow) -> dict[str, object]:
    return {"organization_id": row.organization_id, "template_id": blob(row.template_id) or b"", "hash": blob(row.job_hash)}


def _submit_key(row: NewRow) -> str:
    return f"submit:{row.organization_id}:{row.job_type}"


def adopt(db: Db, jobs: Sequence[Adopted], *, adopter_id: str, actor: Actor, now: Instant) -> list[Enqueued]:
    """Write each job and the attempt behind it; those that are here already stay as they are."""
    found: list[Enqueued] = []
    begun: list[tuple[int, Adopted]] = []
    cancelled: dict[Instant, list[int]] = {}
    for job in jobs:
        entered = _enter(db, job)
        found.append(entered)
        if job.past is not None and not entered.existing:
            begun.append((entered.number, job))
        if job.cancelled_at is not None and not entered.existing:
            cancelled.setdefault(job.cancelled_at, []).append(entered.number)
    for at, numbers in cancelled.items():
        end_waiting(db, numbers, Status.CANCELLED, at, reason=CANCELLED_THERE, actor=actor.name, report=False)
    if begun:
        _live_through(db, begun, adopter_id, now)
    added = sum(not each.existing for each in found)
    if added:
        audit(db, actor, now, "job.adopt", ("import", adopter_id), after={"jobs": added})
    return found


def _enter(db: Db, job: Adopted) -> Enqueued:
    """Enqueue a job as of its making. One whose chain has ended must not be kept out by who holds its key today."""
    # What has an attempt behind it was ready once: it is born QUEUED, or it could not be started.
    row = job.row if job.past is None else msgspec.structs.replace(job.row, run_at=job.created_at)
    (entered,) = enqueue(db, [row], job.created_at)
    held_by_another = entered.existing and entered.job_id != row.job_id
    is_over = job.cancelled_at is not None or (job.past is not None and job.past.transition.successor is None)
    if held_by_another and is_over:
        (entered,) = enqueue(db, [msgspec.structs.replace(row, unique_key=None)], job.created_at)
    return entered


def _live_through(db: Db, begun: list[tuple[int, Adopted]], adopter_id: str, now: Instant) -> None:
    rows: list[tuple[Any, ...]] = []
    endings: list[Ending] = []
    for number, job in begun:
        past = job.past
        assert past is not None  # noqa: S101 - the caller looked
        rows.append((number, past.run_id, past.started_at, past.failures))
        endings.append(Ending(number, past.ended_at, past.transition, past.transition, past.successor_id, past.log_path))
    db.adopt(rows, adopter_id)
    # What another system has done is no news.
    finish(db, endings, now, Turned(), About(bytes.fromhex(adopter_id), AuditRuns.NONE, tell=False))
    for _, job in begun:
        if job.past is not None and job.past.left is not None:
            _leave(db, job.past, now)


def _leave(db: Db, past: Past, now: Instant) -> None:
    """Skip the successor of an attempt whose retries are the other system's."""
    successor = queue.known(db, past.successor_id)
    if successor is not None:
        end_waiting(db, [successor.number], Status.SKIPPED, now, reason=past.left or "", actor="system", report=False)
