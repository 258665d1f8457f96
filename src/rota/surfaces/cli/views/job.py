"""Jobs: lists, one job with its run and its chain, logs and graphs; queues, groups and dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from rota.errors import InvalidOption
from rota.model.dead_letters import DeadLetterGroups
from rota.model.dependencies import RUN, Dependency, Graph
from rota.model.groups import Group
from rota.model.lanes import QueueInfo
from rota.model.values import Job, Purged, Run
from rota.operation import tag_of
from rota.results import Acted, Log
from rota.surfaces.cli.output import (
    Table,
    age,
    clock_time,
    compact,
    console,
    counted,
    escaped,
    exact_time,
    one_line,
    plain,
    sentence,
    show_pairs,
    status,
    took,
    with_run,
)
from rota.surfaces.cli.views import View, listing
from rota.surfaces.runs import error_of, run_of

if TYPE_CHECKING:
    from rich.tree import Tree

    from rota.engine.explain import Explanation
    from rota.surfaces.cli.commands import Called

DEPTH_MAX = 40
"""Levels of a tree that are drawn: further ones would not fit on any screen."""
FACES = ("background-job", "monque")
NO_DEAD_LETTER = "No dead letter matches."


# ---- lists ----------------------------------------------------------------------------------------------------------


def show_list(jobs: Sequence[Job], called: Called) -> None:
    """Print jobs; of those that failed the error, of others the reason or the params."""
    headings = ("number", "status", "type", "priority", "created", "ran for", "error or params")
    rows = Table(*headings, right=("priority", "ran for"), gives=("type", "error or params"))
    for job in jobs:
        why = one_line(error_of(called.rota, job) or sentence(job.reason or "")) or compact(job.params)
        rows.add_row(job.number, status(job.status), one_line(job.job_type), job.priority, age(job.created_at), took(job), why)
    rows.show("No jobs.")


def runs_with_jobs(_runs: Sequence[Run], called: Called) -> list[dict[str, Any]]:
    """Return every attempt of the chain with its run, also those that were never started."""
    return [with_run(job, run_of(called.rota, job.id)) for job in called.rota.jobs.attempts(called.asked["job"])]


def show_runs(runs: Sequence[Run], called: Called) -> None:
    """Print every attempt of the chain and its outcome."""
    by_job = {run.job_id: run for run in runs}
    rows = Table("number", "status", "started", "ran for", "error or result", right=("ran for",))
    for job in called.rota.jobs.attempts(called.asked["job"]):
        rows.add_row(job.number, status(job.status), clock_time(job.started_at), took(job), _outcome(job, by_job.get(job.id)))
    rows.show("No attempts.")


def _outcome(job: Job, run: Run | None) -> str:
    if run is None:
        return one_line(sentence(job.reason or ""))
    if run.error:
        return one_line(run.error)
    if run.progress is not None and not job.status.ended:
        return one_line(f"{run.progress} % {run.progress_message or ''}")
    return compact(run.result) or one_line(sentence(job.reason or ""))


# ---- one job --------------------------------------------------------------------------------------------------------


def show_one(job: Job, called: Called) -> None:
    """Print one job, its run, and the other attempts of its chain; or the chain as another system shows it."""
    if called.extras["face"] is not None:
        show_pairs(_face(job, called).items())
        return
    chain = called.rota.jobs.attempts(job.id)
    before = next((each for each in chain if each.attempt == job.attempt - 1), None) if job.started_at is None else None
    last_error = [("last error", one_line(error_of(called.rota, before), 1000))] if before else []
    show_pairs([*_about(job, chain), *last_error, *about_run(run_of(called.rota, job.id))])


def one_document(job: Job, called: Called) -> dict[str, Any]:
    """Return one job with its run and the numbers of its chain; or the chain as another system has it."""
    if called.extras["face"] is not None:
        return _face(job, called)
    return with_run(job, run_of(called.rota, job.id)) | {"attempts": [each.number for each in called.rota.jobs.attempts(job.id)]}


def _face(job: Job, called: Called) -> dict[str, Any]:
    from rota.compat.faces import background_job, monque_document  # noqa: PLC0415 - few calls need it
    from rota.faces.background_job import document  # noqa: PLC0415 - as above
    from rota.model.gate import Right  # noqa: PLC0415 - as above
    from rota.operation import ask_for  # noqa: PLC0415 - as above

    face = called.extras["face"]
    if face not in FACES:
        raise InvalidOption(f"--face {face!r} is not one of {', '.join(FACES)}")
    ask = ask_for(called.rota, Right.READ)
    return dict(document(background_job(ask, job.id)) if face == "background-job" else monque_document(ask, job.id))


def _about(job: Job, chain: list[Job]) -> list[tuple[str, object]]:
    others = ", ".join(f"{each.number} {each.status}" for each in chain if each.id != job.id)
    return [
        ("number", job.number),
        ("id", job.id),
        ("status", status(job.status)),
        ("type", job.job_type),
        ("queue", job.queue),
        ("tags", ", ".join(job.tags) or None),
        ("template", "none: it names its handler" if job.template_id is None else None),
        ("version", (job.meta or {}).get("template_version")),
        ("params", compact(job.params)),
        ("priority", f"{job.priority}, position {job.position}"),
        ("attempt", f"{job.attempt} ({job.failures} failed, {job.crashes} crashed; {job.max_retries} retries allowed)"),
        ("other attempts", others),
        ("organization", None if job.organization == "default" else job.organization),
        ("owner", job.owner),
        ("unique key", job.unique_key),
        ("group", f"{job.group_id}, place {job.sequence_number}" if job.group_id else None),
        ("waits for", f"{job.blockers} other {'job' if job.blockers == 1 else 'jobs'}" if job.blockers else None),
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
        ("reason", job.reason and sentence(job.reason)),
        ("timeout", f"{job.timeout:g} s" if job.timeout else "none"),
        ("executor", job.executor),
        ("worker", job.worker_id),
    ]


def about_run(run: Run | None) -> list[tuple[str, object]]:
    """Return the fields of a run that people read, with their names."""
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


def show_explanation(explanation: Explanation, _called: Called) -> None:
    """Print why a job does not run yet, condition by condition."""
    screen = console()
    screen.print(f"{explanation.job.number} is {status(explanation.job.status)}: {escaped(one_line(sentence(explanation.summary), 1000))}")
    for reason in explanation.reasons:
        mark = "[green]✓[/]" if reason.met else "[red]✗[/]"
        screen.print(f"  {mark} {escaped(one_line(sentence(explanation.words(reason)), 1000))}")


# ---- the log --------------------------------------------------------------------------------------------------------


def show_log(log: Log, called: Called) -> None:
    """Print state changes and the handler's lines; or what the handler wrote, as it is, or as it is written."""
    if called.extras["follow"]:
        for text in _pieces(called):
            typer.echo(text.encode() if called.extras["raw"] else "".join(f"{plain(line)}\n" for line in text.splitlines()), nl=False)
        return
    if called.extras["raw"]:
        typer.echo(log.text.encode(), nl=False)
        return
    screen = console()
    for entry in log:
        stamp = f"[bright_black]{exact_time(entry.at)}[/]"
        attempt = f"  [bold]#{entry.attempt}[/]" if called.asked.get("chain") else ""
        if entry.to_status is None:
            words = f"{escaped(entry.level or '')}  {escaped(entry.message)}"
        else:
            by = f" by {escaped(entry.actor)}" if entry.actor else ""
            words = f"{status(entry.to_status)}{by}" + (f": {escaped(sentence(entry.message))}" if entry.message else "")
        screen.print(f"{stamp}{attempt}  {words}", soft_wrap=True)


