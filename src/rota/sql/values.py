"""Values inside statements: names, numbers, durations, moments, ids and literals."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from rota.errors import InvalidInput, InvalidOption, InvalidSchedule, SqlError
from rota.model.checks import check_name
from rota.model.schedule_options import NAME_MAX
from rota.model.templates import UNITS, span_of
from rota.model.values import LATEST, SECOND, Instant, instant, moment
from rota.model.zones import LAST_S, spans, zone_of
from rota.sql.cursor import TokenCursor
from rota.sql.errors import SqlInvalidError, SqlOptionError, SqlScheduleError
from rota.sql.grammar import FOLLOWERS, RESERVED, UNEQUAL_UNITS, UNIT_WORDS, any_of
from rota.sql.syntax import Argument, JobName, Parameter
from rota.sql.tokens import SqlToken, TokenKind, in_one_line

Value = TypeVar("Value")
SECRET_NAME_MAX = 128
BIGGEST = 2**63 - 1
DIGITS_MAX = 40
DAY_S = 86_400
EXAMPLE_MOMENT = "'2036-03-01T09:00:00Z'"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_BROKEN_NUMBER = re.compile(r"\d\s+\d")
_UUID_TEXT = re.compile(r"(?:urn:uuid:)?\{?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\}?", re.IGNORECASE)

# ---- names ------------------------------------------------------------------------------------------------------------


def name(cursor: TokenCursor, what: str, *, missing: str = "", limit: int = NAME_MAX) -> str:
    """Read a name of one part; `missing` is what an error says where none is there."""
    token = cursor.token
    _part(cursor, missing or f"the name of a {what} is missing")
    if token.kind is TokenKind.WORD:
        _refuse_glued(cursor, what, token)
    return checked_name(cursor, token, what, limit)


def checked_name(cursor: TokenCursor, token: SqlToken, what: str, limit: int = NAME_MAX) -> str:
    """Return the name that a token is, in quotes or not, or refuse one that no store takes."""
    value = token.text if token.kind is TokenKind.WORD else token.value
    try:
        check_name(value, what, limit)
    except InvalidInput as error:
        raise cursor.refused(error, token) from None
    return value


def job_name(cursor: TokenCursor, after: str, part: str = "name") -> str:
    """Read the name of a job and remember its place."""
    cursor.mark(part)
    return name(cursor, "job", missing=f"{after} needs the name of a job")


def qualified_name(cursor: TokenCursor, missing: str) -> tuple[str, ...]:
    """Read a name of several parts with dots between them."""
    parts = [_part(cursor, missing)]
    while cursor.take("."):
        parts.append(_part(cursor, "a name is missing after the dot"))
    return tuple(parts)


def job_or_id(cursor: TokenCursor, after: str) -> JobName:
    """Read a job by its name, bare or in quotes of either kind, or by its id."""
    token = cursor.mark("job")
    if token.kind is TokenKind.UUID:
        return UUID(cursor.advance().text)
    if token.kind is not TokenKind.STRING:
        return job_name(cursor, after, "job")
    cursor.advance()
    return UUID(token.value) if _UUID_TEXT.fullmatch(token.value) else checked_name(cursor, token, "job")


def run_id(cursor: TokenCursor) -> UUID:
    """Read the id of a run."""
    token = cursor.mark("run")
    if token.kind is TokenKind.UUID:
        return UUID(cursor.advance().text)
    if token.kind is not TokenKind.STRING:
        raise cursor.fault("the uuid of a run is missing: SHOW JOB RUNS lists them", expected=("a uuid",))
    if not _UUID_TEXT.fullmatch(cursor.advance().value):
        raise cursor.fault(f"{shown(token)} is not a uuid", token=token, kind=SqlOptionError, sqlstate="22P02", expected=("a uuid",))
    return UUID(token.value)


def _part(cursor: TokenCursor, missing: str) -> str:
    """Read one part of a name."""
    token = cursor.token
    if token.kind is TokenKind.QUOTED:
        if not token.value:
            raise cursor.fault("a name in double quotes can't be empty", expected=())
        return cursor.advance().value
    if token.kind is TokenKind.WORD:
        if token.word in RESERVED:
            raise cursor.fault(f'{missing}; {token.text} is a keyword: as a name, write "{token.text}"', expected=("a name",))
        return cursor.advance().text
    if token.kind in {TokenKind.COMPACT, TokenKind.NUMBER, TokenKind.UUID}:
        raise cursor.fault(f'a name begins with a letter or _: write "{cursor.found()}" in double quotes', expected=("a name",))
    if token.kind is TokenKind.STRING:
        raise cursor.fault(f"{missing}: a name has no quotes, or double quotes; single quotes are for texts", expected=("a name",))
    raise cursor.fault(missing if cursor.at_end() else f"{missing}; found {cursor.found()}", expected=("a name",))


NAME_KINDS = frozenset({TokenKind.WORD, TokenKind.NUMBER, TokenKind.COMPACT})


def _refuse_glued(cursor: TokenCursor, what: str, start: SqlToken) -> None:
    """Refuse characters right after a bare name that only a quoted name can have."""
    mark, index = cursor.token, cursor.index
    if mark.word not in {"-", "."} or mark.start != start.end:
        return
    end = start.end
    while cursor.tokens[index].start == end and (cursor.tokens[index].kind in NAME_KINDS or cursor.tokens[index].word in {"-", "."}):
        end = cursor.tokens[index].end
        index += 1
    whole = cursor.source.text[start.start : end]
    quoted = f'write "{whole}" in double quotes' if len(whole) <= NAME_MAX and '"' not in whole else "write it in double quotes"
    reason = f"the name of a {what} has no dots" if mark.word == "." else "a bare name can't contain -"
    raise cursor.fault(f"{reason}: {quoted}", expected=())


# ---- lists ------------------------------------------------------------------------------------------------------------


def listed(cursor: TokenCursor, read: Callable[[], Value], part: str = "") -> tuple[Value, ...]:
    """Read values with commas between them, each of them once; `part` is under which their places are remembered."""
    values: dict[Value, None] = {}
    while not values or cursor.take(","):
        token = cursor.mark(f"{part}.{len(values)}") if part else cursor.token
        value = read()
        if value in values:
            label = "this text" if token.kind is TokenKind.STRING else cursor.found(token)
            raise cursor.fault(f"{label} is listed twice", token=token, kind=SqlInvalidError, expected=())
        values[value] = None
    return tuple(values)


# ---- texts and numbers ------------------------------------------------------------------------------------------------


def shown(token: SqlToken) -> str:
    """Return a string as an error may show it: only where a value can't be a secret."""
    return f"'{token.value}'" if len(token.value) <= 60 else f"'{token.value[:60]}…'"


