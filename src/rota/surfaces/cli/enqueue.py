"""`rota enqueue`: one job, and with --wait what became of it. `rota group create`: jobs that belong together."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.errors import JobCancelled, JobSkipped
from rota.model.groups import ENDED_WELL, Mode, OnFailure
from rota.model.states import Status
from rota.model.templates import backoff_of
from rota.model.values import Job, Run, undashed
from rota.operation import session_of
from rota.submission import submit
from rota.surfaces.cli.exits import FAILED
from rota.surfaces.cli.options import (
    AppOption,
    InOption,
    JsonOption,
    OrganizationOption,
    PairsOption,
    ParamsOption,
    PriorityOption,
    RunAtOption,
    StoreOption,
    duration,
    object_of,
    params_of,
    when,
)
from rota.surfaces.cli.output import clock_time, compact, console, one_line, sentence, show_error, show_json, took, with_run
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rota.app import Rota


def enqueue(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The template: the name of a handler that a worker of this store knows.", show_default=False),
    ] = None,
    *,
    handler: Annotated[
        str | None,
        typer.Option(
            "--handler", metavar="MODULE:FUNCTION", help="Enqueue a job without a template that calls this function. For system managers."
        ),
    ] = None,
    job_type: Annotated[
        str | None, typer.Option("--job-type", metavar="NAME", help="With --handler: the type of the job. Default: the handler.")
    ] = None,
    params: ParamsOption = None,
    pairs: PairsOption = None,
    priority: PriorityOption = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="The queue. Default: that of its template.")] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag to find it by; repeat the option for several.")
    ] = None,
    run_at: RunAtOption = None,
    delay: InOption = None,
    unique_key: Annotated[str | None, typer.Option(help="While a job of this key lives, it is returned instead.")] = None,
    depends_on: Annotated[
        list[str] | None,
        typer.Option("--depends-on", metavar="ID", help="A job that must complete first: its id or number. Give it again for each one."),
    ] = None,
    on_parent_failure: Annotated[
        str | None,
        typer.Option(
            "--on-parent-failure",
            metavar="RULE",
            help="If one of them ends otherwise: wait until it is retried (default), skip, cancel or run.",
        ),
    ] = None,
    max_retries: Annotated[int | None, typer.Option(min=0, help="Retries after a failed attempt.")] = None,
    backoff: Annotated[
        str | None,
        typer.Option("--backoff", metavar="JSON", help="The delays between retries, as a JSON object or base=60,factor=2,cap=86400."),
    ] = None,
    timeout: Annotated[timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="How long an attempt may run.")] = None,
    webhook: Annotated[str | None, typer.Option("--webhook", metavar="URL", help="Tell this URL of its ends.")] = None,
    organization: OrganizationOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end of the chain and print its result.")] = False,
    wait_timeout: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="Wait no longer than this (exit code 4)."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the id of the job and nothing else.")] = False,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Enqueue one job; when this returns, it is on disk.

    With --wait the exit code tells the end: 0 for COMPLETED and SKIPPED, 1 for DEAD_LETTER and CANCELLED, 4 if the wait was over first.
    """
    if (name is None) == (handler is None):
        raise typer.BadParameter("pass the name of a template, or --handler: one of the two", param_hint="NAME")
    given, moment = params_of(params, pairs), when(run_at, delay)
    delays = None if backoff is None else backoff_of("backoff", object_of(backoff, "--backoff", pairs=True))
    with session(store, app=app) as rota:
        job = submit(
            session_of(rota),
            actor(),
            name,
            given,
            handler=handler,
            job_type=job_type,
            queue=queue,
            priority=priority,
            run_at=moment,
            unique_key=unique_key,
            depends_on=depends_on,
            on_parent_failure=on_parent_failure,
            max_retries=max_retries,
            tags=tags,
            backoff=delays,
            timeout=None if timeout is None else timeout.total_seconds(),
            webhook=webhook,
            organization=organization,
        ).job()
        waits = wait or wait_timeout is not None
        if quiet:
            typer.echo(job.id)
        elif not (waits and as_json):
            _show(job, as_json=as_json)
        if not waits:
            return
        run = _wait(rota, job, wait_timeout)
        _end(rota.acting_as(actor()).jobs.attempts(job.id)[-1], run, as_json=as_json, quiet=quiet)