def _pieces(called: Called) -> Iterator[str]:
    from rota.live import follow_log  # noqa: PLC0415 - few calls need it
    from rota.model.gate import Right  # noqa: PLC0415 - as above
    from rota.operation import ask_for  # noqa: PLC0415 - as above

    return iter(follow_log(ask_for(called.rota, Right.READ_LOG), called.asked["job"]))


def refuse_follow(called: Called) -> None:
    """Refuse to follow several attempts: lines come from one."""
    if called.extras["follow"] and called.asked.get("chain"):
        raise InvalidOption("--follow is for one attempt: leave --chain out")


def log_document(log: Log, called: Called) -> object:
    """Return the entries of a log, or what the handler wrote, or pieces of that as they come."""
    if called.extras["follow"]:
        return ({"text": text} for text in _pieces(called))
    return {"text": log.text} if called.extras["raw"] else log


# ---- the graph ------------------------------------------------------------------------------------------------------


def show_graph(graph: Graph, _called: Called) -> None:
    """Print the jobs that one waits for above it, and those that wait for it below it."""
    screen = console()
    above = _tree("[bright_black]waits for[/]", graph, up=True)
    if above.children:
        screen.print(above)
    screen.print(_tree(f"[bold]{_line(graph.jobs[graph.root_id])}[/]", graph, up=False))
    if graph.cut:
        screen.print("There is more than this: setting graph_max limits what is shown.")


