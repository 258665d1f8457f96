"""Statements about jobs: CREATE, ALTER, DROP, EXECUTE and CANCEL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, UnsetType

from rota.errors import InvalidInput
from rota.model.schedules import CatchUp, OnCompletion, Overlap
from rota.sql.cursor import TokenCursor
from rota.sql.errors import SqlInvalidError, SqlScheduleError
from rota.sql.grammar import (
    BODIES,
    BODY_FORMS,
    CLAUSE_OF,
    CLAUSES,
    SCHEDULE_FORMS,
    any_of,
)
from rota.sql.job_clauses import body, params, read_clause
from rota.sql.secret_values import secret_key, secret_value
from rota.sql.syntax import (
    AlterJob,
    AtIntervals,
    CancelJob,
    CancelRun,
    Clauses,
    CreateJob,
    CreateMode,
    DropJob,
    DropJobSecret,
    DueRule,
    ExecuteJob,
    OnCronLine,
    SetJobSecret,
    Steering,
    SteerJob,
)
from rota.sql.tokens import SqlToken
from rota.sql.values import (
    DurationRule,
    duration,
    instant_in,
    job_name,
    run_id,
    timestamp_text,
)

ALTERATIONS = (*(clause.heading for clause in CLAUSES), *BODIES, "RENAME TO", "SECRET")
DEFAULT_ZONE = "UTC"

# ---- statements -------------------------------------------------------------------------------------------------------


def create_job(cursor: TokenCursor, mode: CreateMode = CreateMode.CREATE) -> CreateJob:
    """Read what follows CREATE JOB, CREATE OR ALTER JOB or RECREATE JOB."""
    start = cursor.tokens[cursor.index - len(f"{mode} JOB".split())]
    quiet = cursor.see("IF", "NOT", "EXISTS")
    if quiet and mode is not CreateMode.CREATE:
        raise cursor.fault(f"IF NOT EXISTS is for CREATE JOB, not for {mode} JOB", expected=("a name",))
    if quiet:
        cursor.phrase("IF", "NOT", "EXISTS")
    job = job_name(cursor, f"{mode} JOB")
    fields: dict[str, Any] = {}
    while not cursor.at_end() and cursor.token.word not in BODIES:
        read_clause(cursor, fields, f"{mode} JOB")
    if not cursor.at_end():
        fields["body"] = body(cursor)
        _refuse_after_body(cursor)
    statement = CreateJob(job, Clauses(**fields), mode, quiet)
    check(cursor, job, statement.clauses, zone=None if mode is CreateMode.CREATE_OR_ALTER else DEFAULT_ZONE)
    _check_whole(cursor, statement, start)
    return statement


def _check_whole(cursor: TokenCursor, statement: CreateJob, start: SqlToken) -> None:
    """Refuse a statement that does not say enough, or removes what can't be there."""
    mode, clauses = statement.mode, statement.clauses
    if mode is CreateMode.CREATE_OR_ALTER:
        if clauses == Clauses():
            raise cursor.fault(f"{mode} JOB {statement.name} says nothing of the job: add clauses or a body")
        return
    _refuse_removal(cursor, statement)
    reason = lacking(clauses)
    if reason and clauses.body is UNSET:
        raise cursor.fault(reason)
    if reason:
        raise cursor.fault(reason, token=start, kind=SqlInvalidError, expected=("SCHEDULE",))


def create_or_alter_job(cursor: TokenCursor) -> CreateJob:
    """Read what follows CREATE OR ALTER JOB."""
    return create_job(cursor, CreateMode.CREATE_OR_ALTER)


def recreate_job(cursor: TokenCursor) -> CreateJob:
    """Read what follows RECREATE JOB."""
    return create_job(cursor, CreateMode.RECREATE)


def lacking(clauses: Clauses) -> str:
    """Say what a job still needs before it can be created; an empty text if nothing."""
    if clauses.body is UNSET:
        what = "the job is incomplete: add SCHEDULE = … and a body," if clauses.schedule is UNSET else "the body is missing: add"
        return f"{what} {BODY_FORMS}"
    return f"the job has no SCHEDULE: add SCHEDULE = {SCHEDULE_FORMS}" if clauses.schedule is UNSET else ""


def alter_job(cursor: TokenCursor) -> AlterJob | SetJobSecret | DropJobSecret:
    """Read what follows ALTER JOB."""
    job = job_name(cursor, "ALTER JOB")
    if cursor.see("SET", "SECRET") or cursor.see("DROP", "SECRET"):
        return _job_secret(cursor, job)
    fields: dict[str, Any] = {}
    renamed: str | UnsetType = UNSET
    while not cursor.at_end():
        token = cursor.token
        if cursor.phrase("RENAME", "TO"):
            if renamed is not UNSET:
                raise cursor.twice("RENAME TO", token)
            renamed = job_name(cursor, "RENAME TO", "rename_to")
        else:
            _alteration(cursor, fields)
    if not fields and renamed is UNSET:
        raise cursor.fault(f"ALTER JOB {job} changes nothing: add SET …", expected=("SET", *ALTERATIONS))
    clauses = Clauses(**fields)
    check(cursor, job, clauses, zone=None)
    return AlterJob(job, clauses, renamed)


def _alteration(cursor: TokenCursor, fields: dict[str, Any]) -> None:
    was_set = cursor.take("SET")
    if was_set and cursor.at_end():
        raise cursor.fault(f"SET needs a clause: {', '.join(ALTERATIONS)}", expected=ALTERATIONS)
    token = cursor.token
    if token.word in BODIES:
        if "body" in fields:
            raise cursor.fault(f"a job has one body: {any_of(BODIES)}", kind=SqlInvalidError, expected=())
        fields["body"] = body(cursor)
        return
    if token.word == "SECRET" or (token.word == "DROP" and cursor.peek().word == "SECRET"):
        raise cursor.fault("SECRET needs a statement of its own: ALTER JOB … SET SECRET key = ?", expected=ALTERATIONS)
    read_clause(cursor, fields, "ALTER JOB")


