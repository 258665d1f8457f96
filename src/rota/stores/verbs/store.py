"""The store on a relational database: every verb of the port, over the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from rota.errors import NotFound
from rota.model.findings import Finding
from rota.model.gate import EVERYTHING, Actor, Scope
from rota.model.states import Status
from rota.model.values import Claimed, Enqueued, Group, Instant, Job, NewRow, PurgeCursor, Purged, WorkerInfo, dashed
from rota.ports.places import Place
from rota.ports.store import Adopted, Check, Held, NewGroup
from rota.ports.turns import Ending, Peek, Reservation, Turn, Turned
from rota.stores.verbs import adopting, broken, dependencies, groups, intake, queue, reads, recovery, repair, retention, turn, verbs
from rota.stores.verbs import lanes as job_lanes
from rota.stores.verbs.access import Admitting
from rota.stores.verbs.base import Hold
from rota.stores.verbs.db import Db
from rota.stores.verbs.defining import Defining
from rota.stores.verbs.endings import NotLight
from rota.stores.verbs.events import Watched
from rota.stores.verbs.hooks import Hooking
from rota.stores.verbs.overseeing import Overseeing
from rota.stores.verbs.reading import Reading
from rota.stores.verbs.timing import Timing

CLAIM_MANY = 32
"""From so many jobs on, claims follow each other; fewer are picked from under each other's hands without harm."""
OLD_LOOK = 1000
"""Jobs at the front of a lane that are looked at for old ones."""
UNREGISTERED_MAX = 100
"""Workers that are not on record and are recovered from in one sweep."""
_numbers = msgspec.json.Decoder(tuple[int, ...])
_encode = msgspec.json.Encoder().encode


