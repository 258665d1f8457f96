"""Executors: where handlers run. Each is imported when it is first built: asyncio and subprocess take their time."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from rota.errors import InvalidOption
from rota.model.handler import Place
from rota.ports.executor import Equipment, Executor

_PLACES: dict[str, tuple[str, str]] = {
    Place.INLINE: ("rota.executors.inline", "InlineExecutor"),
    Place.THREAD: ("rota.executors.thread", "ThreadExecutor"),
    Place.ASYNC: ("rota.executors.aio", "AsyncExecutor"),
    Place.PROCESS: ("rota.executors.process", "ProcessExecutor"),
}


def build(place: str, equipment: Equipment) -> Executor:
    """Return the executor for a place ('inline', 'thread', 'async', 'process'), ready to take jobs."""
    if place not in _PLACES:
        raise InvalidOption(f"executor {place!r} is not one of {', '.join(_PLACES)}")
    module, name = _PLACES[place]
    return cast("Executor", getattr(import_module(module), name)(equipment))
