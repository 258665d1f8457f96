"""`:name` in the body of a job on PostgreSQL: found, replaced by `$1`, `$2` …, and places in the sent text mapped back to the body.

Values are bound, never written into the text. So a mistake in this reading can make a body fail, but can't make a value SQL.
`rota.model.sql_names` says what is a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from rota.model.checks import guess
from rota.model.sql_names import postgres_tokens
from rota.ports.runner import BodyRefused


class Piece(msgspec.Struct, frozen=True):
    """A placeholder: where it is in the body and in the text that is sent. Offsets from 0; an end is the offset behind it."""

    start: int
    end: int
    sent_start: int
    sent_end: int


class Translated(msgspec.Struct, frozen=True):
    """A body as it is sent."""

    text: str
    names: tuple[str, ...]
    """The parameters: the first is $1."""
    pieces: tuple[Piece, ...]
    first_word: str
    """In capitals; empty if the body does not begin with one."""

    def original(self, position: int) -> int:
        """Return the place in the body of a character of the sent text, both counted from 1."""
        offset = position - 1
        piece = next((piece for piece in reversed(self.pieces) if piece.sent_start <= offset), None)
        if piece is None:
            return position
        return piece.start + 1 if offset < piece.sent_end else piece.end + offset - piece.sent_end + 1


def translate(body: str, names: Collection[str]) -> Translated:
    """Return the body with `$1` and so on for its placeholders; refuse a name that is not among `names`."""
    numbers: dict[str, int] = {}
    pieces: list[Piece] = []
    texts: list[str] = []
    done = sent = 0
    first_word: str | None = None
    for token, at in postgres_tokens(body):
        if first_word is None and not token["blank"] and not token["comment"]:
            first_word = (token["word"] or "").upper()
        if token["number"]:
            _refuse_number(token)
        if token["name"]:
            number = f"${numbers.setdefault(_known(token, names), len(numbers) + 1)}"
            texts += [body[done : token.start()], number]
            sent += token.start() - done
            pieces.append(Piece(token.start(), at, sent, sent + len(number)))
            sent, done = sent + len(number), at
    texts.append(body[done:])
    return Translated("".join(texts), tuple(numbers), tuple(pieces), first_word or "")


def _known(token: re.Match[str], names: Collection[str]) -> str:
    name = token["name"]
    if name in names:
        return name
    raise unknown_name(name, names, token.start() + 1)


def unknown_name(name: str, names: Collection[str], position: int) -> BodyRefused:
    """Return the refusal of a placeholder that is not a parameter of the job."""
    listed = f"it has {', '.join(sorted(names))}" if names else "it has none"
    message = f":{name} is not a parameter of the job{guess(name, sorted(names))}: {listed}"
    return BodyRefused(message, sqlstate="42P02", position=position)


def _refuse_number(token: re.Match[str]) -> None:
    raise BodyRefused(f"{token[0]} is a parameter by number: name it, such as :name", sqlstate="42P02", position=token.start() + 1)
