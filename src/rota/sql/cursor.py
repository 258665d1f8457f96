"""A place between two tokens: what comes next is looked at, taken, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rota.errors import InvalidInput, SqlError
from rota.sql.errors import KINDS, SqlInvalidError, SqlOptionError, SqlSyntaxError
from rota.sql.grammar import RESERVED, any_of, nearest
from rota.sql.source import SourceText
from rota.sql.tokens import SqlToken, TokenKind

SHOWN_MAX_CHARS = 40
NOT_SHOWN = "text that is not shown"
HIDDEN_AFTER = "more is not shown, because the script has a secret before this place"
END = "the end of the statement"
NOTHING_EXECUTED = "nothing of the script was executed"


class TokenCursor:
    """The tokens of a script, and how far they have been read.

    Words that were looked for in vain are remembered until the next token is taken: an error says that they were expected.
    """

    def __init__(self, source: SourceText, tokens: Sequence[SqlToken]) -> None:
        self.source = source
        self.tokens = tokens
        self.index = 0
        self.token = tokens[0]
        self.wanted: list[str] = []
        self.places: dict[str, int] = {}
        """Offsets of the parts of this statement, for errors that are found later."""
        self.secret = False
        """The value of a secret has begun: nothing from here to the end of the statement is shown."""
        self.has_secret = False
        """A secret is written in this statement or an earlier one."""
        self.after_secret = False
        """A secret is written in an earlier statement: with a quote too few or too many, the rest of the script may be part of it."""
        self.number = 1
        """Of the statement, counted from 1."""
        self.heading = ""
        """The words that the statement begins with."""

    # ---- looking and taking

    def advance(self) -> SqlToken:
        """Take the next token, whatever it is. BAD and END stay where they are."""
        token = self.token
        if token.kind is TokenKind.BAD:
            raise self.fault()
        if token.kind is not TokenKind.END:
            self.index += 1
            self.token = self.tokens[self.index]
        self.wanted.clear()
        return token

    def peek(self, ahead: int = 1) -> SqlToken:
        """Return a token behind the next one."""
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def see(self, *words: str) -> bool:
        """Say whether the next tokens are these words or marks."""
        if self.token.word == words[0] and all(self.peek(ahead).word == word for ahead, word in enumerate(words[1:], 1)):
            return True
        self.want(" ".join(words))
        return False

    def want(self, what: str) -> None:
        """Remember something that could have been next."""
        self.wanted.append(what)

    def take(self, *words: str) -> bool:
        """Take these words if they are next."""
        if not self.see(*words):
            return False
        for _ in words:
            self.advance()
        return True

    def phrase(self, *words: str) -> bool:
        """Take these words if the first of them is next; then the others have to follow."""
        if self.token.word != words[0]:
            self.want(" ".join(words))
            return False
        self.advance()
        for before, word in pairwise(words):
            self.need(word, after=before)
        return True

    def need(self, word: str, *, after: str = "", message: str = "") -> None:
        """Take this word, or refuse what is there."""
        if not self.take(word):
            raise self.fault(message or f"{word} is missing{f' after {after}' if after else ''}; found {self.found()}", expected=(word,))

    def at_end(self) -> bool:
        """Say whether the statement ends here."""
        return self.token.kind is TokenKind.END or self.token.word == ";"

    def kind(self, *kinds: TokenKind) -> bool:
        """Say whether the next token is of one of these kinds."""
        return self.token.kind in kinds

    def mark(self, part: str, token: SqlToken | None = None) -> SqlToken:
        """Remember where a part of the statement is: at the next token, or at this one."""
        marked = token or self.token
        self.places[part] = marked.start
        return marked

    # ---- refusing

    def found(self, token: SqlToken | None = None) -> str:
        """Return what an error says of a token: never the content of a string."""
        token = token or self.token
        if self.is_hidden:
            return NOT_SHOWN
        if token.kind is TokenKind.END:
            return END
        if token.kind is TokenKind.STRING:
            return "a text in quotes"
        return token.text if len(token.text) <= SHOWN_MAX_CHARS else f"{token.text[:SHOWN_MAX_CHARS]}…"

    def fault(
        self,
        message: str = "",
        *,
        token: SqlToken | None = None,
        kind: type[SqlError] = SqlSyntaxError,
        sqlstate: str = "",
        expected: Sequence[str] | None = None,
        at: int | None = None,
    ) -> SqlError:
        """Return the error that something else was expected at a token; `at` is its offset if that is inside the token."""
        token = token or self.token
        if token.kind is TokenKind.BAD:
            message, expected = token.text, ()
        wanted = tuple(dict.fromkeys(self.wanted if expected is None else expected))
        if self.after_secret:
            message = f"{f'expected {any_of(wanted)}' if wanted else 'this is refused'}; {HIDDEN_AFTER}"
        suggestion = self._suggestion(token, wanted)
        parts = [message or f"expected {any_of(wanted) or END}; found {self.found(token)}", self._hint(token, wanted, suggestion)]
        if self.number > 1:
            parts.append(NOTHING_EXECUTED)
        offset = token.start if at is None else at
        return kind(
            "; ".join(filter(None, parts)),
            self.source.location(offset),
            sqlstate=sqlstate,
            expected=wanted,
            found="" if token.kind is TokenKind.BAD else self.found(token),
            suggestion=suggestion,
            excerpt=self._excerpt(token, offset),
        )

    def refused(self, error: InvalidInput, token: SqlToken, *, hint: str = "") -> SqlError:
        """Return a refusal of a value as an error at its token."""
        kind = next((KINDS[refusal] for refusal in type(error).__mro__ if refusal in KINDS), SqlOptionError)
        return self.fault(f"{error}{hint}", token=token, kind=kind, expected=())

    def twice(self, what: str, token: SqlToken, values: str = "") -> SqlError:
        """Return the error that something is said a second time."""
        return self.fault(f"{what} is given twice{values}", token=token, kind=SqlInvalidError, expected=())

    @property
    def is_hidden(self) -> bool:
        """Say whether the next tokens may be part of a secret."""
        return self.secret or self.after_secret

    def _suggestion(self, token: SqlToken, wanted: tuple[str, ...]) -> str:
        if self.is_hidden or token.kind is not TokenKind.WORD:
            return ""
        return nearest(token.word, wanted)

    def _hint(self, token: SqlToken, wanted: tuple[str, ...], suggestion: str) -> str:
        if suggestion:
            return f"did you mean {suggestion}?"
        if self.is_hidden or token.kind is not TokenKind.WORD:
            return ""
        before = self.tokens[self.index - 1] if self.index else None
        if before is not None and before.kind is TokenKind.STRING and before.end == token.start:
            return "write a quote inside a text twice: 'it''s'"
        glued = next((word for word in wanted if token.word.startswith(word) and token.word[len(word) :][:1].isalpha()), "")
        return f"a space is missing after {glued}" if glued and glued not in RESERVED else ""

    def _excerpt(self, token: SqlToken, at: int) -> str:
        if self.is_hidden:
            return ""
        index = self.index if token is self.token else self.tokens.index(token)
        return self.source.excerpt(token, reversed(self.tokens[:index]), at)
