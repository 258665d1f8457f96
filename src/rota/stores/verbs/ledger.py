"""The ledger in SQL: due times get their fates in one transaction, so that no two schedulers fire them; a wrong clock's are taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from graphlib import TopologicalSorter
from itertools import groupby
from typing import Any

import msgspec

from rota.model.fates import Fated
from rota.model.gate import EVERYTHING, SYSTEM, Actor, Scope
from rota.model.lattice import Run
from rota.model.schedules import Fate, OnCompletion, Schedule, ScheduleState, lattice_of, next_look
from rota.model.states import ErrorType, Status
from rota.model.values import LATEST, Instant
from rota.model.webhooks import WAIT_MAX
from rota.ports.schedules import Awaited, Change, Decide, DueJob, DueSchedule, Fired, Firing, Ledger, LedgerCursor, Occurrence, Settled
from rota.ports.store import DefinitionsChanged
from rota.stores.verbs import chains, edges, queue, reports, schedules
from rota.stores.verbs.db import Db
from rota.stores.verbs.definitions import same_definitions
from rota.stores.verbs.edges import Edge
from rota.stores.verbs.endings import SETTLE_MAX, end_waiting, settle

DEPENDENTS_MAX = 10_000
"""Schedules that depend on others and are due at once: they are put in order together."""
JOBS_MAX = 2000
"""Jobs of one transaction of firing, but for those of its last schedule: other work waits for it, and a server may limit its time."""
LOOK_BACK = 1000
"""How many jobs of a schedule are looked at for one that ended in a window."""
DROPPED_REASON = "its job was dropped"
ALIKE_LEAST = 8
"""From so many on, schedules that advance alike are advanced by one statement of their own."""


def fire(db: Db, decide: Decide, now: Instant, *, limit: int, ahead: Instant, definitions: int | None) -> Fired:
    """Give due times their fates."""
    _check_definitions(db, definitions)
    decide.begin()
    fired = Fired(unfinished=_pull_back(db, now, ahead, limit))
    db.change("note_clock", now=now)
    fired.settled += _give_up(db, now, limit)
    _complete(db, now, limit)
    found = schedules.due_of(db.value("schedules_due_now", depends=0, now=now, limit=limit))
    rooms: dict[str, int | None] = {}
    due = len(found)
    fired.settled += _fire_all(db, found, decide, now, rooms)
    if due == limit or len(found) < due:
        fired.unfinished = True
        return fired
    # What others depend on has fired: those who depend follow, each after what it depends on.
    dependents = schedules.due_of(db.value("schedules_due_now", depends=1, now=now, limit=DEPENDENTS_MAX))
    for each in _in_order(dependents)[: limit - len(found)]:
        if db.rows("due_before_it", names=each.schedule.depends_on, organization_id=each.schedule.organization, now=now):
            fired.unfinished = True
            continue
        fired.settled += _fire_all(db, [each], decide, now, rooms)
    fired.unfinished = fired.unfinished or len(dependents) > limit - len(found)
    return fired


def due_schedules(db: Db, *, until: Instant, limit: int, scope: Scope = EVERYTHING, schedule_id: str | None = None) -> list[DueSchedule]:
    """Return the schedules that are due, in the order in which `fire` decides, with what their fates depend on."""
    if schedule_id is not None:
        found = [each for each in schedules.due_of(db.value("schedule_due", schedule_id=schedule_id)) if _is_due(each.schedule, until)]
    else:
        values = {"organization_id": scope.organization, "now": until}
        found = schedules.due_of(db.value("schedules_overdue", depends=0, limit=limit, **values))
        if len(found) < limit:
            found += _in_order(schedules.due_of(db.value("schedules_overdue", depends=1, limit=limit - len(found), **values)))
    return schedules.surroundings(db, found, {}) if found else []


def _is_due(schedule: Schedule, until: Instant) -> bool:
    return schedule.state is not ScheduleState.DISABLED and schedule.next_at is not None and schedule.next_at <= until


def change_schedule(
    db: Db, schedule_id: str, change: Change, decide: Decide, *, actor: Actor, now: Instant, definitions: int | None = None
) -> Schedule:
    """Close the ledger and change a schedule."""
    close = _closing(db, schedule_id, decide, now, definitions)
    return schedules.change(db, schedule_id, change, actor, now, close=close)


def drop_schedule(
    db: Db,
    schedule_id: str,
    decide: Decide,
    *,
    actor: Actor,
    now: Instant,
    definitions: int | None = None,
    version: int | None = None,
) -> None:
    """Close the ledger and take a schedule out of sight."""
    close = _closing(db, schedule_id, decide, now, definitions)
    schedules.drop(db, schedule_id, actor, now, close=close, version=version)


def replace_schedule(
    db: Db, schedule_id: str, new: Schedule, decide: Decide, *, actor: Actor, now: Instant, definitions: int | None = None
) -> Schedule:
    """Close the ledger of a schedule and put a new one in its place."""
    close = _closing(db, schedule_id, decide, now, definitions)
    return schedules.replace(db, schedule_id, new, actor, now, close=close)


def drop_job(
    db: Db, schedule_id: str, decide: Decide, *, actor: Actor, now: Instant, definitions: int | None = None, keep_history: bool = False
) -> int:
    """Drop a schedule as `drop_schedule` does, cancel its chains that have not ended, and have its history removed unless that is kept."""
    drop_schedule(db, schedule_id, decide, actor=actor, now=now, definitions=definitions)
    roots = schedules.live_chains(db, schedule_id)
    for root in roots:
        chains.cancel(db, root, actor=actor, now=now, reason=DROPPED_REASON)
    if not keep_history:
        db.change("begin_purge", schedule_id=schedule_id, now=now)
    return len(roots)


def _complete(db: Db, now: Instant, limit: int) -> None:
    """Disable or drop jobs that SQL has created for one moment, once the chain of that has ended."""
    for (schedule_id,) in db.rows("ids_over", limit=limit):
        schedule = schedules.live(db, schedule_id)
        if schedule.on_completion is OnCompletion.DROP and not schedules.depending_on(db, schedule):
            schedules.take_away(db, schedule, SYSTEM, now)
        else:
            # Who waits for it must find it: it stays as one that is over.
            db.change("end_schedule", schedule_id=schedule_id, now=now)


def awaited(db: Db, job_id: str) -> list[str]:
    """Return the schedules that a job waits for."""
    return [row[0] for row in db.rows("awaited_schedules", job_id=job_id)]


def _closing(db: Db, schedule_id: str, decide: Decide, now: Instant, definitions: int | None) -> Callable[[], object]:
    """Return the closing of a ledger: gives one schedule's due times up to now their fates, before it is changed."""
    _check_definitions(db, definitions)
    decide.begin()

    def close() -> None:
        found = schedules.due_of(db.value("schedule_due", schedule_id=schedule_id))
        for each in found:
            if each.schedule.cursor_at > now:
                # The clock was ahead, if only by a little: what it said of times to come is for the new definition to say.
                each.ahead_at = max(each.ahead_at or 0, each.schedule.cursor_at)
                take_back(db, each.schedule, now)
                each.schedule = msgspec.structs.replace(each.schedule, cursor_at=now)
        db.change("rest_on_this_clock", schedule_id=schedule_id, now=now)
        _fire_all(db, found, decide, now, {})
        for each in found:
            reports.close(db, each.schedule, now)
        db.change("forget_told", schedule_id=schedule_id)

    return close


