"""Fixtures for what only the PostgreSQL store has: its tables, its triggers, its plans, its locks."""

from __future__ import annotations

import pytest

from tests.stores.desk import Desk
from tests.stores.makers import PostgresMaker


@pytest.fixture
def maker(tmp_path):
    made = PostgresMaker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(maker):
    return maker.open()


@pytest.fixture
def desk(store):
    return Desk(store)


@pytest.fixture
def raw(store, maker):
    """A connection of somebody else, who knows no rules but the schema's own."""
    with maker.server.connect(options=f"-c search_path={maker.schema}") as connection:
        yield connection
