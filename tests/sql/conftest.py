"""A Rota on each store, for statements; and a store with jobs in every state, for queries: one for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from rota import Rota, Settings
from rota.model.gate import Right
from rota.operation import Ask
from rota.sql.query import select
from tests.sql.world import build
from tests.stores.makers import MongoMaker, PostgresMaker, SqliteMaker
from tests.support.clock import ManualClock


class WorldMaker(PostgresMaker):
    schema = "rota_world"


class MongoWorldMaker(MongoMaker):
    """A database for each world: what the front door writes is not taken back by the hand."""

    def __init__(self, folder):
        self.database = f"rota_world_{uuid4().hex[:8]}"
        super().__init__(folder)

    def close(self):
        super().close()
        self.hand.client.drop_database(self.database)


class World:
    """A filled store, and queries over it."""

    def __init__(self, maker, rota):
        self.maker = maker
        self.rota = rota

    def ask(self, actor):
        return Ask(self.rota._session, actor, Right.READ)

    def result(self, actor, text, params=()):
        return select(self.ask(actor), text, params)

    def asked(self, actor, text, params=()):
        return list(self.result(actor, text, params).rows)


def make_world(kind, folder, **settings):
    maker = kind(folder)
    clock = ManualClock()
    postgres = isinstance(maker, PostgresMaker)
    usual = {"synchronous": "NORMAL", "sql_timeout": 60.0, "sql_rows_max": 1_000_000}
    given = Settings(**usual | ({"schema": maker.schema} if postgres else {}) | settings)
    rota = Rota(maker.url, clock=clock, settings=given, seed=7)
    return World(maker, rota), clock


@pytest.fixture(scope="session", params=[SqliteMaker, WorldMaker, MongoWorldMaker], ids=lambda maker: maker.name)
def world(request, tmp_path_factory):
    made, clock = make_world(request.param, tmp_path_factory.mktemp("world"))
    build(made.rota, clock)
    yield made
    made.rota.close()
    made.maker.close()


@pytest.fixture
def settings() -> Settings:
    """Those of a store that need not outlive the machine: a commit to a SQLite file doesn't wait for the disk."""
    return Settings(synchronous="NORMAL")


@pytest.fixture
def where(url: str) -> str:
    """The name of an empty store of each kind."""
    return url


@pytest.fixture
def rota(where: str, clock: ManualClock, settings: Settings) -> Iterator[Rota]:
    """A Rota with a clock that the test moves, and a handler to call."""
    made = Rota(where, clock=clock, settings=settings, seed=7)

    @made.job(name="report")
    def report(region: str = "everywhere", day: int = 1) -> str:
        return f"{region} {day}"

    yield made
    made.close()
