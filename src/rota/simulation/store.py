"""The stores of a simulation: the user's own, which can't be written, and one that is thrown away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import apsw

from rota.compose import import_mongodb, import_postgres, is_mongodb, is_postgres, sqlite_path
from rota.errors import StoreUnusable
from rota.model.audit import AuditRuns
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import Instant
from rota.ports.store import Held, Store
from rota.ports.turns import Ending
from rota.stores.sqlite import SqliteStore, migrate
from rota.stores.sqlite.db import Db
from rota.stores.verbs.store import Hold

if TYPE_CHECKING:
    from rota.simulation.mongodb import ReadOnlyMongo
    from rota.simulation.postgres import ReadOnlyPostgres

T = TypeVar("T")
READ_ONLY = "rota-read-only"


class _ReadOnly(apsw.VFS):
    """The system's files, of which none can be written: SQLite itself then refuses every change."""

    def __init__(self) -> None:
        super().__init__(READ_ONLY, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's own name
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            flags[0] &= ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            flags[0] |= apsw.SQLITE_OPEN_READONLY
        return _ReadOnlyFile("", name, flags)


class _ReadOnlyFile(apsw.VFSFile):
    def xLock(self, level: int) -> None:  # noqa: N802 - SQLite's own name
        if level == apsw.SQLITE_LOCK_EXCLUSIVE:
            # Who closes last would tidy the log up, and needs this lock for it: not us.
            raise apsw.BusyError("this file is only read")
        super().xLock(level)


_read_only: _ReadOnly | None = None


def open_for_reading(url: str, settings: Settings) -> Store | None:
    """Open the store that a URL or path names so that nothing can change it; None if it is not there yet."""
    store: Theirs | ReadOnlyPostgres | ReadOnlyMongo
    if is_postgres(url):
        import_postgres()
        from rota.simulation.postgres import ReadOnlyPostgres  # noqa: PLC0415 - a store is imported when it is used

        store = ReadOnlyPostgres(url, settings)
    elif is_mongodb(url):
        import_mongodb()
        from rota.simulation.mongodb import ReadOnlyMongo  # noqa: PLC0415 - a store is imported when it is used

        store = ReadOnlyMongo(url, settings)
    else:
        path = sqlite_path(url)
        if not path.exists():
            return None
        global _read_only  # noqa: PLW0603 - SQLite keeps file systems by name for the whole process
        if _read_only is None:
            _read_only = _ReadOnly()
        store = Theirs(path, settings, vfs=READ_ONLY)
    try:
        there = store.exists()
    except BaseException:
        store.close()
        raise
    if there:
        return store
    store.close()
    return None


class Theirs(SqliteStore):
    """A store that is only read."""

    def exists(self) -> bool:
        """Say that it is there; refuse a schema that would have to be changed before it can be read."""
        with self._readers.take() as db:
            found = migrate.version_of(db, self.path)
        if found < migrate.latest():
            raise StoreUnusable(
                f"{self.path} has schema {found}, and a simulation does not change it: `rota stats` brings it up to {migrate.latest()}"
            )
        return True


class Vanish(StrEnum):
    """Where a worker is when its process vanishes."""

    BEFORE = "before the commit"
    AFTER = "after the commit, before the reply"


class Vanished(BaseException):
    """The process of a simulated worker is gone: nothing may catch this and go on."""


class ThrowAway(SqliteStore):
    """The real store on a file of the simulation's own: one for each worker, as if each were a process."""

    writes = 0
    """How often it wrote."""
    vanish: Vanish | None = None
    """What becomes of the next write."""

    on_recovered: Callable[[int], object] | None = None
    """Told how many jobs of a dead worker were ended."""

    def recover(
        self, endings: Sequence[Ending], held: Sequence[Held], *, now: Instant, audit_runs: str = AuditRuns.SQL
    ) -> dict[int, Status]:
        """Write recovery's moves, and tell of them."""
        changed = super().recover(endings, held, now=now, audit_runs=audit_runs)
        if changed and self.on_recovered is not None:
            self.on_recovered(len(changed))
        return changed

    def waits(self, until: Instant) -> bool:
        """Say whether a job that was due by then has not started."""
        with self._reading() as db:
            found = db.raw.execute("SELECT 1 FROM jobs WHERE due_at <= ? AND started_at IS NULL AND finished_at IS NULL LIMIT 1", (until,))
            return found.fetchone() is not None

    def crowd(self, *, crowded: bool) -> None:
        """Leave no gaps for others: the workers of a simulation take turns."""

    def _write(self, work: Callable[[Db], T], *, hold: Hold = Hold.ALL, patient: bool = False, long: bool = False) -> T:
        del hold, long
        self.writes += 1
        if self.vanish is None:
            return super()._write(work, patient=patient)
        if self.vanish is Vanish.AFTER:
            super()._write(work, patient=patient)
            raise Vanished

        def cut_short(db: Db) -> T:
            work(db)
            raise Vanished

        return super()._write(cut_short, patient=patient)
