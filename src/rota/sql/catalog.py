"""The tables of sys as data: their columns, types, origins and descriptions. Queries and the reference page read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any
from uuid import UUID, uuid5

import msgspec

from rota.model.audit import EVENTS, event_of
from rota.model.gate import Right
from rota.model.states import TERMINAL, Status
from rota.model.values import dashed, moment_of, undashed
from rota.ports.scan import Bound, Compares

MS_MAX = 4 * 10**15
"""Milliseconds beyond this can't be told in microseconds by every store: no bound is made of them."""
WHOLE_MAX = 2**63 - 1
NAMESPACE = UUID("6f1f7e0c-6a0e-5c53-9c80-5d1ad6a2b0e4")
"""Of the ids of procedures, and of creators of jobs who are not users: they have names only."""
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
    setting: str = ""
    """The setting that holds where the value is NULL."""


class Table(msgspec.Struct, frozen=True):
    """One table of sys."""

    name: str
    what: str
    columns: tuple[Column, ...]
    right: Right
    relation: str = ""
    """The store's relation behind it; empty: `rota.sql.reports` makes its rows."""
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
    """Return the number of an error: an SQLSTATE packed as PostgreSQL does, a code of SQLite's, a code in digits, or the exit code."""
    if code is not None and code.startswith("SQLITE_"):
        return _sqlite_codes().get(code)
    if code is not None and code.isascii() and code.isdecimal() and len(code) <= 9 and len(code) != 5:
        return int(code)
    state = sqlstate_shown(code)
    if state is not None:
        return sum(((ord(character) - 48) & 63) << (6 * place) for place, character in enumerate(state))
    return exit_code


@cache
def _sqlite_codes() -> dict[str, int]:
    import apsw  # noqa: PLC0415 - few errors need it

    maps = (apsw.mapping_result_codes, apsw.mapping_extended_result_codes)
    return {name: code for codes in maps for name, code in codes.items() if isinstance(name, str) and isinstance(code, int)}


def sqlstate_shown(code: str | None) -> str | None:
    """Return an error's code if it is an SQLSTATE."""
    return code if code is not None and _SQLSTATE.fullmatch(code) else None


KINDS = {"sql": "SQL", "procedure": "PROCEDURE", "python": "PROCEDURE", "external": "EXTERNAL"}
"""The type of a job for each kind of template: a registered handler is a procedure."""


def procedure_shown(kind: str, job_type: str) -> str | None:
    """Return the name of a procedure."""
    return job_type if KINDS[kind] == "PROCEDURE" else None


def procedure_id(kind: str, job_type: str) -> str | None:
    """Return the id of a procedure."""
    return name_id("procedure", procedure_shown(kind, job_type))


def said(field: str, unit: Callable[[Any], Any] = int) -> Shown:
    """Return what reads a field of a template: operators' values take precedence over those of the code."""

    def shown(defaults: str, overrides: str) -> Any:
        value = {**msgspec.json.decode(defaults), **msgspec.json.decode(overrides)}.get(field)
        return None if value is None else unit(value)

    return shown


def _base(backoff: Any) -> int:
    return int(backoff["base"] if isinstance(backoff, dict) else backoff)


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


def push_event(source: str, compares: Compares, value: Any) -> Bound | None:
    """Pass an event on as the actions that it stands for; an action that is not known stands for itself."""
    del compares
    if not isinstance(value, str) or "\0" in value:
        return None
    actions = [action for action, event in EVENTS.items() if event == value]
    return Bound(source, Compares.AMONG, (*actions, value))


def push_status(source: str, compares: Compares, value: Any) -> Bound | None:
    """Pass one of Rota's own states on."""
    del compares
    return _among(source, [status for status in Status if status == value])


def _among(source: str, statuses: list[Status]) -> Bound:
    return Bound(source, Compares.AMONG, tuple(str(status) for status in statuses))


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
ORGANIZATION = a_text("organization", "Whose it is", "organization_id", push=push_text)
OWNER = a_text("owner", "Who submitted it", push=push_text)
CREATED_BY = a_text("created_by", "Who created it")
POLICY = ("defaults", "overrides")
RESULT = (
    a_text("result_message", "What the run said, or why it did not end well", "message"),
    a_number("rows_affected", "Rows that an SQL job changed"),
    Column("result_data", Type.JSON, "What the run returned", ("result",)),
    Column(
        "error_code",
        Type.INTEGER,
        "Number of the error: an SQLSTATE packed six bits a character, a code of SQLite, a code in digits, or the exit code",
        ("error_code", "exit_code"),
        error_code_shown,
    ),
    Column("sqlstate", Type.TEXT, "The error's SQLSTATE", ("error_code",), sqlstate_shown),
)


