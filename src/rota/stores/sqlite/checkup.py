"""What `rota doctor` looks at in a SQLite store: the file, the disk under it, its schema."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import apsw

from rota.model.findings import Finding, advice, look_at, ok, problem, size_text
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.stores import permissions
from rota.stores.permissions import Kept
from rota.stores.sqlite import migrate
from rota.stores.sqlite.connection import file_system
from rota.stores.sqlite.db import Db
from rota.stores.verbs import repair

FREE_PROBLEM_BYTES, FREE_ADVICE_BYTES = 100 * 1024 * 1024, 1024 * 1024 * 1024
LOG_TIMES, LOG_MIN_BYTES = 10, 64 * 1024 * 1024
"""A log so many times its usual length is not being taken back: somebody reads from it all the time."""
QUICK_MAX_BYTES = 512 * 1024 * 1024
"""Files up to this size are checked at every visit; larger ones when it is asked for."""
AIR_SHARE, AIR_MIN_BYTES = 0.5, 256 * 1024 * 1024
VOLATILE = {"tmpfs", "ramfs"}
SHOWN = 3
_COMMENT = re.compile(r"--.*")


def checkup(db: Db, path: Path, settings: Settings, now: Instant, *, full: bool, kept: Sequence[Kept]) -> list[Finding]:
    """Look at everything; nothing is changed. `kept` are the files and folders whose permissions count."""
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "sqlite": _version,
        "durability": partial(_durability, db),
        "file system": partial(_file_system, path),
        "disk space": partial(_space, path),
        permissions.NAME: partial(permissions.look, kept, settings),
        "log": partial(_log, db, path, settings),
        "size": partial(_size, db, path),
        "schema": partial(_schema, db, path),
        "file": partial(_integrity, db, path, full=full),
        "due jobs": partial(repair.overdue, db, now),
        "outbox": partial(repair.outbox, db, now),
        "webhooks": partial(repair.webhooks, db, settings, now),
        "rows": partial(repair.rows, db, full=full),
    }
    if full:
        checks["references"] = partial(_references, db)
    return look_at(checks, (apsw.Error, OSError))


def _version() -> Iterator[Finding]:
    yield ok("sqlite", f"SQLite {apsw.sqlite_lib_version()}, through apsw {apsw.apsw_version()}")


def _durability(db: Db) -> Iterator[Finding]:
    journal, level = db.raw.pragma("journal_mode"), db.raw.pragma("synchronous")
    if journal != "wal":
        yield problem(
            "durability",
            f"the journal mode is {journal}, not wal: readers and writers stop each other",
            "close every program and open it again with Rota",
        )
    elif level < 2:
        yield advice(
            "durability", "synchronous is NORMAL: the last commits may be lost with the power", "set ROTA_SYNCHRONOUS=FULL, unless they may"
        )
    else:
        yield ok("durability", "what is acknowledged is on disk (wal, synchronous FULL)")


def _file_system(path: Path) -> Iterator[Finding]:
    kind = file_system(path.parent)
    if kind in VOLATILE:
        yield advice("file system", f"{path.parent} is in memory ({kind}): all is lost with the power", "move the store to a disk")
    else:
        yield ok("file system", f"{path.parent} is on {kind or 'a file system of an unknown kind'}")


def _space(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    text = f"{size_text(free)} are free beside {path.name}"
    if free < FREE_PROBLEM_BYTES:
        yield problem("disk space", text, "make room: nothing can be accepted or ended on a full disk; `rota purge` removes what is old")
    elif free < FREE_ADVICE_BYTES:
        yield advice("disk space", text, "make room in time")
    else:
        yield ok("disk space", text)


def _log(db: Db, path: Path, settings: Settings) -> Iterator[Finding]:
    try:
        length = path.with_name(f"{path.name}-wal").stat().st_size
    except FileNotFoundError:
        length = 0
    usual = settings.wal_pages * int(db.raw.pragma("page_size"))
    text = f"the write-ahead log takes {size_text(length)} (it is written back at {size_text(usual)})"
    if length > LOG_MIN_BYTES and length > LOG_TIMES * usual:
        yield advice(
            "log", text, "find the program that reads from the file all the time, a shell or a backup; the log shrinks once it ends"
        )
    else:
        yield ok("log", text)


def _size(db: Db, path: Path) -> Iterator[Finding]:
    pages, free, size = (int(db.raw.pragma(name)) for name in ("page_count", "freelist_count", "page_size"))
    text = f"{path.name} takes {size_text(pages * size)}, {size_text(free * size)} of it free for new jobs"
    if free * size > AIR_MIN_BYTES and free > AIR_SHARE * pages:
        yield advice("size", text, "VACUUM gives it back to the system, with every program closed; new jobs use it otherwise")
    else:
        yield ok("size", text)


def _schema(db: Db, path: Path) -> Iterator[Finding]:
    """Compare every table, index and trigger with those of a fresh store, word for word."""
    fresh = apsw.Connection(":memory:")
    migrate.migrate(Db(fresh), path)
    wanted, there = _made(fresh), _made(db.raw)
    fresh.close()
    missing = [key for key in wanted if key not in there]
    other = [key for key in wanted if key in there and there[key] != wanted[key]]
    for kind, name in missing:
        remedy = wanted[kind, name] if kind != "table" else "restore the store from a backup"
        yield problem("schema", f"{kind} {name} is missing", remedy)
    for kind, name in other:
        remedy = f"make it anew: DROP {kind.upper()} {name}; {wanted[kind, name]}" if kind != "table" else "restore the store from a backup"
        yield problem("schema", f"{kind} {name} is not as Rota made it", remedy)
    if not missing and not other:
        yield ok("schema", f"version {db.value('schema_version')}; all tables, indexes and triggers are as they were made")


def _made(raw: apsw.Connection) -> dict[tuple[str, str], str]:
    """Return the words that made each thing, without comments, on one line."""
    rows = raw.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {(kind, name): " ".join(_COMMENT.sub("", made).split()) for kind, name, made in rows}


def _integrity(db: Db, path: Path, *, full: bool) -> Iterator[Finding]:
    if not full and path.stat().st_size > QUICK_MAX_BYTES:
        yield ok("file", f"not checked: {size_text(path.stat().st_size)} take a while. `rota doctor --full` does")
        return
    word = "integrity_check" if full else "quick_check"
    said = [str(row[0]) for row in db.raw.execute(f"PRAGMA {word}({SHOWN})")]
    if said == ["ok"]:
        yield ok("file", "every page and every row is whole" if full else "pages are whole (quick check; `--full` looks at indexes too)")
    else:
        yield problem("file", f"the file is damaged: {'; '.join(said)}", "stop every program, keep a copy, and restore a backup")


def _references(db: Db) -> Iterator[Finding]:
    broken = [f"{table} row {row} → {parent}" for table, row, parent, _ in db.raw.execute("PRAGMA foreign_key_check")]
    if broken:
        yield problem(
            "references", f"{len(broken):,} rows point at nothing: {', '.join(broken[:SHOWN])}", "restore the store from a backup"
        )
    else:
        yield ok("references", "every row that points at another finds it")
