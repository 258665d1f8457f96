"""A store on a server is simulated as a SQLite store is: read, copied into a store that is thrown away, and not changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient

from rota import Rota, Settings
from rota.compose import is_mongodb
from rota.errors import RotaError, StoreUnusable
from rota.model.gate import SYSTEM
from rota.simulation import mongodb, open_for_reading
from tests.support.clock import ManualClock
from tests.support.mongodb import shared_set
from tests.support.postgres import EMPTY, fresh_database

START = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture(params=["postgres", "mongodb"])
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with nothing in it."""
    if request.param == "postgres":
        with fresh_database(like=EMPTY) as url:
            yield url
        return
    name = f"simulated_{uuid4().hex[:8]}"
    yield shared_set().url(name)
    with shared_set().client() as client:
        client.drop_database(name)


def filled(store: str | Path, clock: ManualClock) -> Rota:
    """Return a closed Rota whose store has schedules, a limit, a calendar, a pause and known durations."""
    made = Rota(store, clock=clock, seed=1)

    @made.job(max_running=1, timeout=3600)
    def sync(seconds: float = 1.0) -> None:
        clock.advance(seconds=seconds)

    @made.job
    def report() -> None: ...

    made.calendars.update("feasts", ["2026-03-02"])
    made.schedules.create("often", "sync", every="5m")
    made.schedules.create("too", "sync", every="15m")
    made.schedules.create("daily", "report", cron="30 2 * * *", timezone="Europe/Berlin", calendar="feasts")
    made.schedules.create("after", "report", cron="0 4 * * *", depends_on=["often"])
    made.schedules.create("quiet", "report", cron="0 * * * *")
    made.schedules.pause("quiet")
    for _ in range(5):
        made.jobs.direct("sync", {"seconds": 400.25})
    made.close()
    return made


def told(rota: Rota) -> Any:
    return rota.simulate(1.5, start=START, seed=7, workers=2, faults="all", faults_per_day=6)


def test_the_same_definitions_give_the_same_story_in_every_store(tmp_path, database):
    there, here = filled(database, ManualClock()), filled(tmp_path / "here.db", ManualClock())
    one, other = told(there), told(here)
    assert one.ok
    assert one.totals.not_run["SKIPPED_OVERLAP"] > 0
    assert one == other
    there.close()


def test_a_forecast_of_a_store_on_a_server_knows_overlaps_and_waits(tmp_path, database):
    def foretold(store: str | Path) -> list[tuple[Any, ...]]:
        rota = filled(store, ManualClock())
        found = [(item.due_at, item.schedule, item.fate, item.wait_s) for item in rota.forecast(6, start=START, skipped=True)]
        rota.close()
        return found

    there = foretold(database)
    assert there == foretold(tmp_path / "here.db")
    assert {fate for _, _, fate, _ in there} >= {"FIRED", "SKIPPED_OVERLAP", "SKIPPED_CALENDAR", "SKIPPED_PAUSED"}
    assert any(wait_s > 1 for *_, wait_s in there)


def test_nothing_in_the_database_changes(database):
    rota = filled(database, ManualClock())
    before = contents(database)
    told(rota)
    assert contents(database) == before


def test_an_empty_database_stays_empty(database):
    rota = Rota(database)
    rota.job(cron="0 * * * *")(hourly)
    assert rota.simulate(1, start=START).totals.fired == 24
    assert contents(database) == {}


def test_nothing_is_written_to_what_is_opened_for_reading(database):
    filled(database, ManualClock())
    store = open_for_reading(database, Settings())
    assert store is not None
    with pytest.raises(RotaError):
        store.pause("all", "", actor=SYSTEM, now=0)
    store.close()


def test_a_store_of_an_older_schema_is_refused_and_stays_as_it_is(database, monkeypatch):
    rota = filled(database, ManualClock())
    if is_mongodb(database):
        # There is no older one yet.
        monkeypatch.setattr(mongodb, "VERSION", 2)
    else:
        with psycopg.connect(database, autocommit=True) as raw:
            raw.execute("UPDATE rota.meta SET value = '1' WHERE key = 'schema'")
    before = contents(database)
    with pytest.raises(StoreUnusable, match="schema 1"):
        told(rota)
    assert contents(database) == before


def hourly() -> None:
    """Be due every hour."""


def contents(url: str) -> dict[str, list[Any]]:
    """Return every row of every table in the database that is not the server's own."""
    if is_mongodb(url):
        with MongoClient[dict[str, Any]](url) as client:
            database = client.get_default_database()
            return {name: list(database[name].find().sort("_id")) for name in sorted(database.list_collection_names())}
    with psycopg.connect(url, autocommit=True) as raw:
        tables = raw.execute(
            "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
        ).fetchall()
        return {name: raw.execute(f"SELECT t::text FROM {name} AS t ORDER BY 1").fetchall() for (name,) in tables}  # type: ignore[arg-type]
