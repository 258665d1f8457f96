"""Statements that only read: SHOW, EXPLAIN, PLAN and FORECAST."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC
from itertools import islice
from typing import Any

import msgspec

from rota.model.gate import Right, Scope
from rota.model.kinds import is_kind, type_in_words, unserved
from rota.model.prospects import Prospect, dues
from rota.model.schedules import JobKind, Schedule, ScheduleState
from rota.model.values import SECOND, Instant, Job, dashed, moment, moment_of, undashed
from rota.ports.schedules import Ledger
from rota.ports.store import Where
from rota.schedule_views import in_scope, occurrence_view, schedule_view
from rota.sql.access_commands import show_grants, show_roles
from rota.sql.connection_commands import show_connections
from rota.sql.execution import Execution, Refusal, not_yet
from rota.sql.job_definition import alteration, clauses_of, new_job
from rota.sql.patterns import like
from rota.sql.render import render
from rota.sql.reports import settings_rows
from rota.sql.result import Result
from rota.sql.secret_commands import show_secrets
from rota.sql.states import run_state
from rota.sql.syntax import (
    AlterJob,
    CreateJob,
    CreateMode,
    DropJob,
    ExplainJob,
    ExplainRun,
    ForecastJobs,
    JobName,
    Listing,
    PlanChange,
    Show,
)

LIMIT = 100
"""Rows of a SHOW that names no limit."""
PLAN_DAYS = 90
DAY_US = 86_400 * SECOND
PLAN_ROWS_MAX = 1000

# ---- SHOW -------------------------------------------------------------------------------------------------------------


def show(run: Execution, statement: Show) -> Result:
    """List something."""
    lister = LISTERS.get(statement.what)
    if lister is None:
        raise not_yet("", f"SHOW {statement.what} is not available yet")
    columns, rows = lister(run, statement)
    found = tuple(rows)
    return Result(f"SHOW {len(found)}", columns, found, run.notices)


def _jobs(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    columns = ("job_name", "job_type", "state", "schedule", "next_run_time", "description", "job_uuid", "organization")
    jobs = [job for job in in_scope(run.ask) if statement.like is None or like(job.name, statement.like)]
    return columns, (_job_row(job) for job in jobs)


def _job_row(job: Schedule) -> tuple[Any, ...]:
    view = schedule_view(job)
    return job.name, kind_of(job), str(job.state), view.words, view.next_at, job.description, dashed(job.id), job.organization


def kind_of(job: Schedule) -> str:
    """Return what a job does, in the words of the catalog: a handler is a procedure."""
    return JobKind.PROCEDURE.upper() if job.own is None else job.own.kind.upper()


def _job(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    job = run.job(_named(statement), "job")
    view = schedule_view(job)
    facts: dict[str, Any] = {
        "job_name": job.name,
        "job_uuid": dashed(job.id),
        "job_type": kind_of(job),
        "organization": job.organization,
        "state": str(job.state),
        "schedule": view.words,
        "timezone": view.timezone,
        "next_run_time": view.next_at,
        "last_run_time": view.last_at,
        "catch_up": str(job.catch_up),
        "overlap": str(job.overlap),
        "on_completion": str(job.on_completion),
        "depends_on": ", ".join(job.depends_on) or None,
        "params": msgspec.json.encode(job.params).decode() if job.params else None,
        "description": job.description,
        "version": job.version,
        "created_by": job.created_by,
        "created_at": job.created_at,
    }
    if job.own is not None:
        own, backoff = job.own, job.own.defaults.get("backoff", {})
        facts |= {
            "body": own.body if run.shows_body(job) else None,
            "connection": own.defaults.get("connection"),
            "run_as": job.run_as,
            "secrets": ", ".join(own.defaults.get("secrets", ())) or None,
            "job_class": own.job_class,
            "partition_strategy": own.partition_strategy,
            "partition_shard": own.partition_shard,
            "partition_expression": own.partition_expression,
            "max_retries": own.defaults.get("max_retries"),
            "retry_backoff_seconds": backoff.get("base"),
            "timeout_seconds": own.defaults.get("timeout"),
            "template_version": own.version,
        }
    return ("property", "value"), facts.items()


def _create_job(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    job = run.job(_named(statement), "job")
    if job.own is None:
        raise not_yet("job", f"job {job.name} is a schedule of template {job.template}: only jobs that SQL created have a CREATE JOB")
    if not run.shows_body(job):
        message = f"the statement of job {job.name} has its text, which is shown to those who may alter the job"
        raise Refusal("job", message, code="permission_denied", sqlstate="42501")
    return ("job_name", "statement"), [(job.name, render(CreateJob(job.name, clauses_of(job, job.own, run.ask.session.current()))))]


def _job_runs(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    columns = (
        "job_run_uuid",
        "job_name",
        "state",
        "status",
        "scheduled_time",
        "started_at",
        "completed_at",
        "retry_count",
        "template_version",
    )
    job = None if statement.job is None else run.job(statement.job, "job")
    names = {each.id: each.name for each in ([job] if job is not None else in_scope(run.ask))}
    where = Where(scope=run.ask.scope, schedule_id=None if job is None else job.id)
    found = run.ask.store.find(where, limit=_limit(statement)) if _limit(statement) else []
    runs = [each for _, each in found if each.schedule_id is not None]
    for schedule_id in {undashed(each.schedule_id or "") or "" for each in runs} - names.keys():
        # Of a job that was dropped and whose history was kept.
        names[schedule_id] = getattr(run.ask.store.schedule(schedule_id), "name", "")
    return columns, (_run_row(each, names) for each in runs)


def _run_row(job: Job, names: dict[str, str]) -> tuple[Any, ...]:
    name = names.get(undashed(job.schedule_id or "") or "")
    version = (job.meta or {}).get("template_version")
    times = (job.due_at or job.run_at, job.started_at, job.finished_at)
    return job.id, name, run_state(job.status), str(job.status), *times, job.attempt - 1, version


def _occurrences(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    columns = ("job_name", "due_at", "last_due_at", "count", "fate", "reason", "job_run_uuid", "status")
    ledger = Ledger(scope=run.ask.scope, schedule_id=None if statement.job is None else run.job(statement.job, "job").id)
    found = run.ask.store.occurrences(ledger, limit=_limit(statement)) if _limit(statement) else []
    views = map(occurrence_view, found)
    return columns, ((v.schedule, v.due_at, v.last_due_at, v.count, str(v.fate), v.reason, v.job_id, v.status) for v in views)


def _dependencies(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    jobs = in_scope(run.ask) if statement.job is None else [run.job(statement.job, "job")]
    return ("job_name", "depends_on"), [(job.name, parent) for job in jobs for parent in job.depends_on]


def _settings(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    run.ask.session.current()
    rows = settings_rows(run.also(Right.OPERATE).ask)
    found = [(row["name"], row["value"], row["source"]) for row in rows]
    return ("setting", "value", "source"), [row for row in found if statement.like is None or like(row[0], statement.like)]


def _audit(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    columns = ("at", "event", "job_uuid", "job_run_uuid", "actor", "outcome", "action", "subject", "subject_id", "before", "after")
    scope = run.also(Right.READ_AUDIT).ask.scope
    job = None if statement.job is None else run.job(statement.job, "job").id
    found = run.ask.store.audit(limit=_limit(statement), scope=scope, job=job) if _limit(statement) else []
    return columns, (tuple(getattr(entry, column) for column in columns) for entry in found)


def _scheduler(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    del statement
    stats = run.also(Right.READ_STATS)
    jobs = run.ask.store.schedules(scope=stats.ask.scope)
    due = [job.next_at for job in jobs if job.state is not ScheduleState.DISABLED and job.next_at is not None]
    counts = {state: sum(job.state is state for job in jobs) for state in ScheduleState}
    facts = {
        "workers": run.ask.store.stats(now=run.ask.now, scope=stats.ask.scope).workers,
        **{f"jobs_{state.lower()}": count for state, count in counts.items()},
        "next_run_time": moment(min(due, default=None)),
    }
    return ("property", "value"), facts.items()


def _metrics(run: Execution, statement: Show) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    del statement
    stats = run.ask.store.stats(now=run.ask.now, scope=run.also(Right.READ_STATS).ask.scope)
    facts = {
        **{f"jobs_{status.lower()}": count for status, count in sorted(stats.by_status.items())},
        "oldest_waiting_seconds": stats.oldest_waiting_s,
        "average_seconds": stats.average_s,
        "p95_seconds": stats.p95_s,
        "failure_rate": stats.failure_rate,
    }
    return ("metric", "value"), facts.items()


LISTERS: dict[Listing, Callable[[Execution, Show], tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]]] = {
    Listing.JOBS: _jobs,
    Listing.JOB: _job,
    Listing.CREATE_JOB: _create_job,
    Listing.JOB_RUNS: _job_runs,
    Listing.OCCURRENCES: _occurrences,
    Listing.DEPENDENCIES: _dependencies,
    Listing.GRANTS: show_grants,
    Listing.ROLES: show_roles,
    Listing.CONNECTIONS: show_connections,
    Listing.SECRETS: show_secrets,
    Listing.SETTINGS: _settings,
    Listing.AUDIT: _audit,
    Listing.SCHEDULER: _scheduler,
    Listing.METRICS: _metrics,
}


def _limit(statement: Show) -> int:
    return LIMIT if statement.limit is None else statement.limit


def _named(statement: Show) -> JobName:
    assert statement.job is not None  # noqa: S101 - the parser looked
    return statement.job


# ---- EXPLAIN ----------------------------------------------------------------------------------------------------------

REASONS = ("condition", "met", "detail")


def explain_job(run: Execution, statement: ExplainJob) -> Result:
    """Say why a job runs or does not run: each condition, and whether it is met."""
    job = run.job(statement.job, "job")
    registry, view = run.ask.registry, schedule_view(job)
    known = registry.find(job.job_type)
    organization = registry.organizations.get(job.organization)
    live = run.ask.store.live_chains(job.id)
    rows: list[tuple[str, bool, str | None]] = [
        ("the job is enabled", job.state is ScheduleState.ENABLED, f"it is {job.state}"),
        ("a due time is to come", view.next_at is not None, view.words),
        ("its organization is active", organization is not None and organization.state == "ACTIVE", job.organization),
    ]
    if is_kind(job.job_type):
        workers = [each for each in run.ask.store.workers() if job.job_type in each.job_types]
        served = f"{len(workers)} serve {type_in_words(job.job_type)}" if workers else unserved(job.job_type)
        rows.append(("a live worker serves it", bool(workers), served))
    else:
        rows.append(("its handler takes jobs", known is not None and known.state == "ENABLED", job.job_type))
    rows += [(f"job {name}, which it waits for, is there", bool(run.here(name, job.organization)), None) for name in job.depends_on]
    rows.append(("no earlier run is unfinished", not live, f"{len(live)} unfinished; OVERLAP = {job.overlap.upper()}"))
    return Result(f"EXPLAIN {len(rows)}", REASONS, tuple(rows), run.notices)


def explain_run(run: Execution, statement: ExplainRun) -> Result:
    """Say why a run is where it is, and what it is a run of."""
    from rota.engine.explain import explain  # noqa: PLC0415 - few statements need it

    ask = run.ask
    found = explain(ask.store, run.run_id(statement.run), ask.now, registry=ask.registry, scope=ask.scope)
    rows: list[tuple[str, bool, str]] = [(f"it is {found.job.status}", True, found.summary)]
    rows += [(reason.condition, reason.met, reason.detail) for reason in found.reasons]
    version, template_id = (found.job.meta or {}).get("template_version"), undashed(found.job.template_id or "")
    if isinstance(version, int) and template_id is not None and (was := ask.store.template_version(template_id, version)) is not None:
        schedule = ask.store.schedule(undashed(found.job.schedule_id or "") or "")
        shown = was.body if was.body and schedule is not None and run.shows_body(schedule) else was.job_type
        rows.append((f"it runs version {version} of its job", True, shown))
    return Result(f"EXPLAIN {len(rows)}", REASONS, tuple(rows), run.notices)


# ---- PLAN and FORECAST ------------------------------------------------------------------------------------------------


def plan(run: Execution, statement: PlanChange) -> Result:
    """Say which due times a statement would add and remove; nothing is written."""
    before, after = _planned(run, statement.statement)
    now, most = run.ask.now, min(PLAN_ROWS_MAX, run.ask.settings.forecast_max)
    was, will = _dues(run, before, most), _dues(run, after, most)
    # Beyond the last of a list that is cut nothing is known.
    until = min([now + PLAN_DAYS * DAY_US, *(found[-1] for found in (was, will) if len(found) == most)])
    old, new = ({at for at in found if at <= until} for found in (was, will))
    rows = sorted([(moment_of(at), "added") for at in new - old] + [(moment_of(at), "removed") for at in old - new])
    counts = f"{len(new - old)} due times added, {len(old - new)} removed, {len(old & new)} kept"
    run.notice(f"planned up to {moment_of(until):%Y-%m-%dT%H:%M:%SZ}: {counts}")
    return Result(f"PLAN {len(rows)}", ("due_at", "change"), tuple(rows), run.notices)


def _dues(run: Execution, job: Schedule | None, most: int) -> list[Instant]:
    """Return the due times of a job in the coming days, as if it were enabled."""
    if job is None:
        return []
    calendars = {calendar.name: calendar for _, calendar in run.ask.store.calendars(organization=job.organization)}
    prospect = Prospect(schedule=_enabled(job), calendar=calendars.get(job.calendar or ""))
    return [due.at for due in islice(dues(prospect, run.ask.now, run.ask.now + PLAN_DAYS * DAY_US), most)]


def _enabled(job: Schedule) -> Schedule:
    return msgspec.structs.replace(job, state=ScheduleState.ENABLED)


def _planned(run: Execution, statement: CreateJob | AlterJob | DropJob) -> tuple[Schedule | None, Schedule | None]:
    """Return a job as it is and as a statement would leave it, asking for the right that the statement itself needs."""
    if isinstance(statement, DropJob):
        return run.also(Right.DROP_JOBS).job(statement.name), None
    if isinstance(statement, AlterJob):
        return _altered(run, statement)
    create = run.also(Right.CREATE_JOBS)
    who = create.ask.within(None)
    there = next(iter(run.ask.store.schedules(scope=Scope(who.organization), name=statement.name)), None)
    if there is not None and statement.mode is CreateMode.CREATE_OR_ALTER:
        return _altered(run, AlterJob(statement.name, statement.clauses))
    if there is not None and statement.if_not_exists:
        return there, there
    if there is not None and statement.mode is CreateMode.CREATE:
        message = f"there is a job {statement.name} already: use ALTER JOB, CREATE OR ALTER JOB or RECREATE JOB"
        raise Refusal("name", message, code="job_exists", sqlstate="42710")
    return there, new_job(create, statement.name, statement.clauses, who)


def _altered(run: Execution, statement: AlterJob) -> tuple[Schedule, Schedule]:
    alter = run.also(Right.ALTER_JOBS)
    job = alter.job(statement.name)
    return job, alteration(alter, job, statement, alter.ask.within(None))(job, run.ask.now)


def forecast(run: Execution, statement: ForecastJobs) -> Result:
    """List due times to come, and what will become of them."""
    from rota.lab.forecast import forecast as forecast_of  # noqa: PLC0415 - few statements need it

    job = None if statement.job is None else run.job(statement.job, "job")
    start, end = (None if at is None else at if at.tzinfo else at.replace(tzinfo=UTC) for at in (statement.start, statement.end))
    found = forecast_of(
        run.ask,
        None if statement.duration is None else statement.duration / 3600,
        start=start,
        end=end,
        schedule=None if job is None else job.name,
        organization=None if job is None else job.organization,
        skipped=True,
    )
    if found.cut:
        run.notice("there are more due times than the setting forecast_max allows: the list is complete up to its last row")
    rows = tuple((each.schedule, each.due_at, str(each.fate), each.starts_at, each.note) for each in found)
    return Result(f"FORECAST {len(rows)}", ("job_name", "due_at", "fate", "starts_at", "note"), rows, run.notices)
