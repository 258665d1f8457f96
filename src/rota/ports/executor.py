"""What the engine asks of an executor, and what an executor tells the engine.

An executor calls handlers. It never sees the store: it is given `Claimed` values and gives back `Ended` ones.
A handler's failure is a value (an `Outcome`), never an exception of the executor. Every method is called from the
engine's thread only, except `cut`, `renew` and `occupied`, which the guard calls from its own while the engine's may be
blocked, and those of `Sink`, which executors may call from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, assert_never

import msgspec

from rota.hooks import On
from rota.middleware import Around, Middleware
from rota.model.decide import CUT_OFF_ERROR, Interrupted, Outcome, Stopped, TimedOut
from rota.model.handler import Handler
from rota.model.settings import Settings
from rota.model.values import Claimed, Instant
from rota.ports.clock import Clock


class Ended(msgspec.Struct, gc=False):
    """One attempt that is over: what came out, when, how long the handler ran, and what it left behind."""

    job: Claimed
    outcome: Outcome
    at: Instant
    seconds: float
    log_path: str | None = None


class Report(msgspec.Struct):
    """Something a running handler wants kept before its end. Unset fields (None) say nothing."""

    number: int
    progress: int | None = None
    message: str | None = None
    checkpoint: str | None = None
    """JSON text."""
    artifact: str | None = None


class Receipt(StrEnum):
    """The result of a checkpoint that a handler waits for."""

    WRITTEN = "written"
    """It is committed."""
    REFUSED = "refused"
    """Its run was ended by others, or its worker is gone."""
    UNWRITABLE = "unwritable"
    """The store can't hold this text."""


Answer: TypeAlias = Callable[[Receipt], None]
"""Called once at most, from any thread; it must not block."""


class Question(StrEnum):
    """What a running handler may ask the engine for."""

    ENQUEUE = "enqueue"
    RESULTS = "results"
    ORDER = "order"
    """What a runner is to do: see `rota.ports.runner.Order`."""


class Request(msgspec.Struct, frozen=True):
    """Something that a running handler asks for."""

    question: Question
    body: str
    """JSON text."""


class Reply(msgspec.Struct, frozen=True):
    """What a handler gets for a request: a value, or an error to be raised in the handler."""

    body: str = "null"
    """JSON text."""
    error: str | None = None
    """The name of a class in `rota.errors`."""
    text: str = ""
    members: dict[str, Any] = {}
    """What the error knows beside its text."""
    lost: bool = False
    """Nobody answers any more: the handler is to stop."""


Replied: TypeAlias = Callable[[Reply], None]
"""Called once at most, from any thread; it must not block."""


class StopReason(StrEnum):
    """Why a running handler is asked to stop."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"
    LEASE = "lease"
    """The worker could not show others that it lives, and they are about to take over what it runs."""


def forced(reason: StopReason, timeout_s: float) -> Outcome:
    """Return the outcome of an attempt that ended because it was asked to stop, given up or killed."""
    match reason:
        case StopReason.CANCEL:
            return Stopped()
        case StopReason.TIMEOUT:
            return TimedOut(timeout_s)
        case StopReason.SHUTDOWN:
            return Interrupted()
        case StopReason.LEASE:
            return Interrupted(CUT_OFF_ERROR)
        case _:
            assert_never(reason)


class Sink(Protocol):
    """The engine's ear. Thread-safe; never blocks; never raises."""

    def ended(self, ended: Ended) -> None:
        """Take the end of an attempt. Each job given to an executor is reported here exactly once."""

    def report(self, report: Report) -> None:
        """Take progress or an artifact of a running handler."""

    def keep(self, report: Report, answer: Answer) -> None:
        """Take a checkpoint, and call `answer` after the commit that holds it.

        While the store is away there is no answer: the executor stops waiting when the handler is told to stop. Where the engine's own
        thread runs the handler, the checkpoint is written before this returns, and the store's error is raised if it can't be.
        """

    def ask(self, job: Claimed, request: Request, replied: Replied) -> None:
        """Take a request of the handler of this job, and call `replied` when it is answered, which may take as long as the store is away.

        Where the engine's own thread runs the handler, it is answered before this returns.
        """


