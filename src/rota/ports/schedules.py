"""What the engine asks a store to do for schedules: part of the store's contract, beside `rota.ports.store`.

A store decides nothing here either. It reads what a decision rests on, calls `decide`, and writes what came back, all in one
transaction: no other scheduler, edit or job can come between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from rota.model.fates import Fated
from rota.model.gate import EVERYTHING, Actor, Scope
from rota.model.kinds import JobWork
from rota.model.schedules import Calendar, Fate, Schedule, ScheduleState, TemplateVersion
from rota.model.states import Status
from rota.model.values import Instant, NewRow, Purged


class DueSchedule(msgspec.Struct, kw_only=True, gc=False):
    """A schedule whose time has come, and what its fate depends on."""

    schedule: Schedule
    """Without its dates, its description and what was declared."""
    live: tuple[str, ...] = ()
    """Roots of its chains that have not ended, but for those that another of them waits for in turn: who waits for these waits for all."""
    already: tuple[Instant, ...] = ()
    """Due times after its cursor that fired when the clock was ahead."""
    calendar: Calendar | None = None
    room: int | None = None
    """How many more jobs its organization may queue, as of the beginning of the transaction; None: any number."""
    spread_until: Instant = 0
    """The latest moment that a late firing, of any schedule, was put off to so far."""


class Awaited(msgspec.Struct, frozen=True):
    """What a due time waits for: a run of another schedule of the same organization, inside a window."""

    schedule: str
    after: Instant
    until: Instant
    """The window (after, until]. Taken is the job of that schedule's latest due time in it or, where that did not fire, its latest
    chain that ended in it. COMPLETED satisfies at once, a live one is waited for. Otherwise (dead, or none) any chain of that
    schedule that completes later will do."""


class DueJob(msgspec.Struct, kw_only=True, gc=False):
    """One job that a due time becomes."""

    row: NewRow
    """With its schedule and due time."""
    behind: tuple[str, ...] = ()
    """Roots of the chains whose ends it waits for."""
    awaits: tuple[Awaited, ...] = ()
    give_up_at: Instant | None = None
    """If it still waits for another schedule then, it ends SKIPPED and its due time's fate is SKIPPED_DEPENDENCY."""
    spread_to: Instant | None = None
    """Of a late firing that keeps apart from others: its place among them. The next one's is after that."""
    reason: str | None = None
    """What the ledger says of it."""


class Firing(msgspec.Struct, kw_only=True, gc=False):
    """What is to be written for one schedule: fates, jobs and its new cursor, together or not at all."""

    rows: list[Fated]
    jobs: list[DueJob]
    """One for each FIRED row, in their order."""
    cursor_at: Instant
    next_at: Instant | None
    """When it is to be looked at next: see `rota.model.schedules.next_look`."""
    last_at: Instant | None = None
    state: ScheduleState | None = None
    """An AT that is over: DISABLED."""
    drop: bool = False
    """An AT that is over and is not to be kept."""


class Decide(Protocol):
    """Decides inside the store's transaction, each schedule once. It asks the store for nothing and changes nothing else."""

    def begin(self) -> None:
        """Forget what was decided so far: the transaction begins. It may have begun before, and have been undone."""

    def __call__(self, due: DueSchedule, /) -> Firing:
        """Decide for one schedule."""