def _show(job: Job, *, as_json: bool) -> None:
    if as_json:
        return show_json(job)
    existing = ", which holds this key already" if job.existing else ""
    return typer.echo(f"{job.number}  {job.status}{_until(job)}{existing}  {job.id}")


def _until(job: Job) -> str:
    """Return what a job waits for: its time, or others."""
    if job.status is not Status.PENDING:
        return ""
    late = job.run_at is not None and job.run_at > job.created_at
    return f" for {clock_time(job.run_at)}" if late else " until what it depends on has completed"


def _wait(rota: Rota, job: Job, timeout: timedelta | None) -> Run | None:
    if not any(worker.kind == "worker" for worker in rota.workers.list()):
        typer.echo("note: no worker is running; the job waits until one is started with `rota up` or `rota worker`", err=True)
    screen = console(stderr=True)
    busy: Any = screen.status(f"waiting for {job.number}") if screen.is_terminal else nullcontext()
    with busy:
        try:
            return rota.acting_as(actor()).wait(job.id, None if timeout is None else timeout.total_seconds())
        except (JobCancelled, JobSkipped) as error:
            run: Run | None = error.run
            return run


def _end(tail: Job, run: Run | None, *, as_json: bool, quiet: bool) -> None:
    if as_json and not quiet:
        show_json(with_run(tail, run))
    why = sentence(tail.reason or "") or (run.error if run else None) or "no reason was recorded"
    if tail.status not in ENDED_WELL:
        show_error(f"{tail.number} ended {tail.status}: {one_line(why, 400)}", (run and run.error_type) or tail.status.lower())
        raise typer.Exit(FAILED)
    if not as_json and not quiet:
        result = compact(run.result) if run else ""
        detail = result or (one_line(why) if tail.reason else "")
        typer.echo(f"{tail.number}  {tail.status}  {took(tail)}" + (f"  {detail}" if detail else ""))


def run_now(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="The job's id or number.")],
    *,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job now that waits for its time or for its retry.

    It becomes due at once, and runs when a worker has a free slot. This is `rota job update JOB --in 0s`.
    """
    with session(store, app=app) as rota:
        for each in jobs:
            _show(rota.acting_as(actor()).jobs.update(each, run_at=timedelta()), as_json=as_json)


# ---- groups ---------------------------------------------------------------------------------------------------------


def create(
    members: Annotated[
        list[str],
        typer.Argument(
            metavar="MEMBER...", help="In order: NAME or NAME:{JSON params} makes a job; an id or number takes one that waits already."
        ),
    ],
    *,
    mode: Annotated[Mode, typer.Option("--mode", help="One after the other, or all at once.")] = Mode.SEQUENTIAL,
    on_failure: Annotated[
        OnFailure | None,
        typer.Option(
            "--on-failure", help="What happens to the other members when one fails. Default: stop if sequential, continue if parallel."
        ),
    ] = None,
    then: Annotated[
        str | None,
        typer.Option("--then", metavar="JOB", help="NAME or NAME:{JSON params}: a job that is queued when all members have ended."),
    ] = None,
    on_parent_failure: Annotated[
        str | None,
        typer.Option(
            "--on-parent-failure",
            metavar="RULE",
            help="If a member ends badly, the job of --then: waits until it is retried (wait, the default), or skip, cancel or run.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="A name to know it by.")] = None,
    organization: OrganizationOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a group of new jobs and of jobs that wait already."""
    from rota.surfaces.cli.views.job import show_group  # noqa: PLC0415 - no page of help needs it

    with session(store, app=app) as rota:
        items = [_member(rota, text) for text in members]
        group = rota.acting_as(actor()).group(
            items,
            then=None if then is None else _new(then),
            on_parent_failure=on_parent_failure,
            mode=mode,
            on_failure=on_failure,
            name=name,
            organization=organization,
        )
    if as_json:
        show_json(group)
    else:
        show_group(group)


def _member(rota: Rota, text: str) -> Any:
    if undashed(text) is not None or text.isdecimal() or text.upper().startswith("JOB-"):
        return rota.acting_as(actor()).jobs.get(text)
    return _new(text)


def _new(text: str) -> tuple[str, Any]:
    name, colon, params = text.partition(":{")
    return (name, params_of(f"{{{params}", None)) if colon else (text, None)
