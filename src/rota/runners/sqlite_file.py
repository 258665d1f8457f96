"""Which SQLite files a job may open: those below `sql_paths`, and never the store's own, by whatever name.

The store's file is known by device and inode, so that neither a link nor a hard link nor /proc/self/fd leads to it. No database file is
opened or closed here by anything but SQLite: closing a descriptor of one would drop all locks that this process holds on it.
"""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path

import apsw
import msgspec

from rota.ports.runner import Database, UnfitDatabase
from rota.runners.dialect import ConnectFailed

COMPANIONS = ("", "-wal", "-shm", "-journal")
READ_ONLY = "?mode=ro"


class Target(msgspec.Struct, frozen=True):
    """A file that a job may open."""

    path: str
    """Without links in it."""
    identity: tuple[int, int]
    """Device and inode."""
    read_only: bool


def target_of(database: Database, *, allowed: str, store: str) -> Target:
    """Return the file of a connection; refuse one that is outside the allowed paths, is the store's or is not there."""
    text = database.url.removeprefix("sqlite:///")
    if text == database.url or not text.removesuffix(READ_ONLY):
        raise UnfitDatabase(f"the URL of connection {database.name} is not sqlite:///path: {database.url!r}")
    path = os.path.realpath(text.removesuffix(READ_ONLY))
    if not allowed.strip():
        raise UnfitDatabase(f"connection {database.name} is a SQLite file, and no path is allowed: set sql_paths to its folder")
    if not any(_is_within(path, place.strip()) for place in allowed.split(",") if place.strip()):
        raise UnfitDatabase(f"connection {database.name} leads to {path}, which is outside sql_paths ({allowed}): add its folder there")
    identity = _regular(path, database)
    own = _identities(store_path(store))
    if own.intersection(_identities(path)):
        raise UnfitDatabase(f"connection {database.name} leads to the file of Rota's own store, or to its log: use another file")
    return Target(path, identity, text.endswith(READ_ONLY))


def opened(target: Target, database: Database) -> apsw.Connection:
    """Open the file, and make sure that it is the one that was looked at."""
    mode = apsw.SQLITE_OPEN_READONLY if target.read_only else apsw.SQLITE_OPEN_READWRITE
    try:
        connection = apsw.Connection(target.path, flags=mode | apsw.SQLITE_OPEN_NOFOLLOW)
    except apsw.Error as error:
        raise ConnectFailed(f"connection {database.name} can't be opened: {error}", code="SQLITE_CANTOPEN") from None
    if _regular(target.path, database) != target.identity or _has_moved(connection):
        connection.close()
        raise UnfitDatabase(f"connection {database.name} leads to {target.path}, where another file was put while it was opened")
    return connection


def store_path(store: str) -> str | None:
    """Return the path of the store's file; None if it is none."""
    path = store.removeprefix("sqlite:///")
    return None if "://" in path else path


def _is_within(path: str, place: str) -> bool:
    allowed = os.path.realpath(place)
    return path == allowed or Path(path).is_relative_to(allowed)


def _regular(path: str, database: Database) -> tuple[int, int]:
    """Return the identity of a regular file. A file that is missing may come: others create it, never Rota."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a text
    except OSError as error:
        raise ConnectFailed(
            f"connection {database.name} can't be opened: {path}: {error.strerror}; Rota does not create it", code="SQLITE_CANTOPEN"
        ) from None
    if not stat.S_ISREG(found.st_mode):
        raise UnfitDatabase(f"connection {database.name} leads to {path}, which is not a file")
    return found.st_dev, found.st_ino


def _identities(path: str | None) -> set[tuple[int, int]]:
    """Return device and inode of a database and of the files that SQLite keeps beside it."""
    found = set()
    for companion in COMPANIONS if path else ():
        try:
            there = os.stat(f"{path}{companion}")  # noqa: PTH116 - a text
        except OSError:
            continue
        found.add((there.st_dev, there.st_ino))
    return found


def _has_moved(connection: apsw.Connection) -> bool:
    """Ask SQLite whether the file that it has open is another one than that at its path."""
    answer = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(answer))
    return answer.value != 0
