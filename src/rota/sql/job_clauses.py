"""Clauses of jobs, and their bodies."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from rota.errors import InvalidInput, InvalidSchedule
from rota.model.cron import read_cron
from rota.model.ordering import PRIORITIES, priority_of
from rota.model.params import encode, not_an_object
from rota.model.schedule_options import NAME_MAX
from rota.model.schedule_options import READ as OPTIONS
from rota.model.schedules import ScheduleState
from rota.model.templates import TEXT_MAX
from rota.model.zones import zone_of
from rota.sql.cursor import TokenCursor
from rota.sql.errors import SqlCommandError, SqlForbiddenError, SqlInvalidError, SqlOptionError, SqlParamsError, SqlScheduleError
from rota.sql.grammar import (
    BODIES,
    CLAUSE_OF,
    CLAUSES,
    MAX_RETRIES_MAX,
    PARTITION_FORMS,
    SCHEDULE_FORMS,
    UNSAFE,
    Clause,
    Reads,
    any_of,
)
from rota.sql.secret_values import secret_key
from rota.sql.syntax import (
    AllShards,
    Argument,
    AtIntervals,
    Body,
    CallBody,
    DueRule,
    DynamicShards,
    ExecBody,
    NamedArgument,
    OnceAt,
    OnCronLine,
    Partition,
    ShardSet,
    SingleShard,
    SqlBody,
)
from rota.sql.tokens import NESTING_MAX, SqlToken, TokenKind, tokens_of
from rota.sql.values import (
    EXAMPLE_MOMENT,
    DurationRule,
    argument,
    argument_name,
    duration,
    listed,
    name,
    number,
    qualified_name,
    shown,
    text,
    timestamp,
)


def read_clause(cursor: TokenCursor, fields: dict[str, Any], statement: str) -> None:
    """Read one clause into what was fields before it."""
    token = cursor.token
    clause = CLAUSE_OF.get(token.word)
    if clause is None:
        raise _no_clause(cursor, fields, statement)
    if clause.field in fields:
        alone = clause.reads is Reads.STATE and token.word != clause.heading
        raise cursor.twice(clause.heading, token, f": {fields[clause.field]}, {token.text}" if alone else "")
    cursor.mark(f"{clause.field} clause")
    words = next(words for words in (clause.words, *clause.also) if words[0] == token.word)
    if clause.reads is Reads.STATE and words != clause.words:
        fields[clause.field] = ScheduleState(cursor.advance().word)
        return
    cursor.phrase(*words)
    if clause.equals:
        cursor.take("=")
    cursor.mark(clause.field)
    if clause.removed_by and cursor.take(clause.removed_by):
        fields[clause.field] = None
    else:
        fields[clause.field] = READERS[clause.reads](cursor, clause)


def _no_clause(cursor: TokenCursor, fields: dict[str, Any], statement: str) -> Exception:
    """Return the error that a clause was expected."""
    left = tuple(clause.heading for clause in CLAUSES if clause.field not in fields)
    token, expected = cursor.token, (*left, *BODIES)
    if token.word in {"STARTS", "ENDS"}:
        return cursor.fault(f"{token.text} belongs right after EVERY and its duration", expected=())
    if token.word == ",":
        return cursor.fault("clauses have no commas between them", expected=expected)
    if token.kind is not TokenKind.WORD:
        return cursor.fault(f"expected a clause or a body; found {cursor.found()}", expected=expected)
    return cursor.fault(f"{statement} has no clause {cursor.found()}: it takes {', '.join(left)}", expected=expected)


def _choice(cursor: TokenCursor, clause: Clause) -> Any:
    words = {member.upper(): member for member in clause.choices or ()}
    if cursor.token.word not in words:
        raise cursor.fault(f"{clause.heading} is {any_of(list(words))}; found {cursor.found()}", expected=tuple(words))
    return words[cursor.advance().word]


def _state(cursor: TokenCursor) -> ScheduleState:
    if cursor.token.word not in ScheduleState.__members__:
        raise cursor.fault(f"{cursor.found()} is not a state: use {any_of(list(ScheduleState))}", expected=tuple(ScheduleState))
    return ScheduleState(cursor.advance().word)


def _duration(cursor: TokenCursor, clause: Clause) -> int:
    token = cursor.token
    seconds = duration(cursor, DurationRule(f"{clause.heading} =", f"{clause.heading} takes {clause.takes}", zero=clause.zero))
    if clause.field == "jitter":
        _accepted(cursor, token, lambda: OPTIONS["jitter"](clause.heading, seconds))
    return seconds


def _count(cursor: TokenCursor, clause: Clause) -> int:
    token = cursor.token
    count = number(cursor, f"{clause.heading} takes {clause.takes}")
    if not 0 <= count <= MAX_RETRIES_MAX:
        raise cursor.fault(f"{clause.heading} = {count}: use 0 to {MAX_RETRIES_MAX}", token=token, kind=SqlOptionError, expected=())
    return count


def _text(cursor: TokenCursor, clause: Clause) -> str:
    token = cursor.token
    return _bounded(cursor, token, text(cursor, f"{clause.heading} takes {clause.takes}"), TEXT_MAX)


def _bounded(cursor: TokenCursor, token: SqlToken, written: str, most: int) -> str:
    if len(written) > most:
        reason = f"this text has {len(written):,} characters; at most {most:,} are allowed"
        raise cursor.fault(reason, token=token, kind=SqlOptionError, sqlstate="22001", expected=())
    return written


def _name(cursor: TokenCursor, clause: Clause) -> str:
    what = clause.takes.rpartition(" ")[2]
    return name(cursor, what, missing=f"{clause.heading} needs {clause.takes}")


def _names(cursor: TokenCursor, clause: Clause) -> tuple[str, ...]:
    def read() -> str:
        after = cursor.tokens[cursor.index - 1].word == ","
        return name(cursor, "job", missing="a name is missing after the comma" if after else f"{clause.heading} needs {clause.takes}")

    return listed(cursor, read, clause.field)


def _list(cursor: TokenCursor, clause: Clause) -> tuple[str, ...]:
    cursor.need("(", message=f"{clause.heading} takes {clause.takes}; found {cursor.found()}")
    names = listed(cursor, lambda: secret_key(cursor, "name of a secret"), clause.field)
    cursor.need(")")
    return names


def _zone(cursor: TokenCursor, clause: Clause) -> str:
    token = cursor.token
    zone = _bounded(cursor, token, text(cursor, f"{clause.heading} takes {clause.takes}"), NAME_MAX)
    return _accepted(cursor, token, lambda: zone_of(zone).key)


def _priority(cursor: TokenCursor, clause: Clause) -> int:
    token = cursor.token
    if token.word.lower() in PRIORITIES:
        return priority_of(cursor.advance().text)
    priority = number(cursor, f"{clause.heading} takes {clause.takes}")
    return _accepted(cursor, token, lambda: priority_of(priority))


def params(cursor: TokenCursor, clause: Clause) -> str:
    """Read a JSON object in quotes."""
    token = cursor.mark(clause.field)
    written = text(cursor, f"{clause.heading} takes {clause.takes}")
    try:
        return _accepted(cursor, token, lambda: _canonical(written))
    except msgspec.DecodeError as error:
        reason = _json_reason(str(error), written)
        raise cursor.fault(f"{clause.heading} is not JSON: {reason}", token=token, kind=SqlParamsError, expected=()) from None
    except RecursionError:
        raise cursor.fault("PARAMS is nested too deeply", token=token, kind=SqlParamsError, expected=()) from None


def _json_reason(error: str, written: str) -> str:
    """Return why a text is not JSON: the decoder's words, which quote nothing of it, and the place in characters."""
    place = re.fullmatch(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)", error)
    if place is None:
        return "the text ends too early"
    before = written.encode()[: int(place[2])].decode(errors="ignore")
    return f"{place[1]}, at character {len(before) + 1}"


