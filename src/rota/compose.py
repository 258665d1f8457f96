"""The composition root: it chooses the store, the executors and the clock by what it is given."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rota.engine.clock_trust import ClockTrust
from rota.engine.log_reader import LogReader
from rota.engine.registry import Registry
from rota.errors import InvalidOption, StoreMoved
from rota.executors import check_handler
from rota.model.checks import extra
from rota.model.findings import Finding, problem
from rota.model.handler import Handler, kind_handler
from rota.model.kinds import EXTERNAL_TYPE, sql_type
from rota.model.schedules import JobKind
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.model.webhooks import sealing_key
from rota.ports.clock import Clock
from rota.ports.store import Store
from rota.ports.tracing import Tracing

if TYPE_CHECKING:
    from rota.engine.store_copy import Place
    from rota.ports.liveness import Liveness
    from rota.ports.runner import Checker, Runner
    from rota.ports.sender import Caller, Sender
    from rota.ports.wakeup import Wakeup
    from rota.stores.mongodb import MongoStore
    from rota.stores.mongodb.copying import MongoDepot
    from rota.stores.postgres import PostgresStore
    from rota.stores.postgres.copying import PostgresDepot
    from rota.vault import MasterKeys


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
    ships_logs: bool = False
    """Logs of runs are kept in the store, and files in `log_dir` are on their way there."""

    def logs(self, settings: Settings) -> LogReader:
        """Return what reads the logs of runs."""
        return LogReader(self.store, self.log_dir, in_store=self.ships_logs, shared=bool(settings.log_dir))


def open_store(url: str, settings: Settings, clock: Clock, *, moved: bool = False) -> Opened:
    """Open the store that a URL or path names, and bring its schema up to date. One that was moved is refused unless asked for."""
    if not has_clock(url):
        return _open_sqlite(sqlite_path(url), settings, clock, moved=moved)
    open_server = _open_postgres if is_postgres(url) else _open_mongodb
    return open_server(url, settings, clock, moved=moved)


def open_place(url: str, settings: Settings) -> Place:
    """Take the store that a URL or path names as a whole, to be copied or to be a copy."""
    from rota.engine.store_copy import Place  # noqa: PLC0415 - few programs need it

    if is_postgres(url):
        import_postgres()
        from rota.stores.postgres.copying import PostgresDepot  # noqa: PLC0415 - a store is imported when it is used

        return _place(PostgresDepot(url, settings), settings)
    if is_mongodb(url):
        import_mongodb()
        from rota.stores.mongodb.copying import MongoDepot  # noqa: PLC0415 - a store is imported when it is used

        return _place(MongoDepot(url, settings), settings)
    from rota.stores.locks import FileLocks  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.sqlite.copying import SqliteDepot  # noqa: PLC0415

    depot = SqliteDepot(sqlite_path(url), settings)
    log_dir = settings.log_dir or f"{depot.url}.logs" if settings.run_logs != "store" else None
    return Place(depot, FileLocks(Path(f"{depot.url}.workers"), settings), log_dir)


def _place(depot: PostgresDepot | MongoDepot, settings: Settings) -> Place:
    """Return a store on servers as a whole, with what belongs to it on this machine."""
    from rota.engine.store_copy import Place  # noqa: PLC0415 - few programs need it
    from rota.stores import paths  # noqa: PLC0415 - a store is imported when it is used

    name = depot.address.name
    return Place(depot, paths.locks(name, settings), paths.log_dir(name, settings) if settings.run_logs == "folder" else None)


def is_postgres(url: str) -> bool:
    """Say whether a URL names a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def is_mongodb(url: str) -> bool:
    """Say whether a URL names a MongoDB database."""
    return url.startswith(("mongodb://", "mongodb+srv://"))


def has_clock(url: str) -> bool:
    """Say whether a URL names a store whose clock all of its machines can see."""
    return url.startswith(("postgresql://", "postgres://", "mongodb://", "mongodb+srv://"))


def _open_sqlite(path: Path, settings: Settings, clock: Clock, *, moved: bool) -> Opened:
    from rota.stores.locks import FileLocks  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.sqlite import SqliteStore  # noqa: PLC0415
    from rota.stores.sqlite.watch import LogWatch  # noqa: PLC0415

    store = SqliteStore(path, settings)
    _migrate(store, clock, moved=moved)
    locks = FileLocks(store.workers_folder, settings)
    watch, trust = partial(LogWatch, store.path), ClockTrust(store, clock, settings)
    return Opened(store, locks, store.log_dir, watch, trust=trust, ships_logs=settings.run_logs == "store")


