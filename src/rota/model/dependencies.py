"""Dependencies: what may become of a child, and how every store and surface says what can't be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from rota.errors import DependencyCycle, InvalidOption, UnknownParent
from rota.model.values import Job

PARENT_RULES = ("wait", "skip", "cancel", "run")
"""What may become of a job whose parent did not complete; the first is the default."""
RUN = "run"
"""The rule of a job that starts when its parents have ended for good, however they ended."""
SHOWN_MAX = 12
"""How many jobs of a circle a message names; the error's `path` has them all."""


class Dependency(msgspec.Struct, kw_only=True, frozen=True):
    """One edge: a job that waits, the chain it waits for, and what is to happen if that ends badly."""

    child: str
    parent: str
    needs: str
    on_failure: str
    source: str
    resolved_at: datetime | None = None


class Graph(msgspec.Struct, kw_only=True, frozen=True):
    """What waits for what around one chain: the tails of the chains by root id, and the edges between them."""

    root_id: str
    jobs: dict[str, Job]
    edges: tuple[Dependency, ...]
    cut: bool = False
    """There is more than was asked for."""


def parent_rule(word: str | None, option: str = "on_parent_failure") -> str:
    """Return what is to happen to a job whose parent ends badly."""
    if word is None:
        return PARENT_RULES[0]
    if word not in PARENT_RULES:
        raise InvalidOption(f"{option}={word!r} is not one of {', '.join(PARENT_RULES)}")
    return word


def unknown_parent(name: str) -> UnknownParent:
    """Return the refusal of a parent that is not there, or is another organization's: the words are the same."""
    return UnknownParent(f"there is no job {name} in this organization: a job can only wait for jobs of its own organization")


def circle(path: Sequence[str]) -> DependencyCycle:
    """Return the refusal of jobs that would wait for each other; the path ends where it begins."""
    if len(path) == 2:
        return DependencyCycle(f"{path[0]} can't wait for itself", tuple(path))
    names = [*path[: SHOWN_MAX - 1], "…", path[-1]] if len(path) > SHOWN_MAX else path
    return DependencyCycle(f"{' → '.join(names)}: these jobs would wait for each other for ever", tuple(path))


def parent_ended(number: str, status: str) -> str:
    """Return why a job ends because of its parent."""
    return f"{number}, which it depends on, ended {status}"


def group_ended(group: str, status: str) -> str:
    """Return why a job ends because of the group that it follows."""
    return f"group {group}, which it follows, ended {status}"


def find_circle(waits: Iterable[tuple[str, str]], start: str) -> list[str] | None:
    """Return a path of waiting, child to parent, that comes back to where it began, if one can be reached from `start`."""
    parents: dict[str, list[str]] = {}
    for child, parent in waits:
        parents.setdefault(child, []).append(parent)
    # Without recursion: a chain of dependencies may be longer than Python's stack.
    path, places, done = [start], {start: 0}, set[str]()
    steps = [iter(parents.get(start, ()))]
    while steps:
        above = next((each for each in steps[-1] if each not in done), None)
        if above is None:
            steps.pop()
            done.add(path[-1])
            del places[path.pop()]
        elif above in places:
            return [*path[places[above] :], above]
        else:
            places[above] = len(path)
            path.append(above)
            steps.append(iter(parents.get(above, ())))
    return None


def dependencies_first(waits: Mapping[str, Collection[str]]) -> list[str]:
    """Return these names so that each comes after those it waits for; refuse a circle, naming the path."""
    from graphlib import CycleError, TopologicalSorter  # noqa: PLC0415 - few programs need it

    try:
        return [name for name in TopologicalSorter(waits).static_order() if name in waits]
    except CycleError as error:
        path = tuple(reversed(error.args[1]))
        raise DependencyCycle(f"schedules can't depend on each other in a circle: {' → '.join(path)}", path) from None
