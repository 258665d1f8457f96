"""One turn of the wheel as the store is asked for it: what is over, what is wanted, and how the engine chooses among what is ready."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rota.model.audit import AuditRuns
from rota.model.decide import Transition
from rota.model.states import Status
from rota.model.templates import Rate
from rota.model.values import Claimed, Instant
from rota.ports.executor import Receipt, Report


class Ending(msgspec.Struct):
    """The end of one attempt that this worker holds, decided but not yet written."""

    number: int
    at: Instant
    transition: Transition
    if_cancelled: Transition
    """Written instead if, inside the transaction, a cancel request is found on the job."""
    successor_id: str
    log_path: str | None = None
    unstarted: tuple[str, Instant] | None = None
    """A start that was counted and did not happen: its job type, and the moment it was counted under."""


class Reservation(msgspec.Struct, frozen=True):
    """A direct execution that is under way: its job is first in line for every worker that has the handler."""

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
    """What blocks a row is shared by all of its type and organization: the store may park more of them."""
    leave: frozenset[str] = frozenset()
    """Job types of which nothing more can start in this turn: they need not be offered again."""
    again: bool = False
    """Others were in the way and there is room left: offer more. A chooser that asks for it heeds its own room."""
    suspects: bool = True
    """False: more suspects (jobs with `crashes`) need not be offered in this turn."""


class Counting(msgspec.Struct, frozen=True, kw_only=True):
    """What the store is to count inside the turn's transaction, because some limit rests on it."""

    running: bool
    """RUNNING rows by organization and job type."""
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    """How many may run, by the word under which a row beyond that is parked: `template-limit:mail`."""
    rates: dict[str, Rate] = msgspec.field(default_factory=dict)
    """How many may start inside a window, by job type."""
    within: Instant = 0
    """How long after `Turn.now` what is claimed may start at the latest: a start is counted under that moment."""
    closed: frozenset[str] = frozenset()
    """Words under which rows stay parked whatever is counted: of organizations that are paused or suspended."""
    sweep: bool = False
    """Look at every word that rows are parked under, and offer again what has room: the net under all else."""


class Starts(msgspec.Struct, frozen=True):
    """The starts of one rate-limited job type inside its window."""

    count: int
    next_at: Instant | None = None
    """When the next may start; None: now."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What is in use at this moment of the transaction: nothing can start between the count and the claim."""

    running: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)
    """RUNNING rows by (organization, job type)."""
    starts: dict[str, Starts] = msgspec.field(default_factory=dict)
    """By rate-limited job type."""
    waiting: frozenset[str] = frozenset()
    """Limited job types that have rows parked by a limit of their own."""


Chooser = Callable[[list[Claimed], "Reservation | None", Usage], Choice]
"""Given a reservation, it is offered the job of that direct execution alone, before the queue. It is never parked.

It counts what it takes: where a store begins a transaction again, it does not do so once a chooser was asked.
"""


class Turn(msgspec.Struct, kw_only=True):
    """One turn of the wheel: end what is over, keep what was reported, promote what is due, claim."""

    now: Instant
    worker_id: str
    done: list[tuple[int, Instant]] = msgspec.field(default_factory=list)
    """Plain completions (no result, no log): number and moment. The fast path of `endings`."""
    scheduled: list[int] | None = None
    """Those of `done` that are of a schedule: no others are of a job that SQL has created. None: not known."""
    endings: list[Ending] = msgspec.field(default_factory=list)
    reports: list[Report] = msgspec.field(default_factory=list)
    limit: int = 500
    """Bound on promotions and expiries in this turn, and on what is offered to `choose` after its first round."""
    types: tuple[str, ...] = ()
    lanes: dict[int, str] | None = None
    """The lanes to claim from, each with its job type; None: every lane of `types`."""
    numbers: tuple[int, ...] = ()
    """Ready jobs to offer besides, whatever lane they wait in: nobody who fits has come for them."""
    want: int = 0
    """How many ready jobs to offer to `choose` at first; 0 claims nothing."""
    choose: Chooser | None = None
    suspects: bool = True
    """False: offer no suspects (jobs with `crashes`), for this worker runs one."""
    direct_only: bool = False
    """Offer nothing but the direct execution that waits."""
    run_ids: list[str] = msgspec.field(default_factory=list)
    """At least `want` + 1 fresh ids."""
    definitions: int = 0
    """The version of the definitions that `types` and `choose` rest on: nothing is claimed if it has advanced."""
    counting: Counting | None = None
    """None: nothing is limited, and nothing is counted."""
    audit_runs: str = AuditRuns.SQL
    """Whose ends are entered into the audit trail."""
    start_by: float = 0.0
    """Until when, by the worker's monotonic clock, what is claimed of rate-limited types may start."""


class Turned(msgspec.Struct, kw_only=True):
    """What came of a turn."""

    claimed: list[Claimed] = msgspec.field(default_factory=list)
    late: list[int] = msgspec.field(default_factory=list)
    """Endings refused because the run had already been ended by somebody else; counted in the store."""
    refused: list[tuple[int, str]] = msgspec.field(default_factory=list)
    """Endings the store could not write, with the reason; their runs ended FAILED, 'result could not be stored'."""
    as_written: dict[int, Status] = msgspec.field(default_factory=dict)
    """How endings were written that did not end as decided: cancelled in the meantime, or not storable. Also those of a repeated turn."""
    unkept: dict[int, Receipt] = msgspec.field(default_factory=dict)
    """Checkpoints that were not written, by the number of their job."""
    chains_ended: bool = False
    told: bool = False
    """Messages about ends were written."""
    next_due: Instant | None = None
    """When the earliest PENDING job wants to be promoted, expires, or a rate limit has room again, as of this turn."""
    room_at: Instant | None = None
    """When a rate limit that keeps jobs waiting has room again."""
    unfinished: bool = False
    """Bounds were met: edges to resolve or rows to offer are left, so that another turn is worth making at once."""
    definitions: int = 0
    """The version of the definitions, as of this turn."""
    calm: bool = False
    """Nothing was due, parked or waited for, no direct execution waits: for the store, the next turn may be made beside others' turns."""
    given_up: bool = False
    """Others have recorded this worker as ended: it claims nothing any more and must begin anew under another id."""


class Peek(msgspec.Struct, frozen=True, kw_only=True):
    """A look without a lock: is a turn worth its commit?"""

    ready: bool
    next_due: Instant | None
    cancelling: tuple[int, ...]
    """Numbers of this worker's RUNNING jobs that were asked to stop."""
    definitions: int
    parked: bool = False
    """Rows are parked for another reason than direct execution."""