def _canonical(written: str) -> str:
    """Return a JSON object as canonical text: keys sorted, no spaces."""
    value: object = msgspec.json.decode(written)
    if not isinstance(value, dict):
        raise not_an_object(value, "PARAMS")
    encode(value, "PARAMS")
    return msgspec.json.encode(value, order="sorted").decode()


Result = TypeVar("Result")
CRON_MAX_CHARS = 1000


def _accepted(cursor: TokenCursor, token: SqlToken, read: Callable[[], Result]) -> Result:
    """Return what a check of the model makes of a value, or its refusal at the value's token."""
    try:
        return read()
    except InvalidInput as error:
        raise cursor.refused(error, token) from None


# ---- when and where ---------------------------------------------------------------------------------------------------


def schedule(cursor: TokenCursor) -> DueRule:
    """Read when a job is due."""
    if cursor.kind(TokenKind.STRING):
        return _cron(cursor)
    if cursor.take("CRON"):
        return _cron(cursor)
    if cursor.take("AT"):
        message = f"AT needs a moment in single quotes, such as {EXAMPLE_MOMENT}"
        at = OnceAt(timestamp(cursor, "schedule.at", message))
        _refuse_bounds(cursor, "AT has one moment")
        return at
    if cursor.take("EVERY"):
        return _every(cursor)
    if cursor.token.word == "NONE":
        raise cursor.fault("a job always has a schedule: SET STATE = DISABLED keeps it from running")
    raise cursor.fault(f"{cursor.found()} is not a schedule: use {SCHEDULE_FORMS}")


