"""The store: verbs in batches, each a whole. The contract that every adapter keeps and one suite tests.

Rules for every verb:

- *Now comes in.* A store reads no clock, makes no ids, draws no lots and decides no policy.
- *A move is atomic*: a job, its run, its successor, its key, the edges it resolves, its group's rule. A batch of moves is
  written in one transaction where the store can, but callers must not rely on more than moves being whole.
- *Repeating is harmless.* A reply can be lost after the write; the same call again changes nothing more and says the same.
- *Errors are ours* (`rota.errors`), the driver's as the cause. `StoreBusy` and `StoreUnavailable` mean: nothing was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from rota.model.decide import Transition
from rota.model.groups import Mode, OnFailure
from rota.model.values import (
    Actor,
    Claimed,
    Enqueued,
    Group,
    Instant,
    Job,
    NewRow,
    Run,
    Stats,
    Template,
    WorkerInfo,
)
from rota.ports.executor import Report


class DefinitionsChanged(Exception):  # noqa: N818 - a signal to the caller, not an error of anybody
    """Templates, pauses or organizations have changed since the caller read them: read them anew and call again."""


class Ending(msgspec.Struct):
    """The end of one attempt that this worker holds, decided but not yet written."""

    number: int
    at: Instant
    transition: Transition
    if_cancelled: Transition
    """Written instead if, inside the transaction, a cancel request is found on the job."""
    successor_id: str
    log_path: str | None = None


class Reservation(msgspec.Struct, frozen=True):
    """A direct execution's claim on the next slot."""

    id: str
    reserved_by: str
    worker_id: str
    job_id: str
    job_number: int
    reserved_at: Instant
    expires_at: Instant


class Choice(msgspec.Struct):
    """What the dispatcher makes of the candidates: which to take now, which to park, and under which word."""

    take: list[Claimed]
    park: list[tuple[int, str]]


Chooser = Callable[[list[Claimed], "Reservation | None"], Choice]


class Turn(msgspec.Struct, kw_only=True):
    """One turn of the wheel: end what is over, keep what was reported, promote what is due, claim."""

    now: Instant
    worker_id: str
    done: list[tuple[int, Instant]] = msgspec.field(default_factory=list)
    """Plain completions (no result, no log): number and moment. The fast path of `endings`."""
    endings: list[Ending] = msgspec.field(default_factory=list)
    reports: list[Report] = msgspec.field(default_factory=list)
    limit: int = 500
    """Bound on promotions, expiries and parkings in this turn."""
    types: tuple[str, ...] = ()
    want: int = 0
    """How many ready jobs to offer to `choose`; 0 claims nothing."""
    choose: Chooser | None = None
    run_ids: list[str] = msgspec.field(default_factory=list)
    """At least `want` + 1 fresh ids."""
    definitions: int = 0
    """The version of the definitions that `types` and `choose` rest on: nothing is claimed if it has advanced."""


class Turned(msgspec.Struct, kw_only=True):
    """What came of a turn."""

    claimed: list[Claimed] = msgspec.field(default_factory=list)
    late: list[int] = msgspec.field(default_factory=list)
    """Endings refused because the run had already been ended by somebody else; counted in the store."""
    refused: list[tuple[int, str]] = msgspec.field(default_factory=list)
    """Endings the store could not write, with the reason; their runs ended FAILED, 'result could not be stored'."""
    chains_ended: bool = False
    next_due: Instant | None = None
    """When the earliest PENDING job wants to be promoted, as of this turn."""
    definitions: int = 0
    """The version of the definitions, as of this turn."""
    given_up: bool = False
    """Others have recorded this worker as ended: it claims nothing any more and must begin anew under another id."""


