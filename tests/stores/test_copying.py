"""The neutral form of a store and the schemas of all dialects say the same, and a copy is whole or not there."""

from __future__ import annotations

import os
import shutil
import threading
from itertools import pairwise, permutations
from pathlib import Path

import apsw
import psycopg
import pytest

from rota import Settings
from rota.engine.store_copy import Place, Promotion
from rota.errors import CopyRefused, StoreBusy, StoreError, StoreMoved, StoreUnavailable, StoreUnusable
from rota.ports.copying import Kind, Moved
from rota.stores.locks import FileLocks
from rota.stores.mongodb import MongoStore, marks
from rota.stores.mongodb.copying import MongoDepot
from rota.stores.mongodb.schema import COLLECTIONS, FIGURES, KEYS, OF_SEVERAL
from rota.stores.postgres import PostgresStore
from rota.stores.postgres.copying import HERE, PostgresDepot
from rota.stores.sqlite import SqliteStore
from rota.stores.sqlite.copying import SqliteDepot
from rota.stores.verbs.tables import JOBS, RUNS, TABLES
from rota.vault import Keyring
from tests.support.clock import ManualClock
from tests.support.keys import KNOWN, credentials
from tests.support.mongodb import shared_set
from tests.support.pace import patient
from tests.support.postgres import shared_server
from tests.support.waiting import eventually
from tests.support.whole import fill, work

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


# ---- between all stores -------------------------------------------------------------------------------------------

KINDS = ("sqlite", "postgres", "mongodb")
COPIES = Settings(schema="copies", lease_ttl=1, busy_timeout=5)
NAMED_BY = {"job_facts": "jobs", "job_live": "jobs", "job_ends": "jobs", "run_notes": "job_runs"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "rota.db"
    fill(path)
    return path


@pytest.fixture
def depots(filled, tmp_path):
    """A depot of each kind: the file has something in every table, the others are not there."""
    servers = shared_set()
    file = SqliteDepot(Path(shutil.copy(filled, tmp_path / "rota.db")), COPIES)
    with file.snapshot() as reading:
        for worker in reading.workers():
            FileLocks(tmp_path / "workers", COPIES).take(worker.id).release(clean=False)
    yield {
        "sqlite": file,
        "postgres": PostgresDepot(shared_server().url(), COPIES),
        "mongodb": MongoDepot(servers.url("copies"), COPIES),
    }
    with shared_server().connect() as raw:
        raw.execute("DROP SCHEMA IF EXISTS copies CASCADE")
    with servers.client() as client:
        client.drop_database("copies")


def promoted(source, target, folder, **options):
    places = [Place(depot, FileLocks(folder / "workers", COPIES), None) for depot in (source, target)]
    return Promotion(*places, clock=ManualClock(), settings=COPIES, key_ids=lambda: Keyring([KNOWN]).ids, **options).run()


def everything(depot):
    with depot.snapshot() as reading:
        return {table.name: list(reading.rows(table)) for table in TABLES} | {"order": list(reading.order())}


@pytest.mark.parametrize(("source", "target"), list(permutations(KINDS, 2)))
def test_everything_arrives_in_every_other_kind_of_store(depots, tmp_path, source, target):
    before = everything(depots["sqlite"])
    if source != "sqlite":
        promoted(depots["sqlite"], depots[source], tmp_path)
    done = promoted(depots[source], depots[target], tmp_path)
    assert (done.already, done.closed) == (source != "sqlite" and target == "sqlite", True)
    assert everything(depots[target]) == before
    assert depots[source].moved().to == depots[target].url
    assert depots[target].moved() is None


@pytest.mark.parametrize("way", list(permutations(KINDS[1:])), ids="-to-".join)
def test_a_store_that_went_through_all_kinds_is_the_same(depots, tmp_path, way):
    before = everything(depots["sqlite"])
    there = [depots["sqlite"], *(depots[kind] for kind in way), SqliteDepot(tmp_path / "back.db", COPIES)]
    for source, target in pairwise(there):
        assert not promoted(source, target, tmp_path).already
    assert everything(there[-1]) == before


RANDOM = {"tokens": {"hash"}, "secrets": {"body", "wrapped"}, "hook_secrets": {"secret", "previous"}, "workers": {"memory"}}
"""Columns whose values are never the same twice. Sessions are in the order of such a one."""


def reproducible(depot):
    found = everything(depot)
    found["sessions"] = len(found["sessions"])
    for table in TABLES:
        if table.name in RANDOM:
            kept = [place for place, name in enumerate(table.names) if name not in RANDOM[table.name]]
            found[table.name] = [tuple(row[place] for place in kept) for row in found[table.name]]
    return found


@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_same_work_leaves_the_same_rows_in_every_store(depots, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials(tmp_path / "credentials")))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    work(tmp_path / "own.db", ManualClock(), schema="copies")
    work({"postgres": shared_server().url(), "mongodb": shared_set().url("copies")}[kind], ManualClock(), schema="copies")
    own = SqliteDepot(tmp_path / "own.db", COPIES)
    assert reproducible(depots[kind]) == reproducible(own)
    # And what its own verbs have written can be copied.
    assert not promoted(depots[kind], SqliteDepot(tmp_path / "copy.db", COPIES), tmp_path, keep=True).already


