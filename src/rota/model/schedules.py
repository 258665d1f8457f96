"""Schedules as values: what may be said of one, checked, and what it means in words."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from rota.errors import InvalidSchedule
from rota.model.cron import read_cron
from rota.model.lattice import Bounds, Every, Lattice, Once, OnCron
from rota.model.values import SECOND, Instant, moment
from rota.model.zones import zone_of

YEAR = 366 * 86_400 * SECOND


class Kind(StrEnum):
    """What a schedule's due times follow."""

    CRON = "CRON"
    AT = "AT"
    EVERY = "EVERY"


class ScheduleState(StrEnum):
    """A paused schedule has due times and skips them; a disabled one has none."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"
    PAUSED = "PAUSED"


class CatchUp(StrEnum):
    """What becomes of due times that passed while nobody was there to fire them."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a due time while the job of an earlier one is not over."""

    ALLOW = "allow"
    QUEUE = "queue"
    SKIP = "skip"


class OnCompletion(StrEnum):
    """What becomes of an AT once it has fired."""

    PRESERVE = "PRESERVE"
    DROP = "DROP"


class Fate(StrEnum):
    """What became of a due time. Everything but FIRED did not run, and its row says why."""

    FIRED = "FIRED"
    COALESCED = "COALESCED"
    MISSED = "MISSED"
    SKIPPED_OVERLAP = "SKIPPED_OVERLAP"
    SKIPPED_PAUSED = "SKIPPED_PAUSED"
    SKIPPED_CALENDAR = "SKIPPED_CALENDAR"
    SKIPPED_DST_GAP = "SKIPPED_DST_GAP"
    SKIPPED_DEPENDENCY = "SKIPPED_DEPENDENCY"
    REFUSED = "REFUSED"
    OVERDUE = "OVERDUE"
    """Due, and no outcome is recorded: no worker has been there. Never stored: see `rota.engine.overdue`."""


