"""The syntax tree: a frozen value for each statement, equal for texts that mean the same.

UNSET is "not said", which is not the same as a default: an ALTER, and a CREATE OR ALTER of a job that exists, change what is said and
nothing else. None is "NONE was said": the value is removed.

Durations are whole seconds. A moment is a datetime; one without a zone is in the time zone of its job.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeAlias
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from rota.model.grants import GranteeKind, Privilege, TargetKind
from rota.model.schedules import CatchUp, OnCompletion, Overlap, ScheduleState

JobName: TypeAlias = str | UUID
"""A job by its name or its id."""


class Parameter(msgspec.Struct, frozen=True):
    """A value that comes beside the statement: `?`, or `:name`."""

    name: str | None = None


class SecretText(msgspec.Struct, frozen=True):
    """The value of a secret, written into a statement."""

    text: str

    def __repr__(self) -> str:
        """Return it without the value."""
        return "SecretText(…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return it without the value."""
        return [("text", "…")]


SecretValue: TypeAlias = SecretText | Parameter
Argument: TypeAlias = str | int | Decimal | bool | Parameter | None

# ---- clauses of a job -------------------------------------------------------------------------------------------------


class JobClass(StrEnum):
    """The nodes of a cluster on which a job may run."""

    LOCAL_SAFE = "LOCAL_SAFE"
    LEADER_ONLY = "LEADER_ONLY"
    QUORUM_REQUIRED = "QUORUM_REQUIRED"


class AllShards(msgspec.Struct, frozen=True):
    """One run on each shard."""


class SingleShard(msgspec.Struct, frozen=True):
    """One run, on a shard given by its name or id."""

    shard: str


class ShardSet(msgspec.Struct, frozen=True):
    """One run on each of these shards."""

    shards: tuple[str, ...]


class DynamicShards(msgspec.Struct, frozen=True):
    """One run on each shard that an expression names when the job is due."""

    expression: str


Partition: TypeAlias = AllShards | SingleShard | ShardSet | DynamicShards


class OnCronLine(msgspec.Struct, frozen=True):
    """Due by a cron expression."""

    cron: str


class OnceAt(msgspec.Struct, frozen=True):
    """Due once."""

    at: datetime


class AtIntervals(msgspec.Struct, frozen=True):
    """Due at an interval."""

    every: int
    starts: datetime | None = None
    ends: datetime | None = None


DueRule: TypeAlias = OnCronLine | OnceAt | AtIntervals


class SqlBody(msgspec.Struct, frozen=True):
    """SQL to execute."""

    sql: str


class NamedArgument(msgspec.Struct, frozen=True):
    """An argument by its name: `region => 'eu'`."""

    name: str
    value: Argument


class CallBody(msgspec.Struct, frozen=True):
    """A procedure to call, by the parts of its name."""

    procedure: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()
    named: tuple[NamedArgument, ...] = ()
    """After those by place."""


class ExecBody(msgspec.Struct, frozen=True):
    """A command to run."""

    command: str


Body: TypeAlias = SqlBody | CallBody | ExecBody


class Clauses(msgspec.Struct, frozen=True, kw_only=True):
    """The clauses of a job that were said; `rota.sql.grammar.CLAUSES` says how each is written."""

    job_class: JobClass | UnsetType = UNSET
    partition: Partition | UnsetType = UNSET
    schedule: DueRule | UnsetType = UNSET
    timezone: str | UnsetType | None = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    jitter: int | UnsetType = UNSET
    calendar: str | UnsetType | None = UNSET
    depends_on: tuple[str, ...] | UnsetType | None = UNSET
    max_retries: int | UnsetType = UNSET
    retry_backoff: int | UnsetType = UNSET
    timeout: int | UnsetType = UNSET
    """0: no limit."""
    on_completion: OnCompletion | UnsetType = UNSET
    run_as: str | UnsetType | None = UNSET
    connection: str | UnsetType | None = UNSET
    secrets: tuple[str, ...] | UnsetType | None = UNSET
    priority: int | UnsetType = UNSET
    params: str | UnsetType = UNSET
    """A JSON object as text, its keys sorted."""
    description: str | UnsetType | None = UNSET
    state: ScheduleState | UnsetType = UNSET
    body: Body | UnsetType = UNSET


# ---- statements -------------------------------------------------------------------------------------------------------


class CreateMode(StrEnum):
    """The three ways to create a job; they differ in their treatment of one that exists."""

    CREATE = "CREATE"
    """The statement is refused, or does nothing with IF NOT EXISTS."""
    CREATE_OR_ALTER = "CREATE OR ALTER"
    """Its clauses are changed, as far as they are given."""
    RECREATE = "RECREATE"
    """It is replaced; only its history stays."""


class CreateJob(msgspec.Struct, frozen=True):
    """Create a job. Only with CREATE OR ALTER may the schedule and the body be missing."""

    name: str
    clauses: Clauses
    mode: CreateMode = CreateMode.CREATE
    if_not_exists: bool = False


class AlterJob(msgspec.Struct, frozen=True):
    """Change a job."""

    name: str
    clauses: Clauses = Clauses()
    rename_to: str | UnsetType = UNSET


class DropJob(msgspec.Struct, frozen=True):
    """Delete a job, and its history unless that is kept."""

    name: str
    if_exists: bool = False
    keep_history: bool = False


class SetJobSecret(msgspec.Struct, frozen=True):
    """Set a secret of one job."""

    job: str
    key: str
    value: SecretValue


class DropJobSecret(msgspec.Struct, frozen=True):
    """Delete a secret of one job."""

    job: str
    key: str