# ---- MongoDB: a copy is written beside the store, and others are kept out by a mark -------------------------------


@pytest.fixture
def mongodb(depots):
    depot = depots["mongodb"]
    depot.prepare(now=0)
    return depot


@pytest.fixture
def store(mongodb):
    opened = MongoStore(shared_set().url("copies"), Settings(busy_timeout=1))
    opened.migrate(now=0)
    yield opened
    opened.close()


@pytest.fixture
def database(mongodb):
    with shared_set().client() as client:
        yield client["copies"]


def test_every_collection_of_mongodb_is_in_the_list():
    named = {NAMED_BY.get(name, name) for name in COLLECTIONS} - {"locks", "counters", "bell", "figures"}
    assert named | set(FIGURES) == {table.name for table in TABLES}


@pytest.mark.parametrize("name", FIGURES)
def test_the_keys_of_figures_are_one_of_mongodbs(name):
    (table,) = (table for table in TABLES if table.name == name)
    columns = ["at" if column == FIGURES[name] else column for column in table.key]
    assert columns == [column for column in OF_SEVERAL["figures"] if column in columns]


@pytest.mark.parametrize(
    "table", [table for table in TABLES if table not in {JOBS, RUNS} and table.name not in FIGURES], ids=lambda table: table.name
)
def test_the_key_is_mongodbs_own(table):
    assert OF_SEVERAL.get(table.name) == table.key or (KEYS.get(table.name),) == table.key


def test_a_copy_beside_leaves_what_is_there_until_it_is_whole(mongodb, database):
    def copy(error):
        with mongodb.writing() as writing:
            writing.clear()
            writing.write(TABLES[1], [tuple({"organization_id": "acme"}.get(name) for name in TABLES[1].names)])
            assert [row[0] for row in everything_of(mongodb, "organizations")] == ["default"]
            writing.finish()
            if error is not None:
                raise error

    with pytest.raises(ValueError, match="half way"):
        copy(ValueError("half way"))
    assert [row[0] for row in everything_of(mongodb, "organizations")] == ["default"]
    assert marks.names_beside(database) == []
    copy(None)
    assert [row[0] for row in everything_of(mongodb, "organizations")] == ["acme"]
    assert marks.names_beside(database) == []


def everything_of(depot, name):
    with depot.snapshot() as reading:
        return list(reading.rows(next(table for table in TABLES if table.name == name)))


def test_who_writes_while_a_store_is_copied_waits_and_is_told(mongodb, store):
    def pause():
        try:
            store.stopping("ab" * 16, now=1)
        except (StoreBusy, StoreMoved) as error:
            outcome.append(error)
        else:
            outcome.append(None)

    for closed, told in ((False, type(None)), (True, StoreMoved)):
        outcome = []
        with mongodb.hold() as guard:
            late = threading.Thread(target=pause)
            late.start()
            late.join(0.3)
            assert late.is_alive()
            guard.check()
            if closed:
                guard.close_store(Moved(1, "elsewhere"))
        late.join(patient(20))
        assert isinstance(outcome[0], told)
    with pytest.raises(StoreMoved, match="was moved to elsewhere"):
        store.migrate(now=2)
    mongodb.reopen()
    store.migrate(now=2)


