"""The composition root: the one place that names the adapters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from rota.engine.parts import Parts
from rota.engine.registry import Registry
from rota.engine.trigger import Alert
from rota.engine.worker import Worker
from rota.errors import InvalidOption
from rota.executors import build, check_handler
from rota.model.settings import Settings
from rota.ports.clock import Clock, Ids
from rota.ports.liveness import Liveness
from rota.ports.store import Store
from rota.ports.wakeup import Wakeup

DEFAULT_STORE = "rota.db"


class Opened(msgspec.Struct, frozen=True):
    """A store that is ready for use, and what belongs to it on this machine."""

    store: Store
    liveness: Liveness
    log_dir: str
    wakeup: Callable[[], Wakeup] | None = None


def store_url(given: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> str:
    """Return which store is meant: what was given, else $ROTA_STORE, else ./rota.db."""
    return os.fspath(given) if given is not None else environment.get("ROTA_STORE") or DEFAULT_STORE


def open_store(url: str, settings: Settings, clock: Clock) -> Opened:
    """Open the store that a URL or path names, and bring its schema up to date."""
    path = _sqlite_path(url)
    from rota.stores.sqlite import SqliteStore  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.sqlite.locks import FileLocks  # noqa: PLC0415
    from rota.stores.sqlite.watch import LogWatch  # noqa: PLC0415

    store = SqliteStore(path, settings)
    try:
        store.migrate(now=clock.now())
    except BaseException:
        store.close()
        raise
    return Opened(store, FileLocks(store.path), f"{store.path}.logs", partial(LogWatch, store.path))


def make_worker(
    opened: Opened,
    registry: Registry,
    *,
    clock: Clock,
    ids: Ids,
    rng: Random,
    settings: Settings,
    concurrency: int,
    inline: bool = False,
    alerts: Sequence[Alert] = (),
    fires: bool = True,
) -> Worker:
    """Build a worker on an open store."""
    parts = Parts(
        store=opened.store,
        liveness=opened.liveness,
        clock=clock,
        ids=ids,
        rng=rng,
        settings=settings,
        handlers=registry.handlers,
        registry=registry,
        build_executor=build,
        log_dir=opened.log_dir,
        wakeup=None if inline else opened.wakeup,
        inline=inline,
        alerts=alerts,
        fires=fires,
    )
    return Worker(parts, concurrency=concurrency)


def import_named(registry: Registry, store: Store, settings: Settings, clock: Clock) -> None:
    """Let a worker's registry import the handlers that templates name, now and whenever they change, from where the settings allow it."""
    if not settings.handler_modules:
        return
    from rota.executors.named import find_handler, prefixes_of  # noqa: PLC0415 - few workers need it

    find = partial(find_handler, prefixes=prefixes_of(settings.handler_modules))
    registry.serve(find, check_handler, store, clock.now())


def _sqlite_path(url: str) -> Path:
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///"))
    scheme, found, _ = url.partition("://")
    if found:
        raise InvalidOption(f"{scheme}:// is not a store this Rota can open: give a path or sqlite:///path")
    if not url:
        raise InvalidOption("the store's path is empty: give a path such as rota.db")
    return Path(url)
