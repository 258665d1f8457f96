"""The store: verbs in batches, each a whole. The contract that every adapter keeps and one suite tests.

Rules for every verb:

- *Now comes in.* A store reads no clock, makes no ids, draws no lots and decides no policy.
- *A move is atomic*: a job, its run, its successor, its key, the edges it resolves, its group's rule. A batch of moves is
  written in one transaction where the store can, but callers must not rely on more than moves being whole.
- *Repeating is harmless.* A reply can be lost after the write; the same call again changes nothing more and says the same.
- *Errors are ours* (`rota.errors`), the driver's as the cause. `StoreBusy` and `StoreUnavailable` mean: nothing was written; only of
  `AnswerLost`, one of the latter, nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from rota.model.audit import AuditRuns
from rota.model.decide import Transition
from rota.model.dependencies import Graph
from rota.model.figures import Stats
from rota.model.findings import Finding
from rota.model.gate import EVERYTHING, Actor, Right, Scope
from rota.model.groups import Group, Mode, OnFailure
from rota.model.states import Status
from rota.model.values import (
    Audited,
    Claimed,
    Enqueued,
    Instant,
    Job,
    LogEntry,
    NewRow,
    PurgeCursor,
    Purged,
    ResultsPage,
    Run,
    WorkerInfo,
    WorkerProcess,
)
from rota.ports.definitions import Access, Definitions
from rota.ports.events import Watching
from rota.ports.hooks import Hooks
from rota.ports.overseeing import Overseeing
from rota.ports.places import Place
from rota.ports.run_logs import RunLogs
from rota.ports.scan import Scans
from rota.ports.schedules import Schedules
from rota.ports.secrets import Secrets
from rota.ports.turns import Counting, Ending, Peek, Reservation, Turn, Turned, Usage

T = TypeVar("T")

Check: TypeAlias = Callable[[list[Job]], None]
"""A look at a chain, first to last, which raises if it is not what the caller has seen. Pure: it may be called again."""


class DefinitionsChanged(Exception):  # noqa: N818 - a signal to the caller, not an error of anybody
    """Templates, pauses or organizations have changed since the caller read them: read them anew and call again."""


class Past(msgspec.Struct, kw_only=True):
    """An attempt that another system made: when, after how many failures, and its end as `decide` would have it."""

    run_id: str
    started_at: Instant
    ended_at: Instant
    failures: int
    transition: Transition
    successor_id: str = ""
    left: str | None = None
    """Why the successor is not run here: it is SKIPPED at once, for this reason. None: it waits here."""
    log_path: str | None = None


class Adopted(msgspec.Struct, kw_only=True):
    """A job that another system has begun: the row it becomes here, when it was made there, what lies behind it."""

    row: NewRow
    created_at: Instant
    past: Past | None = None
    cancelled_at: Instant | None = None
    """When it was cancelled there, before an attempt."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for lists; None does not filter. `scope` is the gate's word and always applies."""

    scope: Scope = EVERYTHING
    status: tuple[str, ...] = ()
    job_type: str | None = None
    queue: str | None = None
    tag: str | None = None
    organization: str | None = None
    owner: str | None = None
    group_id: str | None = None
    root_id: str | None = None
    schedule_id: str | None = None
    text: str | None = None
    named: str | None = None
    """The root of the chain that `text` names; its jobs match as if they contained the text."""
    error_type: str | None = None
    created_from: Instant | None = None
    created_until: Instant | None = None
    tails: bool = False
    """Only the last job of each chain: a dead letter that was retried is none any more."""


class NewGroup(msgspec.Struct, kw_only=True):
    """A group to be made: its id, rules and members, new rows or ids of jobs that wait already, in order."""

    group_id: str
    name: str | None
    mode: Mode
    on_failure: OnFailure
    members: list[NewRow | str]
    organization_id: str = "default"
    then: NewRow | None = None
    """What is queued when all members have ended; without members, at once."""


class Held(msgspec.Struct, frozen=True):
    """A RUNNING job of a worker that is gone, and what there is of its run."""

    job: Claimed
    run_missing: bool
    run_ended: str | None
    """The status of a run that ended although its job did not."""


