"""Statements about connections: CREATE, ALTER and DROP CONNECTION, and SHOW CONNECTIONS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET

from rota.errors import InvalidOption, NotFound, Refused, StillNeeded
from rota.resources.connections import create, delete, update, visible_connections
from rota.sql.execution import Execution, Refusal
from rota.sql.result import Result
from rota.sql.syntax import AlterConnection, CreateConnection, DropConnection, Show

FIELDS = {"url": "url", "user": "login", "secret": "secret", "multi": "multi"}
"""What a connection calls the options of a statement."""
PARTS = {"url": "url", "login": "user", "secret": "key"}
"""Where a statement has what a refusal begins with."""


def create_connection(run: Execution, statement: CreateConnection) -> Result:
    """Create a connection."""
    fields = {field: getattr(statement, option) for option, field in FIELDS.items()}
    try:
        _placed(lambda: create(run.ask, statement.name, fields))
    except Refused as error:
        raise Refusal("name", str(error), code="connection_exists", sqlstate="42710") from None
    return Result("CREATE CONNECTION", notices=run.notices)


def alter_connection(run: Execution, statement: AlterConnection) -> Result:
    """Change a connection, all of it or nothing."""
    fields = {field: value for option, field in FIELDS.items() if (value := getattr(statement, option)) is not UNSET}
    _placed(lambda: update(run.ask, statement.name, fields))
    return Result("ALTER CONNECTION", notices=run.notices)


def drop_connection(run: Execution, statement: DropConnection) -> Result:
    """Drop a connection that no job uses, with the grants on it."""
    _placed(lambda: delete(run.ask, statement.name))
    return Result("DROP CONNECTION", notices=run.notices)


def _placed(act: Callable[[], object]) -> None:
    """Do something, and say of a refusal which part of the statement it is about."""
    try:
        act()
    except StillNeeded:
        raise
    except NotFound as error:
        raise Refusal("name", str(error), code="unknown_connection", sqlstate="42704") from None
    except InvalidOption as error:
        part = PARTS.get(str(error).split()[0], "name")
        raise Refusal(part, str(error), code=error.code, sqlstate="22023") from None


# ---- SHOW -------------------------------------------------------------------------------------------------------------

COLUMNS = ("connection_name", "kind", "url", "login", "secret_key", "multi", "organization", "created_by", "created_at", "updated_at")


def show_connections(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    """List the connections that the actor may use."""
    del statement
    return COLUMNS, (
        (
            each.name,
            str(each.kind),
            each.url,
            each.login,
            each.secret_name,
            each.multi,
            each.organization,
            each.created_by,
            each.created_at,
            each.updated_at,
        )
        for each in visible_connections(run.ask)
    )
