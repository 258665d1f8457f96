"""`rota job list|show|explain|runs|log`: looking at jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from rota.model.states import ErrorType, Status
from rota.model.values import Job, LogEntry, Run
from rota.surfaces.cli.faces import FaceOption, show_face
from rota.surfaces.cli.options import IdArgument, JsonOption, LimitOption, StoreOption, duration, examples, point_in_time
from rota.surfaces.cli.output import (
    age,
    clock_time,
    compact,
    console,
    escaped,
    one_line,
    show_json,
    show_json_lines,
    show_next,
    show_pairs,
    show_table,
    status,
    table,
    took,
    with_run,
)
from rota.surfaces.cli.session import actor, session
from rota.surfaces.runs import run_of


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "list",
        epilog=examples("rota job list --status RUNNING --status QUEUED", "rota job list --type send_email --since 2h --json | jq .id"),
    )(list_jobs)
    app.command("show", epilog=examples("rota job show 42", "rota job show JOB-2026-00042.3 --json"))(show)
    app.command("explain", epilog=examples("rota job explain 42"))(explain)
    app.command("runs", epilog=examples("rota job runs 42"))(runs)
    app.command("log", epilog=examples("rota job log 42", "rota job log 42 --chain", "rota job log JOB-2026-00042.2 --raw"))(log)


def list_jobs(
    *,
    statuses: Annotated[list[Status] | None, typer.Option("--status", case_sensitive=False, help="Only these states.")] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only jobs of this template.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only jobs of this queue.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="LABEL", help="Only jobs with this tag.")] = None,
    organization: Annotated[str | None, typer.Option("--organization", metavar="NAME", help="Only jobs of this organization.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Only jobs that this one enqueued.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Only members of this group (its id).")] = None,
    schedule: Annotated[str | None, typer.Option("--schedule", help="Only jobs of this schedule: its name, or its id.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Only jobs with this text in params, type, key, reason or error.")] = None,
    error_type: Annotated[ErrorType | None, typer.Option("--error-type", help="Only jobs that ended with such an error.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 20,
    before: Annotated[int | None, typer.Option("--before", metavar="CURSOR", min=1, help="Go on where a list ended: it says so.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first. Each attempt is a job of its own."""
    with session(store) as rota:
        found = rota.acting_as(actor()).jobs.list(
            status=statuses,
            job_type=job_type,
            queue=queue,
            tag=tag,
            organization=organization,
            owner=owner,
            group=group,
            schedule=schedule,
            text=text,
            error_type=error_type,
            since=since,
            until=until,
            limit=limit,
            before=before,
        )
    _show_list(found, as_json=as_json)
    show_next(found.next)


def _show_list(found: Sequence[Job], *, as_json: bool) -> None:
    if as_json:
        return show_json_lines(found)
    columns = ("number", "status", "type", "priority", "created", "ran for", "reason or params")
    made = table(*columns, right=("priority", "ran for"), gives=("type", "reason or params"))
    for job in found:
        made.add_row(
            job.number, status(job.status), escaped(job.job_type), str(job.priority), age(job.created_at), took(job), escaped(_remark(job))
        )
    return show_table(made, "No jobs.")


