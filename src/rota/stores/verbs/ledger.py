"""The ledger in SQL: fates of due times, written as they are given, taken back where the clock was wrong, and read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from rota.model.fates import Fated
from rota.model.lattice import Run
from rota.model.schedules import Fate, Schedule, lattice_of, next_look
from rota.model.states import Status
from rota.model.values import LATEST, Instant
from rota.ports.schedules import Firing, Ledger, LedgerCursor, Occurrence
from rota.stores.verbs.db import Db

_encode = msgspec.json.Encoder().encode


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
        db.change("insert_occurrences", rows=_encode(new).decode(), now=now)
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


def occurrences(db: Db, ledger: Ledger, limit: int, before: LedgerCursor | None) -> list[Occurrence]:
    """Return rows of the ledger, latest first."""
    organization, scope = ledger.organization, ledger.scope
    if scope.organization is not None and organization not in {None, scope.organization}:
        return []
    at, schedule_id, fate = before or (None, None, None)
    latest = min(LATEST if ledger.until is None else ledger.until - 1, LATEST if at is None else at)
    values = {
        "organization_id": scope.organization or organization,
        "owner": scope.owner,
        "fates": _encode(ledger.fates).decode(),
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
