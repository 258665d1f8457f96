"""Bringing a file's schema up to date, whole or not at all; and files that can't be a store."""

import os
import subprocess
import sys
import warnings
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from rota import Rota
from rota.errors import StoreError, StoreUnusable
from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore, migrate
from rota.stores.sqlite.connection import NETWORK_FILE_SYSTEMS, check_path
from tests.stores.desk import Desk
from tests.support.pace import patient
from tests.support.schema import migrated


def opened(path):
    store = SqliteStore(path, Settings())
    try:
        store.migrate(now=0)
    except BaseException:
        store.close()
        raise
    return store


def digest(path):
    return sha256(path.read_bytes()).hexdigest()


def make_foreign(path, statement, journal="delete"):
    raw = apsw.Connection(str(path))
    raw.pragma("journal_mode", journal)
    raw.execute(statement)
    raw.close()


# ---- migrations ------------------------------------------------------------------------------------------------------


def test_a_fresh_file_gets_the_latest_schema_and_is_used_at_once(path):
    store = opened(path)
    Desk(store).add()
    raw = apsw.Connection(str(path))
    assert list(raw.execute("SELECT value FROM meta WHERE key = 'schema'")) == [(migrate.latest(),)]
    assert list(raw.execute("PRAGMA integrity_check")) == [("ok",)]
    raw.close()
    store.close()


def test_the_file_is_in_wal_mode_with_full_durability(path):
    store = opened(path)
    with store._readers.take() as db:
        assert db.raw.pragma("journal_mode") == "wal"
    assert store._writer._db.raw.pragma("synchronous") == 2
    assert store._writer._db.raw.pragma("foreign_keys") == 1
    store.close()


def test_migrating_twice_is_migrating_once(path):
    store = opened(path)
    job_id = Desk(store).add()
    store.migrate(now=1)
    store.close()
    again = opened(path)
    assert again.job(job_id) is not None
    again.close()


def test_migrations_are_numbered_without_gap_from_one():
    numbers = sorted(migrate.migrations())
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_migration_that_fails_leaves_nothing_behind(path, monkeypatch):
    real = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: real | {len(real) + 1: "CREATE TABLE half (x); CREATE TABLE half (x);"})
    with pytest.raises(StoreError):
        opened(path)
    raw = apsw.Connection(str(path))
    assert list(raw.execute("SELECT name FROM sqlite_master")) == []
    raw.close()
    monkeypatch.undo()
    opened(path).close()


