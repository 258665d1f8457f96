"""Firing in SQL: what is due is read, decided and written in one transaction, so that no two schedulers fire it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import msgspec

from rota.model.fates import Fated
from rota.model.schedules import Fate, Schedule, lattice_of
from rota.model.states import ErrorType, Status
from rota.model.values import Instant
from rota.ports.schedules import Awaited, Decide, DueJob, DueSchedule, Fired, Settled
from rota.ports.store import DefinitionsChanged
from rota.stores.sqlite import edges, ledger, queue, schedules
from rota.stores.sqlite.connection import Db
from rota.stores.sqlite.edges import Edge
from rota.stores.sqlite.endings import SETTLE_MAX, end_waiting, settle

_encode = msgspec.json.Encoder().encode

DEPENDENTS_MAX = 10_000
"""Schedules that depend on others and are due at once: they are put in order together."""


def fire(db: Db, decide: Decide, now: Instant, *, limit: int, ahead: Instant, definitions: int | None) -> Fired:
    """Give due times their fates."""
    _check_definitions(db, definitions)
    fired = Fired(unfinished=_pull_back(db, now, ahead, limit))
    fired.settled += _give_up(db, now, limit)
    found = schedules.rows_of(db.value("schedules_due_now", depends=0, now=now, limit=limit))
    fired.settled += _fire_all(db, schedules.due(db, found), decide, now)
    if len(found) == limit:
        fired.unfinished = True
        return fired
    # What others depend on has fired: those who depend follow, each after what it depends on.
    dependents = schedules.rows_of(db.value("schedules_due_now", depends=1, now=now, limit=DEPENDENTS_MAX))
    for row in _in_order(dependents)[: limit - len(found)]:
        if db.rows("due_before_it", names=_encode(row.depends_on).decode(), organization_id=row.organization, now=now):
            fired.unfinished = True
            continue
        fired.settled += _fire_all(db, schedules.due(db, [row]), decide, now)
    fired.unfinished = fired.unfinished or len(dependents) > limit - len(found)
    return fired


def close(db: Db, schedule_id: str, decide: Decide, now: Instant) -> list[Settled]:
    """Give one schedule's due times up to now their fates, before it is changed."""
    found = schedules.rows_of(db.value("schedule_due", schedule_id=schedule_id))
    return _fire_all(db, schedules.due(db, found), decide, now)


def closing(db: Db, schedule_id: str, decide: Decide, now: Instant, definitions: int | None) -> Callable[[], object]:
    """Return the closing of a ledger, for who is about to change the schedule."""
    _check_definitions(db, definitions)
    return lambda: close(db, schedule_id, decide, now)


def _check_definitions(db: Db, definitions: int | None) -> None:
    if definitions is not None and db.value("definitions_version") != definitions:
        raise DefinitionsChanged


def _fire_all(db: Db, due: list[DueSchedule], decide: Decide, now: Instant) -> list[Settled]:
    if not due:
        return []
    decided = [(each.schedule, decide(each)) for each in due]
    rows = [(schedule.id, f.cursor_at, f.next_at, f.last_at, f.state, int(f.drop)) for schedule, f in decided]
    db.change("advance_schedules", rows=_encode(rows).decode(), now=now)
    ledger.record(db, decided, now)
    _make_jobs(db, [job for _, firing in decided for job in firing.jobs], now)
    return [Settled(schedule=schedule, rows=tuple(firing.rows)) for schedule, firing in decided if firing.rows]


def _in_order(rows: list[schedules.Row]) -> list[schedules.Row]:
    """Return schedules so that each comes after those among them that it depends on."""
    by_name = {(row.organization, row.name): row for row in rows}
    done: dict[str, schedules.Row] = {}

    def place(row: schedules.Row) -> None:
        if row.id in done:
            return
        for name in row.depends_on or ():
            before = by_name.get((row.organization, name))
            if before is not None:
                place(before)
        done[row.id] = row

    for row in rows:
        place(row)
    return list(done.values())


# ---- jobs ----------------------------------------------------------------------------------------------------------


