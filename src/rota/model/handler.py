"""A handler: the function behind a template, what it takes and where it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any

import msgspec

from rota.errors import InvalidHandler, InvalidParams


class Place(StrEnum):
    """Where a handler runs."""

    INLINE = "inline"
    THREAD = "thread"
    ASYNC = "async"
    PROCESS = "process"


class Handler(msgspec.Struct, frozen=True):
    """A function that was looked at once, so that each call only compares names."""

    name: str
    function: Callable[..., Any]
    executor: str
    context: str | None
    """The parameter that receives the Context, if the function has one."""
    required: frozenset[str]
    allowed: frozenset[str] | None
    """None: the function takes **anything."""
    is_async: bool
    is_generator: bool

    def check(self, params: Collection[str]) -> None:
        """Refuse params that the function could not be called with, naming the parameter."""
        for name in self.required:
            if name not in params:
                raise InvalidParams(f"{self.name}() needs a parameter {name!r}, which params do not have")
        if self.allowed is not None:
            for name in params:
                if name not in self.allowed:
                    takes = ", ".join(sorted(self.allowed)) or "none"
                    raise InvalidParams(f"{self.name}() has no parameter {name!r}; it takes: {takes}")


def inspect_handler(name: str, function: Callable[..., Any], executor: str | None) -> Handler:
    """Look at a function's signature, or refuse it saying which parameter can't be filled."""
    if not callable(function):
        raise InvalidHandler(f"the handler of {name!r} is {function!r}, which can't be called")
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    place = _place(name, executor, is_async=is_async)
    required: set[str] = set()
    allowed: set[str] | None = set()
    context: str | None = None
    for index, parameter in enumerate(_parameters(name, function)):
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            allowed = None
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidHandler(f"{name}(): parameter {parameter.name!r} is positional-only; params and the Context are passed by name")
        if context is None and _is_context(parameter, first=index == 0):
            context = parameter.name
            continue
        if parameter.default is parameter.empty:
            required.add(parameter.name)
        if allowed is not None:
            allowed.add(parameter.name)
    return Handler(
        name=name,
        function=function,
        executor=place,
        context=context,
        required=frozenset(required),
        allowed=None if allowed is None else frozenset(allowed),
        is_async=is_async,
        is_generator=inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function),
    )


def _parameters(name: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidHandler(f"the signature of {name!r} can't be read: {error}") from None


def _is_context(parameter: inspect.Parameter, *, first: bool) -> bool:
    annotation = parameter.annotation
    named = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return named.rpartition(".")[2] == "Context" or (first and parameter.name in {"ctx", "context"} and annotation is parameter.empty)


def _place(name: str, executor: str | None, *, is_async: bool) -> str:
    if executor is None:
        return Place.ASYNC if is_async else Place.THREAD
    if executor not in set(Place):
        raise InvalidHandler(f"{name}(): executor {executor!r} is not one of {', '.join(Place)}")
    if is_async and executor == Place.THREAD:
        raise InvalidHandler(f"{name}() is async and can't run on a plain thread: use executor='async' or 'process'")
    if not is_async and executor == Place.ASYNC:
        raise InvalidHandler(f"{name}() is not async: a blocking handler would stop the event loop. Use executor='thread' or 'process'")
    return executor
