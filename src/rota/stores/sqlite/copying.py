"""One file as a whole: read in one snapshot, written so that it is there whole or not at all, closed by a mark."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from rota.errors import CopyRefused, StoreMoved, StoreUnavailable, StoreUnusable
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.ports.copying import Moved, Row, Table
from rota.ports.files import make_file, open_file
from rota.stores.sqlite import migrate
from rota.stores.sqlite.connection import check_path, check_sqlite_version, open_connection, translated
from rota.stores.sqlite.db import Db, statements
from rota.stores.sqlite.store import SqliteStore
from rota.stores.verbs import copying
from rota.stores.verbs.tables import META, TABLES

BESIDE = ("-wal", "-journal")
"""What SQLite keeps beside a file and takes for a part of it, also of another file of the same name."""
MARK = "rota_moved_"
"""How the names of the triggers begin that refuse to write to a store which was moved."""


class SqliteDepot:
    """Implements `rota.ports.copying.Depot` on one file."""

    tables = TABLES
    takes_nul = True

    def __init__(self, path: Path, settings: Settings) -> None:
        """Take where it is, or will be."""
        self._path = path.absolute()
        self._settings = settings
        self.url = str(self._path)

    def identity(self) -> str:
        """Return the file's own number, or where it would be."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return str(self._path.resolve())
        return f"{found.st_dev} {found.st_ino}"

    def exists(self) -> bool:
        """Say whether the file is there."""
        return self._path.exists()

    def prepare(self, *, now: Instant) -> None:
        """Bring the file's schema up to date."""
        check_sqlite_version()
        check_path(self._path)
        if not self.exists():
            left = [self.url + end for end in BESIDE if Path(self.url + end).exists()]
            if left:
                raise StoreUnusable(f"{left[0]} is there without its store, and would be taken for a part of a new one: move it away")
            return
        store = SqliteStore(self._path, self._settings)
        try:
            store.migrate(now=now)
        except StoreMoved:
            return
        finally:
            store.close()

    def moved(self) -> Moved | None:
        """Return the mark, if there is one."""
        if not self.exists():
            return None
        with self._connected() as db:
            return copying.moved_of(db)

    def others(self) -> list[str]:
        """Return tables that are not Rota's."""
        with self._connected() as db:
            return sorted({row[0] for row in db.rows("tables_here")} - {table.name for table in TABLES})

    @contextmanager
    def snapshot(self) -> Iterator[Reading]:
        """Read in one transaction."""
        with self._connected() as db, db.snapshot():
            yield Reading(db)

    @contextmanager
    def hold(self) -> Iterator[Guard]:
        """Have the write lock."""
        with self._connected() as db:
            db.raw.execute("BEGIN IMMEDIATE")
            yield Guard(db)

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """Write over a file that is there in one transaction; make one that is not beside its place."""
        with self._in_place() if self.exists() else self._beside() as db:
            yield Writing(db, self.url)

    def reopen(self) -> None:
        """Take the mark off."""
        with self._connected() as db:
            db.raw.execute("BEGIN IMMEDIATE")
            _drop_triggers(db, moved=True)
            db.change("unmark_moved")
            db.raw.execute("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[Db]:
        """Lend a connection of this block's own; what it has not committed is undone."""
        raw = open_connection(self._path, synchronous=self._settings.synchronous, wal_pages=self._settings.wal_pages)
        try:
            raw.set_busy_timeout(round(self._settings.busy_timeout * 1000))
            # Sorting a million jobs takes room: on the disk.
            raw.pragma("temp_store", "file")
            with translated(self._path):
                yield Db(raw)
        finally:
            raw.close()

    @contextmanager
    def _in_place(self) -> Iterator[Db]:
        with self._connected() as db:
            db.raw.pragma("foreign_keys", 0)
            db.raw.execute("BEGIN IMMEDIATE")
            yield db
            db.raw.execute("COMMIT")

    @contextmanager
    def _beside(self) -> Iterator[Db]:
        """Write a new file under another name. It gets its own when it is whole and on disk."""
        made = self._path.with_name(f"{self._path.name}.promoting")
        with _claimed(made, self._settings.file_mode) as fd:
            raw = apsw.Connection(str(made), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                # Nobody sees it before it is whole: it needs no way back.
                raw.pragma("journal_mode", "off")
                raw.pragma("synchronous", "off")
                raw.pragma("temp_store", "file")
                with translated(made):
                    raw.execute("BEGIN")
                    migrate.migrate(Db(raw), made)
                    yield Db(raw)
                    raw.execute("COMMIT")
            finally:
                raw.close()
            os.fsync(fd)
            _put_in_place(made, self._path, self._settings.file_mode)


class Reading(copying.Reading):
    """Implements `rota.ports.copying.Reading` on a connection."""

    _db: Db

    def order(self) -> Iterator[Row]:
        """Go through the queue in its order."""
        return self._db.raw.execute(statements()["queue_order"])

    def _count(self, table: Table) -> int:
        ((count,),) = self._db.raw.execute(f"SELECT count(*) FROM {table.name}")  # noqa: S608 - our own names
        return int(count)

    def _rows(self, table: Table) -> Iterator[Row]:
        query = f"SELECT {_columns(table)} FROM {table.name} ORDER BY {', '.join(table.key)}"  # noqa: S608 - our own names
        count = 0
        try:
            for count, row in enumerate(self._db.raw.execute(query), 1):  # noqa: B007 - how far it came
                yield row
        except UnicodeDecodeError as error:
            raise CopyRefused(
                f"table {table.name}, row {count + 1} in the order of {', '.join(table.key)}: a text in it is not UTF-8, as only raw "
                "SQL can put it there: correct it, or remove what it is a part of; nothing was changed"
            ) from error


class Writing(Reading):
    """Implements `rota.ports.copying.Writing` on a connection that is inside a transaction, foreign keys off."""

    def __init__(self, db: Db, url: str) -> None:
        """Write through this connection."""
        super().__init__(db)
        self._url = url
        self._triggers: list[str] = []

    def clear(self) -> None:
        """Empty the tables; triggers are remembered and dropped, those of a mark for good."""
        _drop_triggers(self._db, moved=True)
        self._triggers = _drop_triggers(self._db, moved=False)
        for table in TABLES:
            if table != META:
                self._db.raw.execute(f"DELETE FROM {table.name}")  # noqa: S608 - our own names
        self._db.change("forget_counters")

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows as they are."""
        if table == META:
            for key, value in rows:
                self._db.change("put_counter", key=key, value=value)
            return
        places = ", ".join("?" * len(table.columns))
        insert = f"INSERT INTO {table.name} ({_columns(table)}) VALUES ({places})"  # noqa: S608 - our own names
        self._db.raw.executemany(insert, rows)

    def finish(self) -> None:
        """Put the triggers back, and look after the references."""
        for trigger in self._triggers:
            self._db.raw.execute(trigger)
        # Whoever has this file open reads its definitions anew.
        self._db.change("advance_definitions")
        copying.refuse_broken(self._db, self._url)


class Guard:
    """Implements `rota.ports.copying.Guard`: while the write lock is ours, nobody can have written."""

    def __init__(self, db: Db) -> None:
        """Guard by this connection's transaction."""
        self._db = db

    def check(self) -> None:
        """See that the transaction is open."""
        if not self._db.raw.in_transaction:
            raise StoreUnavailable("the source's lock was lost while it was copied: nothing was changed, promote again")

    def close_store(self, moved: Moved) -> None:
        """Mark it, and refuse every write from now on."""
        self._db.change("mark_moved", at=moved.at, place=moved.to)
        words = copying.moved_words(moved)
        for table in TABLES:
            for change in copying.refused_changes(table.name):
                name = f"{MARK}{table.name}_{change.partition(' ')[0].lower()}"
                self._db.raw.execute(f"CREATE TRIGGER {name} BEFORE {change} ON {table.name} BEGIN SELECT RAISE(ABORT, '{words}'); END")
        self._db.raw.execute("COMMIT")


def _columns(table: Table) -> str:
    return ", ".join(table.names)


def _drop_triggers(db: Db, *, moved: bool) -> list[str]:
    """Drop the triggers of a mark, or the others on our tables; return their texts."""
    ours = {table.name for table in TABLES}
    dropped = [(name, text) for name, table, text in db.rows("triggers") if table in ours and name.startswith(MARK) == moved]
    for name, _ in dropped:
        db.raw.execute(f'DROP TRIGGER "{name}"')
    return [text for _, text in dropped]


@contextmanager
def _claimed(path: Path, mode: int) -> Iterator[int]:
    """Make an empty file that nobody else writes to, and remove it at the end, whatever it has become.

    What a killed copy left there is only unlinked, never written to: it may have its final name as well by now.
    """
    while True:
        fd = open_file(path, os.O_RDWR, mode=mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise CopyRefused(f"another copy is being written to {path}: wait for its end; nothing was changed") from None
        here = os.fstat(fd)
        if here.st_size == 0 and here.st_nlink == 1 and stat.S_IMODE(here.st_mode) == mode and _is_at(path, here):
            break
        if _is_at(path, here):
            path.unlink()
        os.close(fd)
    try:
        yield fd
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        os.close(fd)


def _is_at(path: Path, here: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), here)
    except FileNotFoundError:
        return False


def _put_in_place(made: Path, path: Path, mode: int) -> None:
    """Give a finished file its name, never that of a file which has appeared there meanwhile; and see that the name is on disk too."""
    try:
        os.link(made, path)
    except FileExistsError:
        raise CopyRefused(f"{path} has appeared while the copy was made, and was left alone: give another path, or promote again") from None
    except OSError:
        # A file system without links: the name is taken first, by an empty file, which is an empty store.
        if not make_file(path, mode=mode):
            raise CopyRefused(f"{path} has appeared while the copy was made, and was left alone: give another path") from None
        made.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
