"""How a handler that only a template names is found: imported, but from nowhere else than the settings allow.

Whoever may write templates names functions that workers then call. So the module must be under one of the prefixes, and so
must the function's own: `shop.jobs:os.system` is no way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from rota.errors import InvalidHandler
from rota.executors.locate import resolve_target
from rota.executors.wire import Address
from rota.model.handler import function_of


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
