"""Due times that have passed without a recorded outcome, worked out by the decision that the trigger itself makes.

While no worker is alive nothing is written to the ledger. `overdue` says what a worker would write if it came back now. A due time
is a worker's to record until the tolerance has passed, which is the setting `lease_ttl`: the time in which a worker that died has
been replaced by another. Nothing here writes.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec

from rota.engine.due import DueRows
from rota.engine.registry import Registry
from rota.engine.trigger import Decider
from rota.errors import InvalidSchedule
from rota.model.fates import Fated
from rota.model.gate import EVERYTHING, Scope
from rota.model.schedules import Fate, Schedule
from rota.model.settings import Settings
from rota.model.values import SECOND, Instant
from rota.ports.clock import UuidV7
from rota.ports.schedules import DueSchedule
from rota.ports.store import Store

LOOK = 500
"""Schedules that are worked out, at most: those that are overdue longest."""
NOT_EXPECTED = frozenset({Fate.SKIPPED_PAUSED, Fate.SKIPPED_CALENDAR, Fate.SKIPPED_DST_GAP})
"""Outcomes of due times that nobody expects to run: they are no cause for alarm, however late a worker records them."""


class Overdue(msgspec.Struct, frozen=True, kw_only=True):
    """The due times of one schedule that have no recorded outcome."""

    schedule: str
    schedule_id: str
    organization: str
    due_at: Instant
    """The first of them."""
    last_due_at: Instant
    count: int
    bounded: bool = False
    """There are at least `count`: this machine can't read the schedule, such as one whose time zone it does not know."""
    rows: tuple[Fated, ...] = ()
    """What a worker that came back at this moment would write to the ledger."""
    dependent: bool = False
    """It depends on other schedules: whether it overlaps with an earlier due time that waits for them, a worker finds out first."""

    @property
    def outcomes(self) -> dict[Fate, int]:
        """Return how many due times would get which outcome."""
        counted: Counter[Fate] = Counter()
        for row in self.rows:
            counted[row.fate] += row.count
        return dict(counted)

    @property
    def reason(self) -> str:
        """Say why there is no outcome, what to do, and what then becomes of the due times."""
        outcomes = {} if self.dependent else self.outcomes
        words = " and ".join(f"{count:,} {fate}" for fate, count in outcomes.items())
        return f"no outcome is recorded: start a worker{f', which records {words}' if words else ''}"

    @property
    def expected(self) -> int:
        """Return how many of them should have run: all but those in a pause, on an excluded day or jumped over by a clock."""
        return self.count - sum(row.count for row in self.rows if row.fate in NOT_EXPECTED)


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """All that is overdue, as far as it was worked out."""

    schedules: tuple[Overdue, ...] = ()
    """The longest overdue first."""
    more: bool = False
    """There are more schedules: the limit was reached."""

    @property
    def alarming(self) -> tuple[Overdue, ...]:
        """Return the schedules of which something should have run."""
        return tuple(each for each in self.schedules if each.expected)

    @property
    def expected(self) -> int:
        """Return how many due times should have run."""
        return sum(each.expected for each in self.schedules)


def overdue(
    store: Store,
    registry: Registry,
    settings: Settings,
    *,
    now: Instant,
    scope: Scope = EVERYTHING,
    schedule_id: str | None = None,
    limit: int = LOOK,
    tolerance: Instant | None = None,
) -> Backlog:
    """Return, by schedule, the due times that have no recorded outcome; `tolerance` is `lease_ttl` where none is given.

    A schedule is left out while its first such due time is no older than the tolerance. The scope's owner is who made the schedule.
    If nothing is overdue, this is one look at an index.
    """
    # How late a due time may be recorded before it is overdue.
    late = round(settings.lease_ttl * SECOND) if tolerance is None else tolerance
    found = store.due_schedules(until=now - late, limit=limit + 1, scope=scope, schedule_id=schedule_id)
    if not found:
        return Backlog()
    registry.sync(store, now)
    rows = DueRows(registry, UuidV7(Random(0)), Random(0))  # noqa: S311 - rows are built to see what is refused, and thrown away
    decider = Decider(rows, settings, now)
    line = found[:limit]
    if settings.catch_up_spacing_s is not None and (schedule_id is not None or scope != EVERYTHING):
        line = _with_others(line, store.due_schedules(until=now - late, limit=limit))
    wanted = {each.schedule.id for each in found[:limit]}
    worked_out = [(each.schedule, _of(decider, each)) for each in line]
    mine = [
        one
        for schedule, one in worked_out
        if one is not None and schedule.id in wanted and scope.holds(schedule.organization, schedule.created_by, schedule.id)
    ]
    return Backlog(schedules=tuple(sorted(mine, key=lambda one: (one.due_at, one.schedule_id))), more=len(found) > limit)


def _with_others(mine: list[DueSchedule], first: list[DueSchedule]) -> list[DueSchedule]:
    """Return some schedules in line with those that are overdue longest: late firings of all together keep to `catch_up_rate`."""
    known = {each.schedule.id for each in first}
    return [*first, *(each for each in mine if each.schedule.id not in known)]


def _of(decider: Decider, due: DueSchedule) -> Overdue | None:
    """Return what is overdue of one schedule; None if every due time of it fired before, when the clock was ahead."""
    schedule = due.schedule
    try:
        rows = tuple(decider.fates(due))
    except InvalidSchedule:
        # Only its first due time is known here: that is in the store.
        first = schedule.next_at or schedule.cursor_at
        return _overdue(schedule, Fated(due_at=first, last_due_at=first, count=1, fate=Fate.OVERDUE), bounded=True)
    return _overdue(schedule, *rows) if rows else None


def _overdue(schedule: Schedule, *rows: Fated, bounded: bool = False) -> Overdue:
    return Overdue(
        schedule=schedule.name,
        schedule_id=schedule.id,
        organization=schedule.organization,
        due_at=min(row.due_at for row in rows),
        last_due_at=max(row.last_due_at for row in rows),
        count=sum(row.count for row in rows),
        bounded=bounded,
        dependent=bool(schedule.depends_on),
        rows=() if bounded else rows,
    )
