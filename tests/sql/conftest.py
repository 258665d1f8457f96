"""A Rota on each store, for statements; and a store with jobs in every state, for queries: one for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import Rota, Settings
from rota.model.gate import Right
from rota.operation import Ask
from rota.sql.query import select
from tests.sql.world import build
from tests.stores.makers import PostgresMaker, SqliteMaker
from tests.support.clock import ManualClock
from tests.support.prepared import prepare


class WorldMaker(PostgresMaker):
    schema = "rota_world"


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
    rota = Rota(maker.server.url() if postgres else prepare(folder / "rota.db"), clock=clock, settings=given, seed=7)
    return World(maker, rota), clock


@pytest.fixture(scope="session", params=[SqliteMaker, WorldMaker], ids=lambda maker: maker.name)
def world(request, tmp_path_factory):
    made, clock = make_world(request.param, tmp_path_factory.mktemp("world"))
    build(made.rota, clock)
    yield made
    made.rota.close()
    made.maker.close()


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The name of an empty store of each kind."""
    if request.param == "sqlite":
        yield str(prepare(tmp_path / "rota.db"))
        return
    maker = PostgresMaker(tmp_path)
    maker.open()
    yield maker.server.url()
    maker.close()


@pytest.fixture
def rota(where: str, clock: ManualClock, settings: Settings) -> Iterator[Rota]:
    """A Rota with a clock that the test moves, and a handler to call."""
    made = Rota(where, clock=clock, settings=settings, seed=7)

    @made.job(name="report")
    def report(region: str = "everywhere", day: int = 1) -> str:
        return f"{region} {day}"

    yield made
    made.close()
