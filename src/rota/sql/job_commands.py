"""Statements that change and run jobs: CREATE, ALTER, DROP, EXECUTE, CANCEL, PAUSE and their kin."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import UNSET

from rota.declarations import declare_scheduled
from rota.engine.retention import remove_logs
from rota.errors import AlreadyEnded, InvalidParams, JobCancelled, JobFailed, JobSkipped, NotFound, ScheduleExists, StoreError, WaitTimeout
from rota.model.gate import Actor, Right
from rota.model.schedules import ScheduleState, next_due
from rota.model.values import Job, undashed
from rota.resources.schedules import fired
from rota.schedule_edits import added, deciding
from rota.session import Session
from rota.sql.execution import Execution, Refusal, not_yet
from rota.sql.interruption import current_stop, is_stopped
from rota.sql.job_definition import alteration, new_job
from rota.sql.job_rights import params_refusal
from rota.sql.result import Result
from rota.sql.states import run_state
from rota.sql.syntax import (
    AlterJob,
    CancelJob,
    CancelRun,
    Clauses,
    CreateJob,
    CreateMode,
    DropJob,
    ExecuteJob,
    Steering,
    SteerJob,
)
from rota.waits import wait

log = logging.getLogger("rota.sql")
CANCELLED = "cancelled with SQL"
STOP_S = 1
"""How long a wait for a run takes at most to notice that it is to stop."""

# ---- definitions ------------------------------------------------------------------------------------------------------


def create_job(run: Execution, statement: CreateJob) -> Result:
    """Create a job; one that exists is left, changed or replaced, as the statement says."""
    who = run.ask.within(None)
    declare_scheduled(run.ask.session)
    there = next(iter(run.here(statement.name, who.organization)), None)
    match statement.mode:
        case CreateMode.CREATE_OR_ALTER if there is not None:
            return alter_job(run.also(Right.ALTER_JOBS), AlterJob(statement.name, statement.clauses), tag="CREATE OR ALTER JOB")
        case CreateMode.RECREATE if there is not None:
            return _recreate(run, statement, who)
        case CreateMode.CREATE if there is not None and statement.if_not_exists:
            run.notice(f"job {statement.name} exists already: nothing was changed")
            return Result("CREATE JOB", notices=run.notices)
    if there is not None:
        raise _exists(statement.name)
    new = new_job(run, statement.name, statement.clauses, who)
    try:
        added(run.ask.session, new, who)
    except ScheduleExists as error:
        if run.here(statement.name, who.organization):
            raise _exists(statement.name) from None
        raise Refusal("name", str(error), code="job_exists", sqlstate="42710") from None
    return Result(f"{statement.mode} JOB", notices=run.notices)


def _exists(name: str) -> Refusal:
    message = f"there is a job {name} already: use ALTER JOB, CREATE OR ALTER JOB or RECREATE JOB"
    return Refusal("name", message, code="job_exists", sqlstate="42710")


def _recreate(run: Execution, statement: CreateJob, who: Actor) -> Result:
    """Replace a job by a new one of its name, in one transaction. Its history stays, under the old id."""
    before = run.also(Right.DROP_JOBS).job(statement.name)
    if before.own is None:
        raise not_yet("name", f"job {before.name} is a schedule of template {before.template}: RECREATE JOB replaces jobs that SQL created")
    new = new_job(run, statement.name, statement.clauses, who)
    deciding(
        run.ask.session,
        lambda edit: edit.store.replace_schedule(before.id, new, edit.decide, actor=who, now=edit.now, definitions=edit.definitions),
    )
    return Result("RECREATE JOB", notices=run.notices)


def alter_job(run: Execution, statement: AlterJob, *, tag: str = "ALTER JOB") -> Result:
    """Change what is said of a job and nothing else: one version, one entry of the audit trail."""
    job, who = run.job(statement.name), run.ask.within(None)
    change = alteration(run, job, statement, who)
    change(job, run.ask.now)
    deciding(run.ask.session, lambda edit: edit.change(job.id, lambda present: change(present, edit.now), who))
    return Result(tag, notices=run.notices)


def drop_job(run: Execution, statement: DropJob) -> Result:
    """Drop a job: what waits is cancelled, what runs is asked to stop, and its history goes unless it is kept."""
    try:
        job = run.job(statement.name)
    except Refusal as refusal:
        if not statement.if_exists:
            message = f"{refusal} (with IF EXISTS this is not an error)"
            raise Refusal(refusal.part, message, code=refusal.code, sqlstate=refusal.sqlstate) from None
        run.notice(f"there is no job {statement.name}: nothing was dropped")
        return Result("DROP JOB", notices=run.notices)
    who, ask = run.ask.within(None), run.ask
    deciding(
        ask.session,
        lambda edit: edit.store.drop_job(
            job.id, edit.decide, actor=who, now=edit.now, definitions=edit.definitions, keep_history=statement.keep_history
        ),
    )
    if not statement.keep_history:
        ask.session.follow_up(_remove_history)
    return Result("DROP JOB", notices=run.notices)


def _remove_history(session: Session) -> None:
    """Remove the history of dropped jobs, a batch to a transaction; what still runs is removed by a worker once it has ended."""
    opened = session.open()
    try:
        while (batch := opened.store.purge_dropped(limit=session.settings.retention_batch)).jobs:
            remove_logs(opened.log_dir, batch.run_ids)
    except StoreError as error:
        # The job is dropped: an error would say that it is not.
        log.warning("the history of dropped jobs is not removed yet, a worker will do that: %s", error)


def steer_job(run: Execution, statement: SteerJob) -> Result:
    """Change the state of a job."""
    job = run.job(statement.name)
    state = STATES[statement.verb]
    if statement.verb is Steering.RESUME and job.state is ScheduleState.DISABLED:
        raise Refusal("name", f"job {job.name} is disabled, not paused: use ENABLE JOB", code="refused", sqlstate="55000")
    if statement.verb is Steering.ENABLE and job.state is ScheduleState.DISABLED and next_due(job.timing, run.ask.now) is None:
        message = f"job {job.name} has no due time left: change its schedule with ALTER JOB … SET SCHEDULE"
        raise Refusal("name", message, code="invalid_schedule", sqlstate="55000")
    return alter_job(run, AlterJob(statement.name, Clauses(state=state)), tag=f"{statement.verb} JOB")


STATES = {
    Steering.PAUSE: ScheduleState.PAUSED,
    Steering.RESUME: ScheduleState.ENABLED,
    Steering.ENABLE: ScheduleState.ENABLED,
    Steering.DISABLE: ScheduleState.DISABLED,
}

# ---- runs -------------------------------------------------------------------------------------------------------------

RUN_COLUMNS = ("job_run_uuid", "state")


def execute_job(run: Execution, statement: ExecuteJob) -> Result:
    """Run a job now, whatever its state, beside any other run of it; none of its due times is used up."""
    job, ask = run.job(statement.name), run.ask
    if statement.wait is not UNSET:
        # Before anything is started: who may not read the run can't wait for it.
        run.also(Right.READ)
    params = None if statement.params is UNSET else msgspec.json.decode(statement.params, type=dict[str, Any])
    try:
        started = fired(ask, job, params, ask.within(None))
    except InvalidParams as error:
        raise params_refusal(error) from None
    if statement.wait is UNSET:
        return Result("EXECUTE JOB", RUN_COLUMNS, ((started.id, run_state(started.status)),), run.notices)
    ended = _awaited(run, started, statement.wait)
    return Result("EXECUTE JOB", RUN_COLUMNS, ((started.id, run_state(ended.status)),), run.notices)


def _awaited(run: Execution, job: Job, timeout: int | None) -> Job:
    """Wait for the end of a run and return its last attempt; a notice says what went wrong."""
    ask = run.ask
    try:
        if not _waited(run, job, timeout):
            run.notice("the run has not ended, and is not waited for any longer; it continues")
    except WaitTimeout:
        run.notice(f"the run had not ended after {timeout} s; it continues")
    except (JobFailed, JobCancelled, JobSkipped) as error:
        run.notice(str(error))
    return ask.store.chain(str(undashed(job.id)))[-1]


def _waited(run: Execution, job: Job, timeout: int | None) -> bool:
    """Wait for the end of a run; return False if the wait was stopped before it."""
    ask, left = run.ask, timeout
    if current_stop() is None:
        wait(ask.session, ask.actor, job.id, timeout)
        return True
    while not is_stopped():
        step = STOP_S if left is None else min(STOP_S, left)
        left = None if left is None else left - step
        try:
            wait(ask.session, ask.actor, job.id, step)
        except WaitTimeout:
            if left == 0:
                raise
        else:
            return True
    return False


def cancel_run(run: Execution, statement: CancelRun) -> Result:
    """Cancel one run: at once while it waits, by request while it runs."""
    ask = run.ask
    ask.store.cancel(run.run_id(statement.run), actor=ask.who, now=ask.now, reason=CANCELLED)
    ask.session.poke()
    return Result("CANCEL JOB RUN", notices=run.notices)


def cancel_job(run: Execution, statement: CancelJob) -> Result:
    """Cancel all unfinished runs of a job."""
    job, ask, count = run.job(statement.name), run.ask, 0
    for root in ask.store.live_chains(job.id):
        try:
            ask.store.cancel(root, actor=ask.who, now=ask.now, reason=CANCELLED)
            count += 1
        except (AlreadyEnded, NotFound):
            # It has ended since it was listed.
            continue
    ask.session.poke()
    return Result(f"CANCEL JOB {count}", notices=run.notices)
