"""A handler: the function behind a template, what it takes and where it runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec

from rota.errors import InvalidHandler, InvalidParams
from rota.model.codec import Codec
from rota.model.kinds import RUNNER
from rota.model.params import missing_param, unknown_param
from rota.model.signals import Rules


class Place(StrEnum):
    """Where a handler runs."""

    INLINE = "inline"
    THREAD = "thread"
    ASYNC = "async"
    PROCESS = "process"


class Handler(msgspec.Struct, frozen=True, dict=True):
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
    rules: Rules | None = None
    """Which of its errors are tried again, if `retry_on` or `fail_on` says so."""

    @cached_property
    def codec(self) -> Codec:
        """How its params and results are checked, encoded and decoded."""
        return Codec(self)

    def check(self, params: Collection[str]) -> None:
        """Refuse params that the function could not be called with, naming the parameter."""
        self.check_context(params)
        for name in self.required:
            if name not in params:
                raise missing_param(self.name, name)
        if self.allowed is not None:
            for name in params:
                if name not in self.allowed:
                    raise unknown_param(self.name, name, self.allowed)

    def check_context(self, params: Collection[str]) -> None:
        """Refuse a param that has the name of the Context's parameter: the function could never be passed it."""
        if self.context is not None and self.context in params:
            raise InvalidParams(
                f"{self.name}() receives its Context in the parameter {self.context!r}, so params can't have that name: rename the param"
            )


class Wrapper:
    """The base of a task: it has the name of its function, and keeps the function in `__wrapped__`."""

    __wrapped__: Callable[..., Any]
    handler: Handler


def function_of(target: Any) -> Any:
    """Return the function behind a task or a staticmethod, which is what executors call; anything else as it is."""
    return target.__wrapped__ if isinstance(target, Wrapper | staticmethod) else target


def inspect_handler(name: str, function: Callable[..., Any], executor: str | None, rules: Rules | None = None) -> Handler:
    """Look at a function's signature, or refuse it saying which parameter can't be filled."""
    if not callable(function):
        raise InvalidHandler(f"the handler of {name!r} is {function!r}, which can't be called")
    inner = _inner(function)
    is_async = inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)
    place = _place(name, executor, is_async=is_async)
    required: set[str] = set()
    allowed: set[str] | None = set()
    context: str | None = None
    for index, parameter in enumerate(_parameters(name, function)):
        if index == 0 and _is_method(parameter, function):
            raise InvalidHandler(
                f"{name}() is a method of {function.__qualname__.rpartition('.')[0]}, and a job has no {parameter.name!r} to call it on: "
                "decorate a function, put @staticmethod above @rota.job, or register a bound method: rota.job(thing.method)"
            )
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise InvalidHandler(
                f"{name}(): parameter '*{parameter.name}' takes values without names, and params are stored by name: "
                "use named parameters or **params; a decorator's wrapper needs functools.wraps"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            allowed = None
            continue
        if parameter.name.startswith("__"):
            raise InvalidHandler(f"{name}(): parameter {parameter.name!r} begins with two underscores, which params can't: rename it")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidHandler(f"{name}(): parameter {parameter.name!r} is positional-only; params and the Context are passed by name")
        if _is_context(parameter):
            context = _context(name, parameter, first=index == 0)
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
        is_generator=inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner),
        rules=rules,
    )


def kind_handler(job_type: str) -> Handler:
    """Return the handler of a type whose work a runner does: it takes any params, and is never called."""

    def call(**params):  # type: ignore[no-untyped-def] # noqa: ANN003, ANN202, ARG001 - a task shows this signature, and any JSON is fine
        raise InvalidHandler(f"{job_type!r} is not a Python function: a worker runs it. Use .enqueue(…) instead of calling it")

    return Handler(
        name=job_type,
        function=call,
        executor=RUNNER,
        context=None,
        required=frozenset(),
        allowed=None,
        is_async=False,
        is_generator=False,
    )


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a call ends up in: of a wrapper by functools.wraps what it wraps, of an object its `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    inner = inspect.unwrap(function)
    return inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner).__call__


def _parameters(name: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidHandler(f"the signature of {name!r} can't be read: {error}") from None


def _is_method(parameter: inspect.Parameter, function: Callable[..., Any]) -> bool:
    """Say whether a function was decorated in the body of a class, where its first parameter is the object."""
    qualname = str(getattr(function, "__qualname__", ""))
    return parameter.name in {"self", "cls"} and "." in qualname.rpartition("<locals>.")[2] and inspect.isfunction(function)


def _is_context(parameter: inspect.Parameter) -> bool:
    """Say whether a parameter is meant for the Context: by its annotation or, without one, by its name."""
    annotation = parameter.annotation
    if annotation is parameter.empty or annotation in (Any, object, "Any", "object"):
        return parameter.name == "ctx" or (parameter.name == "context" and annotation is parameter.empty)
    words = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", None) or str(annotation)
    return any(word.strip().rpartition(".")[2] == "Context" for word in words.split("|"))


def _context(name: str, parameter: inspect.Parameter, *, first: bool) -> str:
    """Return the Context's parameter, or refuse one of another name or in another place: type checkers could not tell which it is."""
    by_name = parameter.kind is parameter.KEYWORD_ONLY
    if first and not by_name and parameter.name == "ctx":
        return "ctx"
    remedy = "" if parameter.annotation is not parameter.empty else "; a param of that name needs an annotation"
    where = " and is keyword-only" if by_name else "" if first else " and is not the first"
    raise InvalidHandler(
        f"{name}(): the Context is the first parameter and is called ctx; this one is called {parameter.name!r}{where}{remedy}"
    )


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
