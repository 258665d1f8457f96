"""The schema of a new store is a file that is generated from the migrations: the two make the same store, to the last word."""

from __future__ import annotations

import apsw
import pytest

from rota.model.settings import Settings
from rota.stores.postgres import PostgresStore
from rota.stores.postgres import migrate as postgres_migrate
from rota.stores.sqlite import SqliteStore, migrate
from tests.support.postgres import EMPTY, fresh_database, shared_server
from tests.support.schema import FILES, generated, migrated


@pytest.mark.parametrize("name", FILES)
def test_the_schema_file_is_what_the_migrations_make(name):
    assert FILES[name].read_text() == generated(name), "run `make schema`"


@pytest.mark.parametrize("name", FILES)
def test_a_schema_file_says_its_version(name):
    latest = {"sqlite": migrate.latest, "postgres": postgres_migrate.latest}[name]()
    assert FILES[name].read_text().startswith(f"-- Schema {latest}, generated"), "run `make schema`"


# ---- SQLite ------------------------------------------------------------------------------------------------------------


def sqlite_store(raw):
    """Return everything that a file holds: what was made, in order and word for word, its columns and keys, and every row."""
    made = list(raw.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid"))
    tables = [name for kind, name, _, _ in made if kind == "table"]
    parts = {
        (table, part): list(raw.execute(f"PRAGMA {part}({table})"))
        for table in tables
        for part in ("table_xinfo", "index_list", "foreign_key_list")
    }
    return made, parts, {table: list(raw.execute(f"SELECT * FROM {table}")) for table in tables}


@pytest.fixture
def by_migrations():
    raw = apsw.Connection(":memory:")
    migrated(raw)
    yield raw
    raw.close()


def test_a_new_file_equals_one_that_came_through_all_migrations(tmp_path, by_migrations):
    store = SqliteStore(tmp_path / "rota.db", Settings())
    store.migrate(now=0)
    store.close()
    raw = apsw.Connection(str(tmp_path / "rota.db"))
    assert sqlite_store(raw) == sqlite_store(by_migrations), "run `make schema`"
    raw.close()


def test_a_store_is_usable_where_the_schema_file_is_behind_the_migrations(tmp_path, monkeypatch):
    more = migrate.migrations() | {migrate.latest() + 1: "CREATE TABLE added (one INTEGER) STRICT;"}
    monkeypatch.setattr(migrate, "migrations", lambda: more)
    store = SqliteStore(tmp_path / "rota.db", Settings())
    store.migrate(now=0)
    store.close()
    raw = apsw.Connection(str(tmp_path / "rota.db"))
    assert list(raw.execute("SELECT value FROM meta WHERE key = 'schema'")) == [(max(more),)]
    assert list(raw.execute("SELECT count(*) FROM added")) == [(0,)]
    raw.close()


# ---- PostgreSQL --------------------------------------------------------------------------------------------------------

CATALOGS = {
    "columns": """
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
               l.collname, pg_get_expr(d.adbin, d.adrelid)
          FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          LEFT JOIN pg_collation AS l ON l.oid = a.attcollation LEFT JOIN pg_attrdef AS d ON (d.adrelid, d.adnum) = (c.oid, a.attnum)
         WHERE c.relnamespace = :here ORDER BY 1, 2""",
    "relations": "SELECT relname, relkind, reloptions FROM pg_class WHERE relnamespace = :here ORDER BY 1",
    "constraints": """
        SELECT c.relname, k.conname, k.contype, k.convalidated, pg_get_constraintdef(k.oid)
          FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid WHERE k.connamespace = :here ORDER BY 1, 2""",
    "indexes, in the order in which they were made": """
        SELECT c.relname, pg_get_indexdef(i.indexrelid), i.indisvalid
          FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid WHERE c.relnamespace = :here ORDER BY 1, i.indexrelid""",
    "triggers": """
        SELECT c.relname, t.tgname, t.tgenabled, pg_get_triggerdef(t.oid)
          FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid WHERE c.relnamespace = :here AND NOT t.tgisinternal ORDER BY 1, 2""",
    "functions": "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = :here ORDER BY 1, 2",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = :name ORDER BY 1",
    "sequences": "SELECT sequencename, data_type::text, start_value, last_value FROM pg_sequences WHERE schemaname = :name ORDER BY 1",
}


def postgres_store(raw, schema):
    """Return everything that a schema holds, without its name."""
    raw.execute(f"SET search_path = {schema}")
    found = {}
    for what, text in CATALOGS.items():
        rows = raw.execute(text.replace(":here", f"'{schema}'::regnamespace").replace(":name", f"'{schema}'")).fetchall()
        found[what] = [tuple(each.replace(schema, "SCHEMA") if isinstance(each, str) else each for each in row) for row in rows]
    for table in sorted({name for name, kind, _ in found["relations"] if kind == "r"}):
        found[f"rows of {table}"] = sorted(map(repr, raw.execute(f"SELECT * FROM {table}")))
    return found


def made_by(raw, schema, *texts):
    raw.execute(f"CREATE SCHEMA {schema}")
    raw.execute(f"SET search_path = {schema}")
    for text in texts:
        raw.execute(text)
    return postgres_store(raw, schema)


def by_steps(raw, schema):
    texts = [text for _, text in sorted(postgres_migrate.migrations().items())]
    return made_by(raw, schema, *texts, f"INSERT INTO meta (key, value) VALUES ('schema', {postgres_migrate.latest()})")


@pytest.fixture
def database():
    with fresh_database(like=EMPTY) as url:
        yield url


@pytest.fixture
def raw(database):
    with shared_server().connect(database.rpartition("/")[2]) as connection:
        yield connection


def test_a_new_schema_equals_one_that_came_through_all_migrations(database, raw):
    open_and_close(database, "new_store")
    with pytest.MonkeyPatch.context() as patch:
        first = f"{postgres_migrate.migrations()[1]} INSERT INTO meta (key, value) VALUES ('schema', 1);"
        patch.setattr("rota.stores.postgres.migrate.schema", lambda: first)
        open_and_close(database, "by_steps")
    assert postgres_store(raw, "new_store") == postgres_store(raw, "by_steps"), "run `make schema`"


def open_and_close(database, schema):
    store = PostgresStore(database, Settings(schema=schema))
    store.migrate(now=0)
    store.close()


LATER = """
-- Something for later.
CREATE TABLE colours (name text PRIMARY KEY);                       -- with a word; and another
ALTER TABLE job_live ADD COLUMN colour text REFERENCES colours;
ALTER TABLE job_live ADD COLUMN shade integer NOT NULL DEFAULT 0 CHECK (shade >= 0);
ALTER TABLE job_ends ADD COLUMN shade integer CHECK (shade >= 0);   -- how dark
ALTER TABLE workers ADD COLUMN shade integer, ADD COLUMN light integer;
ALTER TABLE workers ADD COLUMN tone text DEFAULT 'a;b';
ALTER TABLE users DROP CONSTRAINT users_role_check;
ALTER TABLE users ADD CONSTRAINT users_role_check CHECK (role IN ('system_manager', 'admin', 'user', 'guest'));
DROP INDEX live_due;
CREATE INDEX live_due ON job_live (priority, run_at, number, shade) WHERE status = 'PENDING' AND blockers = 0;
DROP TRIGGER facts_owned ON job_facts;
CREATE OR REPLACE FUNCTION ends_kept() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN NULL;   -- nothing; at all
END $$;
CREATE VIEW shades AS SELECT number, shade FROM job_ends;
DROP VIEW shades;
CREATE VIEW shades (number, shade) AS SELECT number, shade FROM job_live;
DROP TABLE occurrences_told;
UPDATE organizations SET display_name = 'Everybody';
"""


def test_a_migration_of_any_kind_comes_into_the_schema(raw, monkeypatch):
    more = postgres_migrate.migrations() | {postgres_migrate.latest() + 1: LATER}
    monkeypatch.setattr(postgres_migrate, "migrations", lambda: more)
    text = generated("postgres")
    assert made_by(raw, "at_once", text) == by_steps(raw, "by_steps")
    assert "facts_owned" not in text
    assert text.count("INDEX live_due") == text.count("FUNCTION ends_kept()\n") + 1 == 1


def test_a_difference_between_two_schemas_is_seen(raw):
    steps = by_steps(raw, "by_steps")
    for number, change in enumerate(
        [
            "ALTER TABLE users ADD COLUMN colour text",
            "DROP INDEX live_due",
            "ALTER TABLE job_facts DISABLE TRIGGER facts_owned",
            "UPDATE meta SET value = 7 WHERE key = 'clock'",
            "ALTER TABLE workers SET (fillfactor = 60)",
            "CREATE OR REPLACE FUNCTION hex(id uuid) RETURNS text LANGUAGE sql AS $$ SELECT id::text $$",
        ]
    ):
        assert made_by(raw, f"other_{number}", postgres_migrate.schema(), change) != steps