def _tree(label: str, graph: Graph, *, up: bool) -> Tree:
    """Return the tree that grows from the job in one direction, level by level, near ones first."""
    from rich.tree import Tree  # noqa: PLC0415 - as in output.console

    beside: dict[str, list[Dependency]] = {}
    for edge in sorted(graph.edges, key=lambda edge: edge.parent if up else edge.child):
        beside.setdefault(edge.child if up else edge.parent, []).append(edge)
    tree = Tree(label)
    # Where two ways lead to one job, the second only names it.
    drawn = {graph.root_id}
    level = [(tree, graph.root_id)]
    for _ in range(DEPTH_MAX):
        further: list[tuple[Tree, str]] = []
        for place, root in level:
            for edge in beside.get(root, ()):
                other = edge.parent if up else edge.child
                again = other in drawn
                branch = place.add(_line(graph.jobs[other], edge) + ("  [bright_black](drawn elsewhere)[/]" if again else ""))
                if not again:
                    drawn.add(other)
                    further.append((branch, other))
        level = further
    return tree


def _line(job: Job, edge: Dependency | None = None) -> str:
    words = f"{job.number}  {escaped(one_line(job.job_type))}  {status(job.status)}"
    about = "" if edge is None else _about_edge(edge)
    return f"{words}  [bright_black]{about}[/]" if about else words


def _about_edge(edge: Dependency) -> str:
    """Return the source of an edge and, while it is open, what a failure would do."""
    source = {"group": "its turn in a group", "overlap": "one at a time"}.get(edge.source, "")
    ruled = (edge.needs == "success" or edge.on_failure == RUN) and edge.on_failure != "wait" and edge.resolved_at is None
    rule = "run even" if edge.on_failure == RUN else edge.on_failure
    return ", ".join(word for word in (source, f"{rule} if it fails" if ruled else "") if word)


# ---- queues and groups ----------------------------------------------------------------------------------------------


def _state(queue: QueueInfo) -> str:
    return "paused" if queue.paused else "not served" if queue.waiting and not queue.workers else ""


QUEUES = listing(
    "There are no queues.",
    "queue=name~ waiting> oldest running> workers> state",
    waiting=lambda queue: f"{'at least ' if queue.at_least else ''}{queue.waiting:,}",
    state=_state,
)
QUEUED = listing("The queue is empty.", "number type=job_type~ priority> position> queued=queued_at held_by=held~ params~")
GROUPS = listing(
    "No groups.",
    "id status mode on_failure ended> created=created_at name",
    status=lambda group: status(group.status),
    ended=lambda group: f"{sum(member.status.ended for member in group.members)}/{len(group.members)}",
)


def show_group(group: Group, _called: Called | None = None) -> None:
    """Print a group and the states of its members."""
    name = f"  {escaped(group.name)}" if group.name else ""
    console().print(f"{group.id}  {status(group.status)}{name}  ({group.mode}, on failure: {group.on_failure})")
    rows = Table("place", "number", "status", "type", right=("place",))
    for member in group.members:
        rows.add_row(member.sequence_number, member.number, status(member.status), member.job_type)
    rows.show("No members.")
    if group.then is not None:
        follower = f"{group.then.number}  {status(group.then.status)}  {escaped(group.then.job_type)}"
        console().print(f"then {follower}  (if a member fails: {group.then.on_parent_failure})")


