"""From statements to canonical text: texts that mean the same are rendered the same, and read again as the same statement."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

from msgspec import UNSET

from rota.model.grants import GranteeKind, Privilege
from rota.model.ordering import PRIORITIES
from rota.model.schedules import ScheduleState
from rota.sql.grammar import CLAUSES, KEYWORDS, Clause, Reads
from rota.sql.syntax import (
    AllShards,
    AlterConnection,
    AlterJob,
    AlterSecret,
    AlterSystem,
    Argument,
    Body,
    CallBody,
    CancelJob,
    CancelRun,
    Clauses,
    CreateConnection,
    CreateJob,
    CreateRole,
    CreateSecret,
    DropConnection,
    DropJob,
    DropJobSecret,
    DropRole,
    DropSecret,
    DueRule,
    ExecBody,
    ExecuteJob,
    ExplainJob,
    ExplainRun,
    ForecastJobs,
    Grantee,
    GrantRights,
    JobName,
    Listing,
    OnceAt,
    OnCronLine,
    Parameter,
    Partition,
    PlanChange,
    RevokeRights,
    SecretText,
    SecretValue,
    Select,
    SetJobSecret,
    ShardSet,
    Show,
    SingleShard,
    Statement,
    SteerJob,
    Target,
)
from rota.sql.tokens import PLAIN_NAME, word_of
from rota.sql.values import timestamp_text

MASK = "<secret>"
"""In place of the value of a secret. It can't be parsed, so that nobody stores the mask as the value."""
DOLLAR = "$sql$"
DURATIONS = ((86_400, "DAY"), (3600, "HOUR"), (60, "MINUTE"), (1, "SECOND"))


def render(statement: Statement, *, secrets: bool = False) -> str:
    """Return the canonical text of a statement. Values of secrets are masked, unless `secrets` asks for them."""
    if isinstance(statement, SetJobSecret | CreateSecret | AlterSecret):
        hidden = isinstance(statement.value, SecretText) and not secrets
        return f"{_secret_heading(statement)} {MASK if hidden else _secret(statement.value)};"
    return f"{RENDERERS[type(statement)](statement)};"


# ---- values -----------------------------------------------------------------------------------------------------------


def name_text(name: str) -> str:
    """Return a name as it is written: bare, or in double quotes if it needs them."""
    if PLAIN_NAME.fullmatch(name) and word_of(name) not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def string_text(value: str) -> str:
    """Return a text in single quotes."""
    return "'" + value.replace("'", "''") + "'"


def duration_text(seconds: int) -> str:
    """Return a duration in the largest unit that measures it."""
    size, unit = next((size, unit) for size, unit in DURATIONS if seconds % size == 0 and (seconds or size == 1))
    count = seconds // size
    return f"{count} {unit}{'' if count == 1 else 'S'}"


def _sql(value: str) -> str:
    """Return a statement in quotes, readable even if it has quotes itself."""
    if ("'" in value or "\n" in value) and f"{value}{DOLLAR}".find(DOLLAR) == len(value):
        return f"{DOLLAR}{value}{DOLLAR}"
    return string_text(value)


def _job(job: JobName) -> str:
    return str(job) if isinstance(job, UUID) else name_text(job)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(name_text, names))


