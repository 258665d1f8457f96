"""Connections to one SQLite file: how they are opened, whether it is still the same file, and how the driver's errors become ours."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from rota.errors import (
    AnswerLost,
    IllegalMove,
    InvalidParams,
    RotaError,
    StoreBusy,
    StoreError,
    StoreFileLost,
    StoreMoved,
    StoreUnavailable,
    StoreUnusable,
)
from rota.stores.sqlite.db import Db
from rota.stores.verbs.db import is_moved

OLDEST_SQLITE = (3, 51, 3)
OPEN_TIMEOUT_S = 10.0
"""How long opening a file waits for another process that is making it."""
_stat = os.stat  # at each commit and each read, where a Path would take longer
REMEDY = "put the file back where it was, with its -wal file, or restart this process if the change is meant"
NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.glusterfs"}


def check_sqlite_version() -> None:
    """Refuse a SQLite that carries the WAL-reset bug."""
    found = apsw.sqlite_lib_version()
    if tuple(int(part) for part in found.split(".")[:3]) < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnusable(f"SQLite {found} can corrupt a write-ahead log that is reset; Rota needs {wanted} or later: upgrade apsw")


def check_path(path: Path) -> None:
    """Refuse what can't become a database, before anything is touched."""
    if path.is_dir():
        raise StoreUnusable(f"{path} is a directory: give the path of a file, such as {path / 'rota.db'}")
    folder = path.parent
    if not folder.is_dir():
        raise StoreUnusable(f"the folder {folder} does not exist: make it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreUnusable(f"{path} is not writable: change its permissions or give another path")
    if not os.access(folder, os.W_OK):
        raise StoreUnusable(
            f"{folder} is not writable, and SQLite keeps its log beside the file: change its permissions or give another path"
        )
    kind = file_system(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnusable(f"{folder} is on a network file system ({kind}), where SQLite's locks can't be trusted: use a local disk")


def open_connection(
    path: Path, *, synchronous: str, wal_pages: int, vfs: str | None = None, check: Callable[[Db], object] | None = None
) -> apsw.Connection:
    """Open the file with the settings that every connection of this store has. `check` may refuse it before it is changed."""
    try:
        # The file is there already, with the permissions it shall have: SQLite would make it readable by everybody.
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        connection.set_busy_timeout(round(OPEN_TIMEOUT_S * 1000))
        # The plan never depends on the values bound: otherwise SQLite prepares most statements anew at each call.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if check is not None and connection.pragma("journal_mode") != "wal":
            _refuse(connection, check)
        _switch_to_wal(connection)
        connection.pragma("synchronous", synchronous)
        connection.pragma("foreign_keys", 1)
        connection.pragma("cache_size", -32_000)
        connection.pragma("temp_store", "memory")
        connection.wal_autocheckpoint(wal_pages)
    except apsw.Error as error:
        raise translate(error, path) from error
    return connection


def _switch_to_wal(connection: apsw.Connection) -> None:
    """Switch a new file to WAL. SQLite may answer busy at once while another process does the same: ask again."""
    end = time.monotonic() + OPEN_TIMEOUT_S
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.005)


def _refuse(connection: apsw.Connection, check: Callable[[Db], object]) -> None:
    try:
        check(Db(connection))
    except BaseException:
        connection.close()
        raise


class Readers:
    """A few connections for reading, handed out one to a caller. WAL readers wait for nobody."""

    def __init__(self, open_one: Callable[[], apsw.Connection], check: Callable[[], object]) -> None:
        """Take the function that opens one, and the one that refuses to read from a file that is not the store's any more."""
        self._open = open_one
        self._check = check
        self._idle: list[Db] = []
        self._lent: set[object] = set()
        self._change = threading.Condition()
        self._still = False
        self._closed = False

    @contextmanager
    def take(self) -> Iterator[Db]:
        """Lend a connection for a block of reads."""
        ticket, db = object(), None
        try:
            db = self._lend(ticket)
            if db is None:
                db = Db(self._open())
            else:
                self._check()
            yield db
        except apsw.Error as error:
            # A file that is lost explains whatever the driver met in it.
            self._check()
            raise translate(error) from error
        finally:
            try:
                self._take_back(ticket, db)
            except BaseException:
                # A signal may strike here too, and a fork would wait for this one for ever.
                self._take_back(ticket, db)
                raise

    def _lend(self, ticket: object) -> Db | None:
        with self._change:
            while self._still:
                self._change.wait()
            if self._closed:
                raise StoreError("the store is closed")
            self._lent.add(ticket)
            return self._idle.pop() if self._idle else None

    def _take_back(self, ticket: object, db: Db | None) -> None:
        with self._change:
            if ticket in self._lent:
                self._lent.remove(ticket)
                if db is not None:
                    self._idle.append(db)
            if self._closed:
                self._close_idle()
            self._change.notify_all()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Wait for those that are lent, close them all, and lend none while the block lasts.

        The lock is held all the time: in a forked child nobody would ever give back what another thread has.
        """
        with self._change:
            self._still = True
            self._change.wait_for(lambda: not self._lent)
            self._close_idle()
            try:
                yield
            finally:
                self._still = False
                self._change.notify_all()

    def close(self) -> None:
        """Close the idle ones now, those that are lent when they come back."""
        with self._change:
            self._closed = True
            self._close_idle()

    def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for db in idle:
            db.raw.close()


class Identity:
    """The device and inode of one store's file, taken when its first connection is opened.

    SQLite keeps writing to a file that was deleted or renamed, and in WAL mode it does not look: each commit does so here.
    """

    __slots__ = ("_device", "_inode", "_path")

    def __init__(self, path: Path) -> None:
        """Know nothing yet."""
        self._path = os.fspath(path)
        self._device = self._inode = -1

    def opened(self, open_one: Callable[[], apsw.Connection]) -> apsw.Connection:
        """Open a connection, and make sure that it is one to this file."""
        known = self._inode != -1
        if known:
            self.check()
        before = self._at_path()
        connection = open_one()
        try:
            # SQLite compares its own descriptor with the path. So no exchange between the two looks goes unnoticed.
            if before is None or self._at_path() != before or Moved(connection)():
                raise self.lost()
            if known:
                self.check()
        except BaseException:
            connection.close()
            raise
        self._device, self._inode = before
        return connection

    def check(self) -> None:
        """Raise if the file at the path is another one, or none."""
        try:
            found = _stat(self._path)
        except OSError:
            raise self.lost() from None
        if found.st_ino != self._inode or found.st_dev != self._device:
            raise self.lost()

    def lost(self, *, committed: bool = False) -> StoreFileLost | AnswerLost:
        """Return the error for a file that is lost; `committed` says that the write was made before this was noticed."""
        what = "another file is at its path now" if os.path.exists(self._path) else "it was deleted or renamed"  # noqa: PTH110 - a text
        if committed:
            return AnswerLost(
                f"the store's file {self._path} was lost during this write: {what}. The write is only in the file that was moved"
                f" away: {REMEDY} and repeat the call"
            )
        return StoreFileLost(f"the store's file {self._path} is not the one that was opened: {what}. Nothing was written: {REMEDY}")

    def _at_path(self) -> tuple[int, int] | None:
        try:
            found = _stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


class Moved:
    """Asks SQLite whether the file that a connection has open is still at its path. For one thread at a time.

    This takes a quarter of the time of a look from Python, but sees only inodes, and no change of a symbolic link.
    """

    __slots__ = ("_address", "_answer", "_ask")

    def __init__(self, connection: apsw.Connection) -> None:
        """Ask this connection."""
        self._answer = ctypes.c_int(0)
        self._address = ctypes.addressof(self._answer)
        self._ask = connection.file_control

    def __call__(self) -> bool:
        """Say whether it is another file that is there now, or none."""
        self._ask("main", apsw.SQLITE_FCNTL_HAS_MOVED, self._address)
        return self._answer.value != 0


@contextmanager
def translated(path: Path | None = None, check: Callable[[], object] | None = None) -> Iterator[None]:
    """Turn the driver's errors into ours, the driver's as the cause. `check` raises what explains any of them."""
    try:
        yield
    except apsw.Error as error:
        if check is not None:
            check()
        raise translate(error, path) from error


def translate(error: apsw.Error, path: Path | None = None) -> RotaError:
    """Return our error for one of the driver's."""
    where = f" ({path})" if path else ""
    if isinstance(error, apsw.NotADBError):
        return StoreUnusable(f"the store is not a SQLite database{where}: give another path; nothing was changed")
    if isinstance(error, apsw.CorruptError):
        return StoreUnusable(f"the store is damaged{where}: {error}. Restore it from a backup")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(f"the store is locked by another process{where}: {error}")
    if isinstance(error, apsw.ConstraintError) and is_moved(error):
        return StoreMoved(str(error).removeprefix("ConstraintError: "))
    if isinstance(error, apsw.ConstraintError):
        return IllegalMove(str(error).removeprefix("ConstraintError: "))
    if isinstance(error, apsw.SQLError) and "malformed JSON" in str(error):
        return InvalidParams("params are nested too deeply: at most 1,000 levels")
    if isinstance(error, apsw.FullError | apsw.IOError | apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError | apsw.NoMemError):
        return StoreUnavailable(
            f"the store could not be read or written{where}: {error}. Nothing was changed; see disk space and permissions"
        )
    return StoreError(f"{type(error).__name__}: {error}")


def file_system(folder: Path) -> str | None:
    """Return the type of the file system a folder is on, where the system tells."""
    best, kind = "", None
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return None
    resolved = f"{folder.resolve()}/"
    for line in mounts:
        _, point, name, *_ = line.split(" ")
        prefix = point.rstrip("/") + "/"
        if resolved.startswith(prefix) and len(prefix) > len(best):
            best, kind = prefix, name
    return kind
