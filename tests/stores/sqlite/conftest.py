"""Fixtures for what only the SQLite store has: its file, its triggers, its plans."""

from __future__ import annotations

import apsw
import pytest

from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore
from tests.stores.desk import Desk


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rota.db"


@pytest.fixture
def store(path):
    made = SqliteStore(path, Settings(synchronous="NORMAL"))
    made.migrate(now=0)
    yield made
    made.close()


@pytest.fixture
def desk(store):
    return Desk(store)


@pytest.fixture
def raw(store, path):
    """A connection of somebody else, who knows no rules but the file's own."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5000)
    connection.pragma("foreign_keys", 1)
    yield connection
    connection.close()
