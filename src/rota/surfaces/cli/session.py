"""From what the command line names to a Rota: the application it loads, the store it opens, the actor it speaks for."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING

from rota.errors import InvalidOption, NotFound
from rota.model.gate import LOCAL, Actor, Role
from rota.operation import session_of
from rota.surfaces.cli.tree import named

if TYPE_CHECKING:
    from rota.app import Rota

DEFAULT_ATTRIBUTE = "rota"
PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"
"""Where Rota itself is installed."""


@contextmanager
def session(store: str | None, *, app: str | None = None, make: bool = False) -> Iterator[Rota]:
    """Open a Rota for the time of a command. A store that is not there is refused unless `make` or an application is given."""
    rota = rota_of(store, app)
    path = path_of(session_of(rota).where)
    if app is None and not make and path is not None and not path.exists():
        # A question must not make an empty store.
        raise NotFound(f"there is no store at {path.absolute()}: `rota up` makes one; --store or $ROTA_STORE names another")
    try:
        yield rota
    finally:
        rota.close()


def rota_of(store: str | None, app: str | None = None) -> Rota:
    """Return a Rota: that of the application `module:attr`, on another store if one is given; without an application that of the store."""
    from rota.app import Rota  # noqa: PLC0415 - a page of help needs none, and the engine takes as long to import as all of the command line

    if app is None:
        return Rota(store)
    module, attribute = import_app(app)
    found = getattr(module, attribute, None)
    if found is None:
        raise InvalidOption(f"--app {app}: module {module.__name__!r} has no attribute {attribute!r}{_candidates(module)}")
    if not isinstance(found, Rota):
        kind = type(found).__name__
        article = "an" if kind[0].lower() in "aeiou" else "a"
        raise InvalidOption(f"--app {app}: {attribute!r} is {article} {kind}, not a Rota{_candidates(module)}")
    if store is not None:
        found.close()
        session_of(found).name_store(store)
    return found


def demo_of(app: str) -> Callable[[Rota], object]:
    """Return the function `demo` that stands beside an application's Rota."""
    module, _ = import_app(app)
    demo = getattr(module, "demo", None)
    if not callable(demo):
        raise InvalidOption(f"--demo: module {module.__name__!r} has no function demo(rota) that enqueues something to look at")
    found: Callable[[Rota], object] = demo
    return found


def import_app(app: str) -> tuple[ModuleType, str]:
    """Import the module of `module:attr`, with the current directory on the path; say clearly why it can't be."""
    name, _, attribute = app.partition(":")
    if not name or name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").strip("./").replace("/", ".") or "module"
        raise InvalidOption(f"--app {app}: give a module, not a file, as in --app {module}:{attribute or DEFAULT_ATTRIBUTE}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name), attribute or DEFAULT_ATTRIBUTE
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidOption(f"--app {app}: there is no module {error.name!r}, looked for from {here}") from None
        raise InvalidOption(f"--app {app}: {_why(error)}") from error
    except (Exception, SystemExit) as error:
        raise InvalidOption(f"--app {app}: {_why(error)}") from error


def path_of(url: str) -> Path | None:
    """Return the file a store lives in; None for what is no file."""
    text = url.removeprefix("sqlite:///")
    return Path(text) if text and "://" not in text else None


def store_name(rota: Rota) -> str:
    """Return how a store is named to people: the whole path of a file, or its URL."""
    path = path_of(rota.store.url)
    return rota.store.url if path is None else str(path.absolute())


def actor() -> Actor | str:
    """Return who asks: the user named by --as, else by $ROTA_ACTOR, whom the store knows; else the user at the operating system.

    Whoever can open the store's file is its manager: there the name is only recorded.
    """
    name = named.get()
    if name is not None:
        return name
    name = os.environ.get("ROTA_ACTOR", "").strip()
    if name:
        return name
    try:
        return Actor(getpass.getuser(), role=Role.MANAGER)
    except (KeyError, OSError):
        return LOCAL


def _why(error: BaseException) -> str:
    frames = extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    # What Rota refuses was written by the program: its line is named, and not that of the check.
    theirs = [frame for frame in theirs if not frame.filename.startswith(PACKAGE)] or theirs
    where = f" ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})" if theirs else ""
    return f"importing it failed with {type(error).__name__}: {str(error) or 'no message'}{where}"


def _candidates(module: ModuleType) -> str:
    from rota.app import Rota  # noqa: PLC0415 - as in `rota_of`

    names = [name for name, value in vars(module).items() if isinstance(value, Rota)]
    return f"; its Rota is {module.__name__}:{names[0]}" if names else ""