def _named_id(name: str, sources: tuple[str, str], kind: str, what: str) -> Column:
    """Return a column of ids of users or roles; what has only a name has an id that is made from it."""
    return Column(name, Type.UUID, what, sources, lambda hex_id, called: id_shown(hex_id) or name_id(kind, called))


JOBS = Table(
    "jobs",
    "Jobs that run by a schedule, each with what it runs: one row for each definition.",
    (
        an_id("job_uuid", "schedule_id", "The definition"),
        a_text("job_name", "Its name, unique in its organization", "name"),
        a_text("description", "Its description, or else its template's"),
        a_text("job_class", "LOCAL_SAFE, LEADER_ONLY or QUORUM_REQUIRED; NULL: LOCAL_SAFE"),
        Column("job_type", Type.TEXT, "SQL, PROCEDURE (handlers in Python too) or EXTERNAL", ("kind",), KINDS.get),
        Column(
            "job_sql",
            Type.TEXT,
            "The SQL of an SQL job; NULL for who may not change the job",
            ("kind", "body"),
            lambda kind, body: body if kind == "sql" else None,
            guarded=True,
        ),
        Column("procedure_uuid", Type.UUID, "The procedure of a PROCEDURE job", ("kind", "job_type"), procedure_id),
        Column("procedure_name", Type.TEXT, "Its name", ("kind", "job_type"), procedure_shown),
        Column(
            "external_command",
            Type.TEXT,
            "The command of an EXTERNAL job; NULL for who may not change the job",
            ("kind", "body"),
            lambda kind, body: body if kind == "external" else None,
            guarded=True,
        ),
        a_text("schedule_kind", "CRON, AT or EVERY"),
        a_text("cron_expression", "Of CRON"),
        Column(
            "interval_seconds",
            Type.BIGINT,
            "Of EVERY, in whole seconds",
            ("interval_us",),
            lambda length: None if length is None else length // 1_000_000,
        ),
        *moments("starts_at", "When it begins; of AT, its moment"),
        *moments("ends_at", "When it ends"),
        a_text("schedule_tz", "Its time zone", "timezone"),
        *moments("next_run_time", "When it is due next; NULL while it is DISABLED, and when nothing is left to come", "next_at"),
        *moments("last_run_time", "The latest due time that became a run", "last_at"),
        a_text("on_completion", "PRESERVE or DROP"),
        a_text("partition_strategy", "ALL_SHARDS, SINGLE_SHARD, SHARD_SET or DYNAMIC"),
        Column("partition_shard_uuid", Type.UUID, "Of SINGLE_SHARD", ("partition_shard",)),
        a_text("partition_expression", "Of DYNAMIC, and the list of SHARD_SET"),
        Column("max_retries", Type.INTEGER, "Retries after a failed attempt", POLICY, said("max_retries"), setting="max_retries"),
        Column(
            "retry_backoff_seconds", Type.INTEGER, "Delay before the first retry", POLICY, said("backoff", _base), setting="backoff_base"
        ),
        Column("timeout_seconds", Type.INTEGER, "How long a run may take; 0: no limit", POLICY, said("timeout"), setting="timeout"),
        _named_id("created_by_user_uuid", ("owner_id", "owner"), "user", "Who created it, in sys.users"),
        a_text("created_by", "The same by name", "owner", push=push_text),
        _named_id("run_as_role_uuid", ("run_as_id", "run_as"), "role", "The role that it runs as, in sys.roles"),
        *moments("created_at", "When it was created"),
        *moments("updated_at", "When it was changed last"),
        a_text("state", "ENABLED, DISABLED or PAUSED"),
        a_text("held_by", "What else keeps it from running: its template's state"),
        a_text("catch_up", "Due times that were missed: none, last or all"),
        a_text("overlap", "While an earlier run lasts: allow, queue or skip"),
        a_text("calendar", "The calendar whose days it leaves out"),
        a_number("priority", "Of its runs; NULL: the template's", kind=Type.INTEGER),
        Column("params", Type.JSON, "What it passes to the handler", ("params",)),
        a_text("template", "Its template", "template_name"),
        a_number("version", "Counts its changes"),
        ORGANIZATION,
    ),
    Right.READ,
    "schedules",
    key=("job_uuid",),
)

