"""The line of an error with a caret under the place, for surfaces that have the text of the script."""

from __future__ import annotations

from rota.errors import SqlError
from rota.sql.parser import parse_script
from rota.sql.source import SourceText
from rota.sql.syntax import SecretText
from rota.sql.tokens import TokenKind, tokens_of


def excerpt(text: str, error: SqlError) -> str:
    """Return the line up to the error, strings left out, and a caret below it. Empty where a secret may be near."""
    if error.excerpt or error.statement is None:
        return error.excerpt
    parsed = parse_script(text)[error.statement - 1]
    if isinstance(getattr(parsed.statement, "value", None), SecretText):
        return ""
    at = error.position - 1
    tokens = [token for token in tokens_of(text) if token.start <= at and token.kind is not TokenKind.END]
    if not tokens:
        return ""
    *before, last = tokens
    return SourceText(text).excerpt(last, reversed(before), max(last.start, min(at, last.end - 1)))