class ExecuteJob(msgspec.Struct, frozen=True):
    """Run a job now."""

    name: str
    params: str | UnsetType = UNSET
    wait: int | UnsetType | None = UNSET
    """Seconds to wait for the result; None: as long as it takes; UNSET: do not wait."""


class CancelRun(msgspec.Struct, frozen=True):
    """Cancel one run."""

    run: UUID


class CancelJob(msgspec.Struct, frozen=True):
    """Cancel all unfinished runs of a job."""

    name: str


class Steering(StrEnum):
    """Short forms of ALTER JOB … SET STATE."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    ENABLE = "ENABLE"
    DISABLE = "DISABLE"


class SteerJob(msgspec.Struct, frozen=True):
    """Change the state of a job."""

    verb: Steering
    name: str


class Listing(StrEnum):
    """The things that SHOW lists."""

    JOBS = "JOBS"
    JOB = "JOB"
    CREATE_JOB = "CREATE JOB"
    JOB_RUNS = "JOB RUNS"
    OCCURRENCES = "OCCURRENCES"
    DEPENDENCIES = "DEPENDENCIES"
    GRANTS = "GRANTS"
    ROLES = "ROLES"
    SECRETS = "SECRETS"
    CONNECTIONS = "CONNECTIONS"
    SETTINGS = "SETTINGS"
    AUDIT = "AUDIT"
    SCHEDULER = "SCHEDULER"
    METRICS = "METRICS"
    NODES = "NODES"
    SHARDS = "SHARDS"


class Grantee(msgspec.Struct, frozen=True):
    """A user, a role, or everybody."""

    name: str = ""
    kind: GranteeKind = GranteeKind.ANY


class Show(msgspec.Struct, frozen=True):
    """List something."""

    what: Listing
    job: JobName | None = None
    grantee: Grantee | None = None
    like: str | None = None
    limit: int | None = None


class ExplainJob(msgspec.Struct, frozen=True):
    """Say why a job runs or does not run."""

    job: JobName


class ExplainRun(msgspec.Struct, frozen=True):
    """Say why a run is where it is."""

    run: UUID


class PlanChange(msgspec.Struct, frozen=True):
    """Say what a statement would change, and change nothing."""

    statement: CreateJob | AlterJob | DropJob


class ForecastJobs(msgspec.Struct, frozen=True):
    """List due times to come: for a duration from now on, or between two moments. One without a zone is in UTC."""

    job: JobName | None = None
    duration: int | None = None
    start: datetime | None = None
    end: datetime | None = None


class Select(msgspec.Struct, frozen=True):
    """A query over sys.*, as it was written: another engine reads it."""

    text: str
    parameters: tuple[str, ...] = ()
    """`?` and `:name` in the order in which they occur."""


class Target(msgspec.Struct, frozen=True):
    """The one thing that privileges are granted on."""

    kind: TargetKind
    name: str


class GrantRights(msgspec.Struct, frozen=True):
    """Grant privileges."""

    privileges: tuple[Privilege, ...]
    grantees: tuple[Grantee, ...]
    target: Target | None = None
    grant_option: bool = False
    """The grantees may grant them further."""


class Dependents(StrEnum):
    """The treatment of grants that rest on a revoked one."""

    CASCADE = "CASCADE"
    RESTRICT = "RESTRICT"


class RevokeRights(msgspec.Struct, frozen=True):
    """Revoke privileges, or only the right to grant them further."""

    privileges: tuple[Privilege, ...]
    grantees: tuple[Grantee, ...]
    target: Target | None = None
    grant_option_only: bool = False
    dependents: Dependents | UnsetType = UNSET


class CreateRole(msgspec.Struct, frozen=True):
    """Create a role."""

    name: str


class DropRole(msgspec.Struct, frozen=True):
    """Delete a role."""

    name: str


class CreateSecret(msgspec.Struct, frozen=True):
    """Create a secret that jobs and connections can name."""

    name: str
    value: SecretValue


class AlterSecret(msgspec.Struct, frozen=True):
    """Change the value of a secret."""

    name: str
    value: SecretValue


class DropSecret(msgspec.Struct, frozen=True):
    """Delete a secret."""

    name: str


class CreateConnection(msgspec.Struct, frozen=True):
    """Create a connection to a database."""

    name: str
    url: str
    user: str | None = None
    secret: str | None = None
    """The name of the secret that is its password."""
    multi: bool = False
    """The text of a job may have several statements."""


class AlterConnection(msgspec.Struct, frozen=True):
    """Change a connection."""

    name: str
    url: str | UnsetType = UNSET
    user: str | UnsetType | None = UNSET
    secret: str | UnsetType | None = UNSET
    multi: bool | UnsetType = UNSET


class DropConnection(msgspec.Struct, frozen=True):
    """Delete a connection."""

    name: str


class AlterSystem(msgspec.Struct, frozen=True):
    """Change a setting of the scheduler, or take it back to its default."""

    setting: str
    value: str | None
    """As text, whatever it was written as; None: the default."""


Statement: TypeAlias = (
    CreateJob
    | AlterJob
    | DropJob
    | SetJobSecret
    | DropJobSecret
    | ExecuteJob
    | CancelRun
    | CancelJob
    | SteerJob
    | Show
    | ExplainJob
    | ExplainRun
    | PlanChange
    | ForecastJobs
    | Select
    | GrantRights
    | RevokeRights
    | CreateRole
    | DropRole
    | CreateSecret
    | AlterSecret
    | DropSecret
    | CreateConnection
    | AlterConnection
    | DropConnection
    | AlterSystem
)
