"""The neutral form of a store and the schemas of all dialects say the same, and a copy is whole or not there."""

from __future__ import annotations

import os

import apsw
import psycopg
import pytest

from rota import Settings
from rota.errors import CopyRefused, StoreError, StoreUnusable
from rota.ports.copying import Kind
from rota.stores.postgres import PostgresStore
from rota.stores.postgres.copying import HERE, PostgresDepot
from rota.stores.sqlite import SqliteStore
from rota.stores.sqlite.copying import SqliteDepot
from rota.stores.verbs.tables import JOBS, RUNS, TABLES
from tests.support.postgres import shared_server

SQLITE_KINDS = {"INTEGER": Kind.WHOLE, "REAL": Kind.REAL, "TEXT": Kind.TEXT, "ANY": Kind.WHOLE}
POSTGRES_KINDS = {
    "bigint": Kind.WHOLE,
    "integer": Kind.WHOLE,
    "double precision": Kind.REAL,
    "text": Kind.TEXT,
    "uuid": Kind.ID,
    "bytea": Kind.DIGEST,
}
SETTINGS = Settings(schema="neutral")
OURS_ALONE = {("meta", "note"), ("schedules", "row_id")}
"""What belongs to one PostgreSQL store: where it was moved to, and how it calls its schedules."""


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory):
    path = tmp_path_factory.mktemp("neutral") / "rota.db"
    store = SqliteStore(path, Settings())
    store.migrate(now=0)
    store.close()
    raw = apsw.Connection(str(path))
    yield raw
    raw.close()


@pytest.fixture(scope="module")
def postgres():
    server = shared_server()
    store = PostgresStore(server.url(), SETTINGS)
    store.migrate(now=0)
    store.close()
    with server.connect() as raw:
        yield raw
        raw.execute("DROP SCHEMA neutral CASCADE")


def columns_of(raw, relation):
    """Return the columns of a table or view with their types and places in the primary key."""
    return {
        row[0]: row[1]
        for row in raw.execute(
            "SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute AS a"
            " WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped",
            (f"neutral.{relation}",),
        )
    }


