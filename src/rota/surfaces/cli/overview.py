"""`rota stats|queue|workers|settings|version`: a store at a glance."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from rota.model.settings import DOCS, Settings
from rota.model.states import Status
from rota.model.values import Stats, TypeStats, WorkerInfo
from rota.surfaces.cli.options import AppOption, JsonOption, LimitOption, StoreOption, examples
from rota.surfaces.cli.output import (
    COLOURS,
    age,
    coloured,
    compact,
    escaped,
    show_json,
    show_json_lines,
    show_pairs,
    show_table,
    span,
    table,
)
from rota.surfaces.cli.session import actor, load, path_of, rota_of, session

if TYPE_CHECKING:
    from rota.surfaces.cli.fitting import Fitted


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("stats", rich_help_panel="Look", epilog=examples("rota stats", "rota stats --hours 1 --json | jq .by_type"))(stats)
    app.command("queue", rich_help_panel="Look", epilog=examples("rota queue --limit 10"))(queue)
    app.command("workers", rich_help_panel="Look", epilog=examples("rota workers"))(workers)
    app.command("settings", rich_help_panel="Look", epilog=examples("rota settings", "ROTA_CONCURRENCY=32 rota settings --json"))(settings)
    app.command("version", rich_help_panel="Look", epilog=examples("rota version"))(version)


def stats(
    *,
    hours: Annotated[int | None, typer.Option("--hours", min=1, max=9600, help="How far averages and failure rates look back.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count jobs by state, say how long the oldest waits and what is paused, and how each type fared lately."""
    with session(store) as rota:
        found = rota.acting_as(actor()).store.stats(hours=hours)
        paused = [pause_text(*pause) for pause in rota.acting_as(actor()).store.pauses()]
    if as_json:
        return show_json(msgspec.to_builtins(found, str_keys=True) | {"paused": paused})
    show_pairs(
        [
            *((each.lower(), _count(_shown(found, each), each)) for each in Status),
            ("claimed ahead", found.claimed_ahead or None),
            ("workers", str(found.workers)),
            ("oldest waits", span(found.oldest_waiting_s) if found.oldest_waiting_s is not None else None),
            ("by priority", ", ".join(f"{priority}: {count:,}" for priority, count in found.by_priority.items())),
            ("waiting", ", ".join(f"{name}: {count:,}" for name, count in found.waiting_by_type.items())),
            ("late results", found.late_results or None),
            ("paused", ", ".join(paused)),
        ]
    )
    if found.by_type:
        typer.echo(f"\nlast {found.hours} hours:" if found.hours > 1 else "\nlast hour:")
        show_table(_fared(found), "")
    return None


def _shown(found: Stats, state: Status) -> int:
    """Return how many there are of a state; of RUNNING, those whose handler runs."""
    return found.running if state is Status.RUNNING else found.by_status.get(state, 0)


def _fared(found: Stats) -> Fitted:
    columns = ("completed", "failed", "failure rate", "average", "95 % within")
    made = table("type", *columns, right=columns, gives=("type",))
    for each in found.by_type:
        made.add_row(escaped(each.job_type), f"{each.completed:,}", f"{each.failed:,}", *_pace(each))
    if len(found.by_type) > 1:
        done, failed = sum(each.completed for each in found.by_type), sum(each.failed for each in found.by_type)
        made.add_section()
        made.add_row("together", f"{done:,}", f"{failed:,}", *_pace(found))
    return made


def _pace(fared: Stats | TypeStats) -> tuple[str, str, str]:
    rate = f"{fared.failure_rate:.1%}" if fared.failure_rate else ""
    return rate, "" if fared.average_s is None else span(fared.average_s), "" if fared.p95_s is None else span(fared.p95_s)