def text(cursor: TokenCursor, message: str) -> str:
    """Read a text in quotes."""
    if not cursor.kind(TokenKind.STRING):
        name_in_quotes = cursor.kind(TokenKind.QUOTED) and not cursor.is_hidden
        reason = f"{cursor.found()} in double quotes is a name" if name_in_quotes else f"found {cursor.found()}"
        raise cursor.fault(f"{message}; {reason}", expected=("a text in single quotes",))
    return cursor.advance().value


def number(cursor: TokenCursor, message: str) -> int:
    """Read a whole number, which may have a sign."""
    token = cursor.token
    minus = cursor.take("-")
    if not cursor.kind(TokenKind.NUMBER) or "." in cursor.token.text:
        raise cursor.fault(f"{message}; found {cursor.found()}", expected=("a number",))
    return _whole(cursor, token, minus=minus)


def _whole(cursor: TokenCursor, start: SqlToken, *, minus: bool) -> int:
    token = cursor.advance()
    # Python refuses to read thousands of digits, and rightly.
    value = int(token.text) if len(token.text) <= DIGITS_MAX else BIGGEST + 1
    if value > BIGGEST:
        raise cursor.fault("this number is too large", token=start, kind=SqlOptionError, sqlstate="22003", expected=())
    return -value if minus else value


def argument_name(cursor: TokenCursor) -> str | None:
    """Read the name of an argument and the arrow after it, if there is one: `region => 'eu'`."""
    if not cursor.kind(TokenKind.WORD, TokenKind.QUOTED) or cursor.peek().word != "=":
        return None
    name = _part(cursor, "the name of an argument is missing")
    cursor.need("=")
    cursor.need(">", message="the name of an argument is followed by =>, such as region => 'eu'")
    return name


