"""Connections to one SQLite file: how they are opened, and how the driver's errors become ours."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from rota.errors import IllegalMove, InvalidParams, RotaError, StoreBusy, StoreError, StoreMoved, StoreUnavailable, StoreUnusable
from rota.model.values import Claimed, Instant
from rota.stores.sqlite.statements import Statement, candidates, candidates_of_many, over_source, statement
from rota.stores.verbs.db import is_moved

ARMS_MAX = 100
"""A claim of more lanes than this is another query. The driver keeps no statement prepared that has over 16,384 characters: 115 arms."""
OLDEST_SQLITE = (3, 51, 3)
OPEN_TIMEOUT_S = 10.0
"""How long opening a file waits for another process that is making it."""
NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.glusterfs"}


_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE)\b")
_encode = msgspec.json.Encoder().encode
_claimed = msgspec.json.Decoder(list[Claimed])
_numbers = msgspec.json.Decoder(list[int])


class Db:
    """One connection and the named statements on it: see `rota.stores.verbs.db`."""

    __slots__ = ("_told", "raw")
    conflict: tuple[type[Exception], ...] = (apsw.ConstraintError,)
    ends_apart = False
    refused: tuple[type[Exception], ...] = (apsw.ConstraintError, apsw.TooBigError)
    unwritable: tuple[type[Exception], ...] = (apsw.ConstraintError, apsw.SQLError, apsw.TooBigError, ValueError, TypeError, KeyError)

    def __init__(self, raw: apsw.Connection) -> None:
        """Wrap an open connection."""
        self.raw = raw
        self._told = 0
        raw.create_scalar_function("told", self._tell, 1)  # type: ignore[arg-type] # it is called with the one value

    def _tell(self, value: int) -> int:
        """Take note of a value that a statement comes by."""
        self._told = value
        return value

    def _run(self, what: Statement, values: dict[str, Any]) -> apsw.Cursor:
        return self.raw.execute(what.text, what.values(values))

    def add_at_once(self, text: str, values: tuple[Any, ...]) -> tuple[int, int]:
        """Run a statement that adds a job and tells its position: return its number and that."""
        self.raw.execute(text, values)
        return self.raw.last_insert_rowid(), self._told

    def rows(self, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run a named statement and return its rows."""
        what = statement(name)
        try:
            return list(self._run(what, values))
        except UnicodeDecodeError:
            return self._torn(what, values)

    def _torn(self, what: Statement, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        r"""Read rows of which a text is not UTF-8: each byte that is not is written as `\xNN`, which no JSON may have.

        So text can be shown, and JSON with such an escape is refused when it is decoded: nothing runs with a guessed value.
        """
        if _WRITES.search(what.text):
            raise  # noqa: PLE0704 - the caller handles the error
        count = len(self._run(what, values).get_description())
        names = ", ".join(f"c{place}" for place in range(count))
        columns = ", ".join(
            f"iif(typeof(c{place}) = 'text', CAST(c{place} AS BLOB), c{place}), typeof(c{place}) = 'text'" for place in range(count)
        )
        text = f"WITH torn ({names}) AS (\n{what.text.rstrip().removesuffix(';')}\n) SELECT {columns} FROM torn"  # noqa: S608 - a statement of ours
        return [
            tuple(value.decode(errors="backslashreplace") if is_text else value for value, is_text in zip(row[::2], row[1::2], strict=True))
            for row in self.raw.execute(text, what.values(values))
        ]

    def row(self, name: str, /, **values: Any) -> tuple[Any, ...] | None:
        """Run a named statement and return its first row."""
        # Read to the end: a statement left in the middle does not go back to the cache and is prepared again.
        rows = self.rows(name, **values)
        return rows[0] if rows else None

    def value(self, name: str, /, **values: Any) -> Any:
        """Run a named statement and return the first column of its first row."""
        row = self.row(name, **values)
        return None if row is None else row[0]

    def change(self, name: str, /, **values: Any) -> int:
        """Run a named statement and return how many rows it changed."""
        self._run(statement(name), values)
        return self.raw.changes()

    def along(self, name: str, source: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run a named statement over one of its sources."""
        what = over_source(name, source)
        try:
            return list(self._run(what, values))
        except UnicodeDecodeError:
            return self._torn(what, values)

    def added(self, name: str, count: int, /, **values: Any) -> Sequence[int]:
        """Run a statement that adds jobs; SQLite numbers them one after the other."""
        self._run(statement(name), values)
        last = self.raw.last_insert_rowid()
        return range(last - count + 1, last + 1)

    def bodies(self, params: Sequence[str]) -> str:
        """Return params as one JSON array."""
        return f"[{','.join(params)}]"

    def added_each(self, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        """Add jobs one after the other: no answer is waited for between two."""
        what = statement("insert_job")
        self.raw.executemany(what.text, map(what.values, rows))
        last = self.raw.last_insert_rowid()
        return range(last - len(rows) + 1, last + 1)

    def candidates(self, lanes: tuple[int, ...], want: int, *, slim: bool, suspects: bool) -> list[Claimed]:
        """Return ready jobs; fewer than wanted if they are very large."""
        many = len(lanes) > ARMS_MAX
        text = candidates_of_many(slim=slim, suspects=suspects) if many else candidates(len(lanes), slim=slim, suspects=suspects)
        known = (_encode(lanes).decode(),) if many else lanes
        try:
            # Read to the end: a statement left in the middle does not go back to the cache and is prepared again.
            found: list[Claimed] = _claimed.decode(list(self.raw.execute(text, (*known, want)))[0][0])  # noqa: RUF015
        except apsw.TooBigError:
            if want == 1:
                raise
            return self.candidates(lanes, want // 2, slim=slim, suspects=suspects)
        return found

    def end_plain(self, done: dict[int, Instant], worker_id: bytes) -> tuple[list[int], str]:
        """Complete jobs, then their runs."""
        text = _encode(done).decode()
        fresh = list(done)
        if self.change("finish_jobs_plain", done=text, worker_id=worker_id) != len(done):
            fresh = _numbers.decode(self.value("open_runs", numbers=_encode(fresh).decode(), worker_id=worker_id))
            text = _encode({number: done[number] for number in fresh}).decode()
        self.change("finish_runs_plain", done=text)
        return fresh, self.value("ends", numbers=_encode(fresh).decode())

    def start(self, jobs: Sequence[Claimed], clocks: dict[int, int], *, now: Instant, worker_id: bytes) -> None:
        """Make runs, start their jobs, and move the clocks on."""
        numbers = _encode([job.number for job in jobs]).decode()
        self.change("insert_runs", numbers=numbers, ids=bytes.fromhex("".join([job.run_id for job in jobs])), now=now)
        self.change("start_jobs", numbers=numbers, now=now, worker_id=worker_id)
        for priority, position in clocks.items():
            self.change("clock_advance", priority=priority, position=position)

    def adopt(self, rows: str, adopter_id: str) -> None:
        """Make runs, then start their jobs."""
        self.change("adopt_runs", rows=rows)
        self.change("adopt_starts", rows=rows, adopter_id=adopter_id)

    def tally(self, numbers: str) -> None:
        """Count ended jobs: they are looked at once, and written into two tables."""
        self.count(self.value("ends", numbers=numbers))

    def count(self, figures: str) -> None:
        """Write figures into two tables."""
        self.change("tally_hourly", ends=figures)
        self.change("tally_total", ends=figures)

    def savepoint(self) -> AbstractContextManager[None]:
        """Undo what is written in the block, and only that, if it raises."""
        return _Savepoint(self.raw)

    def snapshot(self) -> AbstractContextManager[object]:
        """Let all reads of the block see one moment."""
        return self.savepoint()


class _Savepoint:
    """One block of `Db.savepoint`. A generator that a signal left suspended would end it later, in the middle of another's work."""

    __slots__ = ("_raw",)

    def __init__(self, raw: apsw.Connection) -> None:
        self._raw = raw

    def __enter__(self) -> None:
        self._raw.execute("SAVEPOINT rota_part")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # An error of the disk has undone the whole transaction already: it is to be heard of, not that there is no savepoint any more.
            if not self._raw.in_transaction:
                return
            self._raw.execute("ROLLBACK TO rota_part")
        self._raw.execute("RELEASE rota_part")


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
    with translated(path):
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
            with translated(check=self._check):
                if db is None:
                    db = Db(self._open())
                else:
                    self._check()
                yield db
        finally:
            try:
                self._take_back(ticket, db)
            except BaseException:
                # A signal may strike here too, and a fork would wait for this one for ever.
                self._take_back(ticket, db)
                raise

    def _lend(self, ticket: object) -> Db | None:
        with self._change:
            self._change.wait_for(lambda: not self._still)
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