def _cron(cursor: TokenCursor) -> OnCronLine:
    token = cursor.mark("schedule.cron")
    written = text(cursor, "CRON needs its expression in single quotes, such as CRON '0 2 * * *'")
    _bounded(cursor, token, written, CRON_MAX_CHARS)
    try:
        read_cron(written)
    except InvalidSchedule as error:
        seconds = "; seconds are not among them: use EVERY n SECONDS" if len(written.split()) == 6 else ""
        raise cursor.refused(error, token, hint=seconds) from None
    _refuse_bounds(cursor, "a cron expression has no bounds")
    return OnCronLine(written.strip())


INTERVALS = DurationRule("EVERY", "EVERY needs a duration, such as EVERY 15 MINUTES", positive=True, refusal=SqlScheduleError)


def _every(cursor: TokenCursor) -> AtIntervals:
    cursor.mark("schedule.every")
    every = duration(cursor, INTERVALS)
    bounds = {}
    for word in ("STARTS", "ENDS"):
        if cursor.take(word):
            example = f"{word} needs a moment in single quotes, such as {EXAMPLE_MOMENT}"
            bounds[word.lower()] = timestamp(cursor, f"schedule.{word.lower()}", example)
    if cursor.token.word == "STARTS" and "ends" in bounds and "starts" not in bounds:
        raise cursor.fault("STARTS comes before ENDS", expected=())
    return AtIntervals(every, **bounds)


def _refuse_bounds(cursor: TokenCursor, reason: str) -> None:
    if cursor.token.word in {"STARTS", "ENDS"}:
        raise cursor.fault(f"{cursor.token.text} belongs to EVERY; {reason}", expected=())


def partition(cursor: TokenCursor, clause: Clause) -> Partition:
    """Read on which shards a job runs."""
    if cursor.take("ALL_SHARDS"):
        return AllShards()
    rule = cursor.token.word
    if cursor.take("SINGLE_SHARD") or cursor.take("SHARD"):
        return SingleShard(_shard(cursor, rule))
    if cursor.take("SHARD_SET"):
        return ShardSet(_shard_set(cursor))
    if cursor.take("DYNAMIC"):
        return DynamicShards(_expression(cursor))
    raise cursor.fault(f"{clause.heading} needs {PARTITION_FORMS}; found {cursor.found()}")


def _shard(cursor: TokenCursor, rule: str) -> str:
    token = cursor.mark("partition")
    shard = text(cursor, f"{rule} needs the name or id of a shard in single quotes")
    return _shard_name(cursor, token, shard)


def _shard_name(cursor: TokenCursor, token: SqlToken, shard: str) -> str:
    if not shard.strip() or not shard.isprintable():
        raise cursor.fault(f"{shown(token)} is not the name or id of a shard", token=token, kind=SqlOptionError, expected=())
    return shard


def _shard_set(cursor: TokenCursor) -> tuple[str, ...]:
    """Read shards in parentheses, or as one text with commas."""
    token = cursor.token
    if token.kind is TokenKind.STRING:
        shards = tuple(_shard_name(cursor, token, part.strip()) for part in cursor.advance().value.split(","))
        if len(set(shards)) < len(shards):
            raise cursor.fault("a shard is listed twice", token=token, kind=SqlInvalidError, expected=())
        return shards
    cursor.need("(", message=f"SHARD_SET needs shards in parentheses, such as SHARD_SET ('eu', 'us'); found {cursor.found()}")
    if cursor.see(")"):
        raise cursor.fault("SHARD_SET needs at least one shard", expected=("a text in single quotes",))
    shards = listed(cursor, lambda: _shard(cursor, "SHARD_SET"), "partition")
    cursor.need(")")
    return shards


def _expression(cursor: TokenCursor) -> str:
    """Read an expression in quotes or parentheses, which may only read."""
    token = cursor.mark("partition")
    expression = (
        _parenthesized(cursor) if token.word == "(" else text(cursor, "DYNAMIC needs an expression in single quotes or parentheses")
    )
    words = [word for word in tokens_of(expression) if word.kind is not TokenKind.END]
    bad = next((word.word for word in words if word.word in UNSAFE or word.word == ";"), "")
    if bad:
        raise cursor.fault(f"a DYNAMIC expression only reads: {bad} is not allowed in it", token=token, kind=SqlForbiddenError, expected=())
    if not words:
        raise cursor.fault("the DYNAMIC expression is empty", token=token, kind=SqlOptionError, expected=())
    return expression


