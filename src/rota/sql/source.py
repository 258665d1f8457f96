"""The text of a script: where each of its characters is, and what of a line an error may show."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from rota.sql.tokens import SqlToken, TokenKind

EXCERPT_MAX_CHARS = 100
HIDDEN = "…"


class Location(msgspec.Struct, frozen=True):
    """A place in a text. Lines and columns are counted from 1, and so is `position`, in characters of the whole text."""

    line: int
    column: int
    position: int

    def __str__(self) -> str:
        """Return it as errors show it: 3:14."""
        return f"{self.line}:{self.column}"


class SourceText:
    """A text with the places of its lines."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def location(self, offset: int) -> Location:
        """Return the place of a character, given by its offset from 0."""
        line = bisect_right(self._starts, offset)
        return Location(line, offset - self._starts[line - 1] + 1, offset + 1)

    def excerpt(self, token: SqlToken, tokens: Iterable[SqlToken], at: int) -> str:
        """Return the line of a token up to the token, and a caret under the character at `at`.

        `tokens` are those before it, the nearest first. The contents of strings are left out, and so is what follows the token: a
        statement may hold a secret, and a text that could not be read may hold it anywhere.
        """
        start = self._starts[bisect_right(self._starts, token.start) - 1]
        shown = _shown(token).partition("\n")[0]
        pieces, right = [shown], token.start
        for before in tokens:
            if before.end <= start:
                break
            pieces += [self.text[before.end : right], _shown(before) if before.start >= start else HIDDEN]
            right = max(before.start, start)
        pieces.append(self.text[start:right])
        line = "".join(reversed(pieces))
        column = len(line) - len(shown) + min(at - token.start, max(len(shown) - 1, 0))
        if self._continues(token):
            line += f" {HIDDEN}"
        return _cut(line, column)

    def _continues(self, token: SqlToken) -> bool:
        """Say whether the line of a token has more after it."""
        end = self.text.find("\n", token.end)
        return bool(self.text[token.end : end if end >= 0 else None].strip())


def _shown(token: SqlToken) -> str:
    if token.kind is TokenKind.STRING or token.kind is TokenKind.BAD:
        return f"'{HIDDEN}'" if token.kind is TokenKind.STRING else HIDDEN
    return token.text


def _cut(line: str, column: int) -> str:
    """Return the part of a long line that leads to a column, and the caret under it."""
    start = max(0, column - EXCERPT_MAX_CHARS)
    plain = line[start : column + EXCERPT_MAX_CHARS].replace("\t", " ").replace("\r", " ")
    return f"{plain}\n{' ' * (column - start)}^"
