"""The trigger: gives due times their fates, one bounded batch at a time. Every worker has one; the store lets one of them win."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TypeAlias

import msgspec

from rota.engine.due import DueRows
from rota.engine.registry import Registry
from rota.errors import InvalidInput, InvalidSchedule, PermissionDenied, Refused, StoreBusy, StoreUnavailable
from rota.hooks import NotRun
from rota.model.fates import Fated, Plan, plan, previous_due
from rota.model.local_time import length_text, written
from rota.model.schedules import CatchUp, Fate, Kind, OnCompletion, Overlap, Schedule, ScheduleState, next_due
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import SECOND, Instant, dashed, instant, moment_of, undashed
from rota.ports.clock import Clock, Ids, zone_rules
from rota.ports.schedules import Awaited, Beat, DueJob, DueSchedule, Firing
from rota.ports.store import DefinitionsChanged, Store

log = logging.getLogger("rota.trigger")

QUIET = frozenset({Fate.FIRED, Fate.COALESCED, Fate.SKIPPED_PAUSED, Fate.SKIPPED_CALENDAR})
"""Fates that somebody asked for, or that ran after all: no cause for alarm."""
LATER = "a later due time stands for it"
LOOK_S = 0.2
"""How often a worker that hears of no change still asks when schedules are due."""
UNREADABLE_S = 60
"""When to look again at a schedule that can't be read, such as one whose time zone this machine does not know."""
REASON_MAX = 1000
"""A refusal's reason is cut here: it may repeat a name that is as long as params may be."""
SURPRISE_S = 1.0
"""Pause after an error nobody expected: jobs go on meanwhile."""


Alert: TypeAlias = Callable[[NotRun], object]