def _make_jobs(db: Db, jobs: list[DueJob], now: Instant) -> None:
    number = db.value("next_number") if jobs else None
    for (_, _, alone), same in groupby(jobs, key=lambda job: (queue.shape(job.row), job.row.run_as, _is_alone(job))):
        some = list(same)
        if not alone:
            queue.add_due(db, [job.row for job in some], now, number)
            number = None
            continue
        for job in some:
            _make_waiting(db, job, now, number)
            number = None


def _is_alone(job: DueJob) -> bool:
    return job.row.after is not None or bool(job.awaits)


def _make_waiting(db: Db, job: DueJob, now: Instant, number: int | None) -> None:
    """Write a job that waits: for the chain before it, or for other schedules."""
    parents = [(parent, met) for each in job.awaits for parent, met in _parent(db, each, job.row.organization_id, now)]
    blockers = sum(not met for _, met in parents) + (job.row.after is not None)
    child = queue.add_due(db, [job.row], now, number, blockers=blockers)
    if job.row.after is not None:
        edges.add(db, [child], [Edge(job.row.after, "end", "cancel", "overlap", met=False)], now)
    for parent, met in parents:
        db.change("add_schedule_edge", child=child, parent=parent, resolved_at=now if met else None, until=None if met else job.give_up_at)


def _parent(db: Db, awaited: Awaited, organization: str, now: Instant) -> Iterator[tuple[str, bool]]:
    """Give what a due time waits for, by the id of a chain or of a schedule, and whether that is met already."""
    schedule_id = db.value("schedule_named", organization_id=organization, name=awaited.schedule)
    if schedule_id is None:
        # Its deletion is refused while anybody depends on it: only another store's hand can bring this about.
        return
    fate, root = db.row("fired_in_window", schedule_id=schedule_id, after=awaited.after, until=awaited.until) or (None, None)
    if fate != Fate.FIRED:
        # What ended since the window closed would have been in time for one who waited: so it counts.
        root = db.value("ended_in_window", schedule_id=schedule_id, after=awaited.after, until=max(now, awaited.until))
    chain = edges.chains(db, [root], organization).get(root) if root else None
    if chain is None or chain.dead:
        yield schedule_id, False
    else:
        yield chain.root_id, chain.completed


# ---- what went wrong -----------------------------------------------------------------------------------------------


def _give_up(db: Db, now: Instant, limit: int) -> list[Settled]:
    """End jobs that have waited for another schedule until now, and write that as their due times' fate."""
    if not db.value("anybody_late", now=now) or settle(db, now, SETTLE_MAX):
        # Some of them may have what they wait for, and are yet to be told.
        return []
    settled = []
    for number, schedule_id, due_at, _, names in db.rows("waited_too_long", now=now, limit=limit):
        missing = ", ".join(sorted(msgspec.json.decode(names)))
        reason = f"{missing} did not complete in time"
        end_waiting(db, [number], Status.SKIPPED, now, reason=reason, actor="system", error_type=ErrorType.DEPENDENCY)
        if due_at is None or not db.change("fate_of_dependency", schedule_id=schedule_id, due_at=due_at, reason=reason, now=now):
            continue
        row = Fated(due_at=due_at, last_due_at=due_at, count=1, fate=Fate.SKIPPED_DEPENDENCY, reason=reason)
        schedule = schedules.schedule(db, schedule_id)
        if schedule is not None:
            settled.append(Settled(schedule=schedule, rows=(row,)))
    return settled


def _pull_back(db: Db, now: Instant, ahead: Instant, limit: int) -> bool:
    """Bring cursors back that a wrong clock has moved far ahead; say whether there may be more."""
    found = schedules.rows_of(db.value("schedules_too_far", ahead=ahead, limit=limit)) if _any_ahead(db, ahead) else []
    rows: list[tuple[Any, ...]] = []
    for row in found:
        schedule: Schedule = row.value()
        ledger.take_back(db, schedule, now)
        rows.append((schedule.id, now, lattice_of(schedule.timing).next(now), None, None, 0))
    if rows:
        db.change("advance_schedules", rows=_encode(rows).decode(), now=now)
    return len(found) == limit


def _any_ahead(db: Db, ahead: Instant) -> bool:
    furthest = schedules.beat(db).furthest
    return furthest is not None and furthest > ahead