class Peek(msgspec.Struct, frozen=True, kw_only=True):
    """A look without a lock: is a turn worth its commit?"""

    ready: bool
    next_due: Instant | None
    cancelling: tuple[int, ...]
    """Numbers of this worker's RUNNING jobs that were asked to stop."""
    definitions: int


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for lists; None does not filter."""

    status: tuple[str, ...] = ()
    job_type: str | None = None
    group_id: str | None = None
    root_id: str | None = None
    text: str | None = None


class NewGroup(msgspec.Struct, kw_only=True):
    """A group to be made: its id, rules and members, new rows or ids of jobs that wait already, in order."""

    group_id: str
    name: str | None
    mode: Mode
    on_failure: OnFailure
    members: list[NewRow | str]
    organization_id: str = "default"


class Held(msgspec.Struct, frozen=True):
    """A RUNNING job of a worker that is gone, and what there is of its run."""

    job: Claimed
    run_missing: bool
    run_ended: str | None
    """The status of a run that ended although its job did not."""


class Store(Protocol):
    """The durable half of Rota."""

    url: str

    # ---- life ---------------------------------------------------------------------------------------------

    def migrate(self, *, now: Instant) -> None:
        """Bring the schema up to date; do nothing if it is. Raise StoreUnusable if it is newer than this code."""

    def close(self) -> None:
        """Let go of every connection. Closing twice is harmless."""

    def changed(self) -> bool:
        """Say, cheaply, whether another connection or process may have committed since the last call."""

    def transacting(self) -> bool:
        """Say whether the calling thread is inside a transaction it opened with `transaction`."""

    def crowd(self, *, crowded: bool) -> None:
        """Hint whether other processes write too: a store with one write lock then leaves gaps for them."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Open the caller's own transaction, committed at the end of the block, undone on an exception.

        What it yields has `execute` for the caller's own statements and `savepoint()`, a block that is undone by itself.
        """

    # ---- the queue ----------------------------------------------------------------------------------------

    def enqueue(self, rows: Sequence[NewRow], *, now: Instant, definitions: int | None = None, transaction: Any = None) -> list[Enqueued]:
        """Add jobs, all or none. `run_at <= now` and no `after`: QUEUED, last of its priority; otherwise PENDING.

        A row whose unique key is held by a live chain is not added: its holder comes back with `existing`. So does a
        row whose job_id is there already. `after` names the root of a chain that must end first.
        Raise DefinitionsChanged, writing nothing, if `definitions` is given and is not the version in force.
        """

    def turn(self, turn: Turn) -> Turned:
        """Make one turn, as one transaction. See `Turn`. An ending written before by the same worker changes nothing."""

    def peek(self, *, types: tuple[str, ...], worker_id: str) -> Peek:
        """Look whether there is anything to do, without writing."""

    def holding(self, worker_id: str) -> list[Claimed]:
        """Return what this worker holds: how a claim whose reply was lost is found again."""

    def cancel(self, job_id: str, *, actor: Actor, now: Instant, reason: str | None = None) -> Job:
        """Cancel the chain of this job: waiting ends CANCELLED at once; RUNNING is asked to stop. Again: nothing more.

        Raise AlreadyEnded, naming the end, if the chain has ended otherwise.
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
    ) -> Job:
        """Change a waiting job. A new priority gives a new last position. `run_at` needs PENDING. Audited.

        Raise IllegalMove ("Cannot modify params after dispatch" for params) from RUNNING on.
        """

    def move(
        self, job_id: str, *, actor: Actor, now: Instant, before: str | None = None, after: str | None = None, front: bool = False
    ) -> Job:
        """Reorder a QUEUED job among its organization's own at its priority; renumber the fewest neighbours. Audited."""

    def retry(self, job_id: str, *, new_id: str, actor: Actor, now: Instant) -> Job:
        """Add a successor to the tail of an ended chain, with a fresh budget. Audited.

        Raise StillLive naming the live job, AlreadyEnded if it ended COMPLETED, KeyTaken naming the holder of its key.
        """

    # ---- groups -------------------------------------------------------------------------------------------

    def add_group(self, group: NewGroup, *, actor: Actor, now: Instant) -> Group:
        """Make a group of new rows and of waiting, ungrouped jobs. Sequential: each waits for the one before."""

    def cancel_group(self, group_id: str, *, actor: Actor, now: Instant) -> Group:
        """Cancel every member chain that has not ended."""

    def group(self, group_id: str) -> Group | None:
        """Return a group with its members' chain tails."""

    def groups(self, *, limit: int) -> list[Group]:
        """Return the newest groups."""

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

    def register(self, worker_id: str, *, host: str, kind: str, job_types: Sequence[str], now: Instant) -> None:
        """Record a worker incarnation. Its lock is already held."""

    def beat(self, worker_id: str, *, job_types: Sequence[str]) -> None:
        """Advance the worker's beat."""

    def stopping(self, worker_id: str, *, now: Instant) -> None:
        """Record that the worker began to shut down: what it loses from now on was interrupted, not crashed."""

    def end_worker(self, worker_id: str, *, now: Instant) -> None:
        """Record that the worker is gone. It must hold nothing."""

    def workers(self, *, live: bool = True) -> list[WorkerInfo]:
        """Return workers, by default those not recorded as ended."""

    def held_by(self, worker_id: str, *, limit: int) -> list[Held]:
        """Return RUNNING jobs of a worker, also those whose run is missing or already ended."""

    def repair(self, *, since: Instant) -> list[Held]:
        """Return FAILED or TIMED_OUT jobs that ended after `since` and have no successor."""

    def recover(self, endings: Sequence[Ending], held: Sequence[Held], *, now: Instant) -> int:
        """Write recovery's moves: like a turn's endings, and makes missing runs. Return how many changed something."""

    def add_successors(self, endings: Sequence[Ending], *, now: Instant) -> int:
        """Give FAILED or TIMED_OUT attempts the successors they lack. Those that have one are left alone."""

    def recovered(self, *, now: Instant) -> Instant:
        """Record a finished recovery and return when the one before it was."""

    # ---- definitions --------------------------------------------------------------------------------------

    def definitions(self) -> int:
        """Return the version that every change to templates, pauses or organizations advances."""

    def put_templates(self, templates: Sequence[Template], *, actor: Actor, now: Instant) -> None:
        """Make or update templates by name. Those that are the same change nothing."""

    def templates(self) -> list[Template]:
        """Return every template."""

    def pause(self, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
        """Pause a template, an organization or (kind 'all') everything. Again: nothing more. Audited."""

    def resume(self, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
        """End a pause and give back what it parked. Audited."""

    def pauses(self) -> list[tuple[str, str]]:
        """Return what is paused, as (kind, name)."""

    # ---- reads --------------------------------------------------------------------------------------------

    def job(self, job_id: str, *, transaction: Any = None) -> Job | None:
        """Return one job by id, as it stands in the caller's transaction if that is given."""

    def by_number(self, number: int) -> Job | None:
        """Return a chain's first job by the number people see."""

    def chain(self, job_id: str) -> list[Job]:
        """Return every job of the chain this id belongs to, first to tail."""

    def run(self, job_id: str) -> Run | None:
        """Return the run of a job."""

    def find(self, where: Where, *, limit: int, before: int | None = None) -> list[tuple[int, Job]]:
        """Return jobs newest first with their keyset cursor; `before` continues after that cursor."""

    def queue(self, *, limit: int) -> list[Job]:
        """Return QUEUED jobs in the order in which they will be claimed."""

    def ahead(self, job_id: str) -> int:
        """Return how many ready jobs stand before this one."""

    def blockers(self, job_id: str) -> list[Job]:
        """Return the live tails of the chains this job waits for."""

    def stats(self, *, now: Instant) -> Stats:
        """Return counts and ages."""
