"""Values on their way to PostgreSQL and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.pq.abc import PGresult

from rota.ports.runner import BodyRefused

UNKNOWN, BOOL, INT4, INT8, NUMERIC, INTERVAL = 0, 16, 23, 20, 1700, 1186
AS_TEXT = frozenset({NUMERIC, INTERVAL})
"""Types whose text says more than the driver's value: all digits, and months that are not 30 days."""


def bound(name: str, value: Any) -> tuple[bytes | None, int]:
    """Return a parameter as it is sent, with the type that it would have as a literal in SQL.

    A text has none: the server decides by its place, so that '2026-01-01' becomes a date where one is meant. JSON's lists and objects are
    sent as their text, for json and jsonb.
    """
    match value:
        case None:
            return None, UNKNOWN
        case bool():
            return (b"true" if value else b"false"), BOOL
        case int():
            return str(value).encode(), INT4 if -(2**31) <= value < 2**31 else INT8 if -(2**63) <= value < 2**63 else NUMERIC
        case float():
            return repr(value).encode(), NUMERIC
        case str():
            return _text(name, value), UNKNOWN
        case _:
            return _text(name, msgspec.json.encode(value).decode()), UNKNOWN


def _text(name: str, value: str) -> bytes:
    if "\0" in value:
        raise BodyRefused(f"the parameter {name} holds the character NUL (U+0000), which PostgreSQL can't hold", sqlstate="22021")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise BodyRefused(f"the parameter {name} is not valid Unicode", sqlstate="22021") from None


class Rows:
    """The rows of results as Python values: those of the driver, or the server's text where the driver has none."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        """Take the session, whose time zone and encoding count."""
        self._transformer = Transformer(session)

    def of(self, result: PGresult) -> Iterator[list[Any]]:
        """Yield the rows of a result."""
        types = [result.ftype(column) for column in range(result.nfields)]
        for row in range(result.ntuples):
            yield [self._value(result.get_value(row, column), oid) for column, oid in enumerate(types)]

    def _value(self, raw: bytes | None, oid: int) -> Any:
        if raw is None:
            return None
        if oid not in AS_TEXT:
            try:
                return self._transformer.get_loader(oid, pq.Format.TEXT).load(raw)
            except Exception:  # noqa: BLE001, S110 - a date before Christ, or infinity: the server's text says it
                pass
        return bytes(raw).decode(errors="replace")


def columns_of(result: PGresult) -> list[str]:
    """Return the names of the columns of a result."""
    return [(result.fname(column) or b"").decode(errors="replace") for column in range(result.nfields)]
