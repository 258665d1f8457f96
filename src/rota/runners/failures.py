"""Which errors of a database are worth another attempt, and where in the body they happened. The one table of both.

Permanent is what fails again until somebody changes the body, the connection or the rights. Transient is what may pass: trouble with the
connection, with locks, with room, and what depends on rows that others write. So a unique or foreign key that is violated is tried again,
a NOT NULL or a CHECK is not. An exception that a procedure raises itself is tried again, as one of a Python handler is.
What is not in the table is tried again.
"""

from __future__ import annotations

PERMANENT = frozenset({
    "03", "07", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "22", "23", "24", "25", "26", "27", "28", "2B", "2D", "2F", "34", "39",
    "3B", "3D", "3F", "42", "44", "54", "55", "F0", "HV", "XX001", "XX002", "57P04",
})  # fmt: skip
"""Classes of SQLSTATE, and single codes of other classes."""
TRANSIENT = frozenset({
    "23001", "23503", "23505", "23P01",  # keys and exclusions: others may write the missing row, or remove the one in the way
    "25006",                             # a server that only reads for now, as during a failover
    "25P03", "25P04",                    # sessions that the server ended
    "55006", "55P03",                    # something in use, or locked
})  # fmt: skip
"""Codes of classes that are permanent otherwise."""

SQLITE_PERMANENT = frozenset({
    "SQLITE_ERROR", "SQLITE_PERM", "SQLITE_READONLY", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_TOOBIG", "SQLITE_CONSTRAINT",
    "SQLITE_MISMATCH", "SQLITE_MISUSE", "SQLITE_AUTH", "SQLITE_RANGE", "SQLITE_FORMAT", "SQLITE_NOLFS", "SQLITE_INTERNAL",
})  # fmt: skip
"""Result codes, each with the extended ones whose names begin with it."""
SQLITE_TRANSIENT = frozenset({
    "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID", "SQLITE_CONSTRAINT_FOREIGNKEY",
    "SQLITE_CONSTRAINT_TRIGGER", "SQLITE_ERROR_SNAPSHOT",
})  # fmt: skip
"""Extended codes of codes that are permanent otherwise."""

LINE_MAX_CHARS = 100
COMMIT_UNKNOWN = "08007"
"""The SQLSTATE of a commit whose answer was lost."""


def is_permanent(sqlstate: str | None) -> bool:
    """Say whether an error with this SQLSTATE would come again. Without one the connection was lost."""
    if sqlstate is None or sqlstate in TRANSIENT:
        return False
    return sqlstate in PERMANENT or sqlstate[:2] in PERMANENT


def is_permanent_sqlite(name: str) -> bool:
    """Say the same of the name of a result code of SQLite."""
    return name not in SQLITE_TRANSIENT and any(name == code or name.startswith(f"{code}_") for code in SQLITE_PERMANENT)


def located(message: str, body: str, position: int | None) -> str:
    """Return a message with the line of the body that it is about, and a caret under the character, counted from 1."""
    if position is None or not 1 <= position <= len(body) + 1:
        return message
    start = body.rfind("\n", 0, position - 1) + 1
    end = body.find("\n", position - 1)
    line = body[start : end if end >= 0 else len(body)].replace("\t", " ").rstrip("\r")
    lead = f"LINE {body.count(chr(10), 0, start) + 1}: "
    column = position - 1 - start
    if column > LINE_MAX_CHARS // 2:
        cut = column - LINE_MAX_CHARS // 2
        line, column = f"…{line[cut:]}", column - cut + 1
    if len(line) > LINE_MAX_CHARS:
        line = f"{line[:LINE_MAX_CHARS]}…"
    return f"{message}\n{lead}{line}\n{' ' * (len(lead) + column)}^"


def counted(number: int, noun: str = "row") -> str:
    """Return a number with its noun: 1 row, 1,000 rows."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
