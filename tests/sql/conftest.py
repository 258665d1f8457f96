"""A Rota on each store, for statements that are carried out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import Rota, Settings
from tests.stores.makers import PostgresMaker
from tests.support.clock import ManualClock
from tests.support.prepared import prepare


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