class Tail(msgspec.Struct, frozen=True):
    """The last job of a chain, as it is now."""

    job_id: str
    number: str
    status: Status
    run: Run | None = None
    """Its run, if the job has finished and ever started."""


class Store(Definitions, Schedules, Access, Secrets, Overseeing, Watching, Hooks, Scans, RunLogs, Protocol):
    """The durable half of Rota. Other parts are in `rota.ports`: `schedules`, `definitions`, `secrets`, `events` and others."""

    url: str
    beside: bool
    """Its work is done elsewhere: several turns may be under way at once, and this process has its hands free meanwhile."""

    # ---- life ---------------------------------------------------------------------------------------------

    def migrate(self, *, now: Instant) -> None:
        """Bring the schema up to date; do nothing if it is. Raise StoreUnusable if it is newer than this code."""

    def close(self) -> None:
        """Let go of every connection. Closing twice is harmless."""

    def checkup(self, *, now: Instant, machine: Callable[[], Instant], full: bool) -> list[Finding]:
        """Look at the store itself (its file or server, its schema, its settings, its clock) and return what was found.

        Changes nothing, and raises nothing for what it can't look at: that is a finding too. `machine` reads this machine's own clock,
        to be compared with the store's. `full`: also what takes long.
        """

    def fix(self, *, now: Instant) -> list[Finding]:
        """Repair what `checkup` names and what can be repaired without a guess; return what was done, one finding each.

        Nothing that somebody could still want is deleted. Called a second time it finds nothing left to do.
        """

    def changed(self) -> bool:
        """Say, cheaply, whether another connection or process may have committed since the last call."""

    def transacting(self) -> bool:
        """Say whether the calling thread is inside a transaction it opened with `transaction`."""

    def crowd(self, *, crowded: bool) -> None:
        """Hint whether other processes write too: a store with one write lock then leaves gaps for them."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Open the caller's own transaction, committed at the end of the block, undone on an exception.

        What it yields has `execute` for the caller's own statements and `savepoint()`, a block that is undone by itself; a store without
        savepoints undoes the whole transaction if jobs were added in such a block, and refuses to use or commit it after that.
        """

    def join(self, transaction: Any) -> Any:
        """Return a handle on the caller's own transaction that `transaction=` takes.

        What `transaction` yielded will do, what this returned, and whatever else the store can take part in. An asynchronous
        one is joined on its event loop and used on a thread. Raise TransactionMisuse for what is none of these. The handle has
        `savepoint()`, and `stop()` for those who can't wait any more: a statement that may take long is broken off, if one is.
        """

    def together(self, work: Callable[[Store], T]) -> T:
        """Do several verbs in one transaction, which nobody else writes beside, and return what the work returns.

        The work is given a store whose verbs see what those before them have written. All of it is undone if the work raises. It may be
        called more than once: it changes nothing outside of the store that it is given. That one is open for the call alone, and has
        neither snapshots nor transactions of its own.
        """

    # ---- the queue ----------------------------------------------------------------------------------------

    def enqueue(
        self,
        rows: Sequence[NewRow],
        *,
        now: Instant,
        definitions: int | None = None,
        transaction: Any = None,
        place: Place | None = None,
    ) -> list[Enqueued]:
        """Add jobs, all or none. `run_at <= now` and no `after`: QUEUED, last of its priority; otherwise PENDING.

        A row whose unique key is held by a live chain is not added: its holder comes back with `existing`. So does a
        row whose job_id is there already. `after` names the root of a chain that must end first. `depends_on` names jobs
        of the same organization, or earlier rows of this call, whose chains must complete first; where they have, the job
        is QUEUED at once; where one has ended otherwise, `on_parent_failure` applies at once.
        Raise DefinitionsChanged, writing nothing, if `definitions` is given and is not the version in force;
        UnknownParent; DependencyCycle for a job that would wait for itself; DuplicateJob inside the dedup window, naming
        the job; RateLimited beyond the submit limit, saying when to try again; QueueFull beyond max_queued.
        `place`, where `side_by_side` allows it: the rows come behind what it says at least, and it is told where they will stand as
        soon as that is certain, before they are written.
        """

    def fire_now(self, row: NewRow, name: str, *, actor: Actor, now: Instant, definitions: int | None = None) -> Enqueued:
        """Add the job of a schedule, of this name, that a person has fired. Audited. Raise as `enqueue` does."""

    def pour(self, rows: Sequence[NewRow], *, now: Instant, definitions: int, place: Place) -> bool:
        """Add jobs that `side_by_side` allows, all or none, as `enqueue` does, but tell nothing of each, which costs less.

        False: nothing was written, and something needs the look at each that `enqueue` takes.
        """

    def side_by_side(self, rows: Sequence[NewRow], *, now: Instant) -> bool:
        """Say whether rows may be written while others of the same caller are, and sooner for it: `place` keeps their order then."""

    def adopt(self, jobs: Sequence[Adopted], *, adopter_id: str, actor: Actor, now: Instant) -> list[Enqueued]:
        """Take in jobs that another system has begun, all or none. Audited.

        Each is enqueued as of its own `created_at`. One with a `past` then goes, in the same move, the whole legal way: it is
        started (by `adopter_id`, which is no worker) and ended as the past says, with its successor if there is one (never
        `in_place`: it had no place here). If the past is `left` to the other system, that successor is SKIPPED. One whose id is here
        already comes back with `existing`, unchanged; so does one whose key a live chain holds, naming the holder, unless its own chain
        has ended: that one gives up the key.
        """

    def turn(self, turn: Turn) -> Turned:
        """Make one turn, as one transaction. See `Turn`. An ending written before by the same worker changes nothing."""

    def peek(self, *, types: tuple[str, ...], worker_id: str, lanes: Collection[int] | None = None) -> Peek:
        """Look whether there is anything to do, without writing. `lanes` as in `Turn`: None means every lane of these types."""

    def old_in_lanes(self, lanes: Collection[int], *, before: Instant, limit: int) -> list[int]:
        """Return the numbers of ready jobs in these lanes, of those at their front, that were queued at a moment or before."""

    def holding(self, worker_id: str) -> list[Claimed]:
        """Return what this worker holds: how a claim whose reply was lost is found again."""

    def cancel(self, job_id: str, *, actor: Actor, now: Instant, reason: str | None = None, check: Check | None = None) -> Job:
        """Cancel the chain of this job: waiting ends CANCELLED at once; RUNNING is asked to stop. Again: nothing more.

        Raise AlreadyEnded, naming the end, if the chain has ended otherwise. `check` is given the chain, first to last, in the
        transaction of the cancel: what it raises is raised, and nothing is written. The same goes for `change` and `move`.
        """

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
        """Change a waiting job. A new priority gives a new last position. `run_at` needs PENDING; `put_off`: it counts from now. Audited.

        Raise IllegalMove ("Cannot modify params after dispatch" for params) from RUNNING on.
        """

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
        """Reorder a QUEUED job among its organization's own at its priority; renumber the fewest neighbours. Audited."""

    def retry(self, job_id: str, *, new_id: str, actor: Actor, now: Instant) -> Job:
        """Add a successor to the tail of an ended chain, with a fresh budget. Audited.

        Raise StillLive naming the live job, AlreadyEnded if it ended COMPLETED, KeyTaken naming the holder of its key.
        """

    def add_dependencies(self, job_id: str, parents: Sequence[str], *, on_failure: str, actor: Actor, now: Instant) -> Job:
        """Let a PENDING job wait for more chains of its organization. Those it waits for already change nothing. Audited.

        Raise UnknownParent; DependencyCycle naming the path, over every kind of edge; IllegalMove once it is QUEUED.
        """

    def discard(self, job_id: str, *, actor: Actor, now: Instant) -> Purged:
        """Remove one ended chain with its runs, ahead of retention. Audited. Again: NotFound.

        Raise StillLive, or StillNeeded naming who needs it.
        """

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
        """Remove whole chains that ended before `before` and that nothing needs, at most `limit` jobs but one chain at least.

        Needed: by a child whose chain lives, by a group with a member that lives or ended since, by an undelivered outbox row,
        by an ACTIVE reservation. `cursor` goes on where the last call stopped; its own is None when there is nothing more.
        Also forgets what has no use any more: expired dedup entries, rate windows that have passed, workers and reservations
        that ended before `before`, figures of hours before `figures_before`, rows of the ledger whose due times are before `before`
        and whose jobs are gone (a schedule's newest stays), schedules that were dropped before it. With `dry_run`: only counts.
        """

    def retention_clock(self) -> Instant | None:
        """Return the last moment at which the clock was trusted to delete by age.

        Of a store in which it never was: when its newest job was made; None if it has no job.
        """

    def set_retention_clock(self, now: Instant) -> None:
        """Record that the clock is trusted at this moment, which may be before the one that was recorded."""

    # ---- groups -------------------------------------------------------------------------------------------

    def add_group(self, group: NewGroup, *, actor: Actor, now: Instant) -> Group:
        """Make a group of new rows and of waiting, ungrouped jobs. Sequential: each waits for the one before."""

    def cancel_group(self, group_id: str, *, actor: Actor, now: Instant) -> Group:
        """Cancel every member chain that has not ended."""

    def group(self, group_id: str) -> Group | None:
        """Return a group with its members' chain tails."""

    def groups(self, *, limit: int, scope: Scope = EVERYTHING) -> list[Group]:
        """Return the newest groups inside the scope (of its organization; its owner is who made the group)."""

    # ---- direct execution ---------------------------------------------------------------------------------

    def reserve(
        self, row: NewRow, *, reservation_id: str, reserved_by: str, worker_id: str, now: Instant, expires_at: Instant
    ) -> Reservation | None:
        """Make the direct job and its ACTIVE reservation together, or return None if another one is ACTIVE."""

    def reservation(self) -> Reservation | None:
        """Return the ACTIVE reservation."""

    def give_up(self, reservation_id: str, *, now: Instant, stop_running: bool) -> bool:
        """End the reservation EXPIRED. Its job, if it still waits, is CANCELLED; if it runs, it ends too if that is asked for.

        Return whether the job had started. Ended reservations stay as they are.
        """

    def give_up_waiting(self, reservation_id: str, *, now: Instant) -> bool:
        """Cancel the direct job if it has not started, and end its reservation EXPIRED. Return whether it was so."""

    # ---- workers and recovery -----------------------------------------------------------------------------

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
        process: WorkerProcess | None = None,
    ) -> None:
        """Record a worker incarnation, how many handlers it runs at once, and what it serves. Its lock is already held.

        `queues` None: all of them. `digests`: of the parameters of its handlers, by job type.
        """

    def beat(
        self, worker_id: str, *, job_types: Sequence[str], digests: Mapping[str, str] | None = None, memory: int | None = None
    ) -> bool:
        """Advance the worker's beat. False: it is recorded as ended, and nothing was changed. `digests` and `memory` None: as they were."""

    def stopping(self, worker_id: str, *, now: Instant) -> None:
        """Record that the worker began to shut down: what it loses from now on was interrupted, not crashed."""

    def end_worker(self, worker_id: str, *, now: Instant) -> None:
        """Record that the worker is gone. It must hold nothing."""

    def give_up_worker(self, worker_id: str, *, beat: int, now: Instant) -> bool:
        """Record that the worker is gone although it may hold something, if its beat is still this one. Return whether it was.

        From now on it claims nothing, whatever becomes of whoever called this: what it held is left to be ended by anybody.
        """

    def workers(self, *, live: bool = True) -> list[WorkerInfo]:
        """Return workers, by default those not recorded as ended, and those that were and still hold something."""

    def unregistered(self) -> list[tuple[str, int]]:
        """Return the ids of workers that are not on record, and how many RUNNING jobs each holds; "" for jobs that name no worker."""

    def held_by(self, worker_id: str, *, limit: int) -> list[Held]:
        """Return RUNNING jobs of a worker, also those whose run is missing or already ended."""

    def repair(self, *, since: Instant) -> list[Held]:
        """Return FAILED or TIMED_OUT jobs that ended after `since` and have no successor."""

    def recover(
        self, endings: Sequence[Ending], held: Sequence[Held], *, now: Instant, audit_runs: str = AuditRuns.SQL
    ) -> dict[int, Status]:
        """Write recovery's moves: like a turn's endings, and makes missing runs. Return what was changed: how each ended, by number."""

    def add_successors(self, endings: Sequence[Ending], *, now: Instant) -> int:
        """Give FAILED or TIMED_OUT attempts the successors they lack. Those that have one are left alone."""

    def recovered(self, *, now: Instant) -> Instant:
        """Record a finished recovery and return when the one before it was."""

    # ---- reads --------------------------------------------------------------------------------------------

    def job(self, job_id: str, *, transaction: Any = None) -> Job | None:
        """Return one job by id, as it stands in the caller's transaction if that is given."""

    def by_number(self, number: int) -> Job | None:
        """Return a chain's first job by the number people see."""

    def chain(self, job_id: str) -> list[Job]:
        """Return every job of the chain this id belongs to, first to tail."""

    def tails(self, job_ids: Sequence[str]) -> dict[str, Tail]:
        """Return the last job of each chain that these ids belong to, by the id that was asked for. Unknown ids are left out.

        One SELECT for all of them, and one more for the runs of those that have finished: the caller bounds how many it asks for.
        """

    def run(self, job_id: str) -> Run | None:
        """Return the run of a job."""

    def find(self, where: Where, *, limit: int, before: int | None = None) -> list[tuple[int, Job]]:
        """Return jobs newest first with their keyset cursor; `before` continues after that cursor."""

    def queue(self, *, limit: int, scope: Scope = EVERYTHING) -> list[Job]:
        """Return QUEUED jobs inside the scope, in the order in which they will be claimed."""

    def ahead(self, job_id: str, *, scope: Scope = EVERYTHING) -> int:
        """Return how many ready jobs inside the scope stand before this one."""

    def blockers(self, job_id: str) -> list[Job]:
        """Return the tails of the chains this job waits for: live ones, and those that only a retry by hand can still complete."""

    def awaited_groups(self, job_id: str) -> list[Group]:
        """Return the groups whose end this job waits for."""

    def results_before(
        self, job_id: str, *, after: tuple[int, int] | None, limit: int, template: str | None = None, parent: str | None = None
    ) -> ResultsPage:
        """Return results of what the chain of this job was told to wait for, at most `limit`, from a cursor on.

        Those of its parents in the order in which they were named, then those of the group that it follows, in the order of its members.
        A page of large results is shorter, and never empty while there are more. With `template` or `parent`, the root of a chain, others
        are left out, and a page may be empty.
        """

    def log(self, job_id: str) -> list[LogEntry]:
        """Return every move of every job of the chain this id belongs to, in the order of time."""

    def graph(self, job_id: str, *, limit: int) -> Graph | None:
        """Return the chains that this one waits for and those that wait for it, near and far, at most `limit` of them."""

    def usage(self, counting: Counting, *, now: Instant) -> Usage:
        """Count what a turn would count, without a turn: for explain."""

    def record_denial(self, actor: Actor | str, right: Right, why: str, *, now: Instant) -> None:
        """Enter a refusal of the gate into the audit trail. The actor is a name where it is nobody's that the store knows."""

    def audit(
        self,
        *,
        limit: int,
        before: int | None = None,
        scope: Scope = EVERYTHING,
        subject: str | None = None,
        actions: Sequence[str] | None = None,
        job: str | None = None,
    ) -> list[Audited]:
        """Return entries of the audit trail, newest first; `before` continues after that id.

        `subject` is a kind of thing, or `kind:id`; of a job, its chain is meant. `actions`: only these. `job`: only what is about the
        schedule of this id.
        """

    def stats(self, *, now: Instant, hours: int = 24, scope: Scope = EVERYTHING) -> Stats:
        """Return counts and ages, and how types fared in the last hours, without a walk over history."""