def _parenthesized(cursor: TokenCursor) -> str:
    start, depth = cursor.token, 0
    while True:
        if cursor.at_end():
            raise cursor.fault("this parenthesis is never closed", token=start, expected=(")",))
        depth += {"(": 1, ")": -1}.get(cursor.token.word, 0)
        if depth > NESTING_MAX:
            raise cursor.fault(f"parentheses are nested too deeply: at most {NESTING_MAX} levels are allowed", expected=())
        token = cursor.advance()
        if depth == 0:
            return cursor.source.text[start.end : token.start].strip()


READERS: dict[Reads, Callable[[TokenCursor, Clause], Any]] = {
    Reads.CHOICE: _choice,
    Reads.DURATION: _duration,
    Reads.COUNT: _count,
    Reads.TEXT: _text,
    Reads.NAME: _name,
    Reads.NAMES: _names,
    Reads.LIST: _list,
    Reads.ZONE: _zone,
    Reads.PRIORITY: _priority,
    Reads.PARAMS: params,
    Reads.SCHEDULE: lambda cursor, _: schedule(cursor),
    Reads.PARTITION: partition,
    Reads.STATE: lambda cursor, _: _state(cursor),
}

# ---- bodies -----------------------------------------------------------------------------------------------------------


def body(cursor: TokenCursor) -> Body:
    """Read what a job does."""
    has_as = cursor.take("AS")
    if cursor.take("CALL"):
        return _call(cursor)
    if cursor.take("EXEC"):
        return _exec(cursor)
    cursor.mark("body")
    if not has_as or not cursor.kind(TokenKind.STRING):
        raise cursor.fault("AS needs the statement in quotes: AS 'SELECT 1' or AS $$ SELECT 1 $$", expected=("a text in single quotes",))
    token = cursor.advance()
    if not token.value.strip():
        raise cursor.fault("the SQL of a job can't be empty", token=token, kind=SqlOptionError, expected=())
    return SqlBody(token.value)


def _call(cursor: TokenCursor) -> CallBody:
    cursor.mark("body")
    procedure = qualified_name(cursor, "CALL needs the name of a procedure")
    shown_name = ".".join(procedure)
    cursor.need("(", message=f"CALL {shown_name:.60} needs parentheses: CALL {shown_name:.60}()")
    if cursor.take(")"):
        return CallBody(procedure)
    arguments: list[Argument] = []
    named: dict[str, Argument] = {}
    while not (arguments or named) or cursor.take(","):
        token = cursor.token
        name = argument_name(cursor)
        if name is None and named:
            raise cursor.fault("arguments by place come before those by name", token=token, expected=("name => value",))
        if name is None:
            arguments.append(argument(cursor))
        elif name in named:
            raise cursor.fault(f"the argument {cursor.found(token)} is given twice", token=token, kind=SqlInvalidError, expected=())
        else:
            named[name] = argument(cursor)
    if not cursor.take(")"):
        raise cursor.fault(f"a comma or ) is missing after an argument; found {cursor.found()}", expected=(",", ")"))
    return CallBody(procedure, tuple(arguments), tuple(NamedArgument(name, value) for name, value in named.items()))


def _exec(cursor: TokenCursor) -> ExecBody:
    token = cursor.mark("body")
    if token.kind is not TokenKind.STRING:
        raise cursor.fault("EXEC needs the command in quotes: EXEC '/path/to/program argument'", expected=("a text in single quotes",))
    command = cursor.advance().value
    if (quote := _unclosed(command)) is not None:
        reason = f"the command has a quote that is not closed, at character {quote}"
        raise cursor.fault(reason, token=token, kind=SqlInvalidError, expected=())
    words = shlex.split(command)
    if not words:
        raise cursor.fault("the command of a job can't be empty", token=token, kind=SqlOptionError, expected=())
    if not words[0].startswith("/"):
        reason = f"'{words[0]:.60}' is not an absolute path: use one such as /usr/bin/{words[0]:.60}, which must be on the allowlist"
        raise cursor.fault(reason, token=token, kind=SqlCommandError, expected=())
    return ExecBody(command)


def _unclosed(command: str) -> int | None:
    """Return at which character, counted from 1, a quote or an escape of a command begins that has no end."""
    opened, at = "", 0
    for place, character in enumerate(command, 1):
        if opened in {"\\", '"\\'}:
            opened = opened[:-1]
        elif character == opened:
            opened = ""
        elif (not opened and character in "'\"\\") or (opened == '"' and character == "\\"):
            opened += character
            at = at if len(opened) > 1 else place
    return at if opened else None
