"""The composition root: it chooses the store, the executors and the clock by what it is given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from rota.engine.clock_trust import ClockTrust
from rota.engine.meter import Meter
from rota.engine.registry import Registry
from rota.engine.requests import Serve
from rota.engine.trigger import Alert
from rota.errors import InvalidOption, StoreMoved
from rota.executors import build, check_handler
from rota.hooks import On
from rota.middleware import Middleware
from rota.model.lanes import SERVES_ALL, Serving
from rota.model.settings import Settings
from rota.model.urls import StoreUrl
from rota.model.values import Instant
from rota.ports.clock import Clock, Ids
from rota.ports.executor import App
from rota.ports.store import Store
from rota.ports.tracing import Tracing

if TYPE_CHECKING:
    from rota.engine.minder import Minder
    from rota.engine.promoting import Place
    from rota.engine.worker import Worker
    from rota.ports.liveness import Liveness
    from rota.ports.sender import Caller, Sender
    from rota.ports.wakeup import Wakeup

DEFAULT_STORE = "rota.db"


class Opened(msgspec.Struct, frozen=True):
    """A store that is ready for use, and what belongs to it on this machine."""

    store: Store
    liveness: Liveness
    log_dir: str
    wakeup: Callable[[], Wakeup] | None = None
    time: Callable[[], Instant] | None = None
    """The store's own clock, where it has one that all of its machines can see."""
    trust: ClockTrust | None = None
    """This process's trust in its clock."""


