"""Errors of SQLite while it reads a query, as errors of ours: with a place, an SQLSTATE and, for a name, the one that is meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches

import apsw

from rota.errors import START, SqlError, SqlPlace
from rota.sql.catalog import Table
from rota.sql.errors import SqlLimitError, SqlQueryError, SqlReadOnlyError, SqlSyntaxError
from rota.sql.source import Location, SourceText

NO_TABLE = re.compile(r"no such table: (?:(\w+)\.)?(.+)")
NO_COLUMN = re.compile(r"no such column: (?:(.+)\.)?([^.]+)")
PATTERNS = (
    (re.compile(r"near \"(.+)\": syntax error", re.DOTALL), SqlSyntaxError, "42601"),
    (re.compile(r"incomplete input|unrecognized token"), SqlSyntaxError, "42601"),
    (re.compile(r"no such function|wrong number of arguments"), SqlQueryError, "42883"),
    (re.compile(r"ambiguous column name"), SqlQueryError, "42702"),
    (re.compile(r"misuse of (aggregate|window)"), SqlQueryError, "42803"),
    (re.compile(r"may not be modified|readonly"), SqlReadOnlyError, "25006"),
    (re.compile(r"malformed JSON|JSON path error"), SqlQueryError, "22032"),
    (re.compile(r"too many|too large|too big|too deep|too long|parser stack overflow"), SqlLimitError, "54000"),
)


def not_in_sys(name: str, tables: Collection[str], text: str = "") -> SqlError:
    """Return the error of a table that is not in sys."""
    reason = f"only tables of sys can be read here{_meant(name, tables, 'sys.')}"
    return SqlQueryError(reason, _place_of(name, text), sqlstate="42P01", found=name)


def _place_of(name: str, text: str) -> Location | SqlPlace:
    """Return where a table is named, which SQLite does not say."""
    found = re.search(rf"(?:\b\w+\s*\.\s*)?\b{re.escape(name)}\b", text, re.IGNORECASE)
    return START if found is None else SourceText(text).location(found.start())


def query_error(error: Exception, text: str, tables: Mapping[str, Table]) -> SqlError:
    """Return our error for one of SQLite or its driver."""
    reason = re.sub(r"^\w+Error: ", "", str(error))
    place = _place(error, text)
    if isinstance(error, apsw.BindingsError | KeyError):
        return SqlQueryError(f"the parameters do not fit the query: {reason}", place, sqlstate="07001")
    if isinstance(error, TypeError | OverflowError):
        return SqlQueryError(f"a parameter has a value that SQL has not: {reason}", place, sqlstate="22023")
    if isinstance(error, UnicodeError):
        return SqlQueryError("a text of the query or of its answer is not valid Unicode: use hex() to show bytes", place, sqlstate="22021")
    if isinstance(error, apsw.TooBigError):
        return SqlLimitError(f"a value or the query is too large: {reason} (setting sql_bytes_max)", place, sqlstate="54000")
    return _of_names(reason, place, text, tables) or _of_patterns(reason, place)


def _of_names(reason: str, place: Location | SqlPlace, text: str, tables: Mapping[str, Table]) -> SqlError | None:
    table = NO_TABLE.match(reason)
    if table is not None and table[1] != "sys":
        return not_in_sys(table[2], tables, text)
    if table is not None:
        missing = f"there is no table sys.{table[2]}{_meant(table[2], tables, 'sys.')}"
        return SqlQueryError(missing, _place_of(table[2], text), sqlstate="42P01", found=table[2])
    column = NO_COLUMN.match(reason)
    if column is None:
        return None
    names = {name.name for each in tables.values() for name in each.columns}
    return SqlQueryError(f"there is no column {column[2]} in the tables of this query{_meant(column[2], names)}", place, sqlstate="42703")


def _of_patterns(reason: str, place: Location | SqlPlace) -> SqlError:
    for pattern, kind, sqlstate in PATTERNS:
        if pattern.search(reason):
            return kind(reason, place, sqlstate=sqlstate)
    return SqlQueryError(reason, place)


def _meant(name: str, names: Collection[str], prefix: str = "") -> str:
    found = get_close_matches(name.lower(), names if prefix else set(names) - {name.lower()}, 1)
    return f"; did you mean {prefix}{found[0]}?" if found else ""


def _place(error: Exception, text: str) -> Location | SqlPlace:
    """Return where in the text SQLite saw the mistake. It counts bytes."""
    offset = getattr(error, "error_offset", -1)
    if offset < 0:
        return START
    return SourceText(text).location(len(text.encode()[:offset].decode(errors="ignore")))
