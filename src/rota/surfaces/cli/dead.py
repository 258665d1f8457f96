"""`rota dead list|show|retry|discard`: the dead letters, and what is to become of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.errors import IllegalMove, RotaError
from rota.model.states import ErrorType, Status
from rota.model.values import Job, Run
from rota.surfaces.cli.exits import report
from rota.surfaces.cli.options import IdArgument, JsonOption, LimitOption, StoreOption, examples
from rota.surfaces.cli.output import (
    age,
    clock_time,
    compact,
    escaped,
    one_line,
    show_json,
    show_json_lines,
    show_next,
    show_pairs,
    show_table,
    table,
    with_run,
)
from rota.surfaces.cli.session import actor, session
from rota.surfaces.runs import run_of

if TYPE_CHECKING:
    from rota.app import Rota

TRACE_LINES = 30
"""Lines of a traceback that are shown: the last ones say most."""
MANY = 1_000_000
COUNT_MAX = 10_000
"""How far those that match are counted before the question."""

TypeOption = Annotated[str | None, typer.Option("--type", help="Only jobs of this template.")]
ErrorOption = Annotated[ErrorType | None, typer.Option("--error-type", help="Only those that died of this.")]
TextOption = Annotated[str | None, typer.Option("--text", help="Only those with this text in params, type, key, reason or error.")]
OwnersOption = Annotated[str | None, typer.Option("--organization", metavar="NAME", help="Only those of this organization.")]
BeforeOption = Annotated[int | None, typer.Option("--before", metavar="CURSOR", min=1, help="Go on where a list ended: it says so.")]
SomeArgument = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Dead letters: ids or numbers.")]
AllOption = Annotated[bool, typer.Option("--all", help="All that match the filters, instead of those named.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("list", epilog=examples("rota dead list", "rota dead list --type send_email --error-type timeout"))(list_dead)
    app.command("show", epilog=examples("rota dead show 42"))(show)
    app.command("retry", epilog=examples("rota dead retry 42 43", "rota dead retry --all --type send_email --text 'connection refused'"))(
        retry
    )
    app.command("discard", epilog=examples("rota dead discard 42", "rota dead discard --all --type legacy --yes"))(discard)


def list_dead(
    *,
    job_type: TypeOption = None,
    error_type: ErrorOption = None,
    text: TextOption = None,
    organization: OwnersOption = None,
    limit: LimitOption = 20,
    before: BeforeOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List chains that ended DEAD_LETTER, newest first, with what they died of."""
    filters = {"job_type": job_type, "error_type": error_type, "text": text, "organization": organization}
    with session(store) as rota:
        found = rota.acting_as(actor()).dead_letters.list(**filters, limit=limit, before=before)
        both = [(job, run_of(rota.acting_as(actor()), job.id)) for job in found]
    if as_json:
        show_json_lines(with_run(job, run) for job, run in both)
    else:
        made = table("number", "type", "died of", "when", "attempts", "last error", right=("attempts",), gives=("type", "last error"))
        for job, run in both:
            made.add_row(job.number, escaped(job.job_type), _cause(job), age(job.finished_at), str(job.attempt), escaped(_error(job, run)))
        show_table(made, "No dead letters.")
    show_next(found.next)


