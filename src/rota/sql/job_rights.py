"""Whether the author of a job may use what the job uses: its connection, its role, its secrets; and whether the database takes its text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from rota.compose import make_checker
from rota.errors import InvalidOption, InvalidParams, NotFound, RotaError
from rota.model.connections import Connection, DatabaseKind
from rota.model.gate import Actor, Right, may_run_as, uses
from rota.model.grants import Holdings, TargetKind
from rota.model.kinds import DEFAULT_CONNECTION, is_kind
from rota.model.schedules import JobKind, OwnTemplate, Schedule, ScheduleState
from rota.model.secret_params import named_secrets, secrets_in
from rota.orders import database_of, passwords_of
from rota.ports.runner import BodyRefused, UnfitDatabase, Unreachable
from rota.schedule_edits import refuse_misnamed_params
from rota.sql.execution import Execution, Refusal


def check_use(run: Execution, job: Schedule, who: Actor) -> None:
    """Refuse a job that uses what its author may not use, or whose text its database does not take. Nothing is written."""
    own = job.own
    if own is None:
        return
    run.ask.registry.sync(run.ask.store, run.ask.now)
    holdings = run.ask.registry.holdings(who, run.ask.store)
    connection = connection_of(run, job) if is_kind(own.job_type) and own.kind is not JobKind.EXTERNAL else None
    if own.kind is JobKind.EXTERNAL:
        run.also(Right.EXTERNAL)
    if connection is not None and not uses(who, TargetKind.CONNECTION, connection.name, job.organization, holdings):
        # As if it was not there: its name is not for everybody.
        raise _unknown_connection(connection.name, job.organization)
    _check_role(run, job, who, holdings, connection)
    check_named(job.params, own)
    _check_usable(run, job, named_secrets(own.defaults), who, holdings, part="secrets")
    if connection is not None:
        _check_text(run, job, own, connection)
    try:
        refuse_misnamed_params(run.ask.session, job, job.params)
    except InvalidParams as error:
        raise params_refusal(error) from None


def params_refusal(error: InvalidParams) -> Refusal:
    """Return the refusal of params, with its place."""
    return Refusal("params", str(error), code=error.code, sqlstate="22023")


def connection_of(run: Execution, job: Schedule) -> Connection | None:
    """Return the connection of a job; None: it names none, and its organization has no default. Refuse a name that is not there."""
    assert job.own is not None  # noqa: S101 - the caller looked
    named = job.own.defaults.get("connection")
    found = run.ask.registry.connections.get((job.organization, named or DEFAULT_CONNECTION))
    if found is None and named is not None:
        raise _unknown_connection(named, job.organization)
    return found


def without_connection(run: Execution, job: Schedule) -> Schedule:
    """Return a job that nothing can run yet as a disabled one, with a notice; any other as it is."""
    own = job.own
    if own is None or job.state is ScheduleState.DISABLED or not is_kind(own.job_type) or own.kind is JobKind.EXTERNAL:
        return job
    if (job.organization, own.defaults.get("connection") or DEFAULT_CONNECTION) in run.ask.registry.connections:
        return job
    run.notice(
        f"job {job.name} is DISABLED: it names no connection, and organization {job.organization} has none called {DEFAULT_CONNECTION}; "
        f"create that with CREATE CONNECTION, or name another with ALTER JOB {job.name} SET CONNECTION, and then ENABLE JOB {job.name}"
    )
    return msgspec.structs.replace(job, state=ScheduleState.DISABLED)


def _unknown_connection(name: str, organization: str) -> Refusal:
    message = f"there is no connection {name} in organization {organization} that you may use: SHOW CONNECTIONS lists them"
    return Refusal("connection", message, code="unknown_connection", sqlstate="42704")


def _check_role(run: Execution, job: Schedule, who: Actor, holdings: Holdings, connection: Connection | None) -> None:
    if job.run_as is None:
        return
    if connection is None or connection.kind is not DatabaseKind.POSTGRESQL:
        message = "RUN AS is for SQL on a PostgreSQL connection: leave it out, or name such a connection with CONNECTION"
        raise Refusal("run_as", message, code="sql_invalid", sqlstate="0A000")
    there = any((role.organization, role.name) == (job.organization, job.run_as) for role in run.ask.store.roles())
    if not there or not may_run_as(who, job.run_as, holdings):
        message = f"there is no role {job.run_as} that you may run jobs as: GRANT ROLE {job.run_as} TO {who.name} allows it"
        raise Refusal("run_as", message, code="unknown_role", sqlstate="42501" if there else "42704")


def check_mentions(run: Execution, job: Schedule, names: Collection[str], who: Actor) -> None:
    """Refuse secrets in the params of a schedule that the author of these may not use, whoever wrote the template."""
    if not names:
        return
    run.ask.registry.sync(run.ask.store, run.ask.now)
    _check_usable(run, job, names, who, run.ask.registry.holdings(who, run.ask.store), part="params")


def check_takes_secrets(own: OwnTemplate) -> None:
    """Refuse secrets of a job that calls a handler: they would be given to nobody."""
    if named_secrets(own.defaults) and not is_kind(own.job_type):
        message = f"{own.job_type} is a Python handler, which is not given secrets: leave SECRETS out, or set SECRETS NONE"
        raise Refusal("secrets", message, code="sql_invalid", sqlstate="0A000")


def check_named(params: Mapping[str, Any], own: OwnTemplate) -> None:
    """Refuse params that mention a secret which the job does not name."""
    unnamed = secrets_in(params) - {*named_secrets(own.defaults)} if is_kind(own.job_type) else set()
    if unnamed:
        message = f"params mention the secret {min(unnamed)}, which the job does not name: add SECRETS ({min(unnamed)})"
        raise Refusal("params", message, code="unknown_secret", sqlstate="42704")


def _check_usable(run: Execution, job: Schedule, names: Collection[str], who: Actor, holdings: Holdings, *, part: str) -> None:
    if not names:
        return
    stored = run.ask.store.stored_secrets()
    of_job = {each.name for each in stored if each.job_id is not None and each.job_id.replace("-", "") == job.id}
    of_organization = {each.name for each in stored if each.job_id is None and each.organization == job.organization}
    for name in sorted({*names} - of_job):
        if name not in of_organization or not uses(who, TargetKind.SECRET, name, job.organization, holdings):
            message = f"there is no secret {name} in organization {job.organization} that you may use: SHOW SECRETS lists them"
            raise Refusal(part, message, code="unknown_secret", sqlstate="42704")


def _check_text(run: Execution, job: Schedule, own: OwnTemplate, connection: Connection) -> None:
    """Have the database look at the text, where it can be reached; a transaction of Rota's own is not kept waiting for that."""
    if run.ask.session.effects is not None:
        run.notice(f"the text of job {job.name} was not checked on connection {connection.name}: an atomic script asks no other database")
        return
    body = own.body or ""
    names = {*job.params, *own.defaults.get("default_params", {}), *own.defaults.get("secrets", ())}
    try:
        database = database_of(connection, passwords_of(run.ask.session, run.ask.store, connection))
        text = f"CALL {body}" if own.kind is JobKind.PROCEDURE else body
        make_checker(run.ask.settings, run.ask.store.url).check(database, own.kind, text, names, run_as=job.run_as)
    except BodyRefused as error:
        place = (
            "" if error.position is None or own.kind is JobKind.PROCEDURE else f"in the text of the job, {_place(body, error.position)}: "
        )
        raise Refusal("body", f"{place}{error}", code="sql_body_invalid", sqlstate=error.sqlstate or "42601") from None
    except UnfitDatabase as error:
        raise Refusal("connection", f"connection {connection.name} can't be used: {error}", code="refused", sqlstate="55000") from None
    except (Unreachable, NotFound, InvalidOption) as error:
        run.notice(f"the text of job {job.name} was not checked: connection {connection.name} could not be asked ({error})")
    except RotaError as error:
        run.notice(f"the text of job {job.name} was not checked: {error}")


def _place(text: str, position: int) -> str:
    before = text[: position - 1]
    return f"line {before.count(chr(10)) + 1}, column {len(before) - (before.rfind(chr(10)) + 1) + 1}"
