"""What a schema that is up to date holds, read from the migrations themselves: tables, views, indexes, triggers."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import msgspec

_COMMENT = re.compile(r"--.*")
_TABLE = re.compile(r"^CREATE TABLE (\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
_UNIQUE = re.compile(r"^ +(\w+) .*\bUNIQUE\b", re.MULTILINE)
_VIEW = re.compile(r"^CREATE VIEW (\w+)", re.MULTILINE)
_INDEX = re.compile(r"^(CREATE (?:UNIQUE )?INDEX (\w+) ON (\w+).*?);", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"^(ALTER TABLE (\w+) ADD PRIMARY KEY .*?);", re.MULTILINE)
_TRIGGER = re.compile(r"^(CREATE TRIGGER (\w+) .*? ON (\w+).*?);", re.MULTILINE | re.DOTALL)
_DROP = re.compile(r"^DROP (INDEX|TRIGGER|TABLE|VIEW) (\w+)(?: ON (\w+))?", re.MULTILINE)


class Expected(msgspec.Struct):
    """Names, each with its table and, where it can be made anew by itself, the statement that does so."""

    tables: set[str] = msgspec.field(default_factory=set)
    views: set[str] = msgspec.field(default_factory=set)
    indexes: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    triggers: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)


def latest() -> int:
    """Return the schema version that this code knows."""
    return max(migrations())


@cache
def migrations() -> dict[int, str]:
    """Return the text of every migration by its number."""
    folder = files(__package__).joinpath("migrations")
    return {int(file.name[:4]): file.read_text() for file in folder.iterdir() if file.name.endswith(".sql")}


def schema() -> str:
    """Return the statements that make a new store: what all migrations would leave, generated from them (`make schema`)."""
    return files(__package__).joinpath("schema.sql").read_text()


def expected() -> Expected:
    """Return what there is after all migrations."""
    return _after(tuple(text for _, text in sorted(migrations().items())))


@cache
def _after(texts: tuple[str, ...]) -> Expected:
    found = Expected()
    for text in texts:
        _follow(_COMMENT.sub("", text), found)
    return found


def _follow(text: str, found: Expected) -> None:
    for kind, name, _ in _DROP.findall(text):
        {"INDEX": found.indexes, "TRIGGER": found.triggers}.get(kind, {}).pop(name, None)
        {"TABLE": found.tables, "VIEW": found.views}.get(kind, set()).discard(name)
    for table, columns in _TABLE.findall(text):
        found.tables.add(table)
        if "PRIMARY KEY" in columns:
            found.indexes[f"{table}_pkey"] = (table, "")
        found.indexes |= {f"{table}_{column}_key": (table, "") for column in _UNIQUE.findall(columns)}
    found.indexes |= {f"{table}_pkey": (table, made) for made, table in _KEY.findall(text)}
    found.views |= set(_VIEW.findall(text))
    found.indexes |= {name: (table, _one_line(made)) for made, name, table in _INDEX.findall(text)}
    found.triggers |= {name: (table, _one_line(made)) for made, name, table in _TRIGGER.findall(text)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