def _check_definitions(db: Db, definitions: int | None) -> None:
    if definitions is not None and not same_definitions(int(db.value("definitions_version")), definitions):
        raise DefinitionsChanged


def _fire_all(db: Db, found: list[schedules.Due], decide: Decide, now: Instant, rooms: dict[str, int | None]) -> list[Settled]:
    """Fire schedules. Those that are left for the next transaction, for these make many jobs, are taken out of `found`."""
    if not found:
        return []
    for each in found:
        if each.told_from is not None and each.told_until is not None and each.told_until <= now:
            # The clock is back where it was: the lower one was wrong, and what was told up to here holds.
            each.schedule = tell_again(db, each.schedule, each.told_from, each.told_until)
    decided = _decide_some(schedules.surroundings(db, found, rooms), decide)
    del found[len(decided) :]
    for schedule, firing in decided:
        if firing.drop and schedules.depending_on(db, schedule):
            # Who waits for it must find it: it stays as one that is over.
            firing.drop, firing.state = False, ScheduleState.DISABLED
    firings = [firing for _, firing in decided]
    _advance(db, [each.rowid for each in found], firings, now)
    jobs = [job for firing in firings for job in firing.jobs]
    _make_jobs(db, jobs, now)
    _note_spread(db, jobs)
    grown = record(db, decided, now)
    reports.of_firings(db, ((each, *one) for each, one in zip(found, decided, strict=True)), grown, now)
    # Who only fired needs no telling.
    return [Settled(schedule=schedule, rows=tuple(firing.rows)) for schedule, firing in decided if len(firing.rows) > len(firing.jobs)]