def argument(cursor: TokenCursor) -> Argument:
    """Read an argument of a procedure."""
    token = cursor.token
    if token.kind is TokenKind.STRING:
        return cursor.advance().value
    if token.kind is TokenKind.PARAMETER and token.text.startswith(":"):
        return Parameter(cursor.advance().text[1:])
    if token.word in CONSTANTS:
        return CONSTANTS[cursor.advance().word]
    minus = cursor.take("-")
    if not cursor.kind(TokenKind.NUMBER):
        raise cursor.fault(f"arguments are literals ('text', 1, NULL, TRUE, :name); found {cursor.found()}", expected=("a literal",))
    if "." not in cursor.token.text:
        return _whole(cursor, token, minus=minus)
    digits = cursor.advance().text
    if len(digits) > DIGITS_MAX:
        raise cursor.fault("this number has too many digits", token=token, kind=SqlOptionError, sqlstate="22003", expected=())
    return Decimal(f"-{digits}" if minus else digits)


CONSTANTS: dict[str, bool | None] = {"NULL": None, "TRUE": True, "FALSE": False}

# ---- durations --------------------------------------------------------------------------------------------------------


Refusal: TypeAlias = type[SqlOptionError | SqlScheduleError]
"""The error of a value that can't be: a schedule has its own."""


class DurationRule(NamedTuple):
    """What a duration is for, and which may be written."""

    heading: str
    """The words before it."""
    takes: str
    """The message of an error where no duration is there."""
    positive: bool = False
    zero: str = ""
    """The meaning of 0, if that is special."""
    refusal: Refusal = SqlOptionError

    @property
    def least(self) -> str:
        """Return the shortest one in words."""
        return "at least 1 second" if self.positive else f"0 ({self.zero}) or more" if self.zero else "0 or more"


def duration(cursor: TokenCursor, rule: DurationRule) -> int:
    """Read a duration in whole seconds: 90, 15 MINUTES, 1 HOUR 30 MINUTES, 90s, '1h30m', INTERVAL '1 hour'."""
    start, first = cursor.token, cursor.index

    def refuse(reason: str) -> SqlError:
        written = in_one_line(cursor.tokens[first : cursor.index])
        shortened = f"{written[:SPAN_SHOWN_CHARS]}…" if len(written) > SPAN_SHOWN_CHARS else written
        return cursor.fault(f"{rule.heading} {shortened}: {reason}", token=start, kind=rule.refusal, expected=())

    if cursor.take("-"):
        while cursor.kind(TokenKind.NUMBER, TokenKind.COMPACT) or cursor.token.word in UNITS:
            cursor.advance()
        raise refuse(f"a duration can't be negative; use {rule.least}")
    compact = _compact(cursor, rule.takes)
    try:
        if _BROKEN_NUMBER.search(compact):
            raise InvalidOption(compact)
        seconds = span_of(rule.heading, compact)
    except InvalidInput:
        raise refuse("use a duration of at most a hundred years, such as 90 SECONDS or '1h30m'") from None
    if seconds != int(seconds):
        raise refuse("a duration is a whole number of seconds")
    if rule.positive and not seconds:
        raise refuse(f"use {rule.least}")
    return int(seconds)


SPAN_SHOWN_CHARS = 60


def _compact(cursor: TokenCursor, message: str) -> str:
    """Read a duration as `span_of` takes it: 1h30m."""
    interval = cursor.take("INTERVAL")
    if cursor.kind(TokenKind.STRING):
        digits = cursor.token.value.strip()
        _refuse_fraction(cursor, digits)
        cursor.advance()
        return digits + _unit(cursor) if interval and digits.isdecimal() and cursor.token.word in UNITS else digits
    if cursor.kind(TokenKind.COMPACT):
        _refuse_fraction(cursor, cursor.token.text)
        return cursor.advance().text
    if not cursor.kind(TokenKind.NUMBER):
        raise cursor.fault(f"{message}; found {cursor.found()}", expected=("a duration",))
    parts: list[str] = []
    while cursor.kind(TokenKind.NUMBER):
        _refuse_fraction(cursor, cursor.token.text)
        digits = cursor.advance().text
        unit = _unit(cursor)
        if not unit and (parts or cursor.kind(TokenKind.NUMBER)):
            raise cursor.fault(f"a unit is missing after {digits:.20}: use {any_of(UNIT_WORDS)}", expected=UNIT_WORDS)
        parts.append(digits + unit)
    return "".join(parts)


