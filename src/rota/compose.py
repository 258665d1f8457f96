"""The composition root: the one place that names the adapters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from rota.engine.meter import Meter
from rota.engine.parts import Parts
from rota.engine.promoting import Place
from rota.engine.registry import Registry
from rota.engine.trigger import Alert
from rota.engine.worker import Worker
from rota.errors import InvalidOption, StoreMoved
from rota.executors import build, check_handler, runs_apart
from rota.model.settings import Settings
from rota.model.urls import StoreUrl
from rota.model.values import Instant
from rota.ports.clock import Clock, Ids
from rota.ports.liveness import Liveness
from rota.ports.sender import Sender
from rota.ports.store import Store
from rota.ports.tracing import Tracing
from rota.ports.wakeup import Wakeup
from rota.stores.locks import FileLocks

DEFAULT_STORE = "rota.db"


class Opened(msgspec.Struct, frozen=True):
    """A store that is ready for use, and what belongs to it on this machine."""

    store: Store
    liveness: Liveness
    log_dir: str
    wakeup: Callable[[], Wakeup] | None = None
    time: Callable[[], Instant] | None = None
    """The store's own clock, where it has one that all of its machines can see."""


def store_url(given: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> StoreUrl:
    """Return which store is meant: what was given, else $ROTA_STORE, else ./rota.db."""
    return StoreUrl(os.fspath(given) if given is not None else environment.get("ROTA_STORE") or DEFAULT_STORE)


def open_store(url: str, settings: Settings, clock: Clock, *, moved: bool = False) -> Opened:
    """Open the store that a URL or path names, and bring its schema up to date. One that was moved is refused unless asked for."""
    if is_postgres(url):
        return _open_postgres(url, settings, clock, moved=moved)
    return _open_sqlite(_sqlite_path(url), settings, clock, moved=moved)


def open_place(url: str, settings: Settings) -> Place:
    """Take the store that a URL or path names as a whole, to be copied or to be a copy."""
    if is_postgres(url):
        _import_postgres()
        from rota.stores.postgres import places  # noqa: PLC0415 - a store is imported when it is used
        from rota.stores.postgres.address import address  # noqa: PLC0415
        from rota.stores.postgres.copying import PostgresDepot  # noqa: PLC0415

        where = address(url, settings.schema)
        log_dir = settings.log_dir or str(places.log_folder(where))
        return Place(PostgresDepot(url, settings), FileLocks(places.workers_folder(where)), log_dir)
    from rota.stores.sqlite.copying import SqliteDepot  # noqa: PLC0415 - a store is imported when it is used

    depot = SqliteDepot(_sqlite_path(url), settings)
    return Place(depot, FileLocks(Path(f"{depot.url}.workers")), settings.log_dir or f"{depot.url}.logs")


def is_postgres(url: str) -> bool:
    """Say whether a URL names a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def _open_sqlite(path: Path, settings: Settings, clock: Clock, *, moved: bool) -> Opened:
    from rota.stores.sqlite import SqliteStore  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.sqlite.watch import LogWatch  # noqa: PLC0415

    store = SqliteStore(path, settings)
    _migrate(store, clock, moved=moved)
    log_dir = settings.log_dir or f"{store.path}.logs"
    return Opened(store, FileLocks(store.workers_folder), log_dir, partial(LogWatch, store.path))


def _open_postgres(url: str, settings: Settings, clock: Clock, *, moved: bool) -> Opened:
    _import_postgres()
    from rota.stores.postgres import PostgresStore, places  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.postgres.hints import Listener  # noqa: PLC0415

    store = PostgresStore(url, settings)
    _migrate(store, clock, moved=moved)
    log_dir = settings.log_dir or str(places.log_folder(store.address))
    locks, hints = FileLocks(places.workers_folder(store.address)), partial(Listener, store.address, settings)
    return Opened(store, locks, log_dir, hints, store.time)


def _import_postgres() -> None:
    try:
        import rota.stores.postgres  # noqa: F401, PLC0415 - a store is imported when it is used
    except ImportError as error:
        raise InvalidOption(f"a PostgreSQL store needs the driver ({error}): install rota[postgres]") from error


def grants_for(url: str, settings: Settings, role: str, *, kind: str) -> list[str]:
    """Return the statements that let a role of the database use its store."""
    if not is_postgres(url):
        raise InvalidOption("a SQLite store has no roles: who may write its file may do everything. Grants are for postgresql://…")
    _import_postgres()
    from rota.stores.postgres import grants  # noqa: PLC0415 - a store is imported when it is used

    return grants.statements(kind, role, settings.schema)


def _migrate(store: Store, clock: Clock, *, moved: bool) -> None:
    try:
        store.migrate(now=clock.now())
    except BaseException as error:
        if moved and isinstance(error, StoreMoved):
            return
        store.close()
        raise


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
    check_clock: Callable[[], object] | None = None,
    meter: Meter | None = None,
    tracing: Tracing | None = None,
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
        runs_apart=runs_apart,
        log_dir=opened.log_dir,
        wakeup=None if inline else opened.wakeup,
        inline=inline,
        alerts=alerts,
        fires=fires,
        check_clock=check_clock,
        make_sender=None if inline else partial(make_sender, settings),
        meter=meter or Meter(),
        tracing=tracing,
    )
    return Worker(parts, concurrency=concurrency)


def make_sender(settings: Settings) -> Sender | None:
    """Return who sends messages to webhooks; None if what it needs is not installed."""
    try:
        from rota.senders.http import HttpSender  # noqa: PLC0415 - imported when there is something to send
    except ImportError:
        return None
    return HttpSender(settings)


def make_tracing(settings: Settings) -> Tracing | None:
    """Return how jobs are traced, None where the settings don't ask for it."""
    if settings.traces == "off":
        return None
    try:
        from rota.executors.traces import OpenTelemetry  # noqa: PLC0415 - which few programs use
    except ImportError as error:
        raise InvalidOption(f"setting traces='on' needs OpenTelemetry ({error}): install rota[traces]") from error
    return OpenTelemetry()


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
        raise InvalidOption(
            f"{scheme}:// is not a store this Rota can open: give a path, sqlite:///path or postgresql://user@host/database"
        )
    if not url:
        raise InvalidOption("the store's path is empty: give a path such as rota.db")
    return Path(url)