def test_who_waits_for_a_copy_for_too_long_is_told(mongodb, store):
    with mongodb.hold(), pytest.raises(StoreBusy, match="is being copied"):
        store.stopping("ab" * 16, now=1)


def test_the_mark_of_a_dead_copy_becomes_invalid(mongodb, store, database, monkeypatch):
    monkeypatch.setattr(marks, "VALID_S", 0.1)
    assert marks.Mark(database).put()
    store.stopping("ab" * 16, now=1)
    assert database["locks"].count_documents({"copying": {"$exists": True}}) == 0


def test_a_copy_whose_mark_was_lost_is_not_kept(mongodb, database):
    def copy():
        with mongodb.writing() as writing:
            writing.clear()
            writing.finish()
            database["locks"].update_many({}, {"$unset": {"copying": ""}})

    with pytest.raises(StoreUnavailable, match="open to others"):
        copy()
    with mongodb.hold() as guard:
        database["locks"].update_many({}, {"$unset": {"copying": ""}})
        with pytest.raises(StoreUnavailable, match="lock was lost"):
            guard.check()
    assert [row[0] for row in everything_of(mongodb, "organizations")] == ["default"]


def test_a_copy_whose_mark_is_anothers_by_now_leaves_the_copy_of_that_one_alone(mongodb, database):
    organizations = [tuple({"organization_id": "acme"}.get(name) for name in TABLES[1].names)]

    def copy():
        with mongodb.writing() as writing:
            writing.clear()
            # This process was stopped for so long that another one has begun a copy of its own.
            database["locks"].update_many({}, {"$set": {"copying.by": "another"}})
            writing.write(TABLES[1], organizations)

    with pytest.raises(StoreUnavailable, match="open to others"):
        copy()
    assert "copying.organizations" in marks.names_beside(database)
    assert database["copying.organizations"].find_one() is None
    database["locks"].update_many({}, {"$unset": {"copying": ""}})
    for name in marks.names_beside(database):
        database.drop_collection(name)


def test_a_copy_that_was_whole_when_its_process_died_is_put_in_place_by_the_next(mongodb, database, monkeypatch):
    def die(_):
        raise KeyboardInterrupt

    def copy():
        with mongodb.writing() as writing:
            writing.clear()
            writing.write(TABLES[1], [tuple({"organization_id": "acme"}.get(name) for name in TABLES[1].names)])
            writing.finish()

    monkeypatch.setattr(marks, "VALID_S", 0.1)
    monkeypatch.setattr("rota.stores.mongodb.copying.put_in_place", die)
    with pytest.raises(KeyboardInterrupt):
        copy()
    assert marks.names_beside(database)
    eventually(lambda: mongodb.prepare(now=0) or not marks.names_beside(database), what="the copy in its place")
    assert [row[0] for row in everything_of(mongodb, "organizations")] == ["acme"]
    assert database["locks"].count_documents({"copying": {"$exists": True}}) == 0


def test_a_copy_to_mongodb_that_would_not_be_whole_is_refused(mongodb):
    values = {"job_number": 5, "run_id": b"\x01" * 16, "started_at": 1, "artifacts": "[]"}

    def copy():
        with mongodb.writing() as writing:
            writing.clear()
            writing.write(RUNS, [tuple(values.get(name) for name in RUNS.names)])
            writing.finish()

    with pytest.raises(StoreError, match=r"job_runs refers to what is not in jobs \(1\)"):
        copy()


def test_two_copies_to_one_database_do_not_meet(mongodb):
    impatient = MongoDepot(shared_set().url("copies"), Settings(busy_timeout=0.2))
    with mongodb.writing() as writing:
        writing.clear()
        with pytest.raises(StoreBusy, match="is being copied"), impatient.writing():
            pass
        writing.finish()


def test_collections_of_others_stay_and_are_named(mongodb, database):
    database["orders"].insert_one({"_id": 7})
    assert mongodb.others() == ["orders"]
    with mongodb.writing() as writing:
        writing.clear()
        writing.finish()
    assert database["orders"].find_one() == {"_id": 7}
