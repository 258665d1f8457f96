"""`rota events`: what happens, as it happens."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.model.events import WORDS, Event, EventType
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption
from rota.surfaces.cli.output import clock_time, one_line, sentence, show_json
from rota.surfaces.cli.session import actor, session


def events(
    job: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this job's chain, until it has ended.")] = None,
    *,
    types: Annotated[
        list[str] | None, typer.Option("--type", help=f"Only these: {', '.join(map(str, WORDS))}, {', '.join(EventType)}.")
    ] = None,
    status: Annotated[list[str] | None, typer.Option("--status", help="Only of jobs that stand so.")] = None,
    job_type: Annotated[str | None, typer.Option("--job-type", metavar="NAME", help="Only of this template.")] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="EVENT", help="Begin behind this event: its id is in --json.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many.")] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happens to jobs and definitions, as it happens, until Ctrl-C."""
    with (
        session(store, app=app) as rota,
        rota.acting_as(actor()).events(types=types, status=status, job_type=job_type, job=job, after=after) as told,
    ):
        for place, event in enumerate(told, 1):
            if as_json:
                show_json(event)
            else:
                typer.echo(line(event))
            if place == limit:
                break


def line(event: Event) -> str:
    """Return an event as one line."""
    return "  ".join(filter(None, (clock_time(event.at), f"{event.type:<12}", one_line(_about(event), 200)))).rstrip()


def _about(event: Event) -> str:
    job = event.job
    if job is not None:
        progress = None if job.progress is None else f"{job.progress}%"
        words = (job.number, job.job_type, progress or str(job.status), job.message or sentence(job.reason or ""))
        return "  ".join(word for word in words if word)
    schedule = event.schedule
    if schedule is not None:
        due = clock_time(schedule.due_at) if schedule.count == 1 else f"{clock_time(schedule.due_at)} to {clock_time(schedule.last_due_at)}"
        counted = f"{schedule.count} due, {due}"
        return "  ".join(
            word for word in (schedule.name, str(schedule.outcome), str(schedule.phase), counted, sentence(schedule.reason or "")) if word
        )
    if event.counts is not None:
        return ", ".join(f"{count} {state}" for state, count in event.counts.items() if count) or "no jobs"
    if event.count is not None:
        return f"{event.count} events were left out"
    return "  ".join(word for word in (event.reason, event.action, event.subject, event.name) if word)
