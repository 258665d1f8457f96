"""From text to statements: a script is read whole, or refused at the first place that can't be read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from rota.sql.access_statements import (
    alter_connection,
    alter_secret,
    alter_system,
    create_connection,
    create_role,
    create_secret,
    drop_connection,
    drop_role,
    drop_secret,
    grant,
    revoke,
)
from rota.sql.cursor import END, TokenCursor
from rota.sql.errors import SqlOptionError, SqlReadOnlyError, SqlSyntaxError
from rota.sql.grammar import FORMS, NEXT, SHOWS, SYS_TABLES, WRITES, Words, any_of
from rota.sql.job_statements import (
    alter_job,
    cancel_job,
    cancel_run,
    create_job,
    create_or_alter_job,
    drop_job,
    execute_job,
    recreate_job,
    steer_job,
)
from rota.sql.query_statements import explain_job, explain_run, forecast, select, show
from rota.sql.source import Location, SourceText
from rota.sql.syntax import AlterJob, CreateJob, DropJob, PlanChange, Statement
from rota.sql.tokens import TokenKind, tokens_of

SCRIPT_MAX_CHARS = 1_000_000
PLANNED = "CREATE JOB, ALTER JOB or DROP JOB"


class Parsed(msgspec.Struct, frozen=True):
    """A statement of a script, and where it is."""

    statement: Statement
    source: SourceText
    start: int
    """Offset of its first character."""
    end: int
    """Offset behind its last character, without the semicolon."""
    offsets: dict[str, int]

    def location(self, part: str = "") -> Location:
        """Return where a part of the statement is, or where it begins.

        Parts have the names of the tree's fields: `name`, `run_as`, `depends_on.0`, `schedule.at`, `grantees.1`, `body`.
        """
        return self.source.location(self.offsets.get(part, self.start))


def parse(text: str) -> Statement:
    """Return the one statement of a text."""
    statements = parse_script(text)
    if len(statements) > 1:
        raise SqlSyntaxError("expected one statement; found several", statements[1].location())
    return statements[0].statement


def parse_script(text: str) -> tuple[Parsed, ...]:
    """Return the statements of a script, at least one."""
    _refuse_unstorable(text)
    source = SourceText(text)
    cursor = TokenCursor(source, tokens_of(text))
    statements: list[Parsed] = []
    while True:
        while cursor.take(";"):
            pass
        if cursor.kind(TokenKind.END):
            break
        statements.append(_parsed(cursor))
        cursor.number += 1
    if not statements:
        raise SqlSyntaxError("there is no statement", source.location(0))
    return tuple(statements)


def _parsed(cursor: TokenCursor) -> Parsed:
    cursor.places, cursor.secret, cursor.after_secret = {}, False, cursor.has_secret
    start = cursor.token
    statement = _statement(cursor)
    if not cursor.at_end():
        cursor.want(END)
        part = f"{cursor.found()} is not part of {cursor.heading}: " if cursor.kind(TokenKind.WORD) and not cursor.is_hidden else ""
        raise cursor.fault(f"{part}expected {any_of(cursor.wanted)}" + ("" if part else f"; found {cursor.found()}"))
    return Parsed(statement, cursor.source, start.start, cursor.tokens[cursor.index - 1].end, cursor.places)


def _refuse_unstorable(text: str) -> None:
    """Refuse a text that is too long, and characters that no store can keep."""
    if len(text) > SCRIPT_MAX_CHARS:
        raise SqlOptionError(f"the script has {len(text):,} characters; at most {SCRIPT_MAX_CHARS:,} are allowed", sqlstate="54000")
    bad = text.find("\0")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        bad = error.start if bad < 0 else min(bad, error.start)
    if bad >= 0:
        reason = "a NUL character is not allowed" if text[bad] == "\0" else "half of a surrogate pair is not a character"
        raise SqlSyntaxError(reason, SourceText(text).location(bad), sqlstate="22021")


def _statement(cursor: TokenCursor) -> Statement:
    """Read the words that a statement begins with, then the rest by its reader."""
    words: Words = ()
    while (following := NEXT.get(words)) is not None:
        if cursor.token.word in following:
            words = (*words, cursor.advance().word)
        elif words in READERS:
            break
        else:
            raise _unknown(cursor, words, following)
    cursor.heading = " ".join(words)
    return READERS[words](cursor)


def _plan(cursor: TokenCursor) -> PlanChange:
    token = cursor.token
    if token.word in {"CREATE", "RECREATE", "ALTER", "DROP"}:
        statement = _statement(cursor)
        if isinstance(statement, CreateJob | AlterJob | DropJob):
            return PlanChange(statement)
    raise cursor.fault(f"PLAN takes {PLANNED}; found {cursor.found(token)}", token=token, expected=("CREATE JOB", "ALTER JOB", "DROP JOB"))


READERS: dict[Words, Callable[[TokenCursor], Statement]] = {
    ("CREATE", "JOB"): create_job,
    ("CREATE", "OR", "ALTER", "JOB"): create_or_alter_job,
    ("RECREATE", "JOB"): recreate_job,
    ("ALTER", "JOB"): alter_job,
    ("DROP", "JOB"): drop_job,
    ("EXECUTE", "JOB"): execute_job,
    ("RUN", "JOB"): execute_job,
    ("CANCEL", "JOB", "RUN"): cancel_run,
    ("CANCEL", "JOB"): cancel_job,
    ("PAUSE", "JOB"): steer_job,
    ("RESUME", "JOB"): steer_job,
    ("ENABLE", "JOB"): steer_job,
    ("DISABLE", "JOB"): steer_job,
    **{("SHOW", *what.split()): partial(show, what=what) for what in SHOWS},
    ("EXPLAIN", "JOB"): explain_job,
    ("EXPLAIN", "JOB", "RUN"): explain_run,
    ("PLAN",): _plan,
    ("FORECAST",): forecast,
    ("SELECT",): select,
    ("WITH",): select,
    ("GRANT",): grant,
    ("REVOKE",): revoke,
    ("CREATE", "ROLE"): create_role,
    ("DROP", "ROLE"): drop_role,
    ("CREATE", "SECRET"): create_secret,
    ("ALTER", "SECRET"): alter_secret,
    ("DROP", "SECRET"): drop_secret,
    ("CREATE", "CONNECTION"): create_connection,
    ("ALTER", "CONNECTION"): alter_connection,
    ("DROP", "CONNECTION"): drop_connection,
    ("ALTER", "SYSTEM"): alter_system,
}

# ---- errors -----------------------------------------------------------------------------------------------------------


def _unknown(cursor: TokenCursor, words: Words, following: tuple[str, ...]) -> Exception:
    """Return the error that no statement continues like this."""
    token = cursor.token
    if not words:
        return _no_statement(cursor, following)
    begun = " ".join(words)
    forms = [form for form in FORMS if form.words[: len(words)] == words]
    instead = "" if cursor.at_end() else f"; found {cursor.found()}"
    if words == ("SHOW",) and token.word == "TABLES":
        return cursor.fault(f"SHOW TABLES is not a statement here: sys has the tables {', '.join(SYS_TABLES)}", expected=following)
    if len(forms) <= 2:
        return cursor.fault(f"write {any_of([form.syntax for form in forms])}{instead}", expected=following)
    rest = [" ".join(form.words[len(words) :]) for form in forms]
    return cursor.fault(f"{begun} is followed by {any_of(rest)}{instead}", expected=following)


def _no_statement(cursor: TokenCursor, following: tuple[str, ...]) -> Exception:
    token = cursor.token
    if token.word in WRITES:
        reason = f"{token.word} is not possible: the tables of sys can only be read; {WRITES[token.word]}"
        return cursor.fault(reason, kind=SqlReadOnlyError, expected=following)
    return cursor.fault(f"{cursor.found()} is not a statement: use {any_of(following)}", expected=following)
