"""A desk that keeps time: makes schedules through the port alone and decides as simply as the contract allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rota.model.definitions import Template
from rota.model.fates import plan, previous_due
from rota.model.schedules import Fate, Kind, OnCompletion, Schedule, ScheduleState, Timing
from rota.model.values import SECOND, Instant, Origin
from rota.ports.schedules import Awaited, DueJob, DueSchedule, Fired, Firing, Ledger, Occurrence
from tests.stores.desk import ANNA, Desk, inside

GRACE = 60 * SECOND
WAIT = 3600 * SECOND
"""How long the last due time of a schedule waits for others."""


class Decision:
    """What a store is given to decide with for one call."""

    def __init__(self, desk: Timekeeper, decide: Callable[[DueSchedule], Firing]) -> None:
        self._desk = desk
        self._decide = decide
        self._before = len(desk.decided)

    def begin(self) -> None:
        del self._desk.decided[self._before :]

    def __call__(self, due: DueSchedule, /) -> Firing:
        return self._decide(due)


class Timekeeper(Desk):
    """Fires every due time that `plan` lets fire: no overlaps, no limits, no rights. Those are the engine's business."""

    def __init__(self, store) -> None:
        super().__init__(store)
        self.decided: list[DueSchedule] = []
        self.template()

    # ---- making ---------------------------------------------------------------------------------------------

    def template(self, name: str = "t") -> None:
        new = Template(id=self.id(), name=name, job_type=name, state="ENABLED", version=0, defaults={})
        self.store.put_templates([new], actor=ANNA, now=self.now)

    def schedule(self, name: str = "s", *, at_once: bool = True, **fields: Any) -> Schedule:
        """Return a schedule as it stands after it was added; every minute unless told otherwise."""
        timing = {field: fields.pop(field) for field in Timing.__struct_fields__ if field in fields}
        if not timing.keys() & {"cron", "at", "interval"}:
            timing["interval"] = 60 * SECOND
        kind = Kind.CRON if "cron" in timing else Kind.AT if "at" in timing else Kind.EVERY
        if kind is Kind.EVERY:
            timing.setdefault("starts_at", self.now)
        values = {"id": self.id(), "organization": "default", "template": "t", "cursor_at": self.now, "created_by": "anna"}
        new = Schedule(name=name, timing=Timing(kind=kind, **timing), **(values | fields))
        return self.store.add_schedule(new, actor=ANNA, now=self.now) if at_once else new

    def change(self, schedule_id: str, *, definitions: int | None = None, **fields: Any) -> Schedule:
        def change(schedule: Schedule) -> Schedule:
            return msgspec.structs.replace(schedule, **fields)

        return self.store.change_schedule(schedule_id, change, self.decide, actor=ANNA, now=self.now, definitions=definitions)

    def drop(self, schedule_id: str) -> None:
        self.store.drop_schedule(schedule_id, self.decide, actor=ANNA, now=self.now)

    # ---- firing ---------------------------------------------------------------------------------------------

    @property
    def decide(self) -> Decision:
        """Decide as the engine does, without what the engine adds; `decided` is what was decided in the end."""
        return Decision(self, self._decide)

    def _decide(self, due: DueSchedule) -> Firing:
        self.decided.append(due)
        schedule = due.schedule
        planned = plan(schedule, self.now, calendar=due.calendar, already=frozenset(due.already))
        over = schedule.timing.kind is Kind.AT and planned.next_at is None and bool(planned.rows)
        keep = schedule.on_completion is OnCompletion.PRESERVE
        return Firing(
            rows=list(planned.rows),
            jobs=[self.due_job(schedule, at, planned.next_at) for at in planned.fired],
            cursor_at=planned.cursor_at,
            next_at=planned.next_at,
            last_at=max(planned.fired, default=None),
            state=ScheduleState.DISABLED if over and keep else None,
            drop=over and not keep,
        )

    def due_job(self, schedule: Schedule, due_at: Instant, next_at: Instant | None) -> DueJob:
        fields = {"schedule_id": schedule.id, "due_at": due_at, "origin": Origin.SCHEDULE, "organization_id": schedule.organization}
        job = DueJob(row=self.row(schedule.template, owner=schedule.created_by, **fields))
        if schedule.depends_on:
            before = previous_due(schedule, due_at)
            job.awaits = tuple(Awaited(name, before, due_at) for name in schedule.depends_on)
            job.give_up_at = next_at or self.now + WAIT
        return job

    def fire(self, decide=None, *, limit: int = 1000, definitions: int | None = None) -> Fired:
        decide = self.decide if decide is None else Decision(self, decide)
        return self.store.fire(decide, now=self.now, limit=limit, ahead=self.now + GRACE, definitions=definitions)

    def pass_time(self, seconds: float, **options: Any) -> Fired:
        self.advance(seconds)
        return self.fire(**options)

    # ---- looking --------------------------------------------------------------------------------------------

    def rows(self, schedule_id: str | None = None, **filters: Any) -> list[Occurrence]:
        """Return the ledger, oldest first."""
        return self.store.occurrences(Ledger(schedule_id=schedule_id, **filters), limit=100_000)[::-1]

    def fates(self, schedule_id: str | None = None) -> list[tuple[Fate, int]]:
        return [(row.fate, row.count) for row in self.rows(schedule_id)]

    def read(self, schedule_id: str) -> Schedule:
        found = self.store.schedule(schedule_id)
        assert found is not None
        return found

    def job_of(self, row: Occurrence) -> str:
        assert row.job_id is not None
        return inside(row.job_id)