def test_every_table_of_sqlite_is_in_the_list(sqlite):
    there = {row[0] for row in sqlite.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert there == {table.name for table in TABLES}


def test_every_table_of_postgresql_is_in_the_list(postgres):
    there = {row[0] for row in postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'neutral'")}
    assert there == set(HERE)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_sqlite_has_these_columns_with_these_kinds_and_this_key(sqlite, table):
    there = {row[1]: (row[2], row[5]) for row in sqlite.execute(f"PRAGMA table_info({table.name})")}
    kinds = {column.name: column.kind for column in table.columns}
    assert {name: SQLITE_KINDS.get(kind, kinds.get(name)) for name, (kind, _) in there.items()} == kinds
    # A blob is an id or a digest; which one only PostgreSQL's schema says.
    assert {name for name, (kind, _) in there.items() if kind == "BLOB"} == {
        name for name, kind in kinds.items() if kind in {Kind.ID, Kind.DIGEST}
    }
    key = sorted((place, name) for name, (_, place) in there.items() if place)
    assert tuple(name for _, name in key) == table.key


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_postgresql_has_these_columns_with_these_kinds(postgres, table):
    there = columns_of(postgres, table.name)
    kinds = {name: POSTGRES_KINDS[kind] for name, kind in there.items() if (table.name, name) not in OURS_ALONE}
    assert kinds == {column.name: column.kind for column in table.columns}


@pytest.mark.parametrize("part", ["job_facts", "job_live", "job_ends"])
def test_what_postgresql_keeps_of_a_job_is_all_in_the_list(postgres, part):
    kinds = {column.name: column.kind for column in JOBS.columns} | {"run_id": Kind.ID}
    there = {name: POSTGRES_KINDS[kind] for name, kind in columns_of(postgres, part).items()}
    assert there == {name: kinds[name] for name in there}


@pytest.mark.parametrize("table", [table for table in TABLES if table not in {JOBS, RUNS}], ids=lambda table: table.name)
def test_the_key_is_postgresqls_own(postgres, table):
    rows = postgres.execute(
        "SELECT a.attname FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)"
        " WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY array_position(i.indkey::int2[], a.attnum)",
        (f"neutral.{table.name}",),
    )
    assert tuple(row[0] for row in rows) == table.key


# ---- a file that is made by a copy --------------------------------------------------------------------------------


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def depot(tmp_path):
    return SqliteDepot(tmp_path / "new.db", Settings())


def test_a_new_file_has_the_schema_of_any_other(depot, tmp_path, sqlite):
    with depot.writing() as writing:
        writing.clear()
        writing.finish()
    made = apsw.Connection(str(tmp_path / "new.db"))
    texts = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    assert sorted(made.execute(texts)) == sorted(sqlite.execute(texts))
    made.close()


def test_nothing_is_there_before_the_end_and_nothing_else_after_it(depot, tmp_path):
    with depot.writing() as writing:
        writing.clear()
        assert not (tmp_path / "new.db").exists()
        writing.finish()
    assert names_in(tmp_path) == ["new.db"]


def test_a_copy_that_fails_leaves_nothing_behind(depot, tmp_path):
    def begin():
        with depot.writing() as writing:
            writing.clear()
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        begin()
    assert names_in(tmp_path) == []


def test_a_file_that_appears_meanwhile_is_left_alone(depot, tmp_path):
    def copy():
        with depot.writing() as writing:
            writing.clear()
            writing.finish()
            (tmp_path / "new.db").write_text("somebody's")

    with pytest.raises(CopyRefused, match="has appeared while the copy was made"):
        copy()
    assert (tmp_path / "new.db").read_text() == "somebody's"
    assert names_in(tmp_path) == ["new.db"]


def test_where_names_can_not_be_linked_the_file_gets_its_place_all_the_same(depot, tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    with depot.writing() as writing:
        writing.clear()
        writing.finish()
    assert names_in(tmp_path) == ["new.db"]
    with depot.snapshot() as reading:
        assert reading.count(JOBS) == 0


def test_two_copies_to_one_place_do_not_meet(depot, tmp_path):
    with depot.writing() as writing:
        writing.clear()
        with pytest.raises(CopyRefused, match="another copy is being written"), SqliteDepot(tmp_path / "new.db", Settings()).writing():
            pass
        writing.finish()
    assert names_in(tmp_path) == ["new.db"]


def test_what_a_killed_copy_left_is_removed_and_never_written_to(depot, tmp_path):
    left = tmp_path / "new.db.promoting"
    left.write_bytes(b"half a copy")
    # Killed between its last two steps: the same file under both names.
    os.link(left, tmp_path / "kept")
    with depot.writing() as writing:
        writing.clear()
        writing.finish()
    assert (tmp_path / "kept").read_bytes() == b"half a copy"
    assert names_in(tmp_path) == ["kept", "new.db"]


def test_a_log_without_its_file_is_not_taken_for_a_part_of_the_new_one(depot, tmp_path):
    (tmp_path / "new.db-wal").write_bytes(b"x")
    with pytest.raises(StoreUnusable, match=r"new\.db-wal is there without its store"):
        depot.prepare(now=0)


def test_a_copy_that_would_not_be_whole_is_refused(depot, tmp_path):
    runs = next(table for table in TABLES if table.name == "job_runs")
    values = {"job_number": 5, "run_id": b"\x01" * 16, "started_at": 1, "artifacts": "[]"}

    def copy():
        with depot.writing() as writing:
            writing.clear()
            writing.write(runs, [tuple(values.get(name) for name in runs.names)])
            writing.finish()

    with pytest.raises(StoreError, match=r"job_runs refers to what is not in jobs \(1\)"):
        copy()
    assert names_in(tmp_path) == []


def test_rules_are_in_force_again_after_a_copy(postgres):
    depot = PostgresDepot(shared_server().url(), SETTINGS)
    with depot.writing() as writing:
        writing.clear()
        writing.finish()
    states = {row[0] for row in postgres.execute("SELECT tgenabled::text FROM pg_trigger WHERE tgrelid::regclass::text LIKE 'neutral.%'")}
    assert states == {"O"}
    with pytest.raises(psycopg.errors.CheckViolation, match="born PENDING or QUEUED"):
        postgres.execute(
            "INSERT INTO neutral.job_live (number, job_id, root_id, attempt, organization_id, job_type, created_at, status, priority,"
            " run_at, started_at, worker_id)"
            " SELECT 1, id, id, 1, 'default', 't', 1, 'RUNNING', 50, 1, 1, id FROM (SELECT gen_random_uuid() AS id) AS x"
        )
