"""A script, carried out: read whole, then statement by statement, each with its right, up to the first that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rota.errors import InvalidOption, RotaError
from rota.model.gate import Right
from rota.operation import Ask, View, ask_for
from rota.sql import job_commands, job_listings, system_commands
from rota.sql.execution import Execution, Refusal, Values, failure, not_yet
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


class Doing(NamedTuple):
    """How a kind of statement is carried out, and the right that it needs."""

    right: Right
    do: Callable[[Execution, Any], Result]


def _not_yet(run: Execution, statement: Any) -> Result:
    del statement
    words = run.parsed.source.text[run.parsed.start : run.parsed.end].upper().split()
    heading = words[0] if words[0] in {"GRANT", "REVOKE"} else " ".join(words[:2])
    raise not_yet("", f"{heading} is not available yet")


def _select(run: Execution, statement: Select) -> Result:
    from rota.sql.query import select  # noqa: PLC0415 - few scripts query

    return select(run.ask, statement.text, () if run.values is None else run.values)


DOINGS: dict[type, Doing] = {
    CreateJob: Doing(Right.CREATE_JOBS, job_commands.create_job),
    AlterJob: Doing(Right.ALTER_JOBS, job_commands.alter_job),
    DropJob: Doing(Right.DROP_JOBS, job_commands.drop_job),
    SteerJob: Doing(Right.ALTER_JOBS, job_commands.steer_job),
    ExecuteJob: Doing(Right.EXECUTE_JOBS, job_commands.execute_job),
    CancelRun: Doing(Right.CANCEL, job_commands.cancel_run),
    CancelJob: Doing(Right.CANCEL, job_commands.cancel_job),
    Show: Doing(Right.READ, job_listings.show),
    ExplainJob: Doing(Right.READ, job_listings.explain_job),
    ExplainRun: Doing(Right.READ, job_listings.explain_run),
    PlanChange: Doing(Right.READ, job_listings.plan),
    ForecastJobs: Doing(Right.READ, job_listings.forecast),
    Select: Doing(Right.READ, _select),
    SetJobSecret: Doing(Right.ALTER_JOBS, _not_yet),
    DropJobSecret: Doing(Right.ALTER_JOBS, _not_yet),
    **dict.fromkeys((GrantRights, RevokeRights, CreateRole, DropRole), Doing(Right.MANAGE_ORGANIZATIONS, _not_yet)),
    **dict.fromkeys((CreateSecret, AlterSecret, DropSecret), Doing(Right.MANAGE_ORGANIZATIONS, _not_yet)),
    **dict.fromkeys((CreateConnection, AlterConnection, DropConnection), Doing(Right.MANAGE_ORGANIZATIONS, _not_yet)),
    AlterSystem: Doing(Right.OPERATE, system_commands.alter_system),
}
"""Every kind of statement: there is none without a right."""


def run(view: View, text: str, params: Values = None) -> list[Result]:
    """Carry out the statements of a script and return a result for each; see `Rota.sql`."""
    statements = parse_script(text)
    values = list(_shared_out(statements, params))
    results: list[Result] = []
    for number, (parsed, own) in enumerate(zip(statements, values, strict=True), 1):
        try:
            results.append(_one(view, parsed, own))
        except (Refusal, RotaError) as error:
            cause = error.__cause__ if isinstance(error, Refusal) else error
            raise failure(error, parsed, number=number, total=len(statements)) from cause
    return results


def _one(view: View, parsed: Parsed, values: Values) -> Result:
    doing = DOINGS[type(parsed.statement)]
    ask: Ask = ask_for(view, doing.right)
    return doing.do(Execution(ask, parsed, values), parsed.statement)


def _shared_out(statements: Sequence[Parsed], params: Values) -> Iterator[Values]:
    """Give each statement the values of its parameters; refuse those that no statement takes."""
    if params is not None and (isinstance(params, str) or not isinstance(params, Mapping | Sequence)):
        raise InvalidOption(f"params={params!r:.60} is not allowed: pass a list for ?, or names and values for :name")
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