JOB_RUNS = Table(
    "job_runs",
    "Runs of the jobs in sys.jobs, one row for each attempt. Those of jobs that were dropped stay until retention removes them.",
    (
        an_id("job_run_uuid", "job_id", "The run: CANCEL JOB RUN takes it"),
        an_id("job_uuid", "schedule_id", "The job in sys.jobs"),
        a_text("job_name", "Its name", "schedule_name", push=push_text),
        Column("assigned_node_uuid", Type.UUID, "The node that it was assigned to; NULL without a cluster", ("target_node",)),
        Column("shard_uuid", Type.UUID, "Its shard; NULL without a cluster", ("shard",)),
        *moments("scheduled_time", "When it was due; of a retry, when that was", "scheduled_at"),
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
        ORGANIZATION,
        OWNER,
    ),
    Right.READ,
    "jobs",
    (Bound("schedule_id", Compares.GIVEN),),
    number="number",
)

_WAITING = (
    an_id("job_id", "job_id", "The job"),
    NUMBER,
    a_text("job_type", "Its type", push=push_text),
    a_text("template", "Its template", "template_name"),
    a_text("queue", "Its queue"),
    a_text("status", "Its state", push=push_status),
    a_number("priority", "0 to 100", kind=Type.INTEGER),
    ORGANIZATION,
    OWNER,
    a_text("origin", "Where it came from: api, direct, schedule or group"),
    an_id("schedule_id", "schedule_id", "Its schedule: job_uuid in sys.jobs"),
    a_text("schedule", "The schedule's name", "schedule_name", push=push_text),
    an_id("group_id", "group_id", "Its group"),
    an_id("root_id", "root_id", "The first attempt of its chain"),
    an_id("retry_of", "retry_of", "The attempt before"),
    a_number("attempt", "Counted from 1", kind=Type.INTEGER),
    a_number("max_retries", "Retries that it may have", kind=Type.INTEGER),
    *moments("due_at", "The due time that it was created for"),
    *moments("run_at", "When it may start"),
    *moments("created_at", "When it was created"),
    *moments("queued_at", "When it became ready"),
    *moments("started_at", "When it started"),
    a_text("unique_key", "Its key"),
    Column("params", Type.JSON, "What the handler is called with", ("params",)),
    Column("tags", Type.JSON, "Its tags", ("tags",)),
)

QUEUE = Table(
    "queue",
    "Jobs that have not finished, of schedules and others.",
    (
        *_WAITING,
        a_text("held", "What holds a QUEUED job: a limit or a pause"),
        a_number("blockers", "Jobs that it waits for", kind=Type.INTEGER),
        a_number("position", "Its place among those of its priority"),
        *moments("expires_at", "When it is skipped if it has not started"),
        an_id("worker_id", "worker_id", "The worker that runs it"),
        an_id("run_id", "run_id", "The execution"),
        a_number("progress", "Percent, as the handler reported", kind=Type.INTEGER),
        a_text("progress_message", "What the handler reported"),
    ),
    Right.READ,
    "jobs",
    (_among("status", [status for status in Status if status in LIVE]),),
    number="number",
)

HISTORY = Table(
    "history",
    "Jobs that have finished, of schedules and others, one row for each attempt.",
    (
        *_WAITING,
        *moments("finished_at", "When it finished", pushed=True),
        a_text("reason", "Why it was not run, or ended early"),
        a_text("ended_by", "Who ended it"),
        a_text("error_type", "Kind of the error: transient, permanent, timeout, crash, interrupted or dependency"),
        a_text("error", "The error"),
        a_text("error_code", "The error's own code"),
        a_number("exit_code", "Of the process", kind=Type.INTEGER),
        Column("result", Type.JSON, "What the handler returned", ("result",)),
        an_id("worker_id", "worker_id", "The worker that ran it"),
        an_id("run_id", "run_id", "The execution; NULL if it never started"),
    ),
    Right.READ,
    "jobs",
    (_among("status", [status for status in Status if status in TERMINAL]),),
    number="number",
)

