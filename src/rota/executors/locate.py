"""How a handler is found in another process: by the module-level name it was defined under."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from rota.errors import InvalidHandler
from rota.model.handler import Handler, Place, function_of
from rota.ports.executor import App

if TYPE_CHECKING:
    from rota.executors.wire import Address

WRAPPERS = ("__wrapped__", "handler", "function")
"""Attributes under which decorators keep the function they were given."""
DEPTH_MAX = 8

MAIN = "__main__"

_searches: WeakKeyDictionary[App, tuple[int, bool]] = WeakKeyDictionary()
"""For each Rota: how many modules were imported when it was last looked for, and whether it was found."""


def check_importable(handler: Handler) -> None:
    """Refuse a handler that a fresh process could not find. May be called before the function's name is bound."""
    function = handler.function
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise _refusal(handler, f"is {function!r}, which has no name of its own")
    if "<lambda>" in qualname:
        raise _refusal(handler, "is a lambda")
    if "<locals>" in qualname:
        raise _refusal(handler, f"is defined inside {qualname.partition('.<locals>')[0]}()")
    if inspect.ismethod(function) and not inspect.isclass(function.__self__):
        raise _refusal(handler, f"is a method of one particular object, {function.__self__!r}")
    if not _can_import(module):
        raise _refusal(handler, _why_not(module))


def runs_apart(handler: Handler, app: App | None = None) -> bool:
    """Say whether a fresh process would find this very handler, although it may have been declared for another executor.

    What was not declared for processes is not looked for in the main program: its author need not have guarded what runs at import.
    """
    if handler.executor == Place.PROCESS:
        return True
    if app is not None and not _is_found(app):
        return False
    function = handler.function
    try:
        check_importable(handler)
        held = _walk(sys.modules[function.__module__], function.__qualname__)
    except (InvalidHandler, AttributeError, KeyError):
        return False
    return function.__module__ != MAIN and _steps(held, function) is not None


def locate(function: Callable[..., Any]) -> Address:
    """Return where another process finds a function, once its module is imported here."""
    from rota.executors.wire import Address  # noqa: PLC0415 - every worker asks what runs apart, and few need what travels there

    module, qualname = function.__module__, function.__qualname__
    try:
        held = _walk(sys.modules[module], qualname)
    except (AttributeError, KeyError):
        return Address(module, qualname)
    return Address(module, qualname, _steps(held, function) or ())


def locate_app(app: App) -> Address | None:
    """Return the module-level name of the program's Rota, by which a handler process finds its middleware; None if it needs none."""
    from rota.executors.wire import Address  # noqa: PLC0415 - as above

    if not _is_needed(app):
        return None
    # The main program last: a process runs it again, and it may not be written for that.
    for module in sorted(sys.modules, key=lambda name: name == MAIN):
        names = getattr(sys.modules.get(module), "__dict__", None)
        if isinstance(names, dict) and module != "__mp_main__":
            for name, value in tuple(names.items()):
                if value is app and (module != MAIN or _can_import(MAIN)):
                    return Address(module, name)
    raise InvalidHandler(
        "handler processes can't find the middleware and hooks of this Rota: assign it to a name at the module level of an importable "
        "module (`rota = Rota()`), or use executor='thread'"
    )


def _is_needed(app: App) -> bool:
    return bool(app.middleware.functions or app.on.process_start.functions)


def _is_found(app: App) -> bool:
    """Say whether a process finds what it needs of the program's Rota. Asked for every handler: a search counts until more is imported."""
    if not _is_needed(app):
        return True
    imported = len(sys.modules)
    searched = _searches.get(app)
    if searched is None or searched[0] != imported:
        try:
            searched = imported, locate_app(app) is not None
        except InvalidHandler:
            searched = imported, False
        _searches[app] = searched
    return searched[1]


def resolve_app(address: Address) -> App:
    """Import and return the Rota at an address."""
    app = _walk(import_module(address.module), address.qualname)
    if not hasattr(app, "middleware") or not hasattr(app, "on"):
        raise InvalidHandler(f"{address.module}.{address.qualname} is not a Rota in this process: its type is {type(app).__name__}")
    return cast("App", app)


def resolve(address: Address) -> Callable[..., Any]:
    """Import and return the function at an address."""
    function: Callable[..., Any] = function_of(resolve_target(address))
    return function


def resolve_target(address: Address) -> Callable[..., Any]:
    """Import and return what is at an address: a function, or the task that was made of it."""
    held = _walk(import_module(address.module), address.qualname)
    for step in address.steps:
        held = getattr(held, step)
    if not callable(function_of(held)):
        raise InvalidHandler(f"{address.module}.{address.qualname} is not a function: its type is {type(held).__name__}")
    return cast("Callable[..., Any]", held)


def _walk(module: object, qualname: str) -> object:
    return reduce(getattr, qualname.split("."), module)


def _steps(held: object, function: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the attributes that lead from what the name holds to the function, the fewest first."""
    paths: list[tuple[object, tuple[str, ...]]] = [(held, ())]
    for there, steps in paths:
        if there is function or there == function:
            return steps
        if len(steps) < DEPTH_MAX:
            paths += [(inner, (*steps, name)) for name in WRAPPERS if (inner := getattr(there, name, None)) is not None]
        if len(paths) > 3**4:
            break
    return None


def _can_import(module: str) -> bool:
    if module == MAIN:
        main = sys.modules[MAIN]
        path = getattr(main, "__file__", None)
        return getattr(main, "__spec__", None) is not None or (path is not None and Path(path).exists())
    try:
        return module in sys.modules or find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _why_not(module: str) -> str:
    if module == MAIN:
        return "is defined in a program that has no file (a prompt, -c or a notebook)"
    return f"says that its module is {module!r}, which can't be imported"


def _refusal(handler: Handler, why: str) -> InvalidHandler:
    return InvalidHandler(
        f"{handler.name}() {why}, so a handler process can't import it:"
        " move it to the module level of an importable module, or use executor='thread'"
    )