def _open_postgres(url: str, settings: Settings, clock: Clock, *, moved: bool) -> Opened:
    import_postgres()
    from rota.stores.postgres import PostgresStore  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.postgres.notices import listener  # noqa: PLC0415

    store = PostgresStore(url, settings)
    _migrate(store, clock, moved=moved)
    return _opened(store, store.address.name, partial(listener, store.address, settings), settings, clock)


def _open_mongodb(url: str, settings: Settings, clock: Clock, *, moved: bool) -> Opened:
    import_mongodb()
    from rota.stores.mongodb import MongoStore  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.mongodb.notices import listener  # noqa: PLC0415

    store = MongoStore(url, settings)
    _migrate(store, clock, moved=moved)
    return _opened(store, store.address.name, partial(listener, store.address, settings), settings, clock)


def _opened(store: PostgresStore | MongoStore, name: str, hints: Callable[[], Wakeup], settings: Settings, clock: Clock) -> Opened:
    """Return a store on servers, with what belongs to it on this machine."""
    from rota.stores import paths  # noqa: PLC0415 - a store is imported when it is used

    locks, log_dir = paths.locks(name, settings), paths.log_dir(name, settings)
    return Opened(store, locks, log_dir, hints, store.time, ClockTrust(store, clock, settings), ships_logs=settings.run_logs != "folder")


def import_postgres() -> None:
    """Import what PostgreSQL stores need, or say what to install."""
    try:
        import rota.stores.postgres  # noqa: F401, PLC0415 - a store is imported when it is used
    except ImportError as error:
        raise InvalidOption(f"a PostgreSQL store needs the driver ({error}): {extra('postgres')}") from error


def import_mongodb() -> None:
    """Import what MongoDB stores need, or say what to install."""
    try:
        import rota.stores.mongodb  # noqa: F401, PLC0415 - a store is imported when it is used
    except ImportError as error:
        raise InvalidOption(f"a MongoDB store needs the driver ({error}): {extra('mongodb')}") from error


def grants_for(url: str, settings: Settings, role: str, *, kind: str) -> list[str]:
    """Return the statements that let a role of the database use its store."""
    if is_mongodb(url):
        return _mongodb_grants(url, role, kind)
    if not is_postgres(url):
        raise InvalidOption(
            "a SQLite store has no roles: who may write its file may do everything. Grants are for postgresql://… and mongodb://…"
        )
    import_postgres()
    from rota.stores.postgres import grants  # noqa: PLC0415 - a store is imported when it is used

    return grants.statements(kind, role, settings.schema)


def _mongodb_grants(url: str, role: str, kind: str) -> list[str]:
    import_mongodb()
    from rota.stores.mongodb import grants  # noqa: PLC0415 - a store is imported when it is used
    from rota.stores.mongodb.address import address  # noqa: PLC0415

    return grants.statements(kind, role, address(url).database)


def _migrate(store: Store, clock: Clock, *, moved: bool) -> None:
    try:
        store.migrate(now=clock.now())
    except BaseException as error:
        if moved and isinstance(error, StoreMoved):
            return
        store.close()
        raise


def make_sender(settings: Settings) -> Sender | None:
    """Return who sends messages to webhooks; None if what it needs is not installed."""
    try:
        from rota.senders.http import HttpSender  # noqa: PLC0415 - imported when there is something to send
    except ImportError:
        return None
    return HttpSender(settings, open_secret=partial(open_signing_secret, settings))


@lru_cache(maxsize=8)
def master_keys(settings: Settings) -> MasterKeys:
    """Return the master keys that a process with these settings has."""
    from rota.vault import MasterKeys  # noqa: PLC0415 - few programs have secrets

    return MasterKeys(settings, os.environ)


def open_signing_secret(settings: Settings, owner: str, text: str) -> str:
    """Return a secret that signs webhooks from what the store keeps; most are not encrypted."""
    if sealing_key(text) is None:
        return text
    from rota.vault import open_signing  # noqa: PLC0415 - few programs have secrets

    return open_signing(master_keys(settings).keyring(), owner, text)


