"""The text of a body on SQLite: its statements, the names of its parameters, and where its first word is."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import apsw
import msgspec

from rota.model.sql_names import SQLITE_TOKEN
from rota.ports.runner import BodyRefused
from rota.runners.placeholders import unknown_name


class Statement(msgspec.Struct, frozen=True):
    """One statement of a body, with the semicolon at its end."""

    text: str
    start: int
    """Its offset in the body, in characters from 0."""

    def position(self, error: apsw.Error) -> int | None:
        """Return the place in the body that SQLite's error is about, counted from 1. SQLite counts bytes of the statement."""
        offset = getattr(error, "error_offset", -1)
        return None if offset < 0 else self.start + len(self.text.encode()[:offset].decode(errors="ignore")) + 1


class Body(msgspec.Struct, frozen=True):
    """A body that was read."""

    statements: tuple[Statement, ...]
    names: frozenset[str]
    first_word: str
    """In capitals; empty if the body does not begin with one."""


def read(body: str, names: Collection[str]) -> Body:
    """Read a body; refuse a name that is not among `names`, and parameters without one."""
    if "\0" in body:
        raise BodyRefused("the body holds the character NUL (U+0000)", sqlstate="22021", position=body.index("\0") + 1)
    try:
        body.encode()
    except UnicodeEncodeError as error:
        raise BodyRefused("the body is not valid Unicode", sqlstate="22021", position=error.start + 1) from None
    used: set[str] = set()
    ends: list[int] = []
    first_word: str | None = None
    for token in SQLITE_TOKEN.finditer(body):
        if first_word is None and not token["blank"]:
            first_word = (token["word"] or "").upper()
        if token["number"]:
            raise BodyRefused(
                f"{token[0]} is a parameter without a name: name it, such as :name", sqlstate="42P02", position=token.start() + 1
            )
        if token["name"]:
            if token["name"] not in names:
                raise unknown_name(token["name"], names, token.start() + 1)
            used.add(token["name"])
        if token["end"]:
            ends.append(token.end())
    return Body(tuple(_statements(body, ends)), frozenset(used), first_word or "")


def _statements(body: str, ends: list[int]) -> Iterator[Statement]:
    """Yield the statements. A semicolon inside a trigger does not end one: SQLite knows."""
    start = 0
    for end in ends:
        if apsw.complete(body[start:end]):
            yield from _not_blank(body, start, end)
            start = end
    yield from _not_blank(body, start, len(body))


def _not_blank(body: str, start: int, end: int) -> Iterator[Statement]:
    text = body[start:end]
    if any(not token["blank"] and not token["end"] for token in SQLITE_TOKEN.finditer(text)):
        yield Statement(text, start)
