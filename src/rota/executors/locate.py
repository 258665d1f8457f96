"""How a handler is found by its name: in a handler process, or by a worker that has only a template naming it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec

from rota.errors import InvalidHandler
from rota.model.handler import Handler, Place, function_of
from rota.ports.executor import App

WRAPPERS = ("__wrapped__", "handler", "function")
"""Attributes under which decorators keep the function they were given."""
DEPTH_MAX = 8

MAIN = "__main__"

_searches: WeakKeyDictionary[App, tuple[int, bool]] = WeakKeyDictionary()
"""For each Rota: how many modules were imported when it was last looked for, and whether it was found."""


class Address(msgspec.Struct, frozen=True):
    """Where to find a handler's function, or the program's Rota: a module-level name, and attributes to follow from there."""

    module: str
    qualname: str
    steps: tuple[str, ...] = ()


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
    module, qualname = function.__module__, function.__qualname__
    try:
        held = _walk(sys.modules[module], qualname)
    except (AttributeError, KeyError):
        return Address(module, qualname)
    return Address(module, qualname, _steps(held, function) or ())


def locate_app(app: App) -> Address | None:
    """Return the module-level name of the program's Rota, by which a handler process finds its middleware; None if it needs none."""
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


def prefixes_of(handler_modules: str) -> tuple[str, ...]:
    """Return the modules that a setting names, by comma."""
    return tuple(filter(None, (each.strip().strip(".") for each in handler_modules.split(","))))


def find_handler(path: str, prefixes: tuple[str, ...]) -> Callable[..., Any] | None:
    """Import the function or task at module:function or module.function; None if its module is not under the prefixes.

    Raise InvalidHandler, saying why, if it can't be imported or is not a function of those modules.
    """
    places = [place for place in _places(path) if _under(place.module, prefixes)]
    if not places:
        return None
    return _of_these(path, _first(path, places), prefixes)


def _of_these(path: str, function: Callable[..., Any], prefixes: tuple[str, ...]) -> Callable[..., Any]:
    """Return a function of those modules, or refuse one that they have only imported."""
    home = getattr(function, "__module__", None)
    if not isinstance(home, str) or not _under(home, prefixes):
        raise InvalidHandler(f"{path} is of the module {home!r}, which is not under handler_modules ({', '.join(prefixes)})")
    return function


def look_for_handler(path: str, prefixes: tuple[str, ...]) -> Callable[..., Any] | None:
    """Return the function at module:function as far as it can be known here; None if its module can't be imported in this process.

    Raise InvalidHandler if the module is not under the prefixes, or has no such function.
    """
    module, _, name = path.partition(":")
    if not _under(module, prefixes):
        allowed = f"is not under handler_modules ({', '.join(prefixes)})" if prefixes else "is not allowed while handler_modules is empty"
        raise InvalidHandler(
            f"handler={path!r}: module {module!r} {allowed}: set handler_modules (ROTA_HANDLER_MODULES), or use a template"
        )
    try:
        import_module(module)
    except (Exception, SystemExit):  # noqa: BLE001 - whatever it lacks here, a worker may have
        return None
    function: Callable[..., Any] = function_of(_of_these(path, _function(path, Address(module, name)), prefixes))
    return function


def _places(path: str) -> Iterator[Address]:
    """Go through what a path can mean: with a colon one thing, without it the longest module first."""
    module, colon, name = path.partition(":")
    if colon:
        yield Address(module, name)
        return
    parts = path.split(".")
    for split in range(len(parts) - 1, 0, -1):
        yield Address(".".join(parts[:split]), ".".join(parts[split:]))


def _under(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def _first(path: str, places: list[Address]) -> Callable[..., Any]:
    missing: ModuleNotFoundError | None = None
    for place in places:
        try:
            import_module(place.module)
        except ModuleNotFoundError as error:
            if error.name is None or not (place.module == error.name or place.module.startswith(f"{error.name}.")):
                raise InvalidHandler(f"{path}: importing {place.module} failed with {_said(error)}") from error
            missing = missing or error
        except (Exception, SystemExit) as error:
            raise InvalidHandler(f"{path}: importing {place.module} failed with {_said(error)}") from error
        else:
            return _function(path, place)
    raise InvalidHandler(f"{path}: {missing}") from missing


def _function(path: str, place: Address) -> Callable[..., Any]:
    try:
        return resolve_target(place)
    except AttributeError:
        raise InvalidHandler(f"{path}: module {place.module} has no {place.qualname}") from None


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
