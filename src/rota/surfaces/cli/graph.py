"""`rota job graph`: what a job waits for, and what waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rota.model.dependencies import RUN
from rota.model.values import Dependency, Graph, Job
from rota.surfaces.cli.options import IdArgument, JsonOption, StoreOption, examples
from rota.surfaces.cli.output import console, escaped, one_line, show_json, status
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rich.tree import Tree

DEPTH_MAX = 40
"""Levels of a tree that are drawn: further ones would stand outside of any screen."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("graph", epilog=examples("rota job graph 42", "rota job graph 42 --json | jq '.edges[]'"))(graph)


def graph(job_id: IdArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show what a job waits for, above it, and what waits for it, below it, near and far."""
    with session(store) as rota:
        found = rota.acting_as(actor()).jobs.graph(job_id)
    if as_json:
        return show_json(found)
    screen = console()
    above = _tree("[bright_black]waits for[/]", found, up=True)
    if above.children:
        screen.print(above)
    screen.print(_tree(f"[bold]{_line(found.jobs[found.root_id])}[/]", found, up=False))
    if found.cut:
        screen.print("There is more than this: setting graph_max limits what is shown.")
    return None


def _tree(label: str, found: Graph, *, up: bool) -> Tree:
    """Return the tree that grows from the job in one direction, level by level, near ones first."""
    from rich.tree import Tree  # noqa: PLC0415 - as in output.console

    beside: dict[str, list[Dependency]] = {}
    for edge in sorted(found.edges, key=lambda edge: edge.parent if up else edge.child):
        beside.setdefault(edge.child if up else edge.parent, []).append(edge)
    tree = Tree(label)
    # Where two ways lead to one job, the second only names it.
    drawn = {found.root_id}
    level = [(tree, found.root_id)]
    for _ in range(DEPTH_MAX):
        further: list[tuple[Tree, str]] = []
        for place, root in level:
            for edge in beside.get(root, ()):
                other = edge.parent if up else edge.child
                again = other in drawn
                branch = place.add(_line(found.jobs[other], edge) + ("  [bright_black](drawn elsewhere)[/]" if again else ""))
                if not again:
                    drawn.add(other)
                    further.append((branch, other))
        level = further
    return tree


def _line(job: Job, edge: Dependency | None = None) -> str:
    words = f"{job.number}  {escaped(one_line(job.job_type))}  {status(job.status)}"
    about = "" if edge is None else _about(edge)
    return f"{words}  [bright_black]{about}[/]" if about else words


_RULE = {RUN: "run even"}


def _about(edge: Dependency) -> str:
    """Return what is worth saying of an edge: where it comes from and, while it is open, what a bad end would do."""
    source = {"group": "its turn in a group", "overlap": "one at a time"}.get(edge.source, "")
    ruled = (edge.needs == "success" or edge.on_failure == RUN) and edge.on_failure != "wait" and edge.resolved_at is None
    return ", ".join(word for word in (source, f"{_RULE.get(edge.on_failure, edge.on_failure)} if it fails" if ruled else "") if word)