class Decider:
    """Decides what becomes of due times at one moment. Handed to the store, which calls it inside its transaction."""

    def __init__(self, rows: DueRows, settings: Settings, now: Instant) -> None:
        """Take what decisions rest on."""
        self._rows = rows
        self._settings = settings
        self._now = now
        self._grace = round(settings.schedule_grace * SECOND)
        spacing_s = settings.catch_up_spacing_s
        self._spacing = None if spacing_s is None else math.ceil(spacing_s * SECOND)
        self._plans: dict[tuple[object, ...], Plan] = {}
        self.begin()

    def begin(self) -> None:
        """Forget what was decided so far."""
        self._rows.begin()
        self._spread_until: Instant = 0
        self.decided: list[tuple[Schedule, Sequence[Fated]]] = []
        self.unreadable = False
        """A schedule could not be read, and was left alone."""

    def __call__(self, each: DueSchedule) -> Firing:
        """Decide for one schedule."""
        schedule = each.schedule
        try:
            planned = self._plan(each)
        except InvalidSchedule as error:
            # Nothing of it is lost: its cursor stays. The others must not wait for it.
            self.unreadable = True
            log.error("schedule %s cannot be read; retrying in a minute: %s", schedule.name, error)  # noqa: TRY400 - it says all
            return Firing(rows=[], jobs=[], cursor_at=schedule.cursor_at, next_at=self._now + UNREADABLE_S * SECOND)
        rows, jobs = self._settle(each, planned)
        if len(rows) > len(jobs):
            self.decided.append((schedule, rows))
        firing = Firing(
            rows=rows,
            jobs=jobs,
            cursor_at=planned.cursor_at,
            next_at=planned.next_at,
            last_at=jobs[-1].row.due_at if jobs else None,
        )
        if rows and schedule.timing.kind is Kind.AT and schedule.own is None:
            # It is over. A job that SQL has created is over when its chain is: see `complete` in the store.
            firing.drop = schedule.on_completion is OnCompletion.DROP
            firing.state = None if firing.drop else ScheduleState.DISABLED
        return firing

    def fates(self, each: DueSchedule) -> list[Fated]:
        """Return the rows that a call would write for one schedule. Raise InvalidSchedule if it can't be read here."""
        return self._settle(each, self._plan(each))[0]

    def _plan(self, each: DueSchedule) -> Plan:
        """Plan for one schedule; those that are alike in all that a plan rests on have one plan."""
        schedule = each.schedule
        if each.calendar is not None or each.already:
            return self._plan_alone(each)
        key = (
            schedule.timing,
            schedule.cursor_at,
            schedule.state,
            schedule.catch_up,
            schedule.catch_up_lateness,
            schedule.catch_up_count,
        )
        planned = self._plans.get(key)
        if planned is None:
            planned = self._plans[key] = self._plan_alone(each)
        return planned

    def _plan_alone(self, each: DueSchedule) -> Plan:
        return plan(
            each.schedule,
            self._now,
            calendar=each.calendar,
            grace=self._grace,
            count_max=self._settings.catch_up_max,
            already=frozenset(each.already),
        )

    def _settle(self, each: DueSchedule, planned: Plan) -> tuple[list[Fated], list[DueJob]]:
        """Turn planned firings into jobs, or into what stands in their way."""
        if not planned.rows:
            return [], []
        rows: list[Fated] = []
        jobs: list[DueJob] = []
        before = each.live
        for row in planned.rows:
            if row.fate is not Fate.FIRED:
                rows.append(row)
                continue
            place = self._place(each, row.due_at)
            # A schedule that is due again before a late firing may run: that one is in time, and must not wait for it.
            if place is not None and each.schedule.catch_up is CatchUp.LAST and planned.next_at is not None and planned.next_at <= place:
                rows.append(_instead(row, Fate.COALESCED, f"{LATER}, before catch_up_rate has room for it"))
                continue
            if before and each.schedule.overlap is Overlap.SKIP:
                rows.append(_instead(row, Fate.SKIPPED_OVERLAP, f"job {dashed(before[-1])} of an earlier due time is not over"))
                continue
            try:
                job = self._job(each, row.due_at)
            except (InvalidInput, PermissionDenied, Refused) as error:
                rows.append(_instead(row, Fate.REFUSED, str(error)[:REASON_MAX]))
                continue
            if place is not None:
                self._spread(job, place)
            if each.schedule.overlap is Overlap.QUEUE or jobs:
                # Several at once are caught up: one after the other, whatever else is allowed.
                job.behind = before
            before = (job.row.job_id,)
            rows.append(row if job.reason is None else _instead(row, Fate.FIRED, job.reason))
            jobs.append(job)
        return rows, jobs

    def _place(self, each: DueSchedule, due_at: Instant) -> Instant | None:
        """Return when a late firing may run so that it keeps apart from others; None for one that is in time, or need not."""
        if self._spacing is None or self._now - due_at <= self._grace:
            return None
        self._spread_until = max(self._spread_until, each.spread_until)
        return max(self._now, self._spread_until + self._spacing) if self._spread_until else self._now

    def _spread(self, job: DueJob, place: Instant) -> None:
        """Let a late firing run at its place."""
        row = job.row
        if place > row.run_at:
            row.expires_at = None if row.expires_at is None else row.expires_at + place - row.run_at
            row.run_at = place
        self._spread_until = job.spread_to = place
        late_s = (self._now - (row.due_at or 0)) // SECOND
        job.reason = f"{length_text(late_s)} late; catch_up_rate lets it run at {written(moment_of(place))}"

    def _job(self, each: DueSchedule, due_at: Instant) -> DueJob:
        schedule = each.schedule
        job = DueJob(row=self._rows.row(each, due_at, self._now))
        if schedule.depends_on:
            after = previous_due(schedule, due_at)
            job.awaits = tuple(Awaited(name, after, due_at) for name in schedule.depends_on)
            job.give_up_at = next_due(schedule.timing, self._now) or self._now + round(self._settings.dependency_wait * SECOND)
        return job