def _decide_some(due: list[DueSchedule], decide: Decide) -> list[tuple[Schedule, Firing]]:
    """Decide in order, until there are as many jobs as one transaction should make."""
    decided: list[tuple[Schedule, Firing]] = []
    jobs = 0
    for each in due:
        firing = decide(each)
        decided.append((each.schedule, firing))
        jobs += len(firing.jobs)
        if jobs >= JOBS_MAX:
            break
    return decided


def _advance(db: Db, rowids: list[int], firings: list[Firing], now: Instant) -> None:
    """Move cursors on: most of those that are due at once are due again at once, and one statement does for them."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for rowid, firing in zip(rowids, firings, strict=True):
        key = (firing.cursor_at, firing.next_at, firing.last_at, firing.state, firing.drop)
        alike.setdefault(key, []).append(rowid)
    single: list[tuple[Any, ...]] = []
    for (cursor_at, next_at, last_at, state, drop), some in alike.items():
        if len(some) < ALIKE_LEAST or state is not None or drop or last_at is None:
            single += [(rowid, cursor_at, next_at, last_at, state, int(drop)) for rowid in some]
        else:
            db.change("advance_alike", rowids=some, cursor_at=cursor_at, next_at=next_at, last_at=last_at)
    if single:
        db.change("advance_schedules", rows=single, now=now)


def _in_order(found: list[schedules.Due]) -> list[schedules.Due]:
    """Return schedules so that each comes after those among them that it depends on."""
    by_name = {(each.schedule.organization, each.schedule.name): each for each in found}
    before = {key: [(key[0], name) for name in each.schedule.depends_on if (key[0], name) in by_name] for key, each in by_name.items()}
    return [by_name[key] for key in TopologicalSorter(before).static_order()]


# ---- jobs ----------------------------------------------------------------------------------------------------------


def _make_jobs(db: Db, jobs: list[DueJob], now: Instant) -> None:
    """Write jobs and, from them, the rows of the ledger that say they fired."""
    if not jobs:
        return
    number = db.value("next_number")
    made: list[int] = []
    for waits, same in groupby(jobs, key=_waits):
        if waits:
            made += [_make_waiting(db, job, now, None if made or place else number) for place, job in enumerate(same)]
        else:
            made += queue.add_all_due(db, [job.row for job in same], now, None if made else number)
    # Nobody else adds jobs meanwhile: firing holds the whole store.
    db.change("insert_fired", first=made[0], last=made[-1], now=now)


def _note_spread(db: Db, jobs: list[DueJob]) -> None:
    """Note how far late firings were put off, and say so in their rows of the ledger."""
    spread = [(job.row.schedule_id, job.row.due_at, job.reason) for job in jobs if job.spread_to is not None]
    if spread:
        db.change("forget_spread")
        db.change("note_spread", at=max(job.spread_to for job in jobs if job.spread_to is not None))
        db.change("note_reasons", rows=spread)


def _waits(job: DueJob) -> bool:
    return bool(job.behind or job.awaits)


def _make_waiting(db: Db, job: DueJob, now: Instant, number: int | None) -> int:
    """Write a job that waits: for the chains before it, or for other schedules."""
    parents = [(parent, met) for each in job.awaits for parent, met in _parent(db, each, job.row.organization_id, now)]
    blockers = sum(not met for _, met in parents) + len(job.behind)
    (child,) = queue.add_due(db, [job.row], now, number, blockers=blockers)
    if job.behind:
        edges.add(db, [child], [Edge(root, "end", "cancel", "overlap", met=False) for root in job.behind], now)
    for parent, met in parents:
        until = None if met else job.give_up_at
        db.change("add_schedule_edge", child=child, parent=parent, resolved_at=now if met else None, until=until)
    return child


def _parent(db: Db, awaited: Awaited, organization: str, now: Instant) -> Iterator[tuple[str, bool]]:
    """Give what a due time waits for, by the id of a chain or of a schedule, and whether that is met already."""
    schedule_id = db.value("schedule_named", organization_id=organization, name=awaited.schedule)
    if schedule_id is None:
        # Its deletion is refused while anybody depends on it: only another hand than ours can bring this about.
        return
    fate, root = db.row("fired_in_window", schedule_id=schedule_id, after=awaited.after, until=awaited.until) or (None, None)
    if fate != Fate.FIRED:
        # What ended since the window closed would have been in time for one who waited: so it counts.
        window = {"after": awaited.after, "until": max(now, awaited.until)}
        root = db.value("ended_in_window", schedule_id=schedule_id, look=LOOK_BACK, **window)
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
            reports.of_row(db, schedule, row, now)
            settled.append(Settled(schedule=schedule, rows=(row,)))
    return settled


def _pull_back(db: Db, now: Instant, ahead: Instant, limit: int) -> bool:
    """Bring cursors back that a wrong clock has moved far ahead; say whether there may be more."""
    if db.value("furthest", span=WAIT_MAX) <= ahead:
        return False
    found = schedules.bare_of(db.value("schedules_too_far", now=now, limit=limit))
    for schedule in found:
        pull_back(db, schedule, now)
    if len(found) == limit:
        return True
    # What waits for a time that was reckoned by the wrong clock, such as a retry or a message, waits as long from now on.
    db.change("wait_as_long_edges", now=now, ahead=ahead)
    db.change("wait_as_long", now=now, ahead=ahead)
    db.change("send_as_soon", now=now, ahead=ahead, span=WAIT_MAX)
    db.change("set_clock", now=now)
    db.change("forget_spread")
    return False


def record(db: Db, firings: Iterable[tuple[Schedule, Firing]], now: Instant) -> dict[str, Instant]:
    """Write the fates of several schedules, but for what fired: that is written with its jobs.

    Return, by schedule, the first due time of each row that its first new one was added to.
    """
    new: list[tuple[Any, ...]] = []
    grown: dict[str, Instant] = {}
    for schedule, firing in firings:
        for index, row in enumerate(firing.rows if len(firing.rows) > len(firing.jobs) else ()):
            if row.fate is Fate.FIRED:
                continue
            # Only the first row can go on where the newest of those before ends.
            if index == 0 and (begins := _extend(db, schedule, row, now)) is not None:
                grown[schedule.id] = begins
                continue
            new.append((schedule.id, row.due_at, row.last_due_at, row.count, row.fate, row.reason, None))
    if new:
        db.change("insert_occurrences", rows=new, now=now)
    return grown


def _extend(db: Db, schedule: Schedule, row: Fated, now: Instant) -> Instant | None:
    """Make the newest row longer, and return its first due time, if it has the same fate for the same reason: a month of pause is one row.

    Only by what is due next after it: a row that went on further would reach over due times that are another's.
    """
    newest = db.row("newest_occurrence", schedule_id=schedule.id, cursor_at=schedule.cursor_at)
    if newest is None or newest[1:3] != (row.fate, row.reason) or lattice_of(schedule.timing).next(newest[3]) != row.due_at:
        return None
    values = {"due_at": newest[0], "fate": row.fate, "last_due_at": row.last_due_at, "count": row.count}
    return int(newest[0]) if db.change("extend_occurrence", schedule_id=schedule.id, now=now, **values) else None


def tell_again(db: Db, schedule: Schedule, told_from: Instant, told_until: Instant) -> Schedule:
    """Bring back what was told before the clock was set back, as far as that is simple; return the schedule with its cursor there.

    Where a row reaches over what was told of on the lower clock, nothing comes back: what is due since then has its fates anew.
    """
    after = schedule.cursor_at
    rows = db.rows("told", schedule_id=schedule.id, after=told_from)
    if lattice_of(schedule.timing).tally(told_from, after) is not None:
        if any(due_at <= after < last_due_at for due_at, last_due_at, *_ in rows):
            rows, told_until = [], after
        rows = [row for row in rows if row[0] > after]
    for due_at, last_due_at, count, fate, reason, recorded_at in rows:
        values = {"due_at": due_at, "last_due_at": last_due_at, "count": count, "fate": fate, "reason": reason}
        db.change("told_again", schedule_id=schedule.id, recorded_at=recorded_at, **values)
    db.change("forget_told", schedule_id=schedule.id)
    return msgspec.structs.replace(schedule, cursor_at=told_until)


def pull_back(db: Db, schedule: Schedule, now: Instant) -> None:
    """Bring a cursor back to now, with what is told beyond it: for good, unless the clock returns to where it was."""
    told_from = db.value("told_from", schedule_id=schedule.id)
    told = told_from is None or lattice_of(schedule.timing).tally(told_from, schedule.cursor_at) is None
    if told:
        db.change("keep_told", schedule_id=schedule.id, now=now)
    else:
        # Set back once more, after something was due on the lower clock: two pasts can't be told apart any more.
        db.change("forget_told", schedule_id=schedule.id)
    take_back(db, schedule, now)
    db.change("pull_back_schedule", schedule_id=schedule.id, now=now, next_at=next_look(schedule.timing, now), told=int(told))


def take_back(db: Db, schedule: Schedule, now: Instant) -> None:
    """Take back the fates of times that have not come after all; what became a job stays."""
    db.change("take_back_occurrences", schedule_id=schedule.id, now=now)
    lattice = lattice_of(schedule.timing)
    for due_at, fate, most in db.rows("reaching_occurrences", schedule_id=schedule.id, now=now):
        left = lattice.tally(due_at - 1, now) or Run(due_at, due_at, 1)
        others = db.value("counted_inside", schedule_id=schedule.id, due_at=due_at, now=now)
        # Where the rule was another when the row was written, this is near the truth, and never more than was written.
        count = min(most, max(1, left.count - others))
        last = due_at if count == 1 else _last_own(db, schedule, Run(due_at, left.last, count))
        count = 1 if last == due_at else count
        db.change("cut_occurrence", schedule_id=schedule.id, due_at=due_at, fate=fate, last_due_at=last, count=count)


def _last_own(db: Db, schedule: Schedule, run: Run) -> Instant:
    """Return the last due time that a row has for itself: those at its end may be other rows' that lie inside it."""
    lattice, last = lattice_of(schedule.timing), run.last
    while (begins := db.value("begins_inside", schedule_id=schedule.id, due_at=run.first, last_due_at=last)) is not None:
        before = lattice.tally(run.first - 1, begins - 1)
        last = run.first if before is None else before.last
    return last


