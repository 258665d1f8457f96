"""Errors of the SQL language: each names its place, what was expected, what was found, and its SQLSTATE.

SqlError
    ├── SqlStatementError    a statement that was read could not be carried out; those before it were
    ├── SqlSyntaxError       the text is not a statement
    ├── SqlInvalidError      a statement that contradicts itself, or says something twice
    ├── SqlReadOnlyError     a statement that would write to sys.*
    ├── SqlForbiddenError    an expression that does more than read
    ├── SqlCommandError      a command that can't be run
    ├── SqlNameError         a name that can't be one
    ├── SqlScheduleError     a cron expression, moment, interval or time zone that can't be
    ├── SqlOptionError       a value outside its range
    ├── SqlParamsError       PARAMS that are not a JSON object
    ├── SqlQueryError        a query that can't be answered: an unknown table, column or function, a value of the wrong kind
    ├── SqlDeniedError       a table that the actor may not read
    └── SqlLimitError        a query that takes too long or is too large
"""

from __future__ import annotations

from typing import Any

from rota.errors import START, InvalidInput, InvalidName, InvalidOption, InvalidParams, InvalidSchedule, SqlError


class SqlStatementError(SqlError):
    """A statement that was read could not be carried out. Its cause, an error of Rota's, is kept as `__cause__`."""

    code = "sql_failed"

    def __init__(
        self, message: str, place: Any = START, *, code: str = "sql_failed", sqlstate: str = "", statement: int = 1, executed: int = 0
    ) -> None:
        super().__init__(message, place, sqlstate=sqlstate)
        self.code = code  # type: ignore[misc] # of its cause
        self.statement = statement
        self.executed = executed


class SqlSyntaxError(SqlError):
    """The text is not a statement of the language."""

    code = "sql_syntax"


class SqlInvalidError(SqlError):
    """A statement that contradicts itself, says something twice, or leaves out what it needs."""

    code = "sql_invalid"


class SqlReadOnlyError(SqlError):
    """A statement that would write to the tables of sys, which can only be read."""

    code = "read_only"
    usual_sqlstate = "25006"


class SqlForbiddenError(SqlError):
    """An expression that does more than read."""

    code = "sql_forbidden"
    usual_sqlstate = "0A000"


class SqlCommandError(SqlError):
    """An external command that no worker would run."""

    code = "external_refused"
    usual_sqlstate = "42501"


class SqlNameError(SqlError):
    """A name that is too long or can't be printed."""

    code = InvalidName.code
    usual_sqlstate = "42602"


class SqlScheduleError(SqlError):
    """A cron expression, moment, interval, time zone or dependency that can't be."""

    code = InvalidSchedule.code
    usual_sqlstate = "22023"


class SqlOptionError(SqlError):
    """A value outside its range."""

    code = InvalidOption.code
    usual_sqlstate = "22023"


class SqlParamsError(SqlError):
    """PARAMS that are not a JSON object."""

    code = InvalidParams.code
    usual_sqlstate = "22023"


class SqlQueryError(SqlError):
    """A query that can't be answered: an unknown table, column or function, or a value of the wrong kind."""

    code = "sql_query"


class SqlDeniedError(SqlError):
    """A table that the actor may not read."""

    code = "permission_denied"
    usual_sqlstate = "42501"


class SqlLimitError(SqlError):
    """A query that takes too long, or is too large."""

    code = "sql_limit"
    usual_sqlstate = "57014"


KINDS: dict[type[InvalidInput], type[SqlError]] = {
    InvalidName: SqlNameError,
    InvalidSchedule: SqlScheduleError,
    InvalidOption: SqlOptionError,
    InvalidParams: SqlParamsError,
}
"""The error of a statement for each refusal of a value."""
