"""Names and values of secrets. From where a value begins, no error shows anything of its statement."""

from __future__ import annotations

from rota.sql.cursor import TokenCursor
from rota.sql.syntax import Parameter, SecretText, SecretValue
from rota.sql.tokens import TokenKind
from rota.sql.values import SECRET_NAME_MAX, name

VALUE_FORMS = "a text in single quotes, ? or :name"


def secret_key(cursor: TokenCursor, what: str = "key of the secret") -> str:
    """Read the name of a secret, bare or in quotes of either kind."""
    token = cursor.mark("key")
    if token.kind is TokenKind.STRING and 0 < len(token.value) <= SECRET_NAME_MAX and token.value.isprintable() and token.value.strip():
        return cursor.advance().value
    return name(cursor, "secret", missing=f"the {what} is missing", limit=SECRET_NAME_MAX)


def secret_value(cursor: TokenCursor) -> SecretValue:
    """Read the value of a secret, or the parameter that it comes as."""
    cursor.secret = True
    cursor.take("VALUE")
    cursor.take("=")
    token = cursor.token
    if token.kind is TokenKind.STRING:
        cursor.has_secret = True
        return SecretText(cursor.advance().value)
    if token.kind is TokenKind.PARAMETER and (token.text == "?" or token.text.startswith(":")):
        return Parameter(cursor.advance().text[1:] or None)
    raise cursor.fault(f"the value of the secret is missing: use {VALUE_FORMS}", expected=("a text in single quotes", "?", ":name"))