class Timing(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The part of a schedule that says when: all that due times follow from. Stores read it as it is: see `Schedule`."""

    kind: Kind
    cron: str | None = None
    at: Instant | None = None
    interval: Instant | None = None
    timezone: str = "UTC"
    starts_at: Instant | None = None
    """For EVERY also the anchor; where none was given, the moment it was made."""
    ends_at: Instant | None = None


@lru_cache(maxsize=50_000)
def lattice_of(timing: Timing) -> Lattice:
    """Return the due times of a schedule."""
    if timing.kind is Kind.AT:
        return Once(timing.at or 0)
    if timing.kind is Kind.EVERY:
        return Every(timing.starts_at or 0, timing.interval or SECOND, timing.ends_at)
    return OnCron(read_cron(timing.cron or ""), zone_of(timing.timezone), Bounds(timing.starts_at, timing.ends_at))


def trouble_of(timing: Timing) -> str | None:
    """Say why the due times of a schedule can't be computed here; None: they can. Its row may be broken, or its time zone unknown here."""
    try:
        lattice_of(timing)
    except InvalidSchedule as error:
        return str(error)
    return None


@lru_cache(maxsize=100_000)
def next_due(timing: Timing, after: Instant) -> Instant | None:
    """Return the first real due time after a moment: schedules of one rule that are due together ask it once."""
    return lattice_of(timing).next(after)


@lru_cache(maxsize=100_000)
def next_look(timing: Timing, after: Instant) -> Instant | None:
    """Return when a schedule is to be looked at next: at its next due time, or before that at one that its zone's clock jumps over."""
    real = next_due(timing, after)
    if timing.kind is not Kind.CRON or timing.timezone == "UTC":
        return real
    until = real if real is not None else min(timing.ends_at or after, after + YEAR)
    return next(lattice_of(timing).gaps(after, until), real)


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """Days on which nothing is due, by a name that many schedules share. They are days of each schedule's own zone."""

    name: str
    days: frozenset[date]
    description: str | None = None


class JobKind(StrEnum):
    """What a job does: a registered handler, or one of the three bodies that SQL can give it."""

    PYTHON = "python"
    SQL = "sql"
    PROCEDURE = "procedure"
    EXTERNAL = "external"


IN_WORDS = {JobKind.PYTHON: "Python", JobKind.SQL: "SQL", JobKind.PROCEDURE: "a procedure", JobKind.EXTERNAL: "a command"}
"""How messages say which kind something is."""


class OwnTemplate(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The template of a job that SQL has created: it belongs to one schedule and has its name. See `Schedule` for the order."""

    id: str
    kind: JobKind
    job_type: str
    """Of its jobs, and so the lane they wait in: the handler of a procedure, or a type that all jobs of its kind share."""
    defaults: dict[str, Any]
    """As `rota.model.templates.Spec` has them: retries, backoff and timeout."""
    version: int = 1
    body: str | None = None
    job_class: str | None = None
    partition_strategy: str | None = None
    partition_shard: str | None = None
    partition_expression: str | None = None


class TemplateVersion(msgspec.Struct, frozen=True):
    """What a job that SQL has created was, in one of its versions: runs name the one they were made of."""

    version: int
    kind: JobKind
    job_type: str
    body: str | None
    defaults: dict[str, Any]
    created_by: str
    created_at: datetime | None


class Schedule(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """When a template becomes jobs. As an array, in this order, a store decodes thousands of them that are due at once."""

    id: str
    name: str
    organization: str
    template: str
    timing: Timing
    state: ScheduleState = ScheduleState.ENABLED
    description: str | None = None
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    priority: int | None = None
    catch_up: CatchUp = CatchUp.LAST
    catch_up_lateness: Instant | None = None
    catch_up_count: int | None = None
    overlap: Overlap = Overlap.SKIP
    jitter: Instant = 0
    calendar: str | None = None
    on_completion: OnCompletion = OnCompletion.PRESERVE
    depends_on: tuple[str, ...] = ()
    run_as: str | None = None
    cursor_at: Instant = 0
    """Up to here every due time has its fate."""
    next_at: Instant | None = None
    last_at: Instant | None = None
    declared: dict[str, Any] | None = None
    """What the code said of it last, where it is the code's: see `rota.schedule_edits`."""
    version: int = 1
    created_by: str = "system"
    own: OwnTemplate | None = None
    """The template that is this schedule's alone; None: it shares the one that `template` names."""
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def job_type(self) -> str:
        """The type of its jobs, which has their handler: its template, or what the template of its own names."""
        return self.template if self.own is None else self.own.job_type


def comes_into_use(before: Schedule | None, after: Schedule) -> bool:
    """Say whether this change brings a schedule into use on its template: made, enabled, or moved to another one."""
    if after.state is ScheduleState.DISABLED:
        return False
    if before is None or before.state is ScheduleState.DISABLED or before.template != after.template:
        return True
    return after.state is ScheduleState.ENABLED and before.state is not ScheduleState.ENABLED


def check(schedule: Schedule) -> None:
    """Refuse what can't be, naming the field, the value and what is allowed."""
    timing = schedule.timing
    if timing.ends_at is not None and timing.starts_at is not None and timing.ends_at < timing.starts_at:
        ends, starts = (f"{moment(at):%Y-%m-%dT%H:%M:%SZ}" for at in (timing.ends_at, timing.starts_at))
        raise InvalidSchedule(f"ends={ends} is before {starts}, from when on it would be due: give a later ends, or none")
    if timing.kind is Kind.EVERY and (timing.interval is None or timing.interval < SECOND):
        raise InvalidSchedule(f"every={(timing.interval or 0) / SECOND:g} s is not allowed: give at least 1 second")
    if schedule.name in schedule.depends_on:
        raise InvalidSchedule(f"depends_on={schedule.name!r}: a schedule can't depend on itself")
    if schedule.catch_up is CatchUp.ALL and schedule.overlap is Overlap.SKIP:
        raise InvalidSchedule('catch_up="all" with overlap="skip" would skip what it catches up: give overlap="queue" or "allow"')
    lattice_of(timing)
