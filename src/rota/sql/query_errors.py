"""Errors of SQLite while it reads a query, as errors of ours: with a place, an SQLSTATE and, for a name, the one that is meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches

import apsw

from rota.errors import START, SqlError, SqlPlace
from rota.sql.catalog import Table
from rota.sql.errors import (
    SqlColumnError,
    SqlForbiddenError,
    SqlLimitError,
    SqlQueryError,
    SqlReadOnlyError,
    SqlSyntaxError,
    SqlTableError,
)
from rota.sql.source import Location, SourceText
from rota.sql.tokens import SqlToken, TokenKind, tokens_of

COLUMNS_SHOWN = 6
"""Columns of a table that the refusal of an unknown one lists."""

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
    return SqlTableError(reason, _place_of_table(name, text), found=name)


def forbidden_function(name: str, text: str) -> SqlError:
    """Return the error of a function that a query may not call."""
    reason = f"{name} is not among the functions that can be used here"
    return SqlForbiddenError(reason, _place_of_function(name, text), sqlstate="42501", found=name)


def _place_of_table(name: str, text: str) -> Location | SqlPlace:
    """Return where a table is named, with its schema, which SQLite does not say."""
    tokens = tokens_of(text)
    places = [_first_of_path(tokens, place) for place in _named(name, tokens)]
    sources = [place for place in places if place and tokens[place - 1].word in {"FROM", "JOIN", ","}]
    return _location(tokens, sources or places, text)


def _first_of_path(tokens: Sequence[SqlToken], place: int) -> int:
    """Return where a name begins that may have a schema before it."""
    return place - 2 if place > 1 and tokens[place - 1].word == "." else place


def _place_of_function(name: str, text: str) -> Location | SqlPlace:
    tokens = tokens_of(text)
    return _location(tokens, [place for place in _named(name, tokens) if tokens[place + 1].word == "("], text)


def _named(name: str, tokens: Sequence[SqlToken]) -> list[int]:
    kinds = {TokenKind.WORD: lambda token: token.text, TokenKind.QUOTED: lambda token: token.value}
    return [place for place, token in enumerate(tokens) if token.kind in kinds and kinds[token.kind](token).lower() == name.lower()]


def _location(tokens: Sequence[SqlToken], places: Sequence[int], text: str) -> Location | SqlPlace:
    return SourceText(text).location(tokens[places[0]].start) if places else START


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
        return SqlTableError(missing, _place_of_table(table[2], text), found=table[2])
    column = NO_COLUMN.match(reason)
    return (
        None if column is None else _no_column(column[2], place, [each for name, each in tables.items() if _named(name, tokens_of(text))])
    )


def _no_column(name: str, place: Location | SqlPlace, tables: Sequence[Table]) -> SqlError:
    columns = dict.fromkeys(column.name for table in tables for column in table.columns)
    meant = _meant(name, columns) or (f"; it has {', '.join([*columns][:COLUMNS_SHOWN])}, …" if len(tables) == 1 else "")
    whose = f"sys.{tables[0].name} has" if len(tables) == 1 else "the tables of this query have"
    return SqlColumnError(f"{whose} no column {name}{meant}", place, found=name)


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
