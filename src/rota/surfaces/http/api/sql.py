"""SQL over HTTP: a script, and a result for each of its statements."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from rota import errors
from rota.app import Rota
from rota.surfaces.http.api.endpoint import route
from rota.surfaces.http.api.requests import JSON, body_type, read, refuse_query
from rota.surfaces.http.api.results import Answer
from rota.surfaces.http.intake import Intake
from rota.surfaces.http.openapi import gives, refuses, takes

Value = str | int | float | bool | None
"""What a parameter may be."""


class SqlIn(msgspec.Struct, forbid_unknown_fields=True):
    """A script."""

    sql: Annotated[str, Meta(min_length=1, description="Statements of the SQL language, with semicolons between them.")]
    params: Annotated[
        list[Value] | dict[str, Value] | None, Meta(description="The values of `?`, as a list, or of `:name`, as an object.")
    ] = None
    atomic: Annotated[bool, Meta(description="Carry out all statements or none.")] = False


class SqlNotice(msgspec.Struct, frozen=True):
    """Something to know about a statement that was carried out."""

    message: str
    sqlstate: str


class SqlResult(msgspec.Struct, frozen=True):
    """The answer to one statement."""

    tag: Annotated[str, Meta(description="What was done: `CREATE JOB`, `SELECT 3`.")]
    columns: list[str]
    rows: Annotated[list[list[Any]], Meta(description="The values of each row, in the order of the columns.")]
    notices: list[SqlNotice]
    truncated: Annotated[bool, Meta(description="There were more rows than the settings allow.")]


class SqlOut(msgspec.Struct, frozen=True):
    """The answer to a script: a result for each statement, in their order."""

    results: list[SqlResult]


@route(
    "sql",
    "SQL",
    "POST /sql",
    content=takes(SqlIn),
    responses={**gives(SqlOut), **refuses(errors.SqlError, errors.Refused, errors.ResourceBusy, errors.WaitTimeout)},
)
async def run(request: Request) -> Response:
    """Carry out SQL statements and return a result for each.

    All are read before the first is carried out. They are carried out one by one, up to the first that fails: the problem then has its
    `sqlstate`, `line`, `column` and `position`, the number of the `statement`, and how many were `executed` before it. Each statement
    needs the right, and the permit of the token, that the same act needs elsewhere in the API. If the client goes away, or the script
    takes longer than the setting `http_direct_wait`, the query that is running is interrupted, and no further statement begins.
    """
    refuse_query(request)
    body_type(request, JSON)
    body = await request.body()
    state = request.app.state
    intake: Intake[Any, Any] = state.intake
    rota: Rota = state.rota
    who, script = await intake.do(lambda: (state.door.who(request), read(body, SqlIn)))

    def answer() -> Response:
        return Answer({"results": rota.acting_as(who).sql(script.sql, script.params, atomic=script.atomic)})

    response: Response = await state.statements.do(request, who, script.sql, answer)
    return response