Change: TypeAlias = Callable[[Schedule], Schedule]
"""From a schedule as it is to what it shall be. Pure, for it is called inside the transaction; it may refuse by raising."""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the ledger that were just written for one schedule."""

    schedule: Schedule
    rows: tuple[Fated, ...]


class Fired(msgspec.Struct, kw_only=True):
    """What came of a call of `fire`."""

    settled: list[Settled] = msgspec.field(default_factory=list)
    """Schedules some of whose due times did not fire; those given up for a dependency among them, as SKIPPED_DEPENDENCY."""
    unfinished: bool = False
    """The bound was met: more is due now."""


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """When schedules want to be looked at."""

    next_at: Instant | None = None
    """The earliest due time without a fate, or the earliest giving up."""
    furthest: Instant | None = None
    """The furthest moment up to which fates were given, or at which a job was put off or a message last tried.

    One far ahead of now shows that the clock was wrong and has come back.
    """


class Occurrence(msgspec.Struct, kw_only=True, frozen=True):
    """One row of the ledger, and how the chain of its job stands."""

    schedule: str
    schedule_id: str
    organization: str
    due_at: Instant
    last_due_at: Instant
    count: int
    fate: Fate
    reason: str | None = None
    job_id: str | None = None
    status: Status | None = None
    """Of the tail of its job's chain; None without a job, or once retention has removed it."""
    recorded_at: Instant = 0

    @property
    def ran(self) -> bool | None:
        """Say whether it ran to its end: None while its chain has not ended, or is no longer there to tell."""
        if self.fate is not Fate.FIRED:
            return False
        if self.status is None or not self.status.ended:
            return None
        return self.status is Status.COMPLETED


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of the ledger are asked for; None does not filter."""

    scope: Scope = EVERYTHING
    """Its owner is who made the schedule."""
    schedule_id: str | None = None
    organization: str | None = None
    fates: tuple[Fate, ...] = ()
    not_ran: bool = False
    """Fates other than FIRED, and FIRED whose chain ended otherwise than COMPLETED."""
    since: Instant | None = None
    until: Instant | None = None
    """Due times in [since, until); of a span, any of its own."""


LedgerCursor: TypeAlias = tuple[Instant, str, str]
"""Due time, schedule id and fate of a row: the next page goes on before it."""


class Schedules(Protocol):
    """The part of the store that keeps time."""

    def fire(self, decide: Decide, *, now: Instant, limit: int, ahead: Instant, definitions: int | None = None) -> Fired:
        """Give due times their fates, of at most `limit` schedules, as one transaction.

        First, if fates were given up to a moment beyond `ahead`, cursors beyond `now` are pulled back to it: fates of times that
        have not come after all are taken back, but what FIRED stays (see `DueSchedule.already`). Then jobs end that waited for
        another schedule until they were to be given up. Then each schedule whose next due time has come is decided and written;
        one that depends on others comes after them.
        Raise DefinitionsChanged, writing nothing, if `definitions` is given and is not the version in force.
        """

    def beat_of_schedules(self) -> Beat:
        """Return when `fire` is worth a call, without a walk over schedules."""

    def due_schedules(self, *, until: Instant, limit: int, scope: Scope = EVERYTHING, schedule_id: str | None = None) -> list[DueSchedule]:
        """Return the schedules that `fire` would take up at a moment, in its order, at most `limit`. Nothing is written.

        Of the scope only the organization counts: what one owner's due times become may depend on those of the others.
        """

    def follow_zones(self, rules: int) -> int:
        """Work out anew when schedules in zones other than UTC are due next, if that was done by other rules; return how many.

        `rules` is a number for the rules of time zones that this machine has: they change several times a year.
        """

    def add_schedule(self, schedule: Schedule, *, actor: Actor, now: Instant) -> Schedule:
        """Add a schedule, with its cursor and next due time as given, and with it the template that is its own, if it has one. Audited.

        Raise ScheduleExists, for one with its own template also if a template has its name; UnknownTemplate; TemplateUnavailable if it
        comes into use on a template that is not enabled (see `comes_into_use`); InvalidSchedule for a calendar or a dependency that is
        not there, DependencyCycle naming the path.
        """

    def change_schedule(
        self, schedule_id: str, change: Change, decide: Decide, *, actor: Actor, now: Instant, definitions: int | None = None
    ) -> Schedule:
        """Close the ledger by the old definition up to now, then change it; both or neither. Audited. Raise as `add_schedule`, NotFound.

        What `change` returns must keep id and organization; if it has another name, schedules that depend on it follow.
        Cursor, next due time and version are the store's to write: the cursor becomes `now`, what is DISABLED has no next due time.
        A change that changes nothing writes nothing.
        """

    def replace_schedule(
        self, schedule_id: str, new: Schedule, decide: Decide, *, actor: Actor, now: Instant, definitions: int | None = None
    ) -> Schedule:
        """Close the ledger, remove the schedule as `drop_schedule` does, and add a new one of its name; all or nothing. Audited as both.

        Schedules that depend on it depend on the new one. Raise as `add_schedule`, NotFound.
        """

    def drop_schedule(
        self,
        schedule_id: str,
        decide: Decide,
        *,
        actor: Actor,
        now: Instant,
        definitions: int | None = None,
        version: int | None = None,
    ) -> None:
        """Close the ledger, then remove the schedule from sight: its name is free, its jobs and its ledger stay. Audited.

        Raise NotFound; StillNeeded naming schedules that depend on it; ChangedMeanwhile if a `version` is given and is not its own.
        """

    def drop_job(
        self,
        schedule_id: str,
        decide: Decide,
        *,
        actor: Actor,
        now: Instant,
        definitions: int | None = None,
        keep_history: bool = False,
    ) -> int:
        """Drop a schedule as `drop_schedule` does, and cancel its chains that have not ended; return how many. All or nothing.

        Unless the history is kept, its chains are removed as they end: see `purge_dropped`.
        """

    def purge_dropped(self, *, limit: int) -> Purged:
        """Remove ended chains of jobs that were dropped with their history, about `limit` jobs; none: there are no more for now."""

    def live_chains(self, schedule_id: str) -> list[str]:
        """Return the chains of a schedule that have not ended, oldest first, by the ids of their first jobs."""

    def template_version(self, template_id: str, version: int) -> TemplateVersion | None:
        """Return what a job that SQL has created was in one of its versions; None once no run names it."""

    def work_of(self, job: int | str) -> JobWork | None:
        """Return what a job does, as it was defined when the job was enqueued; None for one without a template.

        It is named by its number in the store, or a chain that has not ended by the id of any of its jobs.
        """

    def schedules(
        self, *, scope: Scope = EVERYTHING, name: str | None = None, template: str | None = None, dropped: bool = False
    ) -> list[Schedule]:
        """Return schedules by organization and name, oldest first; the scope's owner is who made them. With `dropped`: only those."""

    def schedule(self, schedule_id: str) -> Schedule | None:
        """Return one schedule by its id, also one that was dropped."""

    def occurrences(self, ledger: Ledger, /, *, limit: int, before: LedgerCursor | None = None) -> list[Occurrence]:
        """Return rows of the ledger, latest due time first; `before` goes on after that row."""

    def awaited(self, job_id: str) -> list[str]:
        """Return the names of schedules any of whose chains this job waits for."""

    def put_calendar(self, calendar: Calendar, *, organization: str, actor: Actor, now: Instant) -> None:
        """Make a calendar or change its days. Audited.

        Schedules that use it are not closed first: days that have passed may be told by the new days.
        """

    def drop_calendar(self, name: str, *, organization: str, actor: Actor, now: Instant) -> None:
        """Remove a calendar. Audited. Raise NotFound; StillNeeded naming schedules that use it."""

    def calendars(self, *, organization: str | None = None) -> list[tuple[str, Calendar]]:
        """Return calendars with their organizations, by name."""


def cursor_of(occurrence: Occurrence) -> LedgerCursor:
    """Return the place of a row in the ledger."""
    return occurrence.due_at, occurrence.schedule_id, occurrence.fate