JOB_DEPENDENCIES = Table(
    "job_dependencies",
    "Which job waits for which.",
    (
        an_id("job_uuid", "schedule_id", "The job that waits"),
        an_id("depends_on_job_uuid", "parent_id", "The job that it waits for"),
        a_text("job_name", "The name of the first", "name"),
        a_text("depends_on_job_name", "The name of the second", "parent_name"),
        ORGANIZATION,
    ),
    Right.READ,
    "dependencies",
    key=("job_uuid", "depends_on_job_uuid"),
)

OCCURRENCES = Table(
    "occurrences",
    "The ledger: due times of schedules, with the outcome of each. A row can stand for several in a row.",
    (
        an_id("job_uuid", "schedule_id", "The job"),
        a_text("job_name", "Its name", "name"),
        *moments("due_at", "The due time, or the first of several", pushed=True),
        *moments("last_due_at", "The last of several"),
        a_number("count", "How many due times it stands for"),
        a_text("fate", "Its outcome: FIRED, COALESCED, MISSED, SKIPPED_… or REFUSED"),
        a_text("reason", "Why"),
        an_id("job_run_uuid", "job_id", "Its run; NULL if there is none"),
        *moments("recorded_at", "When it was recorded"),
        ORGANIZATION,
    ),
    Right.READ,
    "occurrences",
    key=("job_uuid", "due_at_ts", "fate"),
)

WORKERS = Table(
    "workers",
    "Workers, those that have ended too until retention removes them.",
    (
        an_id("worker_id", "worker_id", "The worker"),
        a_text("host", "Its machine"),
        a_text("kind", "worker, or client: a program that executes jobs directly"),
        a_number("beat", "Counts its heartbeats"),
        a_number("slots", "Handlers that it runs at once", kind=Type.INTEGER),
        a_number("pid", "The id of its process", kind=Type.INTEGER),
        a_text("version", "The version of Rota that it runs", "rota_version"),
        a_number("memory", "The memory of its process in bytes, as of its last beat"),
        Column("job_types", Type.JSON, "The types that it has handlers for", ("job_types",)),
        Column("queues", Type.JSON, "The queues that it serves; NULL: all", ("queues",)),
        *moments("started_at", "When it started"),
        *moments("stopping_at", "When it began to stop"),
        *moments("ended_at", "When it ended, or was declared lost"),
    ),
    Right.OPERATE,
    "workers",
    key=("worker_id",),
)

USERS = Table(
    "users",
    "Users of the store.",
    (
        _named_id("user_uuid", ("user_id", "name"), "user", "The user"),
        a_text("user_name", "The name", "name"),
        ORGANIZATION,
        a_text("role", "system_manager, admin or user"),
        Column("permissions", Type.JSON, "Permissions that templates may require", ("permissions",)),
        a_text("state", "ACTIVE or REMOVED"),
        CREATED_BY,
        *moments("created_at", "When the user was created"),
        *moments("updated_at", "When the user was changed last"),
    ),
    Right.READ_ORGANIZATIONS,
    "users",
    key=("user_name",),
)

ORGANIZATIONS = Table(
    "organizations",
    "Organizations of the store.",
    (
        a_text("organization", "The name", "organization_id"),
        a_text("display_name", "The name as people see it"),
        a_text("state", "ACTIVE, SUSPENDED or REMOVED"),
        a_number("max_running", "Jobs that may run at once; NULL: no limit"),
        a_number("max_queued", "Jobs that may wait; NULL: no limit"),
        a_number("max_priority", "Highest priority; NULL: no limit", kind=Type.INTEGER),
        *moments("created_at", "When it was created"),
    ),
    Right.READ_ORGANIZATIONS,
    "organizations",
    key=("organization",),
)

TEMPLATES = Table(
    "templates",
    "Templates: what a job of a type is, and its limits. NULL: no limit, or the setting's value.",
    (
        an_id("template_uuid", "template_id", "The template"),
        a_text("template_name", "Its name", "name"),
        a_text("display_name", "The name as people see it"),
        a_text("description", "Its description"),
        Column("job_type", Type.TEXT, "SQL, PROCEDURE (handlers in Python too) or EXTERNAL", ("kind",), KINDS.get),
        a_text("type", "The type of its jobs", "job_type"),
        a_text("state", "ENABLED, DISABLED or ARCHIVED"),
        a_text("requires_permission", "The permission that its users need"),
        a_number("max_running", "Jobs that may run at once"),
        a_number("concurrency", "Jobs that one worker may run at once"),
        a_number("rate_limit", "Starts in a window"),
        Column(
            "rate_window_seconds", Type.DOUBLE, "That window", ("rate_window",), lambda length: None if length is None else length / 1e6
        ),
        Column("max_retries", Type.INTEGER, "Retries after a failed attempt", POLICY, said("max_retries"), setting="max_retries"),
        Column("timeout_seconds", Type.INTEGER, "How long a run may take; 0: no limit", POLICY, said("timeout"), setting="timeout"),
        a_number("version", "Counts its changes"),
        CREATED_BY,
        *moments("created_at", "When it was created"),
        *moments("updated_at", "When it was changed last"),
        a_text("organization", "Whose it is; NULL: everybody's", "organization_id"),
    ),
    Right.READ,
    "templates",
    key=("template_uuid",),
)