def store_url(given: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> StoreUrl:
    """Return which store is meant: what was given, else $ROTA_STORE, else ./rota.db."""
    return StoreUrl(os.fspath(given) if given is not None else environment.get("ROTA_STORE") or DEFAULT_STORE)


def open_store(url: str, settings: Settings, clock: Clock, *, moved: bool = False) -> Opened:
    """Open the store that a URL or path names, and bring its schema up to date. One that was moved is refused unless asked for."""
    if is_postgres(url):
        return _open_postgres(url, settings, clock, moved=moved)
    return _open_sqlite(sqlite_path(url), settings, clock, moved=moved)


def open_place(url: str, settings: Settings) -> Place:
    """Take the store that a URL or path names as a whole, to be copied or to be a copy."""
    from rota.engine.promoting import Place  # noqa: PLC0415 - few programs need it

    if is_postgres(url):
        import_postgres()
        from rota.stores.postgres import paths  # noqa: PLC0415 - a store is imported when it is used
        from rota.stores.postgres.address import address  # noqa: PLC0415
        from rota.stores.postgres.copying import PostgresDepot  # noqa: PLC0415

        where = address(url, settings.schema)
        return Place(PostgresDepot(url, settings), paths.locks(where, settings), paths.log_dir(where, settings))
    from rota.stores.locks import FileLocks  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.sqlite.copying import SqliteDepot  # noqa: PLC0415

    depot = SqliteDepot(sqlite_path(url), settings)
    return Place(depot, FileLocks(Path(f"{depot.url}.workers"), settings), settings.log_dir or f"{depot.url}.logs")


def is_postgres(url: str) -> bool:
    """Say whether a URL names a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def _open_sqlite(path: Path, settings: Settings, clock: Clock, *, moved: bool) -> Opened:
    from rota.stores.locks import FileLocks  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.sqlite import SqliteStore  # noqa: PLC0415
    from rota.stores.sqlite.watch import LogWatch  # noqa: PLC0415

    store = SqliteStore(path, settings)
    _migrate(store, clock, moved=moved)
    locks = FileLocks(store.workers_folder, settings)
    return Opened(store, locks, store.log_dir, partial(LogWatch, store.path), trust=ClockTrust(store, clock, settings))


def _open_postgres(url: str, settings: Settings, clock: Clock, *, moved: bool) -> Opened:
    import_postgres()
    from rota.stores.postgres import PostgresStore, paths  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.postgres.hints import Listener  # noqa: PLC0415

    store = PostgresStore(url, settings)
    _migrate(store, clock, moved=moved)
    locks, hints = paths.locks(store.address, settings), partial(Listener, store.address, settings)
    return Opened(store, locks, paths.log_dir(store.address, settings), hints, store.time, ClockTrust(store, clock, settings))


def import_postgres() -> None:
    """Import what PostgreSQL stores need, or say what to install."""
    try:
        import rota.stores.postgres  # noqa: F401, PLC0415 - a store is imported when it is used
    except ImportError as error:
        raise InvalidOption(f"a PostgreSQL store needs the driver ({error}): install rota[postgres]") from error


def grants_for(url: str, settings: Settings, role: str, *, kind: str) -> list[str]:
    """Return the statements that let a role of the database use its store."""
    if not is_postgres(url):
        raise InvalidOption("a SQLite store has no roles: who may write its file may do everything. Grants are for postgresql://…")
    import_postgres()
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
    alerts: Iterable[Alert] = (),
    direct_only: bool = False,
    check_clock: Callable[[], object] | None = None,
    meter: Meter | None = None,
    tracing: Tracing | None = None,
    app: App | None = None,
    serve: Serve | None = None,
    serving: Serving = SERVES_ALL,
) -> Worker:
    """Build a worker on an open store.

    Annotations of handlers are resolved here: one that can't be is no matter for a job. What a worker needs is imported here too: a thread
    of its own would hold the lock of an import while its process is forked, and the child could never import that module.
    """
    from rota.engine.parts import Parts  # noqa: PLC0415 - a program that only enqueues has no worker
    from rota.engine.worker import Worker  # noqa: PLC0415
    from rota.executors.locate import runs_apart  # noqa: PLC0415

    for handler in tuple(registry.handlers.values()):
        handler.codec.build()
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
        runs_apart=partial(runs_apart, app=app),
        log_dir=opened.log_dir,
        wakeup=None if inline else opened.wakeup,
        inline=inline,
        alerts=alerts,
        direct_only=direct_only,
        check_clock=check_clock,
        make_sender=None if inline else partial(make_sender, settings),
        caller=None if inline else make_caller(settings),
        meter=meter or Meter(),
        trust=opened.trust,
        tracing=tracing,
        app=app,
        middleware=Middleware() if app is None else app.middleware,
        on=On() if app is None else app.on,
        serve=serve,
        serving=serving,
    )
    return Worker(parts, concurrency=concurrency)


def make_sender(settings: Settings) -> Sender | None:
    """Return who sends messages to webhooks; None if what it needs is not installed."""
    try:
        from rota.senders.http import HttpSender  # noqa: PLC0415 - imported when there is something to send
    except ImportError:
        return None
    return HttpSender(settings)


def make_caller(settings: Settings) -> Caller | None:
    """Return who calls the URL of the pulse, None where the settings name none."""
    if not settings.pulse_url:
        return None
    try:
        from rota.senders.http import HttpSender  # noqa: PLC0415 - which few programs use
    except ImportError as error:
        raise InvalidOption(f"setting pulse_url needs an HTTP client ({error}): install rota[webhooks]") from error
    return HttpSender(settings, trusted=True)


def make_minder(opened: Opened, registry: Registry, *, clock: Clock, settings: Settings, has_worker: Callable[[], bool]) -> Minder:
    """Build what serves an open store while the process runs no worker."""
    from rota.engine.delivering import Delivering  # noqa: PLC0415 - few programs need it
    from rota.engine.minder import Minder  # noqa: PLC0415
    from rota.engine.overdue_watch import OverdueWatch  # noqa: PLC0415

    watch = OverdueWatch(opened.store, registry, clock=clock, settings=settings)
    delivering = Delivering(opened.store, partial(make_sender, settings), clock=clock, settings=settings, trust=opened.trust)
    return Minder(watch, delivering, has_worker=has_worker, clock=clock, settings=settings)


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


def look_for_handler(settings: Settings, path: str) -> Callable[..., Any] | None:
    """Return the function that a job without a template names, where it is here; refuse one that the settings don't allow."""
    from rota.executors.named import look_for_handler as look  # noqa: PLC0415 - few programs need it
    from rota.executors.named import prefixes_of  # noqa: PLC0415

    return look(path, prefixes_of(settings.handler_modules))


def sqlite_path(url: str) -> Path:
    """Return the file that a URL or path names; refuse the URL of another kind of store."""
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
