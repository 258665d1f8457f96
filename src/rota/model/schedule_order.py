"""In which order schedules are made that depend on each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rota.errors import DependencyCycle


def dependencies_first(waits: Mapping[str, Collection[str]]) -> list[str]:
    """Return these names so that each comes after those it waits for; refuse a circle, naming the path."""
    from graphlib import CycleError, TopologicalSorter  # noqa: PLC0415 - few programs need it

    try:
        return [name for name in TopologicalSorter(waits).static_order() if name in waits]
    except CycleError as error:
        path = tuple(reversed(error.args[1]))
        raise DependencyCycle(f"schedules can't depend on each other in a circle: {' → '.join(path)}", path) from None
