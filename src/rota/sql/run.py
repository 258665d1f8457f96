"""A script, carried out: read whole, then statement by statement, each with its right, up to the first that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rota.declarations import declare_scheduled
from rota.errors import InvalidOption, RotaError, SqlError
from rota.model.gate import Right
from rota.operation import Ask, View, ask_for, seen_from, session_of
from rota.ports.store import Store
from rota.session import Session
from rota.sql import access_commands, connection_commands, job_commands, job_listings, secret_commands, system_commands
from rota.sql.errors import SqlLimitError, SqlStatementError
from rota.sql.execution import Execution, Refusal, Values, failure, heading
from rota.sql.interruption import CANCELLED, is_stopped
from rota.sql.parser import Parsed, parse_script
from rota.sql.result import Result
from rota.sql.syntax import (
    AlterConnection,
    AlterJob,
    AlterSecret,
    AlterSystem,
    CallBody,
    CancelJob,
    CancelRun,
    CreateConnection,
    CreateJob,
    CreateRole,
    CreateSecret,
    DropConnection,
    DropJob,
    DropJobSecret,
    DropRole,
    DropSecret,
    ExecuteJob,
    ExplainJob,
    ExplainRun,
    ForecastJobs,
    GrantRights,
    Parameter,
    PlanChange,
    RevokeRights,
    Select,
    SetJobSecret,
    Show,
    SteerJob,
)
from rota.sql.tokens import without_comments

ACTIVE_TRANSACTION = "25001"


class Doing(NamedTuple):
    """How a kind of statement is carried out, and the right that it needs."""

    right: Right
    do: Callable[[Execution, Any], Result]
    atomic: bool = False
    """Whether it can be part of an atomic script: it reads and changes definitions alone, by the verbs of its `Ask`."""


def _select(run: Execution, statement: Select) -> Result:
    from rota.sql.query import select  # noqa: PLC0415 - few scripts query

    # Comments that hold others are none to SQLite.
    return select(run.ask, without_comments(statement.text), () if run.values is None else run.values)


DOINGS: dict[type, Doing] = {
    CreateJob: Doing(Right.CREATE_JOBS, job_commands.create_job, atomic=True),
    AlterJob: Doing(Right.ALTER_JOBS, job_commands.alter_job, atomic=True),
    DropJob: Doing(Right.DROP_JOBS, job_commands.drop_job, atomic=True),
    SteerJob: Doing(Right.ALTER_JOBS, job_commands.steer_job, atomic=True),
    ExecuteJob: Doing(Right.EXECUTE_JOBS, job_commands.execute_job),
    CancelRun: Doing(Right.CANCEL, job_commands.cancel_run),
    CancelJob: Doing(Right.CANCEL, job_commands.cancel_job),
    Show: Doing(Right.READ, job_listings.show),
    ExplainJob: Doing(Right.READ, job_listings.explain_job),
    ExplainRun: Doing(Right.READ, job_listings.explain_run),
    PlanChange: Doing(Right.READ, job_listings.plan),
    ForecastJobs: Doing(Right.READ, job_listings.forecast),
    Select: Doing(Right.READ, _select),
    SetJobSecret: Doing(Right.ALTER_JOBS, secret_commands.set_job_secret, atomic=True),
    DropJobSecret: Doing(Right.ALTER_JOBS, secret_commands.drop_job_secret, atomic=True),
    GrantRights: Doing(Right.GRANT, access_commands.grant_rights, atomic=True),
    RevokeRights: Doing(Right.GRANT, access_commands.revoke_rights, atomic=True),
    CreateRole: Doing(Right.MANAGE_GRANTS, access_commands.create_role, atomic=True),
    DropRole: Doing(Right.MANAGE_GRANTS, access_commands.drop_role, atomic=True),
    CreateSecret: Doing(Right.MANAGE_SECRETS, secret_commands.create_secret, atomic=True),
    AlterSecret: Doing(Right.MANAGE_SECRETS, secret_commands.alter_secret, atomic=True),
    DropSecret: Doing(Right.MANAGE_SECRETS, secret_commands.drop_secret, atomic=True),
    CreateConnection: Doing(Right.MANAGE_CONNECTIONS, connection_commands.create_connection, atomic=True),
    AlterConnection: Doing(Right.MANAGE_CONNECTIONS, connection_commands.alter_connection, atomic=True),
    DropConnection: Doing(Right.MANAGE_CONNECTIONS, connection_commands.drop_connection, atomic=True),
    AlterSystem: Doing(Right.OPERATE, system_commands.alter_system),
}
"""Every kind of statement: there is none without a right."""
READING = frozenset(kind for kind, doing in DOINGS.items() if doing.right is Right.READ)
"""The kinds of statements that change nothing."""


def refuse_changes(text: str) -> None:
    """Refuse a script that has a statement which changes something."""
    for number, parsed in enumerate(parse_script(text), 1):
        if type(parsed.statement) not in READING:
            message = f"{heading(parsed)} changes something; only SELECT, SHOW, EXPLAIN, PLAN and FORECAST are allowed here"
            raise SqlStatementError(message, parsed.location(), code="read_only", sqlstate="25006", statement=number)


def run(view: View, text: str, params: Values = None, *, atomic: bool = False) -> list[Result]:
    """Carry out the statements of a script and return a result for each; see `Rota.sql`."""
    if not atomic:
        return list(steps(view, text, params))
    statements = parse_script(text)
    return _together(view, statements, list(_shared_out(statements, params)))


def steps(view: View, text: str, params: Values = None) -> Iterator[Result]:
    """Carry out the statements of a script, each when its result is asked for."""
    statements = parse_script(text)
    yield from _each(view, statements, list(_shared_out(statements, params)))


def _together(view: View, statements: Sequence[Parsed], values: Sequence[Values]) -> list[Result]:
    """Carry out all statements in one transaction, then what follows from them."""
    _refuse_apart(statements)
    session = session_of(view)
    declare_scheduled(session)

    def work(store: Store) -> tuple[list[Result], Sequence[Callable[[Session], object]]]:
        inside = session.inside(store)
        return list(_each(seen_from(view, inside), statements, values, atomic=True)), inside.effects or ()

    try:
        results, effects = session.open().store.together(work)
    except SqlError:
        raise
    except RotaError as error:
        # Of the transaction, not of a statement: a lock that was not to be had, or an answer that was lost.
        raise failure(error, statements[0], number=1, total=1) from error
    for effect in effects:
        effect(session)
    return results


def _refuse_apart(statements: Sequence[Parsed]) -> None:
    """Refuse a statement that does more than change definitions: it could not be undone, or would see what may never be."""
    for number, parsed in enumerate(statements, 1):
        if not DOINGS[type(parsed.statement)].atomic:
            message = f"{heading(parsed)} can't be part of an atomic script, which changes definitions alone: run it in a script of its own"
            raise failure(
                Refusal("", message, code="sql_invalid", sqlstate=ACTIVE_TRANSACTION),
                parsed,
                number=number,
                total=len(statements),
                atomic=True,
            )


def _each(view: View, statements: Sequence[Parsed], values: Sequence[Values], *, atomic: bool = False) -> Iterator[Result]:
    """Carry out statements one by one, up to the first that fails."""
    for number, (parsed, own) in enumerate(zip(statements, values, strict=True), 1):
        try:
            if is_stopped():
                raise Refusal("", CANCELLED, code=SqlLimitError.code, sqlstate=SqlLimitError.usual_sqlstate)
            result = _one(view, parsed, own)
        except (Refusal, RotaError) as error:
            cause = error.__cause__ if isinstance(error, Refusal | SqlError) else error
            raise failure(error, parsed, number=number, total=len(statements), atomic=atomic) from cause
        yield result


def _one(view: View, parsed: Parsed, values: Values) -> Result:
    doing = DOINGS[type(parsed.statement)]
    ask: Ask = ask_for(view, doing.right)
    return doing.do(Execution(ask, parsed, values), parsed.statement)


def _shared_out(statements: Sequence[Parsed], params: Values) -> Iterator[Values]:
    """Give each statement the values of its parameters; refuse those that no statement takes."""
    if params is not None and (isinstance(params, str) or not isinstance(params, Mapping | Sequence)):
        # Its value is not shown: it may be that of a secret.
        raise InvalidOption(f"params is {type(params).__name__}: pass a list for ?, or names and values for :name")
    if params is None or isinstance(params, Mapping):
        known = {name for parsed in statements for name in _names(parsed)}
        unknown = next((name for name in params or () if name not in known), None)
        if unknown is not None:
            raise InvalidOption(f"params has {unknown!r}, and no statement has the parameter :{unknown}")
        yield from [params] * len(statements)
        return
    at = 0
    for parsed in statements:
        count = _marks(parsed)
        yield list(params[at : at + count])
        at += count
    if at != len(params):
        raise InvalidOption(f"params has {len(params)} values, and the statements have {at} question marks")


def _names(parsed: Parsed) -> list[str]:
    """Return the names of a statement's parameters."""
    statement = parsed.statement
    if isinstance(statement, Select):
        return [each[1:] for each in statement.parameters if each.startswith(":")]
    if isinstance(statement, PlanChange):
        statement = statement.statement
    body = statement.clauses.body if isinstance(statement, CreateJob | AlterJob) else None
    if isinstance(body, CallBody):
        values = [*body.arguments, *(each.value for each in body.named)]
        return [each.name for each in values if isinstance(each, Parameter) and each.name is not None]
    value = getattr(statement, "value", None)
    return [value.name] if isinstance(value, Parameter) and value.name is not None else []


def _marks(parsed: Parsed) -> int:
    """Return how many question marks a statement has."""
    statement = parsed.statement
    if isinstance(statement, Select):
        return sum(each.startswith("?") for each in statement.parameters)
    value = getattr(statement, "value", None)
    return int(isinstance(value, Parameter) and value.name is None)