def make_caller(settings: Settings) -> Caller | None:
    """Return who calls the URL of the pulse, None where the settings name none."""
    if not settings.pulse_url:
        return None
    try:
        from rota.senders.http import HttpSender  # noqa: PLC0415 - which few programs use
    except ImportError as error:
        raise InvalidOption(f"setting pulse_url needs an HTTP client ({error}): {extra('webhooks')}") from error
    return HttpSender(settings, trusted=True)


def _key_files(settings: Settings) -> list[str]:
    """Return where the master keys of this process may be."""
    from rota.vault.keyring import key_files  # noqa: PLC0415 - few programs have secrets

    return key_files(settings, os.environ)


def make_checker(settings: Settings, store: str) -> Checker:
    """Return who asks the databases of connections about a login or a text, without running anything."""
    from rota.runners.sql import SqlRunner  # noqa: PLC0415 - imported when a database is asked

    return SqlRunner(settings, store)


def make_runners(settings: Settings, store: str) -> dict[str, Callable[[], Runner]]:
    """Return what makes the runners of all kinds that a worker with these settings serves. Commands are off unless a file allows some."""

    def sql() -> Runner:
        from rota.runners.sql import SqlRunner  # noqa: PLC0415 - imported when the first SQL job runs

        return SqlRunner(settings, store)

    runners: dict[str, Callable[[], Runner]] = {JobKind.SQL: sql, JobKind.PROCEDURE: sql}
    if settings.external_file:
        from rota.runners.external import ExternalRunner, load_config, refuse_exposed  # noqa: PLC0415 - few workers run commands

        # A file that can't be trusted is refused when the worker starts, not when the first command is due.
        config = load_config(settings.external_file)
        refuse_exposed(config, store, _key_files(settings))
        runners[JobKind.EXTERNAL] = lambda: ExternalRunner(config, settings, store, key_files=partial(_key_files, settings))
    return runners


def command_findings(settings: Settings, store: str) -> Sequence[Finding]:
    """Describe which commands a worker with these settings runs, and how they are confined."""
    if not settings.external_file:
        return ()
    from rota.runners.external import ExternalRunner, load_config  # noqa: PLC0415 - few workers run commands

    try:
        return ExternalRunner(load_config(settings.external_file), settings, store, key_files=partial(_key_files, settings)).report()
    except InvalidOption as error:
        return [problem("commands", f"no worker with these settings starts: {error}", "correct the file, then start the workers again")]


def serve_kinds(registry: Registry, runners: Collection[str]) -> None:
    """Let a worker's registry have a handler for each type of the kinds that it serves, now and whenever definitions change."""

    def handlers(known: Registry) -> dict[str, Handler]:
        types = {sql_type(*key) for key in known.connections} if JobKind.SQL in runners else set()
        types |= {EXTERNAL_TYPE} if JobKind.EXTERNAL in runners else set()
        types |= {each.name for each in known.known() if each.record is not None and each.record.kind in runners}
        return {job_type: kind_handler(job_type) for job_type in types}

    registry.serve_kinds(handlers)


def guard_process() -> None:
    """Keep other processes of this user from reading the memory of this one: it is about to hold secrets."""
    from rota.runners.external.kernel import guard_process as guard  # noqa: PLC0415 - few programs have secrets

    guard()


def make_tracing() -> Tracing:
    """Return how jobs are traced where the settings ask for it."""
    try:
        from rota.executors.traces import OpenTelemetry  # noqa: PLC0415 - which few programs use
    except ImportError as error:
        raise InvalidOption(f"setting traces='on' needs OpenTelemetry ({error}): {extra('traces')}") from error
    return OpenTelemetry()


def import_named(registry: Registry, store: Store, settings: Settings, clock: Clock) -> None:
    """Let a worker's registry import the handlers that templates name, now and whenever they change, from where the settings allow it."""
    if not settings.handler_modules:
        return
    from rota.executors.locate import find_handler, prefixes_of  # noqa: PLC0415 - few workers need it

    find = partial(find_handler, prefixes=prefixes_of(settings.handler_modules))
    registry.serve(find, check_handler, store, clock.now())


def sqlite_path(url: str) -> Path:
    """Return the file that a URL or path names; refuse the URL of another kind of store."""
    path = url.removeprefix("sqlite:///")
    scheme, found, _ = path.partition("://")
    if found and path == url:
        raise InvalidOption(
            f"{scheme}:// is not a store this Rota can open: give a path, sqlite:///path, postgresql://user@host/database or mongodb://user@host/database"
        )
    if not url:
        raise InvalidOption("the store's path is empty: give a path such as rota.db")
    return Path(path)