def show(job_id: IdArgument, *, face: FaceOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show one job, its run, and the other attempts of its chain."""
    with session(store) as rota:
        if face is not None:
            return show_face(rota, job_id, face, as_json=as_json)
        job = rota.acting_as(actor()).jobs.get(job_id)
        run, chain = run_of(rota.acting_as(actor()), job.id), rota.acting_as(actor()).jobs.attempts(job.id)
    if as_json:
        return show_json(with_run(job, run) | {"attempts": [each.number for each in chain]})
    show_pairs([*_about(job, chain), *_about_run(run)])
    return None


def explain(job_id: IdArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Say why the live job of a chain does not run yet, or how the chain ended."""
    with session(store) as rota:
        explanation = rota.acting_as(actor()).explain(job_id)
    if as_json:
        return show_json(explanation)
    screen = console()
    screen.print(f"{explanation.job.number} is {status(explanation.job.status)}: {escaped(one_line(explanation.summary, 1000))}")
    for reason in explanation.reasons:
        mark = "[green]✓[/]" if reason.met else "[red]✗[/]"
        screen.print(f"  {mark} {escaped(reason.condition)}: {escaped(one_line(reason.detail, 1000))}")
    return None


def runs(job_id: IdArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show every attempt of a chain and what became of it."""
    with session(store) as rota:
        both = [(job, run_of(rota.acting_as(actor()), job.id)) for job in rota.acting_as(actor()).jobs.attempts(job_id)]
    if as_json:
        return show_json_lines(with_run(job, run) for job, run in both)
    made = table("number", "status", "started", "ran for", "error or result", right=("ran for",))
    for job, run in both:
        made.add_row(job.number, status(job.status), clock_time(job.started_at), took(job), escaped(_outcome(job, run)))
    return show_table(made, "No attempts.")


def log(
    job_id: IdArgument,
    *,
    chain: Annotated[bool, typer.Option("--chain", help="Every attempt of the chain, as one timeline.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Only what the handler wrote, as it stands in the file.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the log of one job, or of its chain: its moves and its handler's lines."""
    with session(store) as rota:
        found = rota.acting_as(actor()).jobs.log(job_id, chain=True) if chain else rota.acting_as(actor()).jobs.log(job_id)
    if raw:
        return show_json({"text": found.text}) if as_json else typer.echo(found.text.encode(), nl=False)
    if as_json:
        return show_json_lines(found)
    _print_log(found, numbered=chain)
    return None


def _print_log(entries: Iterable[LogEntry], *, numbered: bool) -> None:
    screen = console()
    for entry in entries:
        stamp = f"[bright_black]{entry.at:%Y-%m-%d %H:%M:%S}.{entry.at.microsecond // 1000:03d}Z[/]"
        attempt = f"  [bold]#{entry.attempt}[/]" if numbered else ""
        if entry.to_status is None:
            words = f"{escaped(entry.level or '')}  {escaped(entry.message)}"
        else:
            by = f" by {escaped(entry.actor)}" if entry.actor else ""
            words = f"{status(entry.to_status)}{by}" + (f": {escaped(entry.message)}" if entry.message else "")
        screen.print(f"{stamp}{attempt}  {words}", soft_wrap=True)


def past(text: str) -> datetime:
    """Read a moment in the past: an ISO-8601 time, or how long ago."""
    try:
        return datetime.now(UTC) - duration(text)
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long ago") from None
    except typer.BadParameter:
        if not text[:4].isdecimal():
            raise typer.BadParameter(f"{text!r} is neither a time (2026-08-01T09:00:00Z) nor how long ago (90s, 2d)") from None
    return point_in_time(text)


SinceOption = Annotated[
    datetime | None,
    typer.Option("--since", parser=past, metavar="TIME", help="Only jobs made since then: 2026-08-01T09:00:00Z, or 2h for two hours ago."),
]
UntilOption = Annotated[
    datetime | None,
    typer.Option("--until", parser=past, metavar="TIME", help="Only jobs made before then."),
]


def _about(job: Job, chain: list[Job]) -> list[tuple[str, object]]:
    others = ", ".join(f"{each.number} {each.status}" for each in chain if each.id != job.id)
    waits = f"{job.blockers} other {'job' if job.blockers == 1 else 'jobs'}" if job.blockers else None
    return [
        ("number", job.number),
        ("id", job.id),
        ("status", status(job.status)),
        ("type", job.job_type),
        ("queue", job.queue),
        ("tags", ", ".join(job.tags) or None),
        ("template", "none: it names its handler" if job.template_id is None else None),
        ("params", compact(job.params)),
        ("priority", f"{job.priority}, position {job.position}"),
        ("attempt", f"{job.attempt} ({job.failures} failed, {job.crashes} crashed; {job.max_retries} retries allowed)"),
        ("other attempts", others),
        ("organization", None if job.organization == "default" else job.organization),
        ("owner", job.owner),
        ("unique key", job.unique_key),
        ("group", f"{job.group_id}, place {job.sequence_number}" if job.group_id else None),
        ("waits for", waits),
        ("held by", job.held),
        ("created", clock_time(job.created_at)),
        ("run at", clock_time(job.run_at) if job.run_at and job.run_at > job.created_at else None),
        ("expires", clock_time(job.expires_at)),
        ("queued", clock_time(job.queued_at)),
        ("started", clock_time(job.started_at)),
        ("finished", clock_time(job.finished_at)),
        ("ran for", took(job)),
        ("cancel asked", f"by {job.cancel_requested_by}, {clock_time(job.cancel_requested_at)}" if job.cancel_requested_at else None),
        ("ended by", job.ended_by),
        ("reason", job.reason),
        ("timeout", f"{job.timeout:g} s" if job.timeout else "none"),
        ("executor", job.executor),
        ("worker", job.worker_id),
    ]


def _about_run(run: Run | None) -> list[tuple[str, object]]:
    if run is None:
        return []
    progress = None if run.progress is None else f"{run.progress} % {run.progress_message or ''}".rstrip()
    return [
        ("run", run.id),
        ("progress", progress),
        ("result", compact(run.result)),
        ("error", f"{run.error} ({run.error_type})" if run.error else None),
        ("artifacts", ", ".join(run.artifacts)),
        ("log file", run.log_path),
        ("traceback", f"\n{run.traceback.rstrip()}" if run.traceback else None),
    ]


def _remark(job: Job) -> str:
    return one_line(job.reason or "") or compact(job.params)


def _outcome(job: Job, run: Run | None) -> str:
    if run is None:
        return one_line(job.reason or "")
    if run.error:
        return one_line(run.error)
    if run.progress is not None and not job.status.ended:
        return one_line(f"{run.progress} % {run.progress_message or ''}")
    return compact(run.result) or one_line(job.reason or "")
