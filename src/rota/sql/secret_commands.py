"""Statements about secrets: CREATE, ALTER and DROP SECRET, a job's own secrets, and SHOW SECRETS. Nothing here shows a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rota.errors import InvalidInput, NotFound, Refused, SecretUnavailable, StillNeeded
from rota.model.kinds import is_kind
from rota.model.secrets import Put, SecretPlace
from rota.model.values import dashed
from rota.resources.secrets import drop, job_secrets, place_in, place_of, put, visible_secrets
from rota.sql.execution import Execution, Refusal, state_of
from rota.sql.result import Result
from rota.sql.syntax import AlterSecret, CreateSecret, DropJobSecret, DropSecret, SecretText, SecretValue, SetJobSecret, Show

LITERAL = "the value of the secret is written into the statement, where a history or a log may keep it: use a parameter, ? or :name"
Rows = Iterable[tuple[Any, ...]]


def create_secret(run: Execution, statement: CreateSecret) -> Result:
    """Create a secret of the organization."""
    return _put(run, _place(run, statement.name), statement.value, Put.NEW, "CREATE SECRET")


def alter_secret(run: Execution, statement: AlterSecret) -> Result:
    """Change the value of a secret of the organization."""
    return _put(run, _place(run, statement.name), statement.value, Put.EXISTING, "ALTER SECRET")


def drop_secret(run: Execution, statement: DropSecret) -> Result:
    """Delete a secret of the organization."""
    return _drop(run, _place(run, statement.name), "DROP SECRET")


def set_job_secret(run: Execution, statement: SetJobSecret) -> Result:
    """Set a secret that one job alone has, creating it if there is none."""
    job = run.job(statement.job)
    if job.own is not None and not is_kind(job.job_type):
        run.notice(f"job {job.name} calls a Python handler, which is not given secrets")
    return _put(run, _place_in_job(run, statement.job, statement.key), statement.value, Put.EITHER, "ALTER JOB")


def drop_job_secret(run: Execution, statement: DropJobSecret) -> Result:
    """Delete a secret that one job alone has."""
    return _drop(run, _place_in_job(run, statement.job, statement.key), "ALTER JOB")


def _place(run: Execution, name: str) -> SecretPlace:
    try:
        return place_of(run.ask, name)
    except InvalidInput as error:
        raise _refusal("key", error) from None


def _place_in_job(run: Execution, job: Any, name: str) -> SecretPlace:
    schedule = run.job(job)
    try:
        return place_in(schedule, name)
    except InvalidInput as error:
        raise _refusal("key", error) from None


def _put(run: Execution, place: SecretPlace, value: SecretValue, how: Put, tag: str) -> Result:
    try:
        put(run.ask, place, _value(run, value), how)
    except NotFound as error:
        raise Refusal("key", str(error), code="unknown_secret", sqlstate="42704") from None
    except (InvalidInput, SecretUnavailable) as error:
        raise _refusal("key", error) from None
    except Refused as error:
        raise Refusal("key", str(error), code="secret_exists", sqlstate="42710") from None
    if isinstance(value, SecretText):
        run.notice(LITERAL)
    return Result(tag, notices=run.notices)


def _drop(run: Execution, place: SecretPlace, tag: str) -> Result:
    try:
        drop(run.ask, place)
    except NotFound as error:
        raise Refusal("key", str(error), code="unknown_secret", sqlstate="42704") from None
    except StillNeeded as error:
        raise _refusal("key", error) from None
    return Result(tag, notices=run.notices)


def _refusal(part: str, error: InvalidInput | Refused) -> Refusal:
    return Refusal(part, str(error), code=error.code, sqlstate=state_of(error))


def _value(run: Execution, value: SecretValue) -> object:
    """Return the value of a secret, from the statement or beside it. No error repeats it."""
    if isinstance(value, SecretText):
        return value.text
    values = run.values
    if value.name is None:
        if values is None or isinstance(values, Mapping):
            raise _unbound("? has no value: pass params=[…]")
        return values[0]
    if not isinstance(values, Mapping) or value.name not in values:
        raise _unbound(f"the parameter :{value.name} has no value: pass params={{{value.name!r}: …}}")
    return values[value.name]


def _unbound(message: str) -> Refusal:
    return Refusal("key", message, code="invalid_option", sqlstate="42P02")


# ---- SHOW -------------------------------------------------------------------------------------------------------------


def show_secrets(run: Execution, statement: Show) -> tuple[tuple[str, ...], Rows]:
    """List secrets that the actor may see; of a job, its own and those of the organization that it names."""
    if statement.job is None:
        columns = ("secret_name", "job_name", "organization", "version", "created_by", "updated_at", "last_used_at")
        return columns, [
            (each.name, each.job, each.organization, each.version, each.created_by, each.updated_at, each.last_used_at)
            for each in visible_secrets(run.ask)
        ]
    job = run.job(statement.job, "job")
    return ("job_name", "secret_key", "source", "job_uuid"), [
        (job.name, each.name, source_of(is_own=each.is_own), dashed(job.id)) for each in job_secrets(run.ask) if each.job.id == job.id
    ]


def source_of(*, is_own: bool) -> str:
    """Return whose secret a job is given, in the words of the catalog."""
    return "JOB" if is_own else "ORGANIZATION"
