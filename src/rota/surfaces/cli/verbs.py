"""`rota job cancel|retry|change|move`: changing what waits or runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rota.errors import RotaError
from rota.model.states import Status
from rota.model.values import Job
from rota.surfaces.cli.exits import report
from rota.surfaces.cli.options import (
    IdArgument,
    IdsArgument,
    InOption,
    JsonOption,
    LimitOption,
    PairsOption,
    ParamsOption,
    PriorityOption,
    RunAtOption,
    StoreOption,
    examples,
    params_of,
    when,
)
from rota.surfaces.cli.output import clock_time, show_json
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rota.app import Rota


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("cancel", epilog=examples("rota job cancel 42 43 --reason 'wrong address'"))(cancel)
    app.command(
        "retry", epilog=examples("rota job retry 42", "rota job list --status DEAD_LETTER --json | jq -r .id | xargs rota job retry")
    )(retry)
    app.command("retry-dead", epilog=examples("rota job retry-dead --type send_email", "rota job retry-dead --text timeout --limit 50"))(
        retry_dead
    )
    app.command("change", epilog=examples("rota job change 42 --priority high", "rota job change 42 -p to=bob@example.org --in 10m"))(
        change
    )
    app.command("move", epilog=examples("rota job move 42 --front", "rota job move 42 --before 40"))(move)


def cancel(
    ids: IdsArgument,
    *,
    reason: Annotated[str | None, typer.Option("--reason", help="Recorded with the job.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs: at once while they wait, by request while they run.

    The whole chain is meant: it is not retried by itself any more.
    """

    def one(rota: Rota, job_id: str) -> Job:
        return rota.acting_as(actor()).jobs.cancel(job_id, reason=reason)

    _each(ids, one, store, as_json=as_json)


def retry(ids: IdsArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Give jobs that ended badly one more attempt.

    Their chain must have ended DEAD_LETTER, CANCELLED or SKIPPED; it gets a fresh budget.
    """

    def one(rota: Rota, job_id: str) -> Job:
        return rota.acting_as(actor()).jobs.retry(job_id)

    _each(ids, one, store, as_json=as_json)


def retry_dead(
    *,
    job_type: Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Only jobs with this text in params, type, key, reason or error.")] = None,
    limit: LimitOption = 1000,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retry every dead letter that matches, newest first."""
    with session(store) as rota:
        retried = rota.acting_as(actor()).dead_letters.retry(job_type=job_type, text=text, limit=limit)
        for job in retried:
            _show(job, as_json=as_json)
        if not as_json:
            typer.echo(f"{len(retried)} retried" if retried else "no dead letter matches")


def change(
    job_id: IdArgument,
    *,
    priority: PriorityOption = None,
    params: ParamsOption = None,
    pairs: PairsOption = None,
    run_at: RunAtOption = None,
    delay: InOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the priority, params or time of a waiting job: all of it, or nothing.

    --params replaces all params, -p changes those it names.
    """
    moment = when(run_at, delay)
    if priority is None and params is None and not pairs and moment is None:
        raise typer.BadParameter("nothing to change: give --priority, --params, -p, --run-at or --in")
    with session(store) as rota:
        given = params_of(params, pairs, present=rota.acting_as(actor()).jobs.attempts(job_id)[-1].params)
        job = rota.acting_as(actor()).jobs.update(job_id, priority=priority, params=given, run_at=moment)
    _show(job, as_json=as_json)


def move(
    job_id: IdArgument,
    *,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Right before this job.")] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="ID", help="Right after this job.")] = None,
    front: Annotated[bool, typer.Option("--front", help="To the front of its priority.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reorder a QUEUED job among those of the same priority."""
    if (before is not None) + (after is not None) + front != 1:
        raise typer.BadParameter("give exactly one of --before, --after and --front")
    with session(store) as rota:
        job = rota.acting_as(actor()).jobs.move(job_id, before=before, after=after, front=front)
    _show(job, as_json=as_json)


def _each(ids: Sequence[str], verb: Callable[[Rota, str], Job], store: str | None, *, as_json: bool) -> None:
    """Do it to each job. One that is refused does not keep the others from it; the first refusal gives the exit code."""
    code = 0
    with session(store) as rota:
        for job_id in ids:
            try:
                _show(verb(rota, job_id), as_json=as_json)
            except RotaError as error:
                failed = report(error)
                code = code or failed
    if code:
        raise typer.Exit(code)


def _show(job: Job, *, as_json: bool) -> None:
    if as_json:
        return show_json(job)
    words = [job.number, str(job.status), job.job_type]
    if job.status is Status.RUNNING and job.cancel_requested_at is not None:
        words.append("was asked to stop")
    if job.status is Status.QUEUED:
        words.append(f"priority {job.priority}, position {job.position}")
    if job.status is Status.PENDING and job.run_at is not None:
        words.append(f"priority {job.priority}, due {clock_time(job.run_at)}")
    return typer.echo("  ".join(words))
