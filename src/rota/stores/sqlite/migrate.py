"""Bringing a file's schema up to date, whole or not at all."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from rota.errors import StoreUnusable
from rota.stores.sqlite.connection import Db

OURS = ("meta", "jobs", "job_runs")


def latest() -> int:
    """Return the schema version that this code knows."""
    return max(_migrations())


def version_of(db: Db, path: Path) -> int:
    """Return the file's schema version, 0 if it holds nothing of ours yet; refuse a stranger's tables."""
    tables = {row[0] for row in db.raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    ours = tables & set(OURS)
    if not ours:
        return 0
    found = db.value("schema_version") if "meta" in tables and _is_ours(db) else None
    if found is None:
        raise StoreUnusable(
            f"{path} has a table {min(ours)!r} that Rota did not make, and Rota needs that name: give another path; nothing was changed"
        )
    if found > latest():
        raise StoreUnusable(
            f"{path} was made by a newer Rota (schema {found}; this one knows {latest()}): "
            "upgrade Rota, or give another path; nothing was changed"
        )
    return int(found)


def migrate(db: Db, path: Path) -> int:
    """Apply the migrations that are missing, inside the caller's transaction. Return how many."""
    current = version_of(db, path)
    missing = [number for number in sorted(_migrations()) if number > current]
    for number in missing:
        db.raw.execute(_migrations()[number])
        db.change("set_schema_version", version=number)
    return len(missing)


def _is_ours(db: Db) -> bool:
    columns = {row[1] for row in db.raw.execute("PRAGMA table_info(meta)")}
    return columns == {"key", "value"}


@cache
def _migrations() -> dict[int, str]:
    folder = files(__package__).joinpath("migrations")
    return {int(file.name[:4]): file.read_text() for file in folder.iterdir() if file.name.endswith(".sql")}
