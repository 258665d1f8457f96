"""What the check-up says of a file. Each trouble is made for real, or the bound is put where the file already is."""

from __future__ import annotations

import apsw
import pytest

from rota.model.findings import State
from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore, checkup
from tests.stores.desk import Desk

NOW = 1_772_366_400_000_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "patient.db"


@pytest.fixture
def store(path):
    made = SqliteStore(path, Settings())
    made.migrate(now=0)
    yield made
    made.close()


@pytest.fixture
def raw(store, path):
    connection = apsw.Connection(str(path))
    yield connection
    connection.close()


@pytest.fixture
def look(store):
    def find(name, *, full=False):
        return [each for each in store.checkup(now=NOW, machine=lambda: NOW, full=full) if each.name == name]

    return find


def one(found, state, *words):
    (each,) = found
    assert each.state is state, each
    for word in words:
        assert word in f"{each.text} → {each.remedy}"


def test_a_sound_file_is_told_so(store):
    for full in (False, True):
        found = store.checkup(now=NOW, machine=lambda: NOW, full=full)
        assert {each.name for each in found if each.state is not State.OK} == set()
    assert {"references", "file", "log"} <= {each.name for each in found}


def test_commits_that_may_be_lost_with_the_power(path, store):
    lax = SqliteStore(path, Settings(synchronous="NORMAL"))
    (found,) = (each for each in lax.checkup(now=NOW, machine=lambda: NOW, full=False) if each.name == "durability")
    one([found], State.ADVICE, "NORMAL", "ROTA_SYNCHRONOUS=FULL")
    lax.close()


def test_a_store_in_memory(look, monkeypatch):
    monkeypatch.setattr(checkup, "file_system", lambda _: "tmpfs")
    one(look("file system"), State.ADVICE, "in memory (tmpfs)")


def test_a_disk_that_is_nearly_full(look, monkeypatch):
    one(look("disk space"), State.OK, "are free")
    monkeypatch.setattr(checkup, "FREE_ADVICE_BYTES", 1 << 62)
    one(look("disk space"), State.ADVICE, "make room in time")
    monkeypatch.setattr(checkup, "FREE_PROBLEM_BYTES", 1 << 62)
    one(look("disk space"), State.PROBLEM, "rota purge")


def test_a_log_that_somebody_keeps_from_being_taken_back(path, raw, monkeypatch):
    store = SqliteStore(path, Settings(wal_pages=1))
    monkeypatch.setattr(checkup, "LOG_MIN_BYTES", 1)
    desk = Desk(store)
    reading = raw.execute("SELECT * FROM meta")
    next(reading)
    for _ in range(30):
        desk.add(params='{"a": "' + "x" * 5000 + '"}')
    found = [each for each in store.checkup(now=NOW, machine=lambda: NOW, full=False) if each.name == "log"]
    one(found, State.ADVICE, "write-ahead log", "find the program that reads")
    reading.close()
    store.close()


def test_a_file_that_is_mostly_air(store, look, raw, monkeypatch):
    monkeypatch.setattr(checkup, "AIR_MIN_BYTES", 1)
    one(look("size"), State.OK)
    raw.execute("CREATE TABLE filler (a)")
    with raw:
        raw.executemany("INSERT INTO filler VALUES (zeroblob(?))", [(3000,)] * 2000)
    raw.execute("DROP TABLE filler")
    one(look("size"), State.ADVICE, "VACUUM")


@pytest.mark.parametrize(("kind", "name"), [("index", "jobs_ready"), ("trigger", "runs_kept")])
def test_what_is_missing_comes_with_the_words_that_make_it(look, raw, kind, name):
    raw.execute(f"DROP {kind} {name}")
    (found,) = look("schema")
    one([found], State.PROBLEM, f"{kind} {name} is missing", "CREATE")
    raw.execute(found.remedy)
    one(look("schema"), State.OK)


def test_what_is_not_as_it_was_made(look, raw):
    raw.execute("DROP INDEX jobs_ready; CREATE INDEX jobs_ready ON jobs (job_type)")
    (found,) = look("schema")
    one([found], State.PROBLEM, "index jobs_ready is not as Rota made it")
    raw.execute(found.remedy.removeprefix("make it anew: "))
    one(look("schema"), State.OK)


def test_tables_of_the_callers_own_are_no_trouble(look, raw):
    raw.execute("CREATE TABLE invoices (id INTEGER PRIMARY KEY); CREATE INDEX by_id ON invoices (id)")
    one(look("schema"), State.OK)


def test_a_page_that_is_damaged(path, store):
    desk = Desk(store)
    desk.several(200, params='{"a": "' + "x" * 500 + '"}')
    store.close()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 4096 * 4096 - 4096 * 3)
        file.write(b"\xff" * 4096 * 2)
    again = SqliteStore(path, Settings())
    found = [each for each in again.checkup(now=NOW, machine=lambda: NOW, full=True) if each.name == "file"]
    again.close()
    (each,) = found
    assert each.state is State.PROBLEM
    assert "damaged" in each.text or "could not be looked at" in each.text


def test_a_row_that_points_at_nothing(look, raw):
    raw.execute("PRAGMA foreign_keys = off")
    raw.execute(
        "INSERT INTO users (name, organization_id, role, created_by, created_at, updated_at) VALUES ('a', 'gone', 'user', 'b', 0, 0)"
    )
    assert look("references") == []
    one(look("references", full=True), State.PROBLEM, "1 rows point at nothing: users", "backup")


def test_a_large_file_is_looked_through_when_that_is_asked_for(look, monkeypatch):
    monkeypatch.setattr(checkup, "QUICK_MAX_BYTES", 1)
    one(look("file"), State.OK, "not checked", "--full")
    one(look("file", full=True), State.OK, "every page and every row is whole")


def test_a_journal_that_is_not_wal(path, store, raw):
    store.close()
    raw.pragma("journal_mode", "delete")
    raw.close()
    # Opening switches back: what is found is a file that somebody has switched while it was open, so the look itself is tried.
    plain = apsw.Connection(str(path))
    (found,) = checkup._durability(type("Db", (), {"raw": plain})())
    one([found], State.PROBLEM, "delete", "not wal")
    plain.close()
