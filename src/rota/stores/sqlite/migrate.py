"""Bringing a file's schema up to date, whole or not at all."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from rota.errors import StoreUnusable
from rota.stores.sqlite.db import Db

OURS = ("meta", "jobs", "job_runs")


@cache
def latest() -> int:
    """Return the schema version that this code knows."""
    return max(migrations())


@cache
def migrations() -> dict[int, str]:
    """Return the text of every migration by its number."""
    folder = files(__package__).joinpath("migrations")
    return {int(file.name[:4]): file.read_text() for file in folder.iterdir() if file.name.endswith(".sql")}


def schema() -> str:
    """Return the statements that make a new store: what all migrations would leave, generated from them (`make schema`)."""
    return files(__package__).joinpath("schema.sql").read_text()


def version_of(db: Db, path: Path) -> int:
    """Return the file's schema version, 0 if it holds nothing of ours yet; refuse a stranger's tables."""
    tables = {row[0] for row in db.raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    ours = tables & set(OURS)
    if not ours:
        return 0
    columns = {row[1] for row in db.raw.execute("PRAGMA table_info(meta)")}
    found = db.value("schema_version") if columns == {"key", "value"} else None
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


def migrate(db: Db, path: Path) -> None:
    """Bring the schema up to date in one transaction: a new store by the schema file, an earlier one by the migrations it lacks."""
    current = version_of(db, path)
    if not current:
        db.raw.execute(schema())
        current = db.value("schema_version")
    for number, text in sorted(migrations().items()):
        if number > current:
            db.raw.execute(text)
            db.change("set_schema_version", version=number)
