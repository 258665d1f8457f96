"""Statements that only read: SHOW, EXPLAIN, PLAN, FORECAST and SELECT."""

from __future__ import annotations

from rota.errors import InvalidInput
from rota.sql.access_statements import grantee
from rota.sql.cursor import Cursor
from rota.sql.errors import SqlOptionError
from rota.sql.grammar import SHOWS, Of
from rota.sql.syntax import ExplainJob, ExplainRun, Forecast, JobName, Select, Show, Shown
from rota.sql.tokens import TokenKind
from rota.sql.values import Lengths, duration, instant_in, job_or_id, number, run_id, text, timestamp

LIMIT_MAX = 1_000_000


def show(cursor: Cursor, what: Shown) -> Show:
    """Read what follows SHOW and what it lists."""
    form = SHOWS[what]
    if form.of is Of.GRANTEE:
        return _show_grants(cursor)
    job = _shown_job(cursor, what, form.of)
    like = text(cursor, "LIKE takes a pattern in single quotes") if form.like and cursor.take("LIKE") else None
    return Show(what, job, like=like, limit=_limit(cursor) if form.limit and cursor.take("LIMIT") else None)


def _shown_job(cursor: Cursor, what: Shown, of: Of) -> JobName | None:
    match of:
        case Of.MUST:
            if cursor.at_end():
                hint = "; SHOW JOBS lists all" if what is Shown.JOB else ""
                raise cursor.fault(f"SHOW {what} needs the name of a job{hint}", expected=("a name",))
            return job_or_id(cursor, f"SHOW {what}")
        case Of.MAY_FOR:
            return job_or_id(cursor, "FOR") if cursor.take("FOR") else None
        case Of.MAY_FOR_JOB:
            return job_or_id(cursor, "FOR JOB") if cursor.phrase("FOR", "JOB") else None
        case Of.MAY:
            has_for = cursor.take("FOR")
            if not has_for and (cursor.at_end() or cursor.see("LIMIT")):
                return None
            return job_or_id(cursor, "FOR" if has_for else f"SHOW {what}")
        case _:
            return None


def _show_grants(cursor: Cursor) -> Show:
    if not cursor.take("FOR"):
        return Show(Shown.GRANTS)
    if cursor.see("JOB") and cursor.peek().kind in {TokenKind.WORD, TokenKind.QUOTED, TokenKind.STRING, TokenKind.UUID}:
        cursor.advance()
        return Show(Shown.GRANTS, job_or_id(cursor, "FOR JOB"))
    cursor.mark("grantee")
    return Show(Shown.GRANTS, grantee=grantee(cursor))


def _limit(cursor: Cursor) -> int:
    token = cursor.token
    found = number(cursor, "LIMIT takes a number")
    if not 0 <= found <= LIMIT_MAX:
        raise cursor.fault(f"LIMIT {found}: use 0 to {LIMIT_MAX:,}", token=token, kind=SqlOptionError, expected=())
    return found


def explain_job(cursor: Cursor) -> ExplainJob:
    """Read what follows EXPLAIN JOB."""
    return ExplainJob(job_or_id(cursor, "EXPLAIN JOB"))


def explain_run(cursor: Cursor) -> ExplainRun:
    """Read what follows EXPLAIN JOB RUN."""
    return ExplainRun(run_id(cursor))


def forecast(cursor: Cursor) -> Forecast:
    """Read what follows FORECAST."""
    job = job_or_id(cursor, "FORECAST JOB") if cursor.take("JOB") else None
    if cursor.take("FOR"):
        return Forecast(job, duration(cursor, Lengths("FOR", "FOR takes a duration, such as 24 HOURS", positive=True)))
    if not cursor.take("FROM"):
        return Forecast(job)
    start = timestamp(cursor, "start", "FROM takes a moment in single quotes", SqlOptionError)
    cursor.need("TO", after="the moment of FROM")
    last = cursor.token
    end = timestamp(cursor, "end", "TO takes a moment in single quotes", SqlOptionError)
    try:
        backwards = instant_in(end, "UTC") < instant_in(start, "UTC")
    except InvalidInput as error:
        raise cursor.refused(error, last) from None
    if backwards:
        raise cursor.fault("TO is before FROM", token=last, kind=SqlOptionError, expected=())
    return Forecast(job, None, start, end)


def select(cursor: Cursor) -> Select:
    """Take a query as it is, up to the end of the statement."""
    start = cursor.tokens[cursor.index - 1]
    parameters: list[str] = []
    last = start
    cursor.mark("text", start)
    while not cursor.at_end():
        last = cursor.advance()
        if last.kind is TokenKind.PARAMETER:
            parameters.append(last.text)
    return Select(cursor.source.text[start.start : last.end], tuple(parameters))
