"""Random SELECTs through virtual tables have the answers of plain tables that hold what the actor may read: row by row."""

from __future__ import annotations

import re
from collections import Counter
from itertools import count

import apsw
import pytest

from rota.sql.catalog import TABLES
from rota.sql.errors import SqlError
from rota.sql.virtual import VirtualCursor
from rota.stores.verbs import scan
from tests.sql.generated_queries import Generator
from tests.sql.world import ADMIN, MANAGER, READERS, REFUSED, USER, reference
from tests.support.proof import size

QUERIES = size(15, prove=2_000)
"""For each of three actors, with few and with many jobs, on each store: 12,000 on a store at full size."""


def differences(world, actor, seed, queries):
    """Go through queries whose answer is not that of the reference."""
    plain = reference(world.maker, actor)
    keys = {name: TABLES[name].key or (TABLES[name].number,) for name in READERS if name not in REFUSED[actor.role]}
    generator = Generator(plain, keys, seed)
    answered = 0
    for _ in range(queries):
        text, ordered = generator.query()
        expected = outcome(lambda text=text: list(plain.execute(text)))
        found = outcome(lambda text=text: world.asked(actor, text))
        answered += bool(expected)
        if (found if ordered else Counter(found)) != (expected if ordered else Counter(expected)):
            yield text, expected, found
    assert answered > queries / 5, "too few of the queries have rows to tell anything"


def outcome(answer):
    try:
        return answer()
    except (apsw.Error, SqlError):
        return ["refused"]


@pytest.mark.prove
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("actor", [MANAGER, ADMIN, USER], ids=lambda actor: actor.role)
@pytest.mark.parametrize("probe", [scan.PROBE, 0], ids=["few jobs", "many jobs"])
def test_random_queries_have_the_answers_of_plain_tables(world, actor, probe, monkeypatch):
    # How a scan goes about it depends on how many jobs an organization or a type has.
    monkeypatch.setattr(scan, "PROBE", probe)
    monkeypatch.setattr(scan, "CHUNK_FIRST", scan.CHUNK_FIRST if probe else 2)
    assert list(differences(world, actor, 1 + probe, QUERIES)) == []


INGREDIENTS = {
    "OR on one column": r" WHERE (\w+) = [^()]*? OR \1 = ",
    "OR of conditions": r"\) OR ",
    "a join of two tables": r" AS a JOIN sys\.\w+ AS b ON ",
    "a left join": r" AS a LEFT JOIN sys\.\w+ AS b ON ",
    "a comparison with NULL": r" (=|<|>|<=|>=|<>|IS|IS NOT) NULL\b",
    "IS NULL": r" IS NULL\)",
    "running jobs": r"'RUNNING'",
    "a part of a list": r" LIMIT \d+ OFFSET ",
    "an order by the end": r" ORDER BY (completed_at|finished_at) ",
    "an order by the start": r" ORDER BY started_at ",
}


def test_every_ingredient_is_generated(world):
    plain = reference(world.maker, ADMIN)
    generator = Generator(
        plain, {name: TABLES[name].key or (TABLES[name].number,) for name in READERS if name not in REFUSED[ADMIN.role]}, 5
    )
    counts: Counter[str] = Counter()
    running = 0
    for _ in range(1500):
        text, _ = generator.query()
        counts.update(name for name, pattern in INGREDIENTS.items() if re.search(pattern, text))
        running += any("RUNNING" in row for row in outcome(lambda text=text: list(plain.execute(text))))
    assert {name for name in INGREDIENTS if counts[name] < 5} == set(), counts
    assert running > 10, "too few answers have jobs that run"


def test_the_generator_finds_out_rowids_that_count(world, monkeypatch):
    numbers = count()
    monkeypatch.setattr(VirtualCursor, "Rowid", lambda self: next(numbers) % 50)
    assert next(differences(world, ADMIN, 2, 2000), None) is not None


def test_the_generator_finds_out_a_scan_that_has_too_few_rows(world, monkeypatch):
    # As if a bound in milliseconds were one in microseconds.
    passed = scan.JobScan.rows
    monkeypatch.setattr(scan.JobScan, "rows", lambda self: (row for place, row in enumerate(passed(self)) if place % 40 != 39))
    assert next(differences(world, MANAGER, 3, 500), None) is not None


def test_the_world_has_every_state_and_a_row_in_every_table(world):
    plain = reference(world.maker, MANAGER)
    states = {row[0] for row in plain.execute("SELECT DISTINCT status FROM sys.job_runs")}
    assert states >= {"PENDING", "QUEUED", "RUNNING", "COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED"}
    assert list(plain.execute("SELECT 1 FROM sys.job_runs WHERE started_at > completed_at"))
    for table in READERS:
        assert list(plain.execute(f"SELECT 1 FROM sys.{table} LIMIT 1")), table
