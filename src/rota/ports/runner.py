"""What a runner is asked: to do the work of a job that is SQL, a procedure or a command.

A runner is behind an executor, as a Python handler is: it never sees the store, and what happens is an `Outcome`, never an exception.
`Order` has all that one attempt needs, its secrets in clear text included: it is made when the attempt starts and kept nowhere.
Every method may be called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from rota.model.decide import Outcome
from rota.model.schedules import JobKind
from rota.ports.executor import StopReason


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """A connection, as a runner opens it. Its login is the identity of the job."""

    name: str
    url: str
    """postgresql://host:port/database or sqlite:///path, without a password."""
    user: str | None = None
    password: str | None = None
    multi: bool = False
    """A body may have several statements."""

    def __repr__(self) -> str:
        """Return it without the password."""
        return f"Database({self.name!r}, {self.url!r}, user={self.user!r})"

    __str__ = __repr__


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: what to run, on what, with what and for whom."""

    kind: JobKind
    body: str
    """The SQL, the call as `CALL name(…)`, or the command line."""
    params: Mapping[str, Any] = {}
    """Bound by name where the body has `:name`; a command gets none."""
    job_uuid: str
    """The job of the catalog, with dashes; empty for a job without a schedule."""
    run_uuid: str
    job_name: str
    attempt: int
    owner: str
    organization: str
    timeout_s: float
    """0: no limit."""
    run_as: str | None = None
    database: Database | None = None
    """None for a command."""
    secrets: Mapping[str, str] = {}
    """By name, in clear text."""

    def __repr__(self) -> str:
        """Return it without params and secrets."""
        return f"Order({self.kind}, {self.job_name!r}, run={self.run_uuid}, attempt={self.attempt})"

    __str__ = __repr__


class Stream(StrEnum):
    """Where output of a command came from."""

    OUT = "stdout"
    ERR = "stderr"


class Control(Protocol):
    """The executor's side of one attempt. Thread-safe."""

    def reason(self) -> StopReason | None:
        """Return why the attempt is to stop; None: it is not. Never None again once it was not. The timeout counts as one."""

    def remaining_s(self) -> float | None:
        """Return how long the attempt may still run; None: no limit. Never below 0."""

    def watch(self, stop: Callable[[], None], force: Callable[[], None]) -> AbstractContextManager[None]:
        """Inside the block, have `stop` called as soon as the attempt is to stop, and `force` if it has not ended a grace period later.

        Both are called from another thread, once at most, at once if it is late already; neither may block for long, and what they raise
        is logged. After the block neither is called.
        """

    def output(self, stream: Stream, data: bytes) -> None:
        """Take output for the run's log, in pieces of any size. It is redacted and cut there."""


class Runner(Protocol):
    """Does the work of one kind of job. `Equipment` of its executor says how many at once; a runner sets no bound of its own."""

    def run(self, order: Order, control: Control) -> Outcome:
        """Do the work and return when nothing of it is left running. Blocks; is called on a thread of its own for each attempt.

        Asked to stop, it returns as soon as it can with the outcome of that reason: see `rota.executors.stops`.
        """

    def renew(self, until: float | None) -> None:
        """Let work run until this monotonic moment unless it is renewed; None: for as long as it likes. For what outlives the worker."""

    def close(self) -> None:
        """Let go of what is kept between runs."""


class Answer(Protocol):
    """What a database that can be used said of itself."""

    @property
    def server(self) -> str:
        """Its product."""

    @property
    def version(self) -> str:
        """The version of that."""


class Checker(Protocol):
    """Asks databases, without running a job on them."""

    def probe(self, database: Database) -> Answer:
        """Log in as a job would, look whether jobs may use the database, and leave. Raise Unreachable or UnfitDatabase."""

    def check(self, database: Database, kind: JobKind, body: str, params: Collection[str], *, run_as: str | None = None) -> None:
        """Have the database prepare a body that may use these params. Raise BodyRefused, Unreachable or UnfitDatabase."""


class BodyRefused(Exception):  # noqa: N818 - a signal to the caller, who knows where the body came from
    """A body that its database does not take."""

    def __init__(self, message: str, *, sqlstate: str | None = None, position: int | None = None) -> None:
        """Take why, the SQLSTATE, and the place in the body as a character counted from 1."""
        super().__init__(message)
        self.sqlstate = sqlstate
        self.position = position


class Unreachable(Exception):  # noqa: N818 - a signal to the caller, who may do without
    """A database that could not be asked now."""


class UnfitDatabase(Exception):  # noqa: N818 - a signal to the caller
    """A database that no job may use: the store's own, or a login that could do more than a job should."""