def _unit(cursor: TokenCursor) -> str:
    """Read a unit as a letter; seconds have none."""
    token = cursor.token
    if token.word in UNITS:
        return UNITS[cursor.advance().word]
    if token.kind is not TokenKind.WORD or token.word in FOLLOWERS:
        return ""
    instead = UNEQUAL_UNITS.get(token.word.removesuffix("S"))
    if instead:
        raise cursor.fault(f"{token.text} is not a unit of durations: {instead}", expected=())
    raise cursor.fault(f"{cursor.found()} is not a unit: use {any_of(UNIT_WORDS)}", expected=(*UNIT_WORDS, *sorted(FOLLOWERS)))


def _refuse_fraction(cursor: TokenCursor, written: str) -> None:
    dot = written.find(".")
    if dot < 0:
        return
    at = cursor.token.start + cursor.token.text.find(".") if cursor.kind(TokenKind.NUMBER, TokenKind.COMPACT) else cursor.token.start
    raise cursor.fault("durations are whole numbers: write 90 MINUTES instead of 1.5 HOURS", at=at, expected=("a whole number",))


# ---- moments ----------------------------------------------------------------------------------------------------------


def timestamp(cursor: TokenCursor, part: str, message: str, kind: Refusal = SqlScheduleError) -> datetime:
    """Read a moment in quotes: aware if it names its zone, in UTC then; else naive."""
    token = cursor.mark(part)
    written = text(cursor, message).strip()
    try:
        at = datetime.fromisoformat(written)
        if at.tzinfo is not None:
            at = at.astimezone(UTC)
        if not 0 <= instant(at.replace(tzinfo=UTC)) <= LATEST:
            raise OverflowError
    except OverflowError:
        reason = f"{shown(token)} is out of range: use a moment between the years 1970 and 9999"
        raise cursor.fault(reason, token=token, kind=kind, sqlstate="22008", expected=()) from None
    except ValueError:
        if _MOMENT.fullmatch(written):
            reason = f"{shown(token)} is not a day and time of the calendar"
            raise cursor.fault(reason, token=token, kind=kind, sqlstate="22008", expected=()) from None
        reason = f"{shown(token)} is not a moment: use the form {EXAMPLE_MOMENT}"
        raise cursor.fault(reason, token=token, kind=kind, sqlstate="22007", expected=()) from None
    return at


def timestamp_text(at: datetime) -> str:
    """Return a moment as canonical text."""
    return at.isoformat().replace("+00:00", "Z")


def instant_in(at: datetime, zone: str) -> Instant:
    """Return when a moment is; one without a zone is a time of the given zone, and refused if its clock shows it twice or never."""
    if at.tzinfo is not None:
        return instant(at)
    local = instant(at.replace(tzinfo=UTC))
    second = local // SECOND
    around = list(spans(zone_of(zone), second - 2 * DAY_S, min(second + 2 * DAY_S, LAST_S)))
    # The window ends where the calendar does: its last span goes on.
    inside = [span for span in around if span.start <= second - span.offset and (span.end > second - span.offset or span is around[-1])]
    if len(inside) == 1 and 0 <= (exact := local - inside[0].offset * SECOND) <= LATEST:
        return exact
    if len(around) == 1:
        raise InvalidSchedule(f"'{timestamp_text(at)}' is out of range in {zone}: use a moment between the years 1970 and 9999")
    how = "happens twice" if inside else "never happens"
    readings = sorted({second - span.offset for span in around})
    both = " or ".join(f"'{moment(reading * SECOND):%Y-%m-%dT%H:%M:%SZ}'" for reading in readings)
    raise InvalidSchedule(f"'{timestamp_text(at)}' {how} in {zone}, where the clock changes that day: use {both}")