CALENDARS = Table(
    "calendars",
    "Days on which schedules do not run.",
    (
        ORGANIZATION,
        a_text("calendar_name", "Its name", "name"),
        a_text("description", "Its description"),
        Column("days", Type.JSON, "The days, as a list of dates", ("days",)),
        CREATED_BY,
        *moments("created_at", "When it was created"),
        *moments("updated_at", "When it was changed last"),
    ),
    Right.READ,
    "calendars",
    key=("organization", "calendar_name"),
)

AUDIT = Table(
    "audit",
    "What people did and were refused, and how audited runs ended.",
    (
        Column("audit_id", Type.BIGINT, "Counts the entries", ("audit_id",), None, push_whole, ranges=True, ordered=True),
        *moments("at", "When"),
        Column("event", Type.TEXT, "What was done, such as JOB_CREATED or ACCESS_DENIED", ("action",), event_of, push_event),
        an_id("job_uuid", "job_uuid", "The job that it is about"),
        an_id("job_run_uuid", "job_run_uuid", "The run that it is about"),
        a_text("actor", "Who"),
        a_text("outcome", "ok, failed or denied"),
        ORGANIZATION,
        a_text("action", "What was done, as Rota names it"),
        a_text("subject", "The kind of thing it was done to"),
        a_text("subject_id", "The thing"),
        Column("before", Type.JSON, "As it was", ("before",)),
        Column("after", Type.JSON, "As it is since", ("after",)),
    ),
    Right.READ_AUDIT,
    "audit",
    number="audit_id",
)


def _own(*columns: tuple[str, Type, str]) -> tuple[Column, ...]:
    return tuple(Column(name, kind, what, (name,)) for name, kind, what in columns)


SETTINGS = Table(
    "settings",
    "Settings that hold in the process that answers, and those that the store may keep: scheduler.enabled and so on.",
    _own(
        ("name", Type.TEXT, "The setting"),
        ("value", Type.TEXT, "Its value; passwords are left out"),
        ("source", Type.TEXT, "Whose word it is: environment, program, store or default"),
        ("description", Type.TEXT, "What it is for"),
    ),
    Right.OPERATE,
    key=("name",),
)

PERFORMANCE = Table(
    "performance",
    "Metrics of the scheduler, now: the values behind /metrics.",
    _own(
        ("metric", Type.TEXT, "Its name"),
        ("labels", Type.JSON, "What it is about"),
        ("value", Type.DOUBLE, "Its value"),
        ("unit", Type.TEXT, "jobs, ms, seconds, workers or due times"),
        ("at", Type.BIGINT, "When it was read, in milliseconds since 1970 UTC"),
        ("at_ts", Type.TEXT, "The same as ISO 8601"),
    ),
    Right.READ_STATS,
    key=("metric", "labels"),
)

ROLES = Table(
    "roles",
    "Roles of organizations, which privileges are granted to.",
    _own(
        ("role_uuid", Type.UUID, "The role"),
        ("role_name", Type.TEXT, "Its name"),
        ("organization", Type.TEXT, "Whose it is"),
        ("created_by", Type.TEXT, "Who created it"),
        ("created_at", Type.BIGINT, "When, in milliseconds since 1970 UTC"),
        ("created_at_ts", Type.TEXT, "The same as ISO 8601"),
    ),
    Right.READ_ORGANIZATIONS,
    key=("role_uuid",),
)