def _argument(value: Argument) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, Parameter):
        return _secret(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    return string_text(value) if isinstance(value, str) else str(value)


def _secret(value: SecretValue) -> str:
    if isinstance(value, SecretText):
        return string_text(value.text)
    return "?" if value.name is None else f":{value.name}"


# ---- clauses ----------------------------------------------------------------------------------------------------------


def _schedule(rule: DueRule) -> str:
    if isinstance(rule, OnCronLine):
        return f"CRON {string_text(rule.cron)}"
    if isinstance(rule, OnceAt):
        return f"AT {string_text(timestamp_text(rule.at))}"
    bounds = (("STARTS", rule.starts), ("ENDS", rule.ends))
    written = "".join(f" {word} {string_text(timestamp_text(at))}" for word, at in bounds if at is not None)
    return f"EVERY {duration_text(rule.every)}{written}"


def _partition(rule: Partition) -> str:
    if isinstance(rule, AllShards):
        return "ALL_SHARDS"
    if isinstance(rule, SingleShard):
        return f"SINGLE_SHARD {string_text(rule.shard)}"
    if isinstance(rule, ShardSet):
        return f"SHARD_SET ({', '.join(map(string_text, rule.shards))})"
    return f"DYNAMIC {string_text(rule.expression)}"


def _priority(value: int) -> str:
    return next((word.upper() for word, number in PRIORITIES.items() if number == value), str(value))


WRITERS: dict[Reads, Callable[[Any], str]] = {
    Reads.CHOICE: str.upper,
    Reads.DURATION: duration_text,
    Reads.COUNT: str,
    Reads.TEXT: string_text,
    Reads.NAME: name_text,
    Reads.NAMES: _names,
    Reads.LIST: lambda names: f"({_names(names)})",
    Reads.ZONE: string_text,
    Reads.PRIORITY: _priority,
    Reads.PARAMS: string_text,
    Reads.SCHEDULE: _schedule,
    Reads.PARTITION: _partition,
    Reads.STATE: str,
}


def _clause(clause: Clause, value: Any) -> str:
    written = clause.removed_by if value is None else WRITERS[clause.reads](value)
    return f"{clause.heading}{' =' if clause.equals else ''} {written}"


def _clauses(clauses: Clauses) -> list[tuple[Clause, Any]]:
    return [(clause, value) for clause in CLAUSES if (value := getattr(clauses, clause.field)) is not UNSET]


def _body(body: Body) -> str:
    if isinstance(body, CallBody):
        named = [f"{name_text(each.name)} => {_argument(each.value)}" for each in body.named]
        return f"CALL {'.'.join(map(name_text, body.procedure))}({', '.join([*map(_argument, body.arguments), *named])})"
    return f"EXEC {string_text(body.command)}" if isinstance(body, ExecBody) else f"AS {_sql(body.sql)}"


# ---- statements -------------------------------------------------------------------------------------------------------


def _create_job(statement: CreateJob) -> str:
    quiet = "IF NOT EXISTS " if statement.if_not_exists else ""
    lines = [f"{statement.mode} JOB {quiet}{name_text(statement.name)}"]
    for clause, value in _clauses(statement.clauses):
        alone = clause.reads is Reads.STATE and value is not ScheduleState.PAUSED
        lines.append(str(value) if alone else _clause(clause, value))
    if statement.clauses.body is not UNSET:
        lines.append(_body(statement.clauses.body))
    return "\n  ".join(lines)


def _alter_job(statement: AlterJob) -> str:
    lines = [f"ALTER JOB {name_text(statement.name)}"]
    lines += [f"SET {_clause(clause, value)}" for clause, value in _clauses(statement.clauses)]
    if statement.clauses.body is not UNSET:
        lines.append(f"SET {_body(statement.clauses.body)}")
    if statement.rename_to is not UNSET:
        lines.append(f"RENAME TO {name_text(statement.rename_to)}")
    return "\n  ".join(lines)


def _drop_job(statement: DropJob) -> str:
    quiet, keep = "IF EXISTS " if statement.if_exists else "", " KEEP HISTORY" if statement.keep_history else ""
    return f"DROP JOB {quiet}{name_text(statement.name)}{keep}"


def _execute_job(statement: ExecuteJob) -> str:
    params = "" if statement.params is UNSET else f" WITH PARAMS {string_text(statement.params)}"
    wait = "" if statement.wait is UNSET else " WAIT" if statement.wait is None else f" WAIT {duration_text(statement.wait)}"
    return f"EXECUTE JOB {name_text(statement.name)}{params}{wait}"


def _secret_heading(statement: SetJobSecret | CreateSecret | AlterSecret) -> str:
    if isinstance(statement, SetJobSecret):
        return f"ALTER JOB {name_text(statement.job)} SET SECRET {name_text(statement.key)} ="
    verb = "CREATE" if isinstance(statement, CreateSecret) else "ALTER"
    return f"{verb} SECRET {name_text(statement.name)} VALUE"


def _show(statement: Show) -> str:
    what, text = statement.what, f"SHOW {statement.what}"
    if statement.grantee is not None:
        text += f" FOR {_grantee(statement.grantee)}"
    if statement.job is not None:
        word = "" if what in {Listing.JOB, Listing.CREATE_JOB} else "FOR JOB " if what in {Listing.GRANTS, Listing.AUDIT} else "FOR "
        text += f" {word}{_job(statement.job)}"
    if statement.like is not None:
        text += f" LIKE {string_text(statement.like)}"
    return text if statement.limit is None else f"{text} LIMIT {statement.limit}"


def _forecast(statement: ForecastJobs) -> str:
    text = "FORECAST" if statement.job is None else f"FORECAST JOB {_job(statement.job)}"
    if statement.duration is not None:
        text += f" FOR {duration_text(statement.duration)}"
    if statement.start is not None and statement.end is not None:
        text += f" FROM {string_text(timestamp_text(statement.start))} TO {string_text(timestamp_text(statement.end))}"
    return text


def _grantee(grantee: Grantee) -> str:
    if grantee.kind is GranteeKind.PUBLIC:
        return "PUBLIC"
    return f"{grantee.kind} {name_text(grantee.name)}".strip()


def _privileges(privileges: tuple[Privilege, ...], target: Target | None) -> str:
    if target is None:
        return ", ".join(privileges)
    if privileges == (Privilege.ROLE,):
        return f"ROLE {name_text(target.name)}"
    return f"{', '.join(privileges)} ON {target.kind} {name_text(target.name)}"


def _grant(statement: GrantRights) -> str:
    option = " WITH GRANT OPTION" if statement.grant_option else ""
    whom = ", ".join(map(_grantee, statement.grantees))
    return f"GRANT {_privileges(statement.privileges, statement.target)} TO {whom}{option}"


def _revoke(statement: RevokeRights) -> str:
    only = "GRANT OPTION FOR " if statement.grant_option_only else ""
    whom = ", ".join(map(_grantee, statement.grantees))
    dependents = "" if statement.dependents is UNSET else f" {statement.dependents}"
    return f"REVOKE {only}{_privileges(statement.privileges, statement.target)} FROM {whom}{dependents}"


def _create_connection(statement: CreateConnection) -> str:
    user = "" if statement.user is None else f" USER = {string_text(statement.user)}"
    secret = "" if statement.secret is None else f" SECRET = {name_text(statement.secret)}"
    multi = " MULTI" if statement.multi else ""
    return f"CREATE CONNECTION {name_text(statement.name)} URL = {string_text(statement.url)}{user}{secret}{multi}"


def _alter_connection(statement: AlterConnection) -> str:
    options = (("URL", statement.url, string_text), ("USER", statement.user, string_text), ("SECRET", statement.secret, name_text))
    changes = [f"SET {word} = {'NONE' if value is None else write(value)}" for word, value, write in options if value is not UNSET]
    if statement.multi is not UNSET:
        changes.append("SET MULTI" if statement.multi else "SET SINGLE")
    return " ".join([f"ALTER CONNECTION {name_text(statement.name)}", *changes])


def _alter_system(statement: AlterSystem) -> str:
    prefix, _, setting = statement.setting.partition(".")
    if statement.value is None:
        return f"ALTER SYSTEM RESET {prefix}.{setting}"
    bare = PLAIN_NAME.fullmatch(statement.value) or _NUMBER.fullmatch(statement.value)
    return f"ALTER SYSTEM SET {prefix}.{setting} = {statement.value if bare else string_text(statement.value)}"


_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")

RENDERERS: dict[type, Callable[[Any], str]] = {
    CreateJob: _create_job,
    AlterJob: _alter_job,
    DropJob: _drop_job,
    DropJobSecret: lambda one: f"ALTER JOB {name_text(one.job)} DROP SECRET {name_text(one.key)}",
    ExecuteJob: _execute_job,
    CancelRun: lambda one: f"CANCEL JOB RUN {one.run}",
    CancelJob: lambda one: f"CANCEL JOB {name_text(one.name)}",
    SteerJob: lambda one: f"{one.verb} JOB {name_text(one.name)}",
    Show: _show,
    ExplainJob: lambda one: f"EXPLAIN JOB {_job(one.job)}",
    ExplainRun: lambda one: f"EXPLAIN JOB RUN {one.run}",
    PlanChange: lambda one: f"PLAN {RENDERERS[type(one.statement)](one.statement)}",
    ForecastJobs: _forecast,
    Select: lambda one: one.text,
    GrantRights: _grant,
    RevokeRights: _revoke,
    CreateRole: lambda one: f"CREATE ROLE {name_text(one.name)}",
    DropRole: lambda one: f"DROP ROLE {name_text(one.name)}",
    DropSecret: lambda one: f"DROP SECRET {name_text(one.name)}",
    CreateConnection: _create_connection,
    AlterConnection: _alter_connection,
    DropConnection: lambda one: f"DROP CONNECTION {name_text(one.name)}",
    AlterSystem: _alter_system,
}