def _job_secret(cursor: TokenCursor, job: str) -> SetJobSecret | DropJobSecret:
    if cursor.take("DROP", "SECRET"):
        return DropJobSecret(job, secret_key(cursor))
    cursor.take("SET", "SECRET")
    key = secret_key(cursor)
    return SetJobSecret(job, key, secret_value(cursor))


def drop_job(cursor: TokenCursor) -> DropJob:
    """Read what follows DROP JOB."""
    quiet = cursor.take("IF", "EXISTS")
    job = job_name(cursor, "DROP JOB")
    return DropJob(job, quiet, cursor.phrase("KEEP", "HISTORY"))


def execute_job(cursor: TokenCursor) -> ExecuteJob:
    """Read what follows EXECUTE JOB or RUN JOB."""
    job = job_name(cursor, "EXECUTE JOB")
    job_params: str | UnsetType = UNSET
    wait: int | UnsetType | None = UNSET
    if cursor.phrase("WITH", "PARAMS"):
        job_params = params(cursor, CLAUSE_OF["PARAMS"])
    if cursor.take("WAIT"):
        wait = None if cursor.at_end() else duration(cursor, DurationRule("WAIT", "WAIT takes a duration, such as 30 SECONDS, or nothing"))
    return ExecuteJob(job, job_params, wait)


def cancel_run(cursor: TokenCursor) -> CancelRun:
    """Read what follows CANCEL JOB RUN."""
    return CancelRun(run_id(cursor))


def cancel_job(cursor: TokenCursor) -> CancelJob:
    """Read what follows CANCEL JOB."""
    return CancelJob(job_name(cursor, "CANCEL JOB"))


def steer_job(cursor: TokenCursor) -> SteerJob:
    """Read what follows PAUSE JOB, RESUME JOB, ENABLE JOB or DISABLE JOB."""
    verb = Steering(cursor.tokens[cursor.index - 2].word)
    return SteerJob(verb, job_name(cursor, f"{verb} JOB"))


def _refuse_after_body(cursor: TokenCursor) -> None:
    word = cursor.token.word
    if word in BODIES:
        raise cursor.fault(f"a job has one body: {any_of(BODIES)}", expected=())
    if word in CLAUSE_OF:
        raise cursor.fault(f"{CLAUSE_OF[word].heading} comes before the body", expected=())


# ---- checks of a whole statement --------------------------------------------------------------------------------------


def check(cursor: TokenCursor, job: str, clauses: Clauses, *, zone: str | None) -> None:
    """Refuse clauses that contradict each other; `zone` is the job's where TIMEZONE is not said, None if only the store knows it."""

    def refuse(part: str, message: str, *, kind: type[SqlInvalidError | SqlScheduleError] = SqlScheduleError, sqlstate: str = "") -> None:
        token = next(token for token in cursor.tokens if token.start == cursor.places[part])
        raise cursor.fault(message, token=token, kind=kind, sqlstate=sqlstate, expected=())

    depends_on = clauses.depends_on or ()
    if job in depends_on:
        refuse(f"depends_on.{depends_on.index(job)}", f"job {job} can't depend on itself", sqlstate="42P17")
    if clauses.on_completion is OnCompletion.DROP and isinstance(clauses.schedule, OnCronLine | AtIntervals):
        kind = "CRON" if isinstance(clauses.schedule, OnCronLine) else "EVERY"
        refuse("on_completion clause", f"ON COMPLETION DROP is for AT: a job with {kind} does not complete", kind=SqlInvalidError)
    if clauses.catch_up is CatchUp.ALL and clauses.overlap is Overlap.SKIP:
        refuse(
            "catch_up clause", "CATCH_UP = ALL with OVERLAP = SKIP would skip the due times it makes up for: use OVERLAP = QUEUE or ALLOW"
        )
    if clauses.timezone is not UNSET:
        zone = clauses.timezone or DEFAULT_ZONE
    _check_moments(clauses.schedule, zone, refuse)


def _check_moments(rule: DueRule | UnsetType, zone: str | None, refuse: Callable[[str, str], None]) -> None:
    """Refuse an end before the start, and times of day that a zone's clock has twice or never."""
    moments = {part: moment for part in ("at", "starts", "ends") if (moment := getattr(rule, part, None)) is not None}
    if zone is None and len({moment.tzinfo for moment in moments.values()}) > 1:
        return
    at: dict[str, int] = {}
    for part, moment in moments.items():
        try:
            at[part] = instant_in(moment, zone or DEFAULT_ZONE)
        except InvalidInput as error:
            refuse(f"schedule.{part}", str(error))
    if "starts" in at and "ends" in at and at["ends"] < at["starts"]:
        refuse("schedule.ends", f"ENDS {timestamp_text(moments['ends'])} is before STARTS {timestamp_text(moments['starts'])}")


def _refuse_removal(cursor: TokenCursor, statement: CreateJob) -> None:
    """Refuse NONE where there is nothing to remove."""
    for clause in CLAUSES:
        if getattr(statement.clauses, clause.field) is None:
            token = next(token for token in cursor.tokens if token.start == cursor.places[clause.field])
            reason = f"{clause.heading} {clause.removed_by} is for ALTER JOB: leave the clause out of {statement.mode} JOB"
            raise cursor.fault(reason, token=token, kind=SqlInvalidError, expected=())
