"""Random SELECTs through virtual tables have the answers of plain tables that hold what the actor may read: row by row."""

from __future__ import annotations

from collections import Counter
from itertools import count

import apsw
import pytest

from rota import Rota, Settings
from rota.model.gate import Right
from rota.operation import Ask
from rota.sql.catalog import TABLES
from rota.sql.errors import SqlError
from rota.sql.query import select
from rota.sql.virtual import VirtualCursor
from rota.stores.verbs import scan
from tests.sql.generated_queries import Generator
from tests.sql.world import ADMIN, MANAGER, READERS, REFUSED, USER, build, reference
from tests.stores.makers import PostgresMaker, SqliteMaker
from tests.support.clock import ManualClock
from tests.support.prepared import prepare
from tests.support.proof import size

pytestmark = pytest.mark.prove
QUERIES = size(40, prove=10_000)
SETTINGS = Settings(synchronous="NORMAL", sql_timeout=60, sql_rows_max=1_000_000)


class World:
    def __init__(self, maker, rota):
        self.maker = maker
        self.rota = rota

    def asked(self, actor, text):
        return select(Ask(self.rota._session, actor, Right.READ), text).rows


@pytest.fixture(scope="module", params=[SqliteMaker, PostgresMaker], ids=lambda maker: maker.name)
def world(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    maker = request.param(folder)
    clock = ManualClock()
    rota = Rota(
        maker.server.url() if isinstance(maker, PostgresMaker) else prepare(folder / "rota.db"), clock=clock, settings=SETTINGS, seed=7
    )
    build(rota, clock)
    yield World(maker, rota)
    rota.close()
    maker.close()


def differences(world, actor, seed, queries):
    """Go through queries whose answer is not that of the reference."""
    plain = reference(world.maker, actor)
    keys = {name: TABLES[name].key or (TABLES[name].number,) for name in READERS if name not in REFUSED[actor.role]}
    generator = Generator(plain, keys, seed)
    answered = 0
    for _ in range(queries):
        text, ordered = generator.query()
        expected = outcome(lambda text=text: list(plain.execute(text)))
        found = outcome(lambda text=text: list(world.asked(actor, text)))
        answered += bool(expected)
        if (found if ordered else Counter(found)) != (expected if ordered else Counter(expected)):
            yield text, expected, found
    assert answered > queries / 5, "too few of the queries have rows to tell anything"


def outcome(answer):
    try:
        return answer()
    except (apsw.Error, SqlError) as error:
        return [("refused", type(error).__name__ == "SQLError")] if isinstance(error, apsw.Error) else [("refused", True)]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("actor", [MANAGER, ADMIN, USER], ids=lambda actor: actor.role)
@pytest.mark.parametrize("probe", [scan.PROBE, 0], ids=["few jobs", "many jobs"])
def test_random_queries_have_the_answers_of_plain_tables(world, actor, probe, monkeypatch):
    # How a scan goes about it depends on how many jobs an organization or a type has.
    monkeypatch.setattr(scan, "PROBE", probe)
    monkeypatch.setattr(scan, "CHUNK_FIRST", 2 if probe == 0 else scan.CHUNK_FIRST)
    assert list(differences(world, actor, 1, QUERIES)) == []


def test_rowids_that_count_are_found_out(world, monkeypatch):
    counted = count()
    monkeypatch.setattr(VirtualCursor, "Rowid", lambda self: next(counted) % 50)
    assert next(differences(world, ADMIN, 2, 2000), None) is not None


def test_the_world_has_every_state_and_table(world):
    plain = reference(world.maker, MANAGER)
    states = {row[0] for row in plain.execute("SELECT DISTINCT status FROM sys.job_runs")}
    assert states >= {"PENDING", "QUEUED", "RUNNING", "COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED"}
    for table in READERS:
        assert list(plain.execute(f"SELECT 1 FROM sys.{table} LIMIT 1")), table
