"""One statement while it is carried out: who asks, the values beside it, its notices, and how its refusals become errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from rota.errors import (
    AlreadyEnded,
    ChangedMeanwhile,
    DependencyCycle,
    InvalidInput,
    InvalidName,
    InvalidParams,
    NotFound,
    OrganizationUnavailable,
    PayloadTooLarge,
    PermissionDenied,
    QueueFull,
    RateLimited,
    Refused,
    RotaError,
    ScheduleExists,
    SqlError,
    StillNeeded,
    StoreBusy,
    StoreError,
    TemplateUnavailable,
    UnknownOrganization,
    UnknownTemplate,
    WaitTimeout,
)
from rota.model.gate import Right, Scope
from rota.model.schedules import JobKind, Schedule
from rota.model.values import undashed
from rota.operation import Ask
from rota.schedule_views import named
from rota.sql.errors import SqlStatementError
from rota.sql.parser import Parsed
from rota.sql.result import Notice
from rota.sql.syntax import Argument, JobName, Parameter
from rota.sql.tokens import tokens_of

Values: TypeAlias = Sequence[Any] | Mapping[str, Any] | None
"""The values of parameters: a sequence for `?`, names for `:name`."""

SQLSTATES: dict[type[RotaError], str] = {
    NotFound: "42704",
    UnknownTemplate: "42883",
    UnknownOrganization: "42704",
    PermissionDenied: "42501",
    ScheduleExists: "42710",
    DependencyCycle: "42P17",
    InvalidName: "42602",
    InvalidParams: "22023",
    PayloadTooLarge: "54000",
    InvalidInput: "22023",
    TemplateUnavailable: "55000",
    OrganizationUnavailable: "55000",
    AlreadyEnded: "55000",
    StillNeeded: "2BP01",
    ChangedMeanwhile: "40001",
    QueueFull: "53400",
    RateLimited: "53400",
    Refused: "55000",
    WaitTimeout: "57014",
    StoreBusy: "55P03",
    StoreError: "58000",
    RotaError: "XX000",
}
"""The SQLSTATE of each error of Rota's inside a statement; a class that is not here has that of its nearest base."""
NOT_YET = "0A000"


class Refusal(Exception):  # noqa: N818 - becomes a SqlStatementError as soon as its place is known
    """A statement can't be carried out, because of one of its parts: see `Parsed.location` for their names."""

    def __init__(self, part: str, message: str, *, code: str, sqlstate: str) -> None:
        super().__init__(message)
        self.part = part
        self.code = code
        self.sqlstate = sqlstate


def not_yet(part: str, message: str) -> Refusal:
    """Return the refusal of what can be written and not be done yet."""
    return Refusal(part, message, code="not_available", sqlstate=NOT_YET)


class Execution:
    """One statement while it is carried out."""

    def __init__(self, ask: Ask, parsed: Parsed, values: Values) -> None:
        self.ask = ask
        self.parsed = parsed
        self.values = values
        self._notices: list[Notice] = []

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Return the notices so far."""
        return tuple(self._notices)

    def notice(self, message: str) -> None:
        """Tell the caller something that is not an error, once."""
        if Notice(message) not in self._notices:
            self._notices.append(Notice(message))

    def also(self, right: Right) -> Execution:
        """Return the same statement with another right, after asking for it."""
        other = Execution(self.ask.also(right), self.parsed, self.values)
        other._notices = self._notices
        return other

    def job(self, ref: JobName, part: str = "name") -> Schedule:
        """Return a job that the actor may do this to, by its name or id."""
        try:
            return self._by_id(ref) if isinstance(ref, UUID) else named(self.ask, ref, None)
        except NotFound:
            raise Refusal(part, f"there is no job {ref} that you may see", code="unknown_job", sqlstate="42704") from None

    def shows_body(self, job: Schedule) -> bool:
        """Say whether the actor is shown the text of a job: of SQL and commands, those who may alter the job are. It may hold secrets."""
        if job.own is None or job.own.kind is JobKind.PROCEDURE:
            return True
        scope = self.ask.may(Right.ALTER_JOBS)
        return scope is not None and scope.holds(job.organization, job.created_by, job.id)

    def run_id(self, ref: UUID) -> str:
        """Return the id of a run that the actor may do this to."""
        try:
            return str(undashed(self.ask.found(str(ref)).id))
        except NotFound:
            raise Refusal("run", "there is no run of that uuid that you may see", code="unknown_run", sqlstate="42704") from None

    def _by_id(self, ref: UUID) -> Schedule:
        scope, schedule = self.ask.scope, self.ask.store.schedule(ref.hex)
        if schedule is None or not scope.holds(schedule.organization, schedule.created_by, schedule.id):
            raise NotFound(str(ref))
        # One that was dropped is read by its id, too.
        if all(each.id != ref.hex for each in self.here(schedule.name, schedule.organization)):
            raise NotFound(str(ref))
        return schedule

    def here(self, name: str, organization: str) -> list[Schedule]:
        """Return the job of a name in an organization, of any owner: a name is taken or not."""
        return self.ask.store.schedules(scope=Scope(organization), name=name)

    def value(self, argument: Argument) -> str | int | float | bool | None:
        """Return the value of an argument, as JSON has it."""
        value = self._bound(argument) if isinstance(argument, Parameter) else argument
        if isinstance(value, Decimal):
            return float(value)
        if value is None or isinstance(value, str | int | float | bool):
            return value
        message = f"{value!r:.60} is not a value of an argument: use text, a number, TRUE, FALSE or NULL"
        raise Refusal("body", message, code="invalid_option", sqlstate="22023")

    def _bound(self, parameter: Parameter) -> Any:
        name = parameter.name or ""
        if isinstance(self.values, Mapping) and name in self.values:
            return self.values[name]
        message = f"the parameter :{name} has no value: pass params={{{name!r}: …}}"
        raise Refusal("body", message, code="invalid_option", sqlstate="42P02")


def heading(parsed: Parsed) -> str:
    """Return the words by which a statement is called."""
    words = [token.text.upper() for token in tokens_of(parsed.source.text[parsed.start : parsed.end])[:2]]
    return words[0] if words[0] in {"GRANT", "REVOKE", "SELECT", "WITH", "FORECAST"} else " ".join(words)


def failure(error: Refusal | RotaError, parsed: Parsed, *, number: int, total: int, atomic: bool = False) -> SqlStatementError | SqlError:
    """Return the error of a statement that could not be carried out; it says which statement, and what became of those before it."""
    executed, extent = 0 if atomic else number - 1, ""
    if atomic or total > 1:
        extent = f" (statement {number} of {total}; {'nothing was changed' if atomic else f'{executed} executed'})"
    if isinstance(error, SqlError):
        # Of a query, whose places are in its own text.
        place = parsed.source.location(parsed.start + error.position - 1)
        error.line, error.column, error.position = place.line, place.column, place.position
        error.message, error.statement, error.executed = error.message + extent, number, executed
        return error
    message = f"{error}{extent}"
    if isinstance(error, Refusal):
        place, code, sqlstate = parsed.location(error.part), error.code, error.sqlstate
    else:
        part = "depends_on.0" if isinstance(error, DependencyCycle) else "name"
        place, code, sqlstate = parsed.location(part), error.code, state_of(error)
    return SqlStatementError(message, place, code=code, sqlstate=sqlstate, statement=number, executed=executed)


def state_of(error: RotaError) -> str:
    """Return the SQLSTATE of an error of Rota's."""
    return next(SQLSTATES[kind] for kind in type(error).__mro__ if kind in SQLSTATES)
