"""Statements that only read: SHOW, EXPLAIN, PLAN, FORECAST and SELECT."""

from __future__ import annotations

from rota.errors import InvalidInput
from rota.sql.access_statements import grantee
from rota.sql.cursor import TokenCursor
from rota.sql.errors import SqlOptionError
from rota.sql.grammar import SHOWS, Of
from rota.sql.syntax import ExplainJob, ExplainRun, ForecastJobs, Grantee, JobName, Listing, Select, Show
from rota.sql.tokens import TokenKind
from rota.sql.values import DurationRule, checked_name, duration, instant_in, job_or_id, number, run_id, text, timestamp

LIMIT_MAX = 1_000_000


def show(cursor: TokenCursor, what: Listing) -> Show:
    """Read what follows SHOW and what it lists."""
    form = SHOWS[what]
    if form.of is Of.GRANTEE:
        return _show_grants(cursor)
    job = _shown_job(cursor, what, form.of)
    like = text(cursor, "LIKE takes a pattern in single quotes") if form.like and cursor.take("LIKE") else None
    return Show(what, job, like=like, limit=_limit(cursor) if form.limit and cursor.take("LIMIT") else None)


def _shown_job(cursor: TokenCursor, what: Listing, of: Of) -> JobName | None:
    match of:
        case Of.MUST:
            if cursor.at_end():
                hint = "; SHOW JOBS lists all" if what is Listing.JOB else ""
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


def _show_grants(cursor: TokenCursor) -> Show:
    if not cursor.take("FOR"):
        return Show(Listing.GRANTS)
    if cursor.see("JOB") and cursor.peek().kind in {TokenKind.WORD, TokenKind.QUOTED, TokenKind.STRING, TokenKind.UUID}:
        cursor.advance()
        return Show(Listing.GRANTS, job_or_id(cursor, "FOR JOB"))
    token = cursor.mark("grantee")
    if token.kind is TokenKind.STRING:
        return Show(Listing.GRANTS, grantee=Grantee(checked_name(cursor, cursor.advance(), "user")))
    return Show(Listing.GRANTS, grantee=grantee(cursor))


def _limit(cursor: TokenCursor) -> int:
    token = cursor.token
    limit = number(cursor, "LIMIT takes a number")
    if not 0 <= limit <= LIMIT_MAX:
        raise cursor.fault(f"LIMIT {limit}: use 0 to {LIMIT_MAX:,}", token=token, kind=SqlOptionError, expected=())
    return limit


def explain_job(cursor: TokenCursor) -> ExplainJob:
    """Read what follows EXPLAIN JOB."""
    return ExplainJob(job_or_id(cursor, "EXPLAIN JOB"))


def explain_run(cursor: TokenCursor) -> ExplainRun:
    """Read what follows EXPLAIN JOB RUN."""
    return ExplainRun(run_id(cursor))


def forecast(cursor: TokenCursor) -> ForecastJobs:
    """Read what follows FORECAST."""
    job = job_or_id(cursor, "FORECAST JOB") if cursor.take("JOB") else None
    if cursor.take("FOR"):
        return ForecastJobs(job, duration(cursor, DurationRule("FOR", "FOR takes a duration, such as 24 HOURS", positive=True)))
    if not cursor.take("FROM"):
        return ForecastJobs(job)
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
    return ForecastJobs(job, None, start, end)


def select(cursor: TokenCursor) -> Select:
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
