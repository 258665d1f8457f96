"""`rota purge`: remove what is old, ahead of the workers that do it by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from rota.model.values import Purged
from rota.surfaces.cli.options import JsonOption, StoreOption, duration, examples
from rota.surfaces.cli.output import console, show_json
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rota.app import Rota


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("purge", rich_help_panel="Steer", epilog=examples("rota purge --dry-run", "rota purge --older-than 7d"))(purge)


def purge(
    *,
    older_than: Annotated[
        timedelta | None,
        typer.Option("--older-than", parser=duration, metavar="DURATION", help="What ended longer ago: 30d, 12h. Else setting retention."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    trust_clock: Annotated[
        bool,
        typer.Option("--trust-clock", help="Say that the clock is right, although it has leapt ahead."),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove chains that ended long ago, with their runs and logs.

    Workers do this by themselves, a little at a time. What a live job or a group still needs stays.
    """
    with session(store) as rota:
        if dry_run:
            done = rota.acting_as(actor()).store.purge(older_than=older_than, dry_run=True, trust_clock=trust_clock)
        else:
            with _bar(rota, older_than, trust_clock=trust_clock) as progress:
                done = rota.acting_as(actor()).store.purge(older_than=older_than, trust_clock=trust_clock, progress=progress)
    if as_json:
        return show_json({"chains": done.chains, "jobs": done.jobs, "kept": done.kept, "dry_run": dry_run})
    words = "would go" if dry_run else "removed"
    kept = f"; {done.kept:,} are needed by others and stay" if done.kept else ""
    chains, jobs = _count(done.chains, "chain"), _count(done.jobs, "job")
    return typer.echo(f"{chains} ({jobs}) {words}{kept}.")


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


@contextmanager
def _bar(rota: Rota, older_than: timedelta | None, *, trust_clock: bool) -> Iterator[Callable[[Purged], object] | None]:
    """Show a bar on a terminal while something is removed."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - see console

    total = rota.acting_as(actor()).store.purge(older_than=older_than, dry_run=True, trust_clock=trust_clock).chains
    columns = (TextColumn("removing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task("removing", total=total)
        yield lambda done: progress.update(task, completed=done.chains)
