"""The tables of sys as data: their columns, types, origins and descriptions. Queries, the reference page and `\\d` read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import UUID, uuid5

import msgspec

from rota.model.gate import Right
from rota.model.states import TERMINAL, Status
from rota.model.values import dashed, moment_of, undashed
from rota.ports.scan import Bound, Compares

MS_MAX = 4 * 10**15
"""Milliseconds beyond this can't be told in microseconds by every store: no bound is made of them."""
WHOLE_MAX = 2**63 - 1
NAMESPACE = UUID("6f1f7e0c-6a0e-5c53-9c80-5d1ad6a2b0e4")
"""Of the ids of users, roles and procedures, which have names only."""
_SQLSTATE = re.compile(r"[0-9A-Z]{5}")


class Type(Enum):
    """The type of a column: its name, and how SQLite declares it."""

    UUID = "UUID", "TEXT COLLATE uuid"
    TEXT = "TEXT", "TEXT"
    BIGINT = "BIGINT", "BIGINT"
    INTEGER = "INTEGER", "INTEGER"
    DOUBLE = "DOUBLE PRECISION", "DOUBLE"
    JSON = "JSON", "TEXT"

    @property
    def declared(self) -> str:
        """Return the declaration in the private database of a query."""
        return self.value[1]


Shown = Callable[..., Any]
Push = Callable[[str, Compares, Any], Bound | None]


class Column(msgspec.Struct, frozen=True):
    """One column: where it comes from, how its value is shown, and how a comparison is passed on to the store."""

    name: str
    type: Type
    what: str
    sources: tuple[str, ...]
    """Columns of the relation."""
    shown: Shown | None = None
    """Makes the value; None: it is the source's own."""
    push: Push | None = None
    ranges: bool = False
    """Whether < and > are passed on too, not only =."""
    ordered: bool = False
    """Whether its order is that of its source."""
    guarded: bool = False
    """NULL for an actor who may not change the job."""


class Table(msgspec.Struct, frozen=True):
    """One table of sys."""

    name: str
    what: str
    columns: tuple[Column, ...]
    right: Right
    relation: str = ""
    """The store's relation behind it; empty: see `rota.sql.reports`."""
    fixed: tuple[Bound, ...] = ()
    """Bounds that are part of what the table is."""
    number: str = ""
    """The source that numbers its rows, the same in every scan."""
    key: tuple[str, ...] = ()
    """The columns that tell its rows apart, where no number does."""

    def column(self, name: str) -> Column | None:
        """Return a column by its name."""
        return next((column for column in self.columns if column.name == name), None)


# ---- values -----------------------------------------------------------------------------------------------------------


def id_shown(hex_id: str | None) -> str | None:
    """Return an id with dashes."""
    return dashed(hex_id) if hex_id else None


def ms_shown(instant: int | None) -> int | None:
    """Return milliseconds since 1970."""
    return None if instant is None else instant // 1000


def moment_shown(instant: int | None) -> str | None:
    """Return a moment as ISO 8601 in UTC, to the microsecond: texts sort as moments do."""
    return None if instant is None else moment_of(instant).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def name_id(kind: str, name: str | None) -> str | None:
    """Return the id of something that has a name only: the same name has the same id everywhere."""
    return None if name is None else str(uuid5(NAMESPACE, f"{kind}:{name}"))


STATES = {
    Status.PENDING: "PENDING",
    Status.QUEUED: "PENDING",
    Status.RUNNING: "RUNNING",
    Status.COMPLETED: "COMPLETED",
    Status.FAILED: "FAILED",
    Status.TIMED_OUT: "FAILED",
    Status.DEAD_LETTER: "FAILED",
    Status.SKIPPED: "CANCELLED",
    Status.CANCELLED: "CANCELLED",
}
"""The five states of a run for Rota's nine."""
_STATE_OF = {str(status): state for status, state in STATES.items()}


def error_code_shown(code: str | None, exit_code: int | None) -> int | None:
    """Return the number of an error: an SQLSTATE packed as PostgreSQL does, six bits a character, a code in digits, or the exit code."""
    if code is not None and code.isascii() and code.isdecimal() and len(code) <= 9 and len(code) != 5:
        return int(code)
    state = sqlstate_shown(code)
    if state is not None:
        return sum(((ord(character) - 48) & 63) << (6 * place) for place, character in enumerate(state))
    return exit_code


def sqlstate_shown(code: str | None) -> str | None:
    """Return an error's code if it is an SQLSTATE."""
    return code if code is not None and _SQLSTATE.fullmatch(code) else None


# ---- comparisons that are passed on: each may let more rows through, never fewer ---------------------------------------


def push_id(source: str, compares: Compares, value: Any) -> Bound | None:
    """Pass an id on, however it is written."""
    hex_id = undashed(value) if isinstance(value, str) else None
    return None if hex_id is None else Bound(source, compares, hex_id)