class Trigger:
    """Fires what is due. Belongs to one thread."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        clock: Clock,
        ids: Ids,
        rng: Random,
        settings: Settings,
        alerts: Iterable[Alert] = (),
    ) -> None:
        """Take what it fires with."""
        self._store = store
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._alerts = alerts
        self._rows = DueRows(registry, ids, rng)
        self._grace = round(settings.schedule_grace * SECOND)
        self._zones: int | None = None
        """The rules of time zones that due times in the store were worked out by, as far as this process has seen to it."""
        self._beat = Beat()
        self._looked: float | None = None
        self._off = False
        """Schedules are not to fire, as of the last time that one was due."""
        self._resume = clock.monotonic()
        self.unreadable_until: Instant = 0
        """Until when a schedule that can't be read on this machine is left alone."""

    @property
    def next_at(self) -> Instant | None:
        """Return when something is due, as last seen; None also while it pauses after trouble."""
        return None if self._off or self._clock.monotonic() < self._resume else self._beat.next_at

    def look(self) -> None:
        """Ask the store when something is due."""
        self._looked = self._clock.monotonic()
        self._beat = self._store.beat_of_schedules()

    def tick(self) -> bool:
        """Give due times their fate, a batch at most, if any are due; say whether more are due, or jobs were made."""
        if self._zones is None:
            self._zones = zone_rules()
            self._store.follow_zones(self._zones)
        if self._looked is None or self._clock.monotonic() - self._looked >= LOOK_S:
            self.look()
        now, beat = self._clock.now(), self._beat
        due = beat.next_at is not None and beat.next_at <= now
        if not due and (beat.furthest is None or beat.furthest <= now + self._grace):
            return False
        if self._clock.monotonic() < self._resume or self._is_off(now):
            return False
        try:
            self.fire(now)
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception:
            log.exception("schedules could not be fired; retrying. Jobs are not affected")
            self._resume = self._clock.monotonic() + SURPRISE_S
            return False
        self.look()
        return True

    def _is_off(self, now: Instant) -> bool:
        """Say whether schedules are not to fire: what is due stays due, and each turn asks again."""
        self._registry.sync(self._store, now)
        self._off = self._registry.settings.schedules == "off"
        return self._off

    def fire(self, now: Instant) -> None:
        """Fire one batch."""
        while True:
            self._registry.sync(self._store, now)
            decider = self.decider(now)
            try:
                fired = self._store.fire(
                    decider,
                    now=now,
                    limit=self._settings.schedule_batch,
                    ahead=now + self._grace,
                    definitions=self._registry.version,
                )
            except DefinitionsChanged:
                continue
            if decider.unreadable:
                # Twice the pause: another worker that can't read it either may take the next turn.
                self.unreadable_until = now + 2 * UNREADABLE_S * SECOND
            for settled in fired.settled:
                self.tell(settled.schedule, settled.rows)
            return

    def decider(self, now: Instant) -> Decider:
        """Return what decides at this moment."""
        return Decider(self._rows, self._settings, now)

    def tell(self, schedule: Schedule, rows: Iterable[Fated]) -> None:
        """Tell those who want to know of due times that did not run."""
        for row in rows:
            if row.fate not in QUIET:
                self._alert(schedule, row)

    def tell_dead(self, job_ids: Iterable[str]) -> None:
        """Tell of due times that fired and whose jobs ended in vain, by the ids of their last attempts; other jobs are passed over."""
        for job_id in job_ids:
            job = self._store.job(job_id)
            if job is None or job.status is not Status.DEAD_LETTER or job.schedule_id is None or job.due_at is None:
                continue
            schedule = self._store.schedule(undashed(job.schedule_id) or "")
            if schedule is not None:
                at, reason = instant(job.due_at), f"its job {job.number} is in the dead letters"
                row = Fated(due_at=at, last_due_at=at, count=1, fate=Fate.FIRED, reason=reason)
                self._alert(schedule, row, job.id)

    def _alert(self, schedule: Schedule, row: Fated, job_id: str | None = None) -> None:
        """Write a warning and call every hook; one that fails keeps nobody else from hearing."""
        log.warning("schedule %s did not run (%d due): %s, %s", schedule.name, row.count, row.fate, row.reason)
        news = NotRun(
            schedule=schedule.name,
            organization=schedule.organization,
            due_at=moment_of(row.due_at),
            last_due_at=moment_of(row.last_due_at),
            count=row.count,
            fate=row.fate,
            reason=row.reason,
            job_id=job_id,
        )
        for hook in tuple(self._alerts):
            try:
                hook(news)
            except Exception:
                log.exception("an alert hook failed")


def _instead(row: Fated, fate: Fate, reason: str | None) -> Fated:
    return msgspec.structs.replace(row, fate=fate, reason=reason)