def queue(
    what: Annotated[
        str | None, typer.Argument(metavar="[list]", help="`list`: list the queues, and who serves them.", show_default=False)
    ] = None,
    *,
    limit: LimitOption = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List QUEUED jobs in the order in which they will be claimed.

    `rota queue list` lists the queues instead: what waits in each, what runs, how many live workers serve it, and whether it is paused.
    """
    if what is not None:
        return _queues(what, store, as_json=as_json)
    with session(store) as rota:
        found = rota.acting_as(actor()).queues.jobs(limit=limit)
    if as_json:
        return show_json_lines(found)
    columns = ("place", "number", "type", "priority", "position", "queued", "held by", "params")
    made = table(*columns, right=("place", "priority", "position"), gives=("type", "held by", "params"))
    for place, job in enumerate(found, 1):
        made.add_row(
            str(place),
            job.number,
            escaped(job.job_type),
            str(job.priority),
            str(job.position),
            age(job.queued_at),
            escaped(job.held or ""),
            escaped(compact(job.params)),
        )
    return show_table(made, "The queue is empty.")


def _queues(what: str, store: str | None, *, as_json: bool) -> None:
    if what != "list":
        raise typer.BadParameter(f"{what!r} is not a subcommand: use `rota queue` or `rota queue list`")
    with session(store) as rota:
        found = rota.acting_as(actor()).queues.list()
    if as_json:
        return show_json_lines(found)
    made = table("queue", "waiting", "oldest", "running", "workers", "state", right=("waiting", "running", "workers"), gives=("queue",))
    for each in found:
        waiting = f"{'at least ' if each.at_least else ''}{each.waiting:,}"
        oldest = age(each.oldest) if each.oldest is not None else ""
        state = "paused" if each.paused else "not served" if each.waiting and not each.workers else ""
        made.add_row(escaped(each.name), waiting, oldest, f"{each.running:,}", str(each.workers), state)
    return show_table(made, "There are no queues.")


def workers(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the workers that are registered and not ended."""
    with session(store) as rota:
        found = rota.acting_as(actor()).workers.list()
    if as_json:
        return show_json_lines(found)
    made = table("worker", "kind", "host", "running", "started", "state", "types", right=("running",), gives=("host", "types"))
    for worker in found:
        state = "stopping" if worker.stopping_at else "up"
        types = escaped(", ".join(worker.job_types))
        made.add_row(worker.id, worker.kind, escaped(worker.host), _load(worker), age(worker.started_at), state, types)
    return show_table(made, "No worker is running: start one with `rota up` or `rota worker`.")


def _load(worker: WorkerInfo) -> str:
    """Return how many handlers a worker runs, of how many it can, and what it has claimed ahead."""
    of = "" if worker.slots is None else f" of {worker.slots}"
    return f"{worker.running}{of}" + (f", {worker.claimed_ahead} ahead" if worker.claimed_ahead else "")


def settings(*, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Print every setting: its value and what it is for."""
    rota = rota_of(store) if app is None else load(app, store)
    rows = [
        {
            "name": name,
            "value": getattr(rota.settings, name),
            "default": getattr(_DEFAULTS, name),
            "variable": f"ROTA_{name.upper()}",
            "what": doc.what,
        }
        for name, doc in DOCS.items()
    ]
    if as_json:
        return show_json_lines(
            [{"name": "store", "value": rota.store.url, "default": "rota.db", "variable": "ROTA_STORE", "what": _STORE}, *rows]
        )
    made = table("setting", "value", "what it is for", right=("value",), soft=("what it is for",))
    made.add_row("store", escaped(rota.store.url), _STORE)
    for row in rows:
        value = escaped(f"{row['value']:.15g}" if isinstance(row["value"], float) else row["value"])
        changed = row["value"] != row["default"]
        made.add_row(str(row["name"]), coloured(value, "bold") if changed else value, escaped(row["what"]))
    show_table(made, "")
    return typer.echo("\nEach is also an environment variable: ROTA_ and its name in capitals. Times are in seconds, sizes in bytes.")


def version(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Print versions and which store is meant: what a bug report needs."""
    import apsw  # noqa: PLC0415 - 20 ms that no other command's help needs

    from rota import __version__  # noqa: PLC0415 - the package is complete by now

    url = rota_of(store).store.url
    path = path_of(url)
    found = {
        "rota": __version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "platform": platform.platform(),
        "store": str(path.absolute()) if path is not None else url,
        # Whether a server is there is for `rota doctor` to say.
        "store_exists": None if path is None else Path(path).exists(),
    }
    if as_json:
        return show_json(found)
    typer.echo(f"rota {found['rota']}, Python {found['python']}, SQLite {found['sqlite']}, {found['platform']}")
    return typer.echo(f"store {found['store']}{' (not there yet)' if found['store_exists'] is False else ''}")


def pause_text(kind: str, name: str) -> str:
    """Return a pause in words."""
    return "everything" if kind == "all" else f"{kind} {name}"


def _count(count: int, state: str) -> str:
    return coloured(f"{count:,}", COLOURS[state]) if count else "0"


_DEFAULTS = Settings()
_STORE = "where jobs are kept"
