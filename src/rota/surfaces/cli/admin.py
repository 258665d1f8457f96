"""`rota admin job`: the jobs of SQL, their runs and figures, by queries over the tables of sys."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.errors import NotFound
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption
from rota.surfaces.cli.output import Table, clock_time, one_line, plain, sentence, show_json_lines, status
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rota.app import Rota

STATES = ("ENABLED", "DISABLED", "PAUSED")
RUNS = 50
LIST = """
    SELECT job_name, state, job_type, schedule_kind, next_run_time_ts, last_run_time_ts, created_by AS owner, organization, description
    FROM sys.jobs
    WHERE state = :state OR :state IS NULL
    ORDER BY organization, job_name"""
ANY_RUNS = """
    SELECT job_name, job_run_uuid, state, status, retry_count, scheduled_time_ts, started_at_ts, completed_at_ts, result_message, sqlstate,
           owner, organization
    FROM sys.job_runs
    ORDER BY number DESC
    LIMIT :limit"""
RUNS_OF_JOB = ANY_RUNS.replace("ORDER BY", "WHERE job_name = :name\n    ORDER BY")
ALWAYS = {"scheduler_queue_depth": "jobs", "jobs_running": "jobs", "jobs_failed_total": "attempts"}
"""Metrics that are 0 where sys.performance has no row for any type of job."""
METRICS = "SELECT metric, labels, value, unit FROM sys.performance ORDER BY metric, labels"


def list(  # noqa: A001 - the word on the command line
    *,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help=f"Only jobs in this state: {', '.join(STATES)}.")] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs that run by a schedule: state, next and last run, owner."""
    if state is not None and state.upper() not in STATES:
        raise typer.BadParameter(f"{state!r} is not a state: use {', '.join(STATES)}", param_hint="--state")
    with session(store, app=app) as rota:
        found = _rows(rota, LIST, {"state": None if state is None else state.upper()})
    if as_json:
        return show_json_lines(found)
    table = Table("job", "state", "type", "next run", "last run", "owner", "organization", gives=["job", "owner", "organization"])
    for each in found:
        times = _time(each["next_run_time_ts"]), _time(each["last_run_time_ts"])
        table.add_row(each["job_name"], each["state"], each["job_type"].lower(), *times, each["owner"], each["organization"])
    return table.show(empty="there are no jobs" if state is None else f"no job is {state.upper()}")


def runs(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only runs of this job.")] = None,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many runs.")] = RUNS,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List runs of these jobs, newest first: state, times, message."""
    with session(store, app=app) as rota:
        found = _rows(rota, ANY_RUNS if name is None else RUNS_OF_JOB, {"limit": limit} | ({} if name is None else {"name": name}))
        if name is not None and not found and not _rows(rota, "SELECT 1 FROM sys.jobs WHERE job_name = :name", {"name": name}):
            raise NotFound(f"there is no job {plain(name)[:80]!r} that you may see: `rota admin job list` lists them")
    if as_json:
        return show_json_lines(found)
    table = Table("job", "run", "state", "due", "started", "completed", "message", gives=["job", "message"])
    for each in found:
        times = (_time(each[key]) for key in ("scheduled_time_ts", "started_at_ts", "completed_at_ts"))
        message = one_line(sentence(each["result_message"] or ""))
        table.add_row(each["job_name"], each["job_run_uuid"], status(each["state"]), *times, message)
    return table.show(empty="there are no runs")


def metrics(*, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the figures of the scheduler: queue depth, running jobs, failures, latency."""
    with session(store, app=app) as rota:
        found = _rows(rota, METRICS, {})
    known = {each["metric"] for each in found}
    found = [{"metric": name, "labels": "{}", "value": 0.0, "unit": unit} for name, unit in ALWAYS.items() if name not in known] + found
    if as_json:
        return show_json_lines(found)
    table = Table("metric", "labels", "value", "unit", right=["value"], gives=["labels"])
    for each in found:
        table.add_row(each["metric"], _labels(each["labels"]), f"{each['value']:,.3f}".rstrip("0").rstrip("."), each["unit"])
    return table.show()


def _rows(rota: Rota, text: str, params: Mapping[str, Any]) -> Any:
    """Return the rows of a query as objects; say on stderr if some are left out."""
    (result,) = rota.acting_as(actor()).sql(text, params)
    for notice in result.notices:
        typer.echo(f"notice: {notice.message}", err=True)
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def _time(text: str | None) -> str:
    return clock_time(None if text is None else datetime.fromisoformat(text))


def _labels(text: str) -> str:
    import msgspec  # noqa: PLC0415 - a page of help needs none

    return ", ".join(f"{name}={value}" for name, value in msgspec.json.decode(text, type=dict[str, str]).items())
