"""The tokens of a script. Text that is not a token becomes one of kind BAD: the parser reports it when it comes to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto

import msgspec

NESTING_MAX = 500
"""Comments inside comments, and parentheses inside parentheses."""


class TokenKind(Enum):
    """The kinds of tokens."""

    WORD = auto()
    """A keyword or a bare name: which of both depends on where it is."""
    QUOTED = auto()
    """A name in double quotes."""
    STRING = auto()
    """A text in single quotes, or between dollar tags."""
    NUMBER = auto()
    COMPACT = auto()
    """Digits and letters without a space, such as 90s or 1h30m."""
    UUID = auto()
    PARAMETER = auto()
    """`?`, `:name` or `$1`."""
    MARK = auto()
    """Any other single character."""
    BAD = auto()
    """The rest of a text that can't be read further; `text` says why."""
    END = auto()


class SqlToken(msgspec.Struct, gc=False):
    """One token: its text as written, and where it is."""

    kind: TokenKind
    text: str
    start: int
    end: int
    word: str = ""
    """Of a WORD: in capitals, as keywords are compared. Of a MARK: the character."""

    @property
    def value(self) -> str:
        """Return what a STRING or a QUOTED name says."""
        quote = self.text[0]
        if quote == "$":
            tag = self.text.index("$", 1) + 1
            return self.text[tag:-tag]
        return self.text[1:-1].replace(quote * 2, quote)


_HEX = r"[0-9A-Fa-f]"
_UUID = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_TOKEN = re.compile(
    rf"""
    (?:\s++|--[^\n]*+)*+
    (?:
    (?P<COMMENT>/\*)
    |(?P<UUID>\{{{_UUID}\}}|{_UUID}(?![\w-]))
    |(?P<NUMBER>[0-9]++(?:\.[0-9]++)?+(?![\w]))
    |(?P<COMPACT>[0-9][\w.]*+)
    |(?P<WORD>[^\W\d][\w$]*+)
    |(?P<CAST>::)
    |(?P<PARAMETER>\?[0-9]*+|:[^\W\d]\w*+|\$[0-9]++)
    |(?P<STRING>')
    |(?P<QUOTED>")
    |(?P<DOLLAR>\$(?:[^\W\d]\w*+)?\$)
    |(?P<MARK>.)
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENTED = re.compile(r"[^\r\n]")
_COMMENT = re.compile(r"/\*|\*/")
PLAIN_NAME = re.compile(r"[^\W\d][\w$]*")
"""A name that may be written without quotes, unless it is a word of the language."""

NO_QUOTE = "this text has no closing quote; write a quote inside a text twice: 'it''s'"
NO_DOUBLE_QUOTE = "this name has no closing double quote"
NO_DOLLAR = "this text has no closing {}"
NO_COMMENT_END = "this comment has no closing */"
DEEP_COMMENT = f"comments are nested too deeply: at most {NESTING_MAX} levels are allowed"


def word_of(text: str) -> str:
    """Return a word as keywords are compared. Only ASCII has a case here: a dotless i is not I."""
    return text.upper() if text.isascii() else text


def tokens_of(text: str) -> list[SqlToken]:
    """Return the tokens of a text; the last is END, or BAD and END."""
    tokens: list[SqlToken] = []
    at = 0
    while (matched := _TOKEN.match(text, at)) is not None:
        token = _token(text, matched)
        at = token.end
        if token.kind is not TokenKind.END:
            tokens.append(token)
    # The end is where the last token ends: an error about something missing points there, past no empty lines.
    end = tokens[-1].end if tokens else 0
    tokens.append(SqlToken(TokenKind.END, "", end, end))
    return tokens


def in_one_line(tokens: Sequence[SqlToken]) -> str:
    """Return the text of tokens, with one space where there is any space or comment between them."""
    before = [tokens[0].start, *(token.end for token in tokens)]
    return "".join(f" {token.text}" if token.start > end else token.text for token, end in zip(tokens, before, strict=False))


def without_comments(text: str) -> str:
    """Return a text with spaces in place of its comments, so that every token stays where it is."""
    pieces, end = [], 0
    for token in tokens_of(text):
        pieces += [_COMMENTED.sub(" ", text[end : token.start]), text[token.start : token.end]]
        end = token.end
    return "".join(pieces)


def _token(text: str, matched: re.Match[str]) -> SqlToken:
    """Return the token that was found; END for a comment."""
    kind = str(matched.lastgroup)
    lexeme, (at, end) = matched[kind], matched.span(kind)
    match kind:
        case "WORD":
            return SqlToken(TokenKind.WORD, lexeme, at, end, word_of(lexeme))
        case "STRING" | "QUOTED":
            return _quoted(text, at, TokenKind[kind])
        case "DOLLAR":
            return _dollar(text, at, lexeme)
        case "COMMENT":
            return _comment(text, at)
        case "MARK" | "CAST":
            return SqlToken(TokenKind.MARK, lexeme, at, end, lexeme)
        case _:
            return SqlToken(TokenKind[kind], lexeme, at, end)


def _quoted(text: str, at: int, kind: TokenKind) -> SqlToken:
    quote = text[at]
    end = text.find(quote, at + 1)
    while end >= 0 and text.startswith(quote, end + 1):
        end = text.find(quote, end + 2)
    if end < 0:
        return _bad(text, at, NO_QUOTE if kind is TokenKind.STRING else NO_DOUBLE_QUOTE)
    return SqlToken(kind, text[at : end + 1], at, end + 1)


def _dollar(text: str, at: int, tag: str) -> SqlToken:
    end = text.find(tag, at + len(tag))
    if end < 0:
        return _bad(text, at, NO_DOLLAR.format(tag))
    end += len(tag)
    return SqlToken(TokenKind.STRING, text[at:end], at, end)


def _comment(text: str, at: int) -> SqlToken:
    """Skip a comment, which may hold others."""
    depth = 0
    for mark in _COMMENT.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return SqlToken(TokenKind.END, "", at, mark.end())
        if depth > NESTING_MAX:
            return _bad(text, at, DEEP_COMMENT)
    return _bad(text, at, NO_COMMENT_END)


def _bad(text: str, at: int, reason: str) -> SqlToken:
    return SqlToken(TokenKind.BAD, reason, at, len(text))