def push_text(source: str, compares: Compares, value: Any) -> Bound | None:
    """Pass a text on."""
    return Bound(source, compares, value) if isinstance(value, str) and "\0" not in value else None


def push_whole(source: str, compares: Compares, value: Any) -> Bound | None:
    """Pass a whole number on."""
    return Bound(source, compares, value) if isinstance(value, int) else None


def push_ms(source: str, compares: Compares, value: Any) -> Bound | None:
    """Pass milliseconds on as the microseconds that they can stand for."""
    if not isinstance(value, int | float) or not abs(value) < MS_MAX or compares is Compares.EQUAL:
        return None
    whole = int(value // 1)
    return Bound(source, compares, whole * 1000 if compares is Compares.LEAST else whole * 1000 + 1999)


def push_state(source: str, compares: Compares, value: Any) -> Bound | None:
    """Pass a state on as those of Rota that it stands for."""
    del compares
    return _among(source, [status for status, state in STATES.items() if state == value])


def push_status(source: str, compares: Compares, value: Any) -> Bound | None:
    """Pass one of Rota's own states on."""
    del compares
    return _among(source, [status for status in Status if status == value])


def _among(source: str, statuses: list[Status]) -> Bound:
    return Bound(source, Compares.AMONG, msgspec.json.encode([str(status) for status in statuses]).decode())


# ---- columns ----------------------------------------------------------------------------------------------------------


def an_id(name: str, source: str, what: str) -> Column:
    """Return a column of ids that the store can look up."""
    return Column(name, Type.UUID, what, (source,), id_shown, push_id)


def a_text(name: str, what: str, source: str = "", *, push: Push | None = None) -> Column:
    """Return a column of texts."""
    return Column(name, Type.TEXT, what, (source or name,), push=push)


def a_number(name: str, what: str, source: str = "", kind: Type = Type.BIGINT) -> Column:
    """Return a column of whole numbers."""
    return Column(name, kind, what, (source or name,))


def moments(name: str, what: str, source: str = "", *, pushed: bool = False) -> tuple[Column, Column]:
    """Return a moment twice: in milliseconds, and as text."""
    source = source or name
    push = push_ms if pushed else None
    return (
        Column(name, Type.BIGINT, f"{what}, in milliseconds since 1970 UTC", (source,), ms_shown, push, ranges=pushed, ordered=True),
        Column(f"{name}_ts", Type.TEXT, f"{what}, as ISO 8601 in UTC", (source,), moment_shown, ordered=True),
    )


def _state() -> Column:
    what = "PENDING, RUNNING, COMPLETED, FAILED or CANCELLED"
    return Column("state", Type.TEXT, what, ("status",), _STATE_OF.get, push_state)


NUMBER = Column("number", Type.BIGINT, "The job's number", ("number",), None, push_whole, ranges=True, ordered=True)
LIVE = frozenset(Status) - TERMINAL
WHOSE = (
    a_text("organization", "Whose it is", "organization_id", push=push_text),
    a_text("owner", "Who submitted it", "owner", push=push_text),
)
RESULT = (
    a_text("result_message", "What the run said, or why it did not end well", "message"),
    a_number("rows_affected", "Rows that an SQL job changed"),
    Column("result_data", Type.JSON, "What the run returned", ("result",)),
    Column(
        "error_code",
        Type.INTEGER,
        "Number of the error: an SQLSTATE packed six bits a character, a code in digits, or the exit code",
        ("error_code", "exit_code"),
        error_code_shown,
    ),
    Column("sqlstate", Type.TEXT, "The error's SQLSTATE", ("error_code",), sqlstate_shown),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "job_runs",
            "Runs of jobs that were created with CREATE JOB or as schedules, one row for each attempt.",
            (
                an_id("job_run_uuid", "job_id", "The run: CANCEL JOB RUN takes it"),
                an_id("job_uuid", "schedule_id", "The job in sys.jobs"),
                a_text("job_name", "Its name", "schedule_name", push=push_text),
                Column("assigned_node_uuid", Type.UUID, "The node that it was assigned to; NULL without a cluster", ("target_node",)),
                Column("shard_uuid", Type.UUID, "Its shard; NULL without a cluster", ("shard",)),
                *moments("scheduled_time", "When it was due", "scheduled_at"),
                *moments("started_at", "When it started"),
                *moments("completed_at", "When it ended", "finished_at", pushed=True),
                _state(),
                a_text("status", "Rota's own state", push=push_status),
                Column("retry_count", Type.INTEGER, "Attempts before this one", ("attempt",), lambda attempt: attempt - 1),
                *RESULT,
                a_text("error_type", "Kind of the error: transient, permanent, timeout, crash, interrupted or dependency"),
                an_id("run_id", "run_id", "The execution; NULL before it starts"),
                an_id("worker_id", "worker_id", "The worker that ran it"),
                NUMBER,
                *WHOSE,
            ),
            Right.READ,
            "jobs",
            (Bound("schedule_id", Compares.GIVEN),),
            number="number",
        ),
    )
}
