"""The names of the params in a body: `:name` as the database of a connection reads it.

Runners bind values by the same reading, so what is refused at enqueue is what a run would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

from rota.model.connections import Connection, DatabaseKind
from rota.model.kinds import DEFAULT_CONNECTION
from rota.model.params import missing_param, unknown_param
from rota.model.schedules import JobKind
from rota.model.secret_params import named_secrets

_HIGH = "\x80-\U0010ffff"
_ESCAPED = r"'(?:[^'\\]|\\.|'')*+(?:'|\Z)"
POSTGRES_TOKEN = re.compile(
    rf"""
    (?P<blank>\s++|--[^\n\r]*+)
    |(?P<comment>/\*)
    |[eE]{_ESCAPED}(?:[ \t\f\r]*+\n\s*+{_ESCAPED})*+
    |'[^']*+(?:'|\Z)
    |"[^"]*+(?:"|\Z)
    |(?P<tag>\$(?:[A-Za-z_{_HIGH}][\w{_HIGH}]*+)?\$).*?(?:(?P=tag)|\Z)
    |(?P<number>\$[0-9]++)
    |(?P<word>[\w{_HIGH}][\w${_HIGH}]*+)
    |::|:=
    |(?<![\w${_HIGH})\]"']):(?P<name>[^\W\d]\w*+)
    |.
    """,
    re.VERBOSE | re.DOTALL,
)
"""Not a placeholder: what is inside strings, dollar quotes, quoted names and comments; `::type`; `:=`; and a colon right behind a name, a
number or a closing bracket, as in the slice `days[1:n]`. In a slice that begins with the colon, or has a space before it, write a space
after it: `days[: n]`."""
SQLITE_TOKEN = re.compile(
    r"""
    (?P<blank>\s++|--[^\n]*+|/\*.*?(?:\*/|\Z))
    |'[^']*+(?:'|\Z)|"[^"]*+(?:"|\Z)|`[^`]*+(?:`|\Z)|\[[^\]]*+(?:\]|\Z)
    |(?P<number>\?[0-9]*+)
    |[:@$](?P<name>[^\W\d]\w*+)
    |(?P<word>\w[\w$]*+)
    |(?P<end>;)
    |.
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")
BODIES_MAX = 256
"""Bodies whose names are remembered: each is read once, not for each job."""


def postgres_tokens(body: str) -> Iterator[tuple[re.Match[str], int]]:
    """Go through the tokens of a body on PostgreSQL, each with the offset behind it. Comments may hold others."""
    at = 0
    while (token := POSTGRES_TOKEN.match(body, at)) is not None:
        at = _comment_end(body, at) if token["comment"] else token.end()
        yield token, at


def _comment_end(body: str, at: int) -> int:
    """Return where a comment ends, which may hold others."""
    depth = 0
    for mark in _COMMENT.finditer(body, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(body)


@lru_cache(maxsize=BODIES_MAX)
def names_in(database: DatabaseKind, body: str) -> frozenset[str]:
    """Return the names that a body binds."""
    if database is DatabaseKind.SQLITE:
        return frozenset(token["name"] for token in SQLITE_TOKEN.finditer(body) if token["name"])
    return frozenset(token["name"] for token, _ in postgres_tokens(body) if token["name"])


class Body(Protocol):
    """What a definition says of its jobs' work: a template, the template of a job, or what a job was enqueued with."""

    @property
    def kind(self) -> JobKind:
        """What runs it."""

    @property
    def body(self) -> str | None:
        """Its text."""

    @property
    def defaults(self) -> dict[str, Any]:
        """What it names: its connection, its secrets, params that all of its jobs have."""


def refuse_misnamed(
    called: str,
    work: Body,
    params: Collection[str],
    connection: Connection | None,
    *,
    usual: Collection[str] = (),
) -> None:
    """Refuse params that the body of a job does not use, and a name in it that has no value.

    `params` are those that a run will have; those of them that are `usual`, because all jobs have them, need not be used. A secret that the
    definition names is a value, too. A command and a call of a procedure use no params. Nothing is refused if there is no such connection
    yet: its database decides what a name is.
    """
    names = _names(work, connection)
    if names is None:
        return
    secrets = {*named_secrets(work.defaults)}
    takes = names - secrets
    unknown = min({*params} - names - {*usual}, default=None)
    if unknown is not None:
        raise unknown_param(called, unknown, takes)
    missing = names - {*params} - secrets
    if missing:
        raise missing_param(called, min(missing))


def usual_params(defaults: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Return the params that all jobs of a definition have: what people say takes precedence over the code."""
    return {**defaults, **(overrides or {})}.get("default_params") or {}


def connection_key(work: Body, organization: str) -> tuple[str, str]:
    """Return what the connection of a job is found by."""
    return organization, work.defaults.get("connection") or DEFAULT_CONNECTION


def _names(work: Body, connection: Connection | None) -> frozenset[str] | None:
    if work.kind is not JobKind.SQL:
        return frozenset()
    return None if connection is None else names_in(connection.kind, work.body or "")
