"""The answer to one statement."""

from __future__ import annotations

from typing import Any

import msgspec


class Notice(msgspec.Struct, frozen=True):
    """Something that a person should know about a statement that was carried out."""

    message: str
    sqlstate: str = "01000"


class Result(msgspec.Struct, frozen=True):
    """The rows of a statement, or its command tag alone."""

    tag: str
    """What was done, as psql prints it: `CREATE JOB`, `SELECT 3`."""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    notices: tuple[Notice, ...] = ()
    truncated: bool = False
    """Whether there were more rows than the limit."""
