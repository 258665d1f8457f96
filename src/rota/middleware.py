"""Middleware: functions that surround every handler, in the handler's own thread, loop or process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeAlias, TypeVar

from rota.errors import InvalidHandler

Around: TypeAlias = Callable[[Any], AbstractContextManager[object]]
"""Takes the attempt's Context; what it returns is entered before the handler and left after it."""
Registered = TypeVar("Registered", bound=Callable[[Any], Iterator[object] | AbstractContextManager[object]])


class Middleware:
    """The middleware of one Rota, in the order of registration: the first is the outermost. `@rota.middleware` adds to it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._registered: list[object] = []
        self.functions: list[Around] = []
        """As they are called. Executors keep this list, so that it is empty where there is no middleware, and costs them nothing."""

    def __call__(self, function: Registered) -> Registered:
        """Register a function that takes a Context and yields once, or returns a context manager. Registering it again changes nothing."""
        name = name_of(function)
        if not callable(function):
            raise InvalidHandler(f"middleware {name} can't be called: pass a function that takes a Context and yields once")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidHandler(
                f"middleware {name}() is async, and could not surround handlers that are not: write it as `def`; "
                "it surrounds async handlers too. What has to be awaited belongs into the handler"
            )
        if function not in self._registered:
            self._registered.append(function)
            self.functions.append(contextmanager(function) if inspect.isgeneratorfunction(function) else function)  # type: ignore[arg-type] # what it returns is checked when it is called
        return function


def enter(stack: ExitStack, functions: Sequence[Around], context: object) -> None:
    """Enter each for one attempt; the stack leaves them, the last one first."""
    for function in functions:
        manager = function(context)
        if not hasattr(manager, "__exit__"):
            raise InvalidHandler(f"middleware {name_of(function)}() returned {manager!r}: yield once, or return a context manager")
        stack.enter_context(manager)


def name_of(function: object) -> str:
    """Return what to call a function in a message."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else repr(function)
