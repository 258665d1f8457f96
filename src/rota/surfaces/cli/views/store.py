"""The store as a whole, its workers and its audit trail: the commands of one word; imports from other systems."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.model.figures import Stats, TypeStats
from rota.model.findings import Finding, State
from rota.model.settings import MIB
from rota.model.states import RunStatus, Status
from rota.model.values import Purged, Run, WorkerInfo
from rota.surfaces.cli.exits import FAILED
from rota.surfaces.cli.output import (
    COLOURS,
    Table,
    clock_time,
    coloured,
    compact,
    console,
    counted,
    escaped,
    one_line,
    pause_text,
    progress_bar,
    sentence,
    show_pairs,
    span,
    status,
)
from rota.surfaces.cli.views import View, listing, paused
from rota.surfaces.cli.views.job import about_run

if TYPE_CHECKING:
    from rota.compat.import_report import Imported
    from rota.engine.recovery import Recovered
    from rota.resources.stored_settings import SettingView
    from rota.surfaces.cli.commands import Called

VALUE_MAX = 40
BAD_PRINTED = 10
NAMED_PRINTED = 10
FINDINGS = {State.OK: "green", State.REPAIRED: "cyan", State.ADVICE: "yellow", State.PROBLEM: "red"}


# ---- statistics -----------------------------------------------------------------------------------------------------


def stats_document(stats: Stats, called: Called) -> dict[str, Any]:
    """Return statistics, with what is paused."""
    fields: dict[str, Any] = msgspec.to_builtins(stats, str_keys=True)
    return fields | {"paused": paused(called)}


def show_stats(stats: Stats, called: Called) -> None:
    """Print counts, ages, pauses and averages by type."""
    show_pairs(
        [
            *((state.lower(), _count(stats, state)) for state in Status),
            ("claimed ahead", stats.claimed_ahead or None),
            ("workers", str(stats.workers)),
            ("oldest waits", span(stats.oldest_waiting_s) if stats.oldest_waiting_s is not None else None),
            ("by priority", ", ".join(f"{priority}: {count:,}" for priority, count in stats.by_priority.items())),
            ("waiting", ", ".join(f"{name}: {count:,}" for name, count in stats.waiting_by_type.items())),
            ("late results", stats.late_results or None),
            ("paused", ", ".join(paused(called))),
        ]
    )
    if stats.by_type:
        typer.echo(f"\nlast {stats.hours} hours:" if stats.hours > 1 else "\nlast hour:")
        _show_by_type(stats)


def _count(stats: Stats, state: Status) -> str:
    """Return how many jobs are in a state; of RUNNING, those whose handler runs."""
    count = stats.running if state is Status.RUNNING else stats.by_status.get(state, 0)
    return coloured(f"{count:,}", COLOURS[state]) if count else "0"


def _show_by_type(stats: Stats) -> None:
    columns = ("completed", "failed", "failure rate", "average", "95 % within")
    rows = Table("type", *columns, right=columns, gives=("type",))
    for each in stats.by_type:
        rows.add_row(each.job_type, f"{each.completed:,}", f"{each.failed:,}", *_pace(each))
    if len(stats.by_type) > 1:
        done, failed = sum(each.completed for each in stats.by_type), sum(each.failed for each in stats.by_type)
        rows.add_section()
        rows.add_row("together", f"{done:,}", f"{failed:,}", *_pace(stats))
    rows.show()


def _pace(stats: Stats | TypeStats) -> tuple[str, str, str]:
    return f"{stats.failure_rate:.1%}" if stats.failure_rate else "", span(stats.average_s), span(stats.p95_s)


# ---- workers, checks and repairs ------------------------------------------------------------------------------------


def _load(worker: WorkerInfo) -> str:
    """Return how many handlers a worker runs, of how many it can, and how many jobs it has claimed ahead."""
    of = "" if worker.slots is None else f" of {worker.slots}"
    return f"{worker.running}{of}" + (f", {worker.claimed_ahead} ahead" if worker.claimed_ahead else "")


def show_findings(findings: Sequence[Finding], _called: Called) -> None:
    """Print findings, each with its remedy."""
    screen = console()
    for each in findings:
        screen.print(f"[{FINDINGS[each.state]}]{each.state:<8}[/]  [bold]{each.name}[/]: {escaped(sentence(each.text))}", soft_wrap=True)
        if each.remedy:
            screen.print(f"          → {escaped(each.remedy)}", soft_wrap=True)


def fail_on_problems(findings: Sequence[Finding]) -> None:
    """Exit with 1 if there is a problem; advice alone is no reason for it."""
    if any(each.state is State.PROBLEM for each in findings):
        raise typer.Exit(FAILED)


def show_recovered(done: Recovered, _called: Called) -> None:
    """Print what was recovered."""
    if not done:
        typer.echo("Nothing to recover.")
        return
    typer.echo(
        f"{counted(done.workers, 'worker')} lost; {counted(done.jobs, 'job')} of theirs ended,"
        f" {counted(done.successors, 'missing successor')} created, {counted(done.reservations, 'reservation')} ended."
    )


def show_run(run: Run, _called: Called) -> None:
    """Print the outcome of a direct run."""
    show_pairs([("status", status(str(run.status))), ("job", run.job_id), *about_run(run)])


def fail_unless_ended_well(run: Run) -> None:
    """Exit with 1 if the run failed or was cancelled."""
    if run.status not in {RunStatus.COMPLETED, RunStatus.SKIPPED}:
        raise typer.Exit(FAILED)


def show_grants(statements: Sequence[str], _called: Called) -> None:
    """Print statements that can be piped into psql."""
    typer.echo("\n".join(statements))


def grants_document(statements: Sequence[str], called: Called) -> dict[str, Any]:
    """Return statements with the role and the kind that they are for."""
    return {"role": called.asked["name"], "kind": called.asked["kind"], "statements": statements}


# ---- purge ----------------------------------------------------------------------------------------------------------


def start_bar(called: Called) -> None:
    """Show a bar on a terminal while chains are deleted."""
    report = None if called.asked.get("dry_run") else progress_bar(called.stack)
    if report is not None:
        total = called.rota.store.purge(**called.asked | {"dry_run": True}).chains
        called.asked["progress"] = lambda done: report("deleting", done.chains, total)


def show_purged(done: Purged, called: Called) -> None:
    """Print how much was deleted, or would be."""
    called.stack.close()
    kept = f"; {done.kept:,} are needed by others and stay" if done.kept else ""
    words = "would be deleted" if called.asked.get("dry_run") else "deleted"
    typer.echo(f"{counted(done.chains, 'chain')} ({counted(done.jobs, 'job')}) {words}{kept}.")


def purged_document(done: Purged, called: Called) -> dict[str, Any]:
    """Return how much was deleted, or would be."""
    return {"chains": done.chains, "jobs": done.jobs, "kept": done.kept, "dry_run": called.asked.get("dry_run", False)}


# ---- imports --------------------------------------------------------------------------------------------------------


def read_twice(called: Called) -> None:
    """Keep what comes through a pipe in a file, because it is read twice, and show a bar."""
    if called.asked["source"] == "-":
        kept = called.stack.enter_context(NamedTemporaryFile(prefix="rota-import-"))  # noqa: SIM115 - closed by the stack
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        called.asked["source"] = kept.name
    called.asked["progress"] = progress_bar(called.stack)


def show_imported(report: Imported, called: Called) -> None:
    """Print how many documents were imported, and what was wrong with some."""
    called.stack.close()
    schedules = ", ".join(f"{name} ({cron})" for name, cron in sorted(report.schedules.items()))
    show_pairs(
        [
            ("documents", f"{report.documents:,}"),
            ("waiting", _counted(report.waiting)),
            ("recovered", _counted(report.recovered, "were being processed: that attempt counts as a crash")),
            ("dead letters", _counted(report.dead, "`rota job retry` gives one more attempt")),
            ("cancelled", _counted(report.cancelled)),
            ("completed", _counted(report.completed)),
            ("left out", _counted(report.left_out, "completed; --with-completed imports them as history")),
            ("already here", _counted(report.already)),
            ("key taken", _counted(report.key_taken, "a live job holds their unique key")),
            ("schedules", schedules or None),
            ("templates made", ", ".join(report.templates_made)),
            ("fields not kept", ", ".join(report.unknown_fields)),
            ("bad", _counted(report.bad_count)),
        ]
    )
    if report.zone_assumed and "timezone" not in called.asked:
        names = ", ".join(sorted(report.zone_assumed)[:NAMED_PRINTED])
        more = f" and {len(report.zone_assumed) - NAMED_PRINTED:,} more" if len(report.zone_assumed) > NAMED_PRINTED else ""
        typer.echo(
            f"warning: no time zone in the documents of {names}{more}: they are due by UTC, while Monque used the clock of its machine; "
            "pass --timezone to set their zone",
            err=True,
        )
    for bad in report.bad[:BAD_PRINTED]:
        typer.echo(f"  {one_line(bad.why, 400)}", err=True)
    if report.bad_count > BAD_PRINTED:
        typer.echo(f"  and {report.bad_count - BAD_PRINTED:,} more", err=True)
    if report.dry_run:
        typer.echo("This was a dry run: nothing was written.")


def _counted(number: int, remark: str = "") -> str | None:
    if not number:
        return None
    return f"{number:,} ({remark})" if remark else f"{number:,}"


def fail_on_bad(report: Imported) -> None:
    """Exit with 1 if a document was bad."""
    if report.bad_count:
        raise typer.Exit(FAILED)


# ---- tables ---------------------------------------------------------------------------------------------------------


def _process(worker: WorkerInfo) -> str:
    """Say which process a worker is, the memory that it uses, and its version."""
    if worker.pid is None:
        return ""
    memory = "" if worker.memory is None else f", {worker.memory / MIB:,.0f} MiB"
    return f"pid {worker.pid}{memory}, Rota {worker.version}"


WORKERS = listing(
    "No worker is running: start one with `rota up` or `rota worker`.",
    "worker=id kind host~ process~ running> started=started_at state types=job_types~",
    running=_load,
    process=_process,
    state=lambda worker: "stopping" if worker.stopping_at else "up",
)
AUDIT = listing(
    "No such entries.",
    "when event who=actor outcome to~ run=job_run_uuid from~ to_what~",
    **{
        "when": lambda entry: clock_time(entry.at),
        "to": lambda entry: f"{entry.subject} {entry.subject_id}",
        "from": lambda entry: one_line(compact(entry.before), VALUE_MAX),
        "to_what": lambda entry: one_line(compact(entry.after), VALUE_MAX),
    },
)
SETTINGS = listing("There are no such settings.", "setting=name value> source stored set_by set=set_at what_it_is_for=what+")


def show_setting(setting: SettingView, _called: Called) -> None:
    """Print what holds, and why that is not what is stored."""
    typer.echo(f"{setting.name} is {setting.value} ({setting.source})")
    if setting.notice:
        typer.echo(f"note: {setting.notice}", err=True)


VIEWS: dict[str | type, View] = {
    "stats": View(show_stats, stats_document),
    "pauses": View(
        listing("Nothing is paused.", "paused", paused=lambda pause: pause_text(*pause)),
        lambda pauses, _called: {"paused": [pause_text(*pause) for pause in pauses]},
    ),
    "workers": View(WORKERS),
    "doctor": View(show_findings, check=fail_on_problems),
    "repair": View(show_findings, check=fail_on_problems),
    "recover": View(show_recovered),
    "grants": View(show_grants, grants_document),
    "purge": View(show_purged, purged_document, prepare=start_bar),
    "audit": View(AUDIT),
    "setting list": View(SETTINGS),
    "setting set": View(show_setting),
    "setting reset": View(show_setting),
    Run: View(show_run, check=fail_unless_ended_well),
    "import monque": View(show_imported, check=fail_on_bad, prepare=read_twice),
}
