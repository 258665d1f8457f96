"""`rota promote` and `rota reopen`: a store moves to another place, whole, and back."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rota.engine.store_copy import COMMITTING, COPYING, VERIFYING, WATCHING, Promoted, Step
from rota.surfaces.cli.options import JsonOption, StoreOption
from rota.surfaces.cli.output import Table, progress, show_json
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

WORDS = {
    WATCHING: "watching whether worker {table} still beats (setting lease_ttl)",
    COPYING: "copying {table}",
    VERIFYING: "verifying {table}",
    COMMITTING: "committing",
}


def promote(
    stores: Annotated[
        list[str],
        typer.Argument(metavar="[SOURCE] TARGET", help="From where and to where: paths or URLs. One alone is the target, of --store."),
    ],
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the source open: for a rehearsal, or a copy to look at.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Throw away what the target holds.")] = False,
    mend: Annotated[
        bool, typer.Option("--mend", help="In texts put U+FFFD where there is a NUL character, which PostgreSQL can't hold.")
    ] = False,
    without_secrets: Annotated[
        bool, typer.Option("--without-secrets", help="Leave out secrets whose master key this process does not have.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move everything to another store, from a file to a fleet or back, and verify that it is the same there.

    No worker may be alive meanwhile. When both sides are the same the source is closed: whoever opens it is told where it went.
    Interrupted while it copies it has changed nothing. Interrupted after that, before the source is closed, the same jobs stand in both:
    start no worker, and repeat it. It then finishes what is left to do.
    """
    source, target = _both(stores, store)
    with session(source) as rota, progress() as bars:
        tell = _lines() if bars is None else partial(_draw, bars, bars.add_task("starting", total=None))
        done = rota.acting_as(actor()).store.promote(
            target, keep=keep, replace=replace, mend=mend, without_secrets=without_secrets, progress=tell
        )
    if as_json:
        show_json(done)
    else:
        _show(done)


def reopen(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Open a store again that was moved, as it was then.

    For when the place it went to is lost: what happened there since does not come back.
    """
    with session(store) as rota:
        rota.acting_as(actor()).store.reopen()
    if as_json:
        show_json({"store": str(rota.store.url), "open": True})
    else:
        typer.echo(f"{rota.store.url} is open again, as it was when it was moved.")


def _both(stores: list[str], store: str | None) -> tuple[str | None, str]:
    if len(stores) == 1:
        return store, stores[0]
    if len(stores) != 2:
        raise typer.BadParameter("give a source and a target, or a target alone")
    if store is not None:
        raise typer.BadParameter("the source is named twice: as SOURCE and by --store")
    return stores[0], stores[1]


def _draw(bars: Progress, task: TaskID, step: Step) -> None:
    bars.update(task, description=_words(step), completed=step.done or None, total=step.total or None)


def _lines() -> Callable[[Step], object]:
    """Return what prints a line for each table, where no terminal shows a bar."""
    last = ""

    def tell(step: Step) -> None:
        nonlocal last
        words = _words(step)
        if words != last:
            last = words
            typer.echo(words + (f" ({step.done:,} of {step.total:,} rows)" if step.total else ""), err=True)

    return tell


def _words(step: Step) -> str:
    return WORDS.get(step.what, "closing the source").format(table=step.table)


def _show(done: Promoted) -> None:
    made = Table("table", "rows", "digest on both sides", right=("rows",))
    for name, summed in done.tables.items():
        if summed.rows:
            made.add_row(name, f"{summed.rows:,}", summed.digest)
    made.add_row("order of the queue", f"{done.queue.rows:,}", done.queue.digest)
    made.show()
    verb = "held the same already" if done.already else f"has everything that {done.source} held"
    typer.echo(f"{done.target} {verb}: all {len(done.tables)} tables and the order of the queue are the same on both sides.")
    if done.closed:
        typer.echo(f"{done.source} is closed: whoever opens it or writes to it is told where it went. Nothing was enqueued there since.")
        # As a shell takes it: without its schema, which is a setting, and a path with blanks as one word.
        target = done.target.partition(" (schema ")[0] if "://" in done.target else shlex.quote(done.target)
        typer.echo(f"Start workers and programs on the new store: ROTA_STORE={target}")
    else:
        typer.echo(f"{done.source} stays open, so the same jobs stand in both: let workers run on one of them only.")
    for line in _remarks(done):
        typer.echo(line)


def _remarks(done: Promoted) -> Iterator[str]:
    if done.mended:
        yield f"NUL characters were replaced in {done.mended:,} texts."
    if done.missing_keys:
        yield f"Secrets under the master key {', '.join(done.missing_keys)} were left out: set them again in the new store."
    if done.left_out:
        yield f"Tables beside Rota's were not copied: {', '.join(done.left_out)}."
    if done.logs is not None:
        yield f"The logs of runs are files and stay in {done.logs}: set log_dir (ROTA_LOG_DIR) to it to go on reading them."