class App(Protocol):
    """The program's Rota, as far as its workers and handler processes see it."""

    middleware: Middleware
    on: On


class Equipment(msgspec.Struct, frozen=True):
    """What every executor is built with."""

    handlers: Mapping[str, Handler]
    sink: Sink
    clock: Clock
    settings: Settings
    slots: int
    log_dir: str | None
    """Where runs' logs are kept, as an absolute path: `rota.model.values.log_path`, made on the first line. None: kept nowhere."""
    lock_fd: int | None
    """The worker's lock file: handler processes inherit it, so that the worker counts as alive while one of them is."""
    store: str | None = None
    """The address of the worker's store: a handler that holds a transaction of its own on it can't wait for the worker to write."""
    middleware: Sequence[Around] = ()
    """Surrounds each handler, the first outermost. More may be registered at any time."""
    app: App | None = None
    """The program's Rota: handler processes import it for its middleware and hooks."""
    runners: Mapping[str, Callable[[], Any]] = {}
    """What makes the runner of each kind that is not Python, when it is first needed: see `rota.ports.runner.Runner`."""


class Readiness(StrEnum):
    """Whether a handler that is submitted now would be entered at once."""

    NOW = "now"
    LATER = "later"
    """It would have to wait: for a slot, or for a process that is starting."""
    NEVER = "never"
    """It can't run here: a process can't import it."""


class Executor(Protocol):
    """Runs handlers, at most `Equipment.slots` at once; what is submitted beyond that waits inside, in order."""

    def submit(self, jobs: Sequence[Claimed]) -> None:
        """Start these, or keep them waiting for a slot, in the order given. Does not block on handlers."""

    def readiness(self, job_type: str) -> Readiness:
        """Say whether a handler of this type would be entered at once; see to it that it can be, soon."""

    def occupied(self) -> int:
        """Return the slots in use: running handlers, and those that were given up but have not returned (threads)."""

    def given_up(self) -> int:
        """Return how many of the slots in use have a handler whose end was reported, and which has not returned."""

    def cancel(self, number: int) -> None:
        """Ask for one job to stop because its chain was cancelled.

        Not started: it is dropped at once and reported as `Stopped`. Running: the Context says so, an async task is
        cancelled, a process gets TERM and after `kill_grace` KILL with all its children. Unknown numbers are ignored.
        """

    def tick(self, monotonic: float) -> float | None:
        """Enforce timeouts, measured from each handler's start, and grace periods.

        Return the monotonic moment at which to be called again, or None. A handler over its timeout is reported as
        `TimedOut`: an async one or a process when it has been stopped (after `timeout_grace` at the latest), a
        thread at once, its late result being dropped here and its slot staying occupied until it returns.
        """

    def release(self) -> list[Claimed]:
        """Give back the jobs that have not started. They are not reported to the sink."""

    def interrupt(self) -> None:
        """Stop every running handler now (shutdown grace is over): each is reported as `Interrupted`.

        A handler that returned before it could be stopped keeps its own outcome.
        """

    def renew(self, until: float | None) -> None:
        """Let handlers run until this monotonic moment unless it is renewed again; None: for as long as they like.

        For processes, which may outlive a worker that is stopped: each ends itself, with all it started, when its time is over.
        """

    def cut(self, grace_s: float) -> None:
        """Stop every handler and start none any more: the worker is cut off, and others are about to take over.

        Processes are told, and killed with all they started when the grace is over; async tasks are cancelled; threads and inline
        handlers are told through their Context. What ends by that is reported as `Interrupted`, what returned in time keeps its
        outcome, and what does not end at all stays `occupied`, also after `close`. Again: nothing more.
        """

    def close(self) -> None:
        """Let go of threads, loop and processes. Idle ones end at once; nothing is reported after this."""