def test_a_schema_of_a_newer_rota_is_refused_and_the_file_unchanged(path):
    opened(path).close()
    raw = apsw.Connection(str(path))
    raw.execute("UPDATE meta SET value = 99 WHERE key = 'schema'")
    raw.close()
    before = digest(path)
    with pytest.raises(StoreUnusable, match=r"newer Rota \(schema 99; this one knows \d+\)"):
        opened(path)
    assert digest(path) == before


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE jobs (id INTEGER)", "CREATE TABLE job_runs (id)", "CREATE TABLE meta (name, content)", "CREATE TABLE meta (key, value)"],
)
def test_a_strangers_tables_are_refused_and_the_file_unchanged(path, statement, journal):
    make_foreign(path, statement, journal)
    before = digest(path)
    with pytest.raises(StoreUnusable, match="that Rota did not make"):
        opened(path)
    assert digest(path) == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_file_with_other_tables_can_be_shared(path):
    make_foreign(path, "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
    store = opened(path)
    desk = Desk(store)
    with store.transaction() as tx:
        tx.execute("INSERT INTO customers (name) VALUES (?)", ("Ada",))
        store.enqueue([desk.row()], now=desk.now, transaction=tx)
    assert len(desk.order()) == 1
    store.close()


MIGRATE = "import sys; from rota import Rota; r = Rota(sys.argv[1]); print(r.store.stats().late_results); r.close()"


def test_processes_that_migrate_at_once_make_one_schema(path):
    children = [
        subprocess.Popen([sys.executable, "-c", MIGRATE, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    ends = [(child.communicate(timeout=patient(50)), child.returncode) for child in children]
    assert [(out.strip(), code) for (out, _), code in ends] == [("0", 0)] * 3, ends
    raw = apsw.Connection(str(path))
    assert list(raw.execute("SELECT count(*) FROM organizations")) == [(1,)]
    assert list(raw.execute("PRAGMA integrity_check")) == [("ok",)]
    raw.close()


# ---- paths that can't be -----------------------------------------------------------------------------------------------


def test_a_directory_is_refused_with_a_path_that_would_do(tmp_path):
    with pytest.raises(StoreUnusable, match=r"is a directory: give the path of a file, such as .*rota\.db"):
        opened(tmp_path)


def test_a_missing_folder_is_refused_and_not_made(tmp_path):
    with pytest.raises(StoreUnusable, match="does not exist"):
        opened(tmp_path / "no" / "such" / "rota.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"this is a text file, not a database" * 40, b"\x00" * 4096, b"SQLite format 4\x00" * 300])
def test_a_file_that_is_not_sqlite_is_refused_and_unchanged(path, content):
    path.write_bytes(content)
    with pytest.raises(StoreUnusable, match="not a SQLite database"):
        opened(path)
    assert path.read_bytes() == content


def test_a_damaged_file_says_so(path):
    store = opened(path)
    Desk(store).several(200)
    store.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\x55" * (len(data) - 4096)
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError):
        look_into(path)


def look_into(path):
    store = opened(path)
    try:
        store.queue(limit=5)
    finally:
        store.close()


def as_nobody(work):
    """Do this in a child that has no rights of root; return what it said."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Later Pythons warn of threads; the child has what it needs in memory and waits for none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        said = "?"
        try:
            os.close(reading)
            if os.getuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            try:
                said = repr(work())
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def open_folder(tmp_path_factory):
    """A folder that everybody can reach, unlike pytest's own."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_file_that_can_not_be_written_is_refused(open_folder):
    path = open_folder / "rota.db"
    opened(path).close()
    path.chmod(0o444)
    open_folder.chmod(0o777)
    assert as_nobody(lambda: opened(path)).startswith(f"StoreUnusable: {path} is not writable")


def test_a_folder_that_can_not_be_written_is_refused_because_the_log_stands_beside_the_file(open_folder):
    path = open_folder / "rota.db"
    opened(path).close()
    path.chmod(0o666)
    open_folder.chmod(0o555)
    said = as_nobody(lambda: opened(path))
    assert said.startswith(f"StoreUnusable: {open_folder} is not writable")
    assert as_nobody(lambda: opened(open_folder / "new.db")).startswith(f"StoreUnusable: {open_folder} is not writable")


def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("rota.stores.sqlite.connection.file_system", lambda _: "nfs4")
    assert "nfs4" in NETWORK_FILE_SYSTEMS
    with pytest.raises(StoreUnusable, match=r"network file system \(nfs4\)"):
        check_path(tmp_path / "rota.db")


def test_an_old_sqlite_is_refused(monkeypatch, path):
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.45.1")
    with pytest.raises(StoreUnusable, match=r"SQLite 3\.45\.1 .* needs 3\.51\.3 or later"):
        opened(path)
    assert not path.exists()


def test_a_rota_whose_store_was_refused_can_be_used_once_it_is_mended(path):
    path.mkdir()
    rota = Rota(path)
    with pytest.raises(StoreUnusable):
        rota.store.stats()
    path.rmdir()
    assert rota.store.stats().by_status["QUEUED"] == 0
    rota.close()


# ---- from one version to the next --------------------------------------------------------------------------------------


@pytest.fixture
def before_schedules(path):
    """A file of schema 2, as it was before schedules fired, with jobs that wait for each other."""
    raw = apsw.Connection(str(path))
    migrated(raw, 2)
    # Turns look for webhooks, which there were none of.
    raw.execute("CREATE TABLE endpoints (organization_id, root_id, state, dropped_at)")
    raw.execute("CREATE INDEX endpoints_open ON endpoints (organization_id, root_id) WHERE state = 'ENABLED' AND dropped_at IS NULL")
    # The snapshot asks for the slots of workers, which there were none of either.
    raw.execute("ALTER TABLE workers ADD COLUMN slots INTEGER; ALTER TABLE workers ADD COLUMN pid INTEGER")
    raw.execute("ALTER TABLE workers ADD COLUMN rota_version TEXT; ALTER TABLE workers ADD COLUMN memory INTEGER")
    # Edges are written with their place, which they did not have.
    raw.execute("ALTER TABLE job_edges ADD COLUMN place INTEGER")
    # Jobs wait in lanes, and workers say what they serve: there was one line for each type.
    raw.execute("CREATE TABLE lanes (lane INTEGER PRIMARY KEY, job_type TEXT, queue TEXT, digest TEXT)")
    raw.execute("CREATE TABLE param_digests (job_type TEXT, digest TEXT, names TEXT)")
    raw.execute(
        "ALTER TABLE jobs ADD COLUMN lane INTEGER; ALTER TABLE jobs ADD COLUMN tags TEXT;"
        "ALTER TABLE workers ADD COLUMN queues TEXT; ALTER TABLE workers ADD COLUMN digests TEXT"
    )
    # Ends are counted by the minute, which they were not.
    counts = "minute, organization_id, job_type, status, bucket"
    raw.execute(f"CREATE TABLE stats_minutely ({counts}, count, total_us, PRIMARY KEY ({counts}))")
    desk = Desk(SqliteStore(path, Settings()))
    parent = desk.add()
    child = desk.add("child", depends_on=(parent,))
    met = desk.add("met")
    desk.done(desk.claim_one(types=["met"]))
    desk.add("child", depends_on=(met,))
    group = desk.grouped([desk.row("g"), desk.row("g")])
    desk.add("skips", depends_on=(parent,), on_parent_failure="skip")
    before = desk.snapshot(), edges(path)
    raw.execute("DROP TABLE endpoints; DROP TABLE stats_minutely")
    for column in ("slots", "pid", "rota_version", "memory"):
        raw.execute(f"ALTER TABLE workers DROP COLUMN {column}")
    raw.execute("ALTER TABLE job_edges DROP COLUMN place")
    raw.execute("DROP TABLE lanes; DROP TABLE param_digests; ALTER TABLE jobs DROP COLUMN lane; ALTER TABLE jobs DROP COLUMN tags")
    raw.execute("ALTER TABLE workers DROP COLUMN queues; ALTER TABLE workers DROP COLUMN digests")
    raw.close()
    desk.store.close()
    return before, parent, child, group


def edges(path):
    raw = apsw.Connection(str(path))
    try:
        return list(raw.execute("SELECT child, parent_root, needs, on_failure, source, resolved_at FROM job_edges ORDER BY 1, 2"))
    finally:
        raw.close()


def test_a_file_from_before_schedules_keeps_its_jobs_and_what_they_wait_for(path, before_schedules):
    (snapshot, waits), parent, child, _ = before_schedules
    desk = Desk(opened(path))
    assert (desk.snapshot(), edges(path)) == (snapshot, waits)
    assert len(waits) >= 4
    assert desk.claim(5, types=["skips"]) == []
    job = desk.claim_one()
    assert job.job_id == parent
    desk.done(job)
    assert child in [each.job_id for each in desk.claim(5, types=["child"])]
    raw = apsw.Connection(str(path))
    assert list(raw.execute("PRAGMA integrity_check")) == [("ok",)]
    assert list(raw.execute("PRAGMA foreign_key_check")) == []
    raw.close()
    desk.store.close()


def test_a_file_from_before_schedules_becomes_as_a_fresh_one(path, tmp_path, before_schedules):
    opened(path).close()
    fresh = tmp_path / "fresh.db"
    opened(fresh).close()
    assert schema(path) == schema(fresh)


def schema(path):
    """Every table, index and trigger, its text without the room between words."""
    raw = apsw.Connection(str(path))
    try:
        found = raw.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name")
        return [(kind, name, " ".join(text.split())) for kind, name, text in found]
    finally:
        raw.close()


def test_a_file_from_before_schedules_can_have_schedules_that_fire(path, before_schedules):
    from tests.stores.timekeeper import Timekeeper

    desk = Timekeeper(opened(path))
    desk.schedule("parent")
    desk.schedule("child", depends_on=("parent",))
    desk.pass_time(60)
    assert [row.fate for row in desk.rows()] == ["FIRED", "FIRED"]
    desk.store.close()