GRANTS = Table(
    "grants",
    "Privileges that were granted: an admin sees all of its organization, a user its own and those it has made.",
    _own(
        ("grant_uuid", Type.UUID, "The grant"),
        ("grantee", Type.TEXT, "Who has it: the name of a user or a role, or PUBLIC"),
        ("grantee_kind", Type.TEXT, "USER, ROLE or PUBLIC"),
        ("privilege", Type.TEXT, "The privilege"),
        ("object_kind", Type.TEXT, "JOB, CONNECTION, SECRET or ROLE; NULL: nothing in particular"),
        ("object", Type.TEXT, "Its name"),
        ("object_uuid", Type.UUID, "Of a job or a role: its id"),
        ("grantable", Type.INTEGER, "Whether the grantee may grant it, as 0 or 1"),
        ("organization", Type.TEXT, "Where it holds"),
        ("granted_by", Type.TEXT, "Who granted it"),
        ("granted_at", Type.BIGINT, "When, in milliseconds since 1970 UTC"),
        ("granted_at_ts", Type.TEXT, "The same as ISO 8601"),
    ),
    Right.READ,
    key=("grant_uuid",),
)

CONNECTIONS = Table(
    "connections",
    "Connections that the caller's jobs may use. Addresses, logins and names of secrets are shown to those who manage connections.",
    _own(
        ("connection_uuid", Type.UUID, "The connection"),
        ("connection_name", Type.TEXT, "Its name"),
        ("kind", Type.TEXT, "postgresql or sqlite"),
        ("url", Type.TEXT, "The address of the database, without a password"),
        ("login", Type.TEXT, "The user of the database; NULL: it has none"),
        ("secret_key", Type.TEXT, "The name of the secret that is the password; NULL: there is none"),
        ("multi", Type.INTEGER, "Whether the text of a job may have several statements, as 0 or 1"),
        ("organization", Type.TEXT, "Whose it is"),
        ("created_by", Type.TEXT, "Who created it"),
        ("created_at", Type.BIGINT, "When, in milliseconds since 1970 UTC"),
        ("created_at_ts", Type.TEXT, "The same as ISO 8601"),
        ("updated_at", Type.BIGINT, "When it was last changed, in milliseconds since 1970 UTC"),
        ("updated_at_ts", Type.TEXT, "The same as ISO 8601"),
    ),
    Right.READ,
    key=("connection_uuid",),
)

SECRETS = Table(
    "secrets",
    "Secrets of organizations and of single jobs. Values can't be read.",
    _own(
        ("secret_uuid", Type.UUID, "The secret"),
        ("secret_name", Type.TEXT, "Its name"),
        ("organization", Type.TEXT, "Whose it is"),
        ("job_uuid", Type.UUID, "The job that alone has it; NULL: jobs of the organization can name it"),
        ("job_name", Type.TEXT, "The name of that job"),
        ("version", Type.BIGINT, "Counts its values"),
        ("key_id", Type.TEXT, "The master key that it is encrypted with"),
        ("created_by", Type.TEXT, "Who created it"),
        ("created_at", Type.BIGINT, "When, in milliseconds since 1970 UTC"),
        ("created_at_ts", Type.TEXT, "The same as ISO 8601"),
        ("updated_at", Type.BIGINT, "When its value was set last, in milliseconds since 1970 UTC"),
        ("updated_at_ts", Type.TEXT, "The same as ISO 8601"),
        ("last_used_at", Type.BIGINT, "When a run was given it last, in milliseconds since 1970 UTC"),
        ("last_used_at_ts", Type.TEXT, "The same as ISO 8601"),
    ),
    Right.READ,
    key=("secret_uuid",),
)

JOB_SECRETS = Table(
    "job_secrets",
    "Names of the secrets that runs of each job are given. Values can't be read.",
    _own(
        ("job_uuid", Type.UUID, "The job"),
        ("secret_key", Type.TEXT, "The name of the secret"),
        ("job_name", Type.TEXT, "The job's name"),
        ("source", Type.TEXT, "JOB: it is the job's alone; ORGANIZATION: the job names a secret of its organization"),
        ("organization", Type.TEXT, "Whose it is"),
    ),
    Right.READ,
    key=("job_uuid", "secret_key"),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        JOBS,
        JOB_RUNS,
        QUEUE,
        HISTORY,
        JOB_DEPENDENCIES,
        JOB_SECRETS,
        OCCURRENCES,
        PERFORMANCE,
        AUDIT,
        SETTINGS,
        WORKERS,
        USERS,
        ROLES,
        GRANTS,
        CONNECTIONS,
        SECRETS,
        ORGANIZATIONS,
        TEMPLATES,
        CALENDARS,
    )
}
"""Every table of sys by its name."""
