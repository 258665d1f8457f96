"""Executors: where handlers run. Each is imported when it is first built: asyncio and subprocess take their time."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from rota.errors import InvalidOption
from rota.executors.invoke import inside_handler
from rota.model.handler import Handler, Place
from rota.model.kinds import RUNNER
from rota.ports.executor import Equipment, Executor

__all__ = ["build", "check_handler", "inside_handler"]

_PLACES: dict[str, tuple[str, str]] = {
    Place.INLINE: ("rota.executors.inline", "InlineExecutor"),
    Place.THREAD: ("rota.executors.thread", "ThreadExecutor"),
    Place.ASYNC: ("rota.executors.aio", "AsyncExecutor"),
    Place.PROCESS: ("rota.executors.process", "ProcessExecutor"),
    RUNNER: ("rota.executors.runner", "RunnerExecutor"),
}


def build(place: str, equipment: Equipment) -> Executor:
    """Return the executor for a place ('inline', 'thread', 'async', 'process'), ready to take jobs."""
    if place not in _PLACES:
        raise InvalidOption(f"executor {place!r} is not one of {', '.join(_PLACES)}")
    module, name = _PLACES[place]
    return cast("Executor", getattr(import_module(module), name)(equipment))


def check_handler(handler: Handler) -> None:
    """Refuse a handler that its executor could never call: a process must be able to import it."""
    if handler.executor == Place.PROCESS:
        import_module("rota.executors.locate").check_importable(handler)