class RelationalStore(Reading, Defining, Timing, Admitting, Overseeing, Watched, Hooking):
    """Implements `rota.ports.store.Store`, but for how a dialect opens, writes, reads and hears of others."""

    # ---- the queue --------------------------------------------------------------------------------------------

    beside = False

    def enqueue(
        self,
        rows: Sequence[NewRow],
        *,
        now: Instant,
        definitions: int | None = None,
        transaction: Any = None,
        place: Place | None = None,
    ) -> list[Enqueued]:
        """Add jobs, all or none."""
        if transaction is None:
            if self._shares and (place is not None or all(map(queue.is_plain, rows))):
                with suppress(intake.MustBeAlone):
                    return self._write(lambda db: intake.enqueue(db, rows, now, definitions, alone=False, place=place), hold=Hold.DOOR)
            return self._write(lambda db: intake.enqueue(db, rows, now, definitions, place=place))
        # A savepoint: a caller who catches the refusal and goes on keeps nothing of a batch that was refused.
        with self._of(transaction) as db, transaction.savepoint():
            return intake.enqueue(db, rows, now, definitions)

    def pour(self, rows: Sequence[NewRow], *, now: Instant, definitions: int, place: Place) -> bool:
        """Add jobs that stand in line, all or none."""
        return self._write(lambda db: intake.pour(db, rows, now, definitions, place), hold=Hold.DOOR)

    def side_by_side(self, rows: Sequence[NewRow], *, now: Instant) -> bool:
        """Say whether the place of rows in the queue can be told from the rows before them."""
        return self._shares and queue.are_in_line(rows, now)

    def adopt(self, jobs: Sequence[Adopted], *, adopter_id: str, actor: Actor, now: Instant) -> list[Enqueued]:
        """Take in what another system has begun."""
        return self._write(lambda db: adopting.adopt(db, jobs, adopter_id, actor, now))

    def turn(self, turn_: Turn) -> Turned:
        """Make one turn. If a row can't be started, or can't be queued, it is parked, and the next turn claims its neighbours."""
        try:
            return self._turn(turn_)
        except broken.SPOILT as error:
            if broken.is_passing(error):
                raise
            parked = self._write(lambda db: broken.set_aside(db, turn_))
            if not (parked or turn_.done or turn_.endings):
                raise
        turned = self._turn(broken.careful(turn_))
        turned.unfinished = turned.unfinished or bool(parked)
        return turned

    def _turn(self, turn_: Turn) -> Turned:
        """Make one turn: beside others' turns, where all that is asked for and all that is there lets it."""
        if self._shares and self._calm and turn.may_be_light(turn_):
            with suppress(NotLight):
                return self._write(lambda db: turn.lightly(db, turn_), hold=Hold.CLAIM if turn_.want >= CLAIM_MANY else Hold.LIGHT)
        turned = self._write(lambda db: turn.turn(db, turn_), hold=Hold.WHEEL, patient=True)
        self._calm = turned.calm
        return turned

    def peek(self, *, types: tuple[str, ...], worker_id: str, lanes: Collection[int] | None = None) -> Peek:
        """Look whether a turn is worth its commit."""
        with self._reading() as db:
            asked = list(job_lanes.of_types(db, types) if lanes is None else lanes)
            ((definitions, ready, direct_ready, parked, ended, expires_at, due_at, cancelling),) = db.rows(
                "peek", lanes=msgspec.json.encode(asked).decode(), worker_id=bytes.fromhex(worker_id)
            )
            # Where some wait to be told that a chain has ended, a turn tells them.
            due = [0] if ended else [at for at in (expires_at, due_at) if at is not None]
            return Peek(
                ready=bool(ready or direct_ready),
                next_due=min(due, default=None),
                cancelling=_numbers.decode(cancelling),
                definitions=definitions,
                parked=bool(parked),
            )

    def old_in_lanes(self, lanes: Collection[int], *, before: Instant, limit: int) -> list[int]:
        """Return ready jobs that wait for long."""
        with self._reading() as db:
            found: list[int] = []
            for lane in lanes:
                rows = db.rows("old_in_lane", lane=lane, before=before, look=OLD_LOOK, limit=limit - len(found))
                found += [number for (number,) in rows]
                if len(found) >= limit:
                    break
            return found

    def holding(self, worker_id: str) -> list[Claimed]:
        """Return what a worker holds."""
        with self._reading() as db:
            return recovery.holding(db, worker_id)

    def cancel(self, job_id: str, *, actor: Actor, now: Instant, reason: str | None = None, check: Check | None = None) -> Job:
        """Cancel a chain."""
        return self._verb(_checked(check, job_id, lambda db: verbs.cancel(db, job_id, actor, now, reason)))

    def change(
        self,
        job_id: str,
        *,
        actor: Actor,
        now: Instant,
        priority: int | None = None,
        params: str | None = None,
        run_at: Instant | None = None,
        put_off: bool = False,
        check: Check | None = None,
    ) -> Job:
        """Change a waiting job."""

        def work(db: Db) -> str:
            return verbs.change(db, job_id, actor, now, priority=priority, params=params, run_at=run_at, put_off=put_off)

        return self._verb(_checked(check, job_id, work))

    def move(
        self,
        job_id: str,
        *,
        actor: Actor,
        now: Instant,
        before: str | None = None,
        after: str | None = None,
        front: bool = False,
        check: Check | None = None,
    ) -> Job:
        """Reorder a QUEUED job."""
        return self._verb(_checked(check, job_id, lambda db: verbs.move(db, job_id, actor, now, before=before, after=after, front=front)))

    def retry(self, job_id: str, *, new_id: str, actor: Actor, now: Instant) -> Job:
        """Add a successor to an ended chain."""
        return self._verb(lambda db: verbs.retry(db, job_id, new_id, actor, now))

    def add_dependencies(self, job_id: str, parents: Sequence[str], *, on_failure: str, actor: Actor, now: Instant) -> Job:
        """Let a waiting job wait for more."""
        return self._verb(lambda db: dependencies.add_dependencies(db, job_id, parents, on_failure, actor, now))

    def discard(self, job_id: str, *, actor: Actor, now: Instant) -> Purged:
        """Remove one ended chain."""
        return self._write(lambda db: retention.discard(db, job_id, actor, now), long=True)

    def purge(
        self,
        *,
        before: Instant,
        limit: int,
        now: Instant,
        dry_run: bool,
        cursor: PurgeCursor | None = None,
        figures_before: Instant | None = None,
    ) -> Purged:
        """Remove what is old and not needed."""
        if dry_run:
            with self._reading() as db:
                return retention.look(db, before, limit, cursor)
        return self._write(
            lambda db: retention.purge(db, before, limit, now, cursor, figures_before=figures_before), patient=True, long=True
        )

    def retention_clock(self) -> Instant | None:
        """Return when the clock was last trusted to delete by age."""
        with self._reading() as db:
            mark: Instant | None = db.value("retention_clock")
            return mark

    def set_retention_clock(self, now: Instant) -> None:
        """Record that the clock is trusted."""
        self._write(lambda db: db.change("set_retention_clock", now=now), hold=Hold.NOTHING, patient=True)

    # ---- groups -----------------------------------------------------------------------------------------------

    def add_group(self, group: NewGroup, *, actor: Actor, now: Instant) -> Group:
        """Make a group."""
        self._write(lambda db: groups.add_group(db, group, actor, now))
        return self._group(group.group_id)

    def cancel_group(self, group_id: str, *, actor: Actor, now: Instant) -> Group:
        """Cancel a group's chains."""
        self._write(lambda db: groups.cancel_group(db, group_id, actor, now), long=True)
        return self._group(group_id)

    def group(self, group_id: str) -> Group | None:
        """Return a group."""
        with self._reading() as db:
            return groups.read_group(db, group_id)

    def groups(self, *, limit: int, scope: Scope = EVERYTHING) -> list[Group]:
        """Return the newest groups."""
        with self._reading() as db:
            rows = db.rows("groups", limit=limit, organization_id=scope.organization, owner=scope.owner)
            found = (groups.read_group(db, row[0]) for row in rows)
            return [group for group in found if group is not None]

    # ---- direct execution -------------------------------------------------------------------------------------

    def reserve(
        self, row: NewRow, *, reservation_id: str, reserved_by: str, worker_id: str, now: Instant, expires_at: Instant
    ) -> Reservation | None:
        """Make a direct job and its reservation."""
        return self._write(
            lambda db: recovery.reserve(
                db, row, now, reservation_id=reservation_id, reserved_by=reserved_by, worker_id=worker_id, expires_at=expires_at
            )
        )

    def reservation(self) -> Reservation | None:
        """Return the ACTIVE reservation."""
        with self._reading() as db:
            return turn.active_reservation(db)

    def give_up(self, reservation_id: str, *, now: Instant, stop_running: bool) -> bool:
        """End a reservation and its job."""
        return self._write(lambda db: recovery.give_up(db, reservation_id, now, stop_running=stop_running))

    def give_up_waiting(self, reservation_id: str, *, now: Instant) -> bool:
        """Give up a direct execution that has not started."""
        return self._write(lambda db: recovery.give_up_waiting(db, reservation_id, now))

    # ---- workers and recovery ---------------------------------------------------------------------------------

    def register(
        self,
        worker_id: str,
        *,
        host: str,
        kind: str,
        job_types: Sequence[str],
        now: Instant,
        slots: int | None = None,
        queues: Collection[str] | None = None,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        """Record a worker."""
        values = {
            "host": host,
            "kind": kind,
            "job_types": _encode(list(job_types)).decode(),
            "queues": None if queues is None else _encode(sorted(queues)).decode(),
            "digests": _encode(digests or {}).decode(),
            "slots": slots,
        }
        self._write(lambda db: db.change("register", worker_id=worker_id, now=now, **values), hold=Hold.NOTHING)

    def beat(self, worker_id: str, *, job_types: Sequence[str], digests: Mapping[str, str] | None = None) -> bool:
        """Advance a worker's beat."""
        values = {"job_types": _encode(list(job_types)).decode(), "digests": None if digests is None else _encode(digests).decode()}
        return bool(self._write(lambda db: db.change("beat", worker_id=worker_id, **values), hold=Hold.NOTHING))

    def stopping(self, worker_id: str, *, now: Instant) -> None:
        """Record the beginning of a shutdown."""
        self._write(lambda db: db.change("stopping", worker_id=worker_id, now=now), hold=Hold.NOTHING)

    def end_worker(self, worker_id: str, *, now: Instant) -> None:
        """Record the end of a worker."""
        self._write(lambda db: db.change("end_worker", worker_id=worker_id, now=now))

    def give_up_worker(self, worker_id: str, *, beat: int, now: Instant) -> bool:
        """Record the end of a worker whose beat has stood still."""
        return bool(self._write(lambda db: db.change("give_up_worker", worker_id=worker_id, beat=beat, now=now)))

    def workers(self, *, live: bool = True) -> list[WorkerInfo]:
        """Return workers."""
        with self._reading() as db:
            return recovery.workers(db, ended=not live)

    def unregistered(self) -> list[tuple[str, int]]:
        """Return workers that are not on record and hold RUNNING jobs."""
        with self._reading() as db:
            return [(worker_id, count) for worker_id, count in db.rows("unregistered", limit=UNREGISTERED_MAX)]

    def held_by(self, worker_id: str, *, limit: int) -> list[Held]:
        """Return what a lost worker held."""
        with self._reading() as db:
            return recovery.held_by(db, worker_id, limit)

    def repair(self, *, since: Instant) -> list[Held]:
        """Return attempts that lack their successor."""
        with self._reading() as db:
            return recovery.failed_without_successor(db, since)

    def _fix_rows(self, *, now: Instant) -> list[Finding]:
        """Repair what is wrong with rows, and return what was done."""
        return self._write(lambda db: repair.repair(db, now))

    def recover(self, endings: Sequence[Ending], held: Sequence[Held], *, now: Instant) -> dict[int, Status]:
        """Write recovery's moves."""
        return self._write(lambda db: recovery.recover(db, endings, held, now))

    def add_successors(self, endings: Sequence[Ending], *, now: Instant) -> int:
        """Give failed attempts the successors they lack."""
        return self._write(lambda db: recovery.add_successors(db, endings, now))

    def recovered(self, *, now: Instant) -> Instant:
        """Record a finished recovery."""

        def work(db: Db) -> Instant:
            before = db.value("recovered_at")
            db.change("set_recovered_at", now=now)
            return int(before)

        return self._write(work)

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _group(self, group_id: str) -> Group:
        group = self.group(group_id)
        if group is None:
            raise NotFound(f"there is no group {dashed(group_id)} in this store")
        return group


def _checked(check: Check | None, job_id: str, work: Callable[[Db], str]) -> Callable[[Db], str]:
    """Return the work with a look at the chain before it, if one is asked for."""
    if check is None:
        return work

    def checked(db: Db) -> str:
        if chain := [reads.job_from(row) for row in db.rows("chain", job_id=job_id)]:
            check(chain)
        return work(db)

    return checked