# ---- dead letters ---------------------------------------------------------------------------------------------------


def show_dead(jobs: Sequence[Job], called: Called) -> None:
    """Print dead letters with their last errors."""
    columns = ("number", "type", "died of", "when", "attempts", "last error")
    rows = Table(*columns, right=("attempts",), gives=("type", "last error"))
    for job in jobs:
        run = run_of(called.rota, job.id)
        error = one_line((run.error if run else None) or sentence(job.reason or ""))
        rows.add_row(job.number, job.job_type, job.error_type or "unknown", age(job.finished_at), job.attempt, error)
    rows.show("No dead letters.")


def show_dead_groups(found: DeadLetterGroups, _called: Called) -> None:
    """Print dead letters by error."""
    rows = Table("dead", "type", "died of", "first", "last", "example", "error", right=("dead",), gives=("type", "error"))
    for group in found.groups:
        times = age(group.first_at), age(group.last_at)
        rows.add_row(
            f"{group.count:,}", group.job_type, group.error_type or "unknown", *times, group.example.number, one_line(group.message)
        )
    rows.show("No dead letters.")
    if found.more:
        typer.echo(f"The newest {found.count:,} dead letters are grouped; there are more: use --look, or filter.", err=True)


def show_retried(jobs: Sequence[Job], _called: Called) -> None:
    """Print how many were retried."""
    typer.echo(f"{len(jobs):,} retried" if jobs else NO_DEAD_LETTER)


def show_dead_deleted(gone: Purged, _called: Called) -> None:
    """Print how many were deleted, and how many could not be."""
    kept = f"; {gone.kept:,} are needed by others and stay" if gone.kept else ""
    typer.echo(f"{gone.chains:,} deleted{kept}" if gone.chains or gone.kept else NO_DEAD_LETTER)


# ---- changes --------------------------------------------------------------------------------------------------------


def add_to_params(called: Called) -> str | None:
    """Let -p change the params it names and keep the others; the edit is refused if the job has changed since they were read."""
    if not called.adds:
        return None
    named = called.rota.jobs.get(called.asked["job"]).id
    chain = called.rota.jobs.attempts(named)
    called.asked["params"] = {**chain[-1].params, **called.asked["params"]}
    return tag_of(next(job for job in chain if job.id == named), chain[-1])


def show_acted(acted: Acted, _called: Called) -> None:
    """Print how many jobs were cancelled, and how many still match."""
    left = f"; {'at least ' if acted.more else ''}{acted.left:,} more match" if acted.left else ""
    typer.echo(f"{counted(acted.done, 'job')} cancelled{left}" if acted.done else "No job matches.")


def show_deleted(gone: Purged, called: Called) -> None:
    """Print what was deleted."""
    typer.echo(f"{called.asked['job']}  deleted ({counted(gone.jobs, 'job')})")


VIEWS: dict[str | type, View] = {
    "job list": View(show_list),
    "job get": View(show_one, one_document),
    "job attempts": View(show_list),
    "job runs": View(show_runs, runs_with_jobs),
    "job log": View(show_log, log_document, prepare=refuse_follow),
    "job graph": View(show_graph),
    "job explain": View(show_explanation),
    "job update": View(prepare=add_to_params),
    "job cancel-all": View(show_acted),
    "job delete": View(show_deleted, lambda gone, called: {"job": called.asked["job"], "jobs": gone.jobs}),
    "queue list": View(QUEUES),
    "queue jobs": View(QUEUED),
    "group list": View(GROUPS),
    Group: View(show_group),
    "dead list": View(show_dead, lambda jobs, called: [with_run(job, run_of(called.rota, job.id)) for job in jobs]),
    "dead groups": View(show_dead_groups),
    "dead retry": View(show_retried),
    "dead delete": View(show_dead_deleted),
}