def show(
    job_id: IdArgument,
    *,
    full: Annotated[bool, typer.Option("--full", help="The whole traceback, as far as it was kept.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter: what it was asked to do, and what it died of."""
    with session(store) as rota:
        job = rota.acting_as(actor()).jobs.attempts(job_id)[-1]
        run = run_of(rota.acting_as(actor()), job.id)
    if as_json:
        return show_json(with_run(job, run))
    if job.status is not Status.DEAD_LETTER:
        typer.echo(f"note: {job.number} is no dead letter, it is {job.status}", err=True)
    show_pairs(
        [
            ("number", job.number),
            ("id", job.id),
            ("type", job.job_type),
            ("params", compact(job.params)),
            ("organization", None if job.organization == "default" else job.organization),
            ("owner", job.owner),
            ("attempts", f"{job.attempt} ({job.failures} failed, {job.crashes} crashed before the last)"),
            ("ended", f"{clock_time(job.finished_at)}, {age(job.finished_at)}" if job.finished_at else None),
            ("died of", _cause(job) if job.status is Status.DEAD_LETTER else None),
            ("reason", job.reason),
            ("error", run.error if run else None),
            ("traceback", _trace(run, full=full)),
        ]
    )
    return None


def retry(
    ids: SomeArgument = None,
    *,
    everything: AllOption = False,
    job_type: TypeOption = None,
    error_type: ErrorOption = None,
    text: TextOption = None,
    organization: OwnersOption = None,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give dead letters one more attempt, with a fresh budget: those named, or with --all every one that matches."""
    filters = {"job_type": job_type, "error_type": error_type, "text": text, "organization": organization}
    _check(ids, filters, everything=everything)
    with session(store) as rota:
        if not everything:
            return _each(
                ids or (), lambda job_id: _show_retried(rota.acting_as(actor()).jobs.retry(_dead(rota, job_id).id), as_json=as_json)
            )
        if not yes:
            _ask(rota, "Retry", filters)
        retried = rota.acting_as(actor()).dead_letters.retry(**filters, limit=MANY)
    for job in retried if as_json else ():
        show_json(job)
    return None if as_json else typer.echo(f"{len(retried):,} retried" if retried else "No dead letter matches.")


def discard(
    ids: SomeArgument = None,
    *,
    everything: AllOption = False,
    job_type: TypeOption = None,
    error_type: ErrorOption = None,
    text: TextOption = None,
    organization: OwnersOption = None,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove dead letters for good, with their runs and logs: those named, or with --all every one that matches."""
    filters = {"job_type": job_type, "error_type": error_type, "text": text, "organization": organization}
    _check(ids, filters, everything=everything)
    with session(store) as rota:
        if not everything:
            return _each(ids or (), lambda job_id: _show_discarded(rota, job_id, as_json=as_json))
        if not yes:
            _ask(rota, "Discard", filters)
        done = rota.acting_as(actor()).dead_letters.delete(**filters, limit=MANY)
    if as_json:
        return show_json(done)
    kept = f"; {done.kept:,} are needed by others and stay" if done.kept else ""
    return typer.echo(f"{done.chains:,} discarded{kept}" if done.chains or done.kept else "No dead letter matches.")


def _check(ids: list[str] | None, filters: dict[str, Any], *, everything: bool) -> None:
    if bool(ids) == everything:
        raise typer.BadParameter("give the dead letters you mean, or --all for every one that matches")
    if ids and any(filters.values()):
        raise typer.BadParameter("filters choose among all: give them with --all, or name the dead letters")


def _ask(rota: Rota, verb: str, filters: dict[str, Any]) -> None:
    """Ask once before acting on all that match, if any does."""
    found = rota.acting_as(actor()).dead_letters.list(**filters, limit=COUNT_MAX)
    if found:
        count = f"more than {COUNT_MAX:,}" if found.next else f"{len(found):,}"
        typer.confirm(f"{verb} {count} dead {'letter' if len(found) == 1 else 'letters'}?", abort=True, err=True)


def _each(ids: Iterable[str], one: Callable[[str], None]) -> None:
    """Do it to each of them; what is refused is said, and the rest goes on."""
    codes = []
    for job_id in ids:
        try:
            one(job_id)
        except RotaError as error:
            codes.append(report(error))
    if codes:
        raise typer.Exit(max(codes))


def _dead(rota: Rota, job_id: str) -> Job:
    """Return the tail of a chain that is dead; refuse others, for which there are other commands."""
    tail = rota.acting_as(actor()).jobs.attempts(job_id)[-1]
    if tail.status is not Status.DEAD_LETTER:
        raise IllegalMove(f"{tail.number} is no dead letter, it is {tail.status}: `rota job retry` and `rota purge` are for other ends")
    return tail


def _show_retried(job: Job, *, as_json: bool) -> None:
    if as_json:
        return show_json(job)
    return typer.echo(f"{job.number}  {job.status}  {job.id}")


def _show_discarded(rota: Rota, job_id: str, *, as_json: bool) -> None:
    number = _dead(rota, job_id).number
    gone = rota.acting_as(actor()).jobs.delete(job_id)
    if as_json:
        return show_json({"number": number, "jobs": gone.jobs})
    return typer.echo(f"{number}  discarded ({gone.jobs} {'job' if gone.jobs == 1 else 'jobs'})")


def _cause(job: Job) -> str:
    return str(job.error_type or "unknown")


def _error(job: Job, run: Run | None) -> str:
    return one_line((run.error if run else None) or job.reason or "")


def _trace(run: Run | None, *, full: bool) -> str | None:
    if run is None or not run.traceback:
        return None
    lines = run.traceback.rstrip().splitlines()
    left_out = 0 if full else max(0, len(lines) - TRACE_LINES)
    note = [f"… {left_out} lines before: see --full"] if left_out else []
    return "\n" + "\n".join([*note, *lines[left_out:]])
