"""A file with an empty store in it, made once and copied: the schema takes longer than most tests do."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore


def prepare(path: Path) -> Path:
    """Put an empty store at a path where there is none, and return the path."""
    if not path.exists():
        shutil.copy(_template(), path)
    return path


@cache
def _template() -> Path:
    folder = tempfile.mkdtemp(prefix="rota-prepared-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "rota.db"
    store = SqliteStore(path, Settings())
    store.migrate(now=0)
    store.close()
    return path
