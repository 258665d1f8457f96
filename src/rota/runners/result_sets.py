"""Rows as the JSON text that a run keeps: `{"columns":[…],"rows":[[…]]}`, with `"truncated":true` where rows were left out."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any

import msgspec

FRAME_BYTES = len('{"columns":,"rows":[],"truncated":true}')


class ResultSet:
    """The first rows of one answer, up to a number of rows and a size of the whole text."""

    def __init__(self, columns: Iterable[str], *, rows_max: int, bytes_max: int) -> None:
        """Take the columns. Those alone may be too large: then nothing is kept."""
        self._columns = msgspec.json.encode([*columns])
        self._rows: list[bytes] = []
        self._rows_max = rows_max
        self._room = bytes_max - FRAME_BYTES - len(self._columns)
        self._fits = self._room >= 0
        self.is_truncated = not self._fits

    @property
    def kept(self) -> int:
        """Return how many rows are kept."""
        return len(self._rows)

    def add(self, row: Iterable[Any]) -> bool:
        """Keep a row; return False, from then on, if it was left out."""
        if not self.is_truncated:
            self.is_truncated = len(self._rows) >= self._rows_max or not self._add(msgspec.json.encode([plain(value) for value in row]))
        return not self.is_truncated

    def truncate(self) -> None:
        """Note that rows were left out."""
        self.is_truncated = True

    def _add(self, row: bytes) -> bool:
        self._room -= len(row) + 1
        if self._room < 0:
            return False
        self._rows.append(row)
        return True

    def text(self) -> str | None:
        """Return the JSON text; None where not even the columns fit."""
        if not self._fits:
            return None
        end = b',"truncated":true}' if self.is_truncated else b"}"
        return b"".join((b'{"columns":', self._columns, b',"rows":[', b",".join(self._rows), b"]", end)).decode()


def plain(value: Any) -> Any:
    """Return a value as JSON has it: dates as ISO 8601, bytes as base64, what JSON lacks as text. Nothing is refused."""
    match value:
        case None | bool():
            return value
        case str():
            return value.encode(errors="replace").decode()
        case int():
            return int(value)
        case float():
            return value if math.isfinite(value) else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
        case bytes() | bytearray() | memoryview():
            return b64encode(bytes(value)).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return msgspec.to_builtins(value)
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case _:
            return _text(value)


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the value of a type that nobody here knows
        return f"<{type(value).__name__}>"