def occurrences(db: Db, ledger: Ledger, /, *, limit: int, before: LedgerCursor | None = None) -> list[Occurrence]:
    """Return rows of the ledger, latest first."""
    organization, scope = ledger.organization, ledger.scope
    if scope.organization is not None and organization not in {None, scope.organization}:
        return []
    at, schedule_id, fate = before or (None, None, None)
    latest = min(LATEST if ledger.until is None else ledger.until - 1, LATEST if at is None else at)
    values = {
        "organization_id": scope.organization or organization,
        "owner": scope.owner,
        "granted": scope.granted,
        "fates": ledger.fates,
        "not_ran": int(ledger.not_ran),
        "before_at": at,
        "before_schedule": schedule_id,
        "before_fate": fate,
    }
    own = {} if ledger.schedule_id is None else {"schedule_id": ledger.schedule_id}
    name = "occurrences_of_schedule" if own else "occurrences_everywhere"
    rows = db.rows(name, earliest=ledger.since or 0, latest=latest, limit=limit, **own, **values)
    if ledger.since is not None and len(rows) < limit:
        # What begins before the time asked for comes last, and only spans can still reach into it.
        reach = {"since": ledger.since, "earliest": 0, "latest": min(latest, ledger.since - 1)}
        rows += db.rows("occurrences_reaching", schedule_id=ledger.schedule_id, limit=limit - len(rows), **reach, **values)
    return [_occurrence(row) for row in rows]


def _occurrence(row: tuple[Any, ...]) -> Occurrence:
    return Occurrence(
        schedule=row[0],
        schedule_id=row[1],
        organization=row[2],
        due_at=row[3],
        last_due_at=row[4],
        count=row[5],
        fate=Fate(row[6]),
        reason=row[7],
        job_id=row[8] or None,
        status=None if row[9] is None else Status(row[9]),
        recorded_at=row[10],
    )
