"""From a file to MongoDB and back with `rota promote`: a store that is locked by a mark, and written beside its place."""

from __future__ import annotations

import threading

import pytest

from rota import Rota, Settings
from rota.errors import StoreError, StoreMoved, StoreUnavailable, StoreUnusable
from rota.stores.mongodb.copying import Writing
from tests.support.mongodb import shared_set
from tests.support.pace import patient
from tests.support.waiting import eventually
from tests.support.whole import content, neutral
from tests.surfaces.cli_support import Cli

SETTINGS = Settings(lease_ttl=1)
DATABASE = "promoted"


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield shared_set().url(DATABASE)
    with shared_set().client() as client:
        client.drop_database(DATABASE)


@pytest.fixture
def opened(url):
    """Open a store with a handler that writes down what it is given; all are closed before the database goes."""
    made = []

    def open_at(where):
        rota = Rota(where, settings=SETTINGS)
        made.append(rota)
        rota.noted = []

        @rota.job
        def note(n: int = 0) -> None:
            rota.noted.append(n)

        return rota

    yield open_at
    while made:
        made.pop().close()


@pytest.fixture
def small(tmp_path, opened):
    """A store with three jobs."""
    rota = opened(tmp_path / "small.db")
    for number in range(3):
        rota.enqueue("note", {"n": number}, priority=50 + number)
    rota.close()
    return tmp_path / "small.db"


def promoted(source, target, **options):
    rota = Rota(source, settings=SETTINGS)
    try:
        return rota.store.promote(target, **options)
    finally:
        rota.close()


def test_there_and_back_everything_is_the_same_and_numbers_go_on(small, url, opened, tmp_path):
    before, same = content(small), neutral(small, SETTINGS)
    there = promoted(small, url)
    assert neutral(url, SETTINGS) == same
    back = promoted(url, tmp_path / "back.db")
    assert (there.tables, there.queue) == (back.tables, back.queue)
    assert content(tmp_path / "back.db") == before
    promoted(tmp_path / "back.db", url)
    rota = opened(url)
    assert rota.enqueue("note").number.endswith("-00004")
    rota.templates.update("note", timeout=5)
    assert len({entry.id for entry in rota.audit.list(limit=100)}) == len(rota.audit.list(limit=100))


def test_workers_go_on_in_the_order_of_the_queue(small, url, opened):
    promoted(small, url)
    with opened(url).running(concurrency=1) as moved:
        eventually(lambda: len(moved.noted) == 3, what="three jobs at the target")
    assert moved.noted == [2, 1, 0]


def test_who_has_a_database_open_is_told_where_it_went(small, url, opened, tmp_path):
    promoted(small, url)
    program = opened(url)
    program.enqueue("note", {"n": 3})
    promoted(url, tmp_path / "back.db")
    for work in (lambda: program.enqueue("note"), lambda: program.enqueue("note", unique_key="k"), program.store.pause):
        with pytest.raises(StoreMoved, match=r"this store was moved to .*back\.db"):
            work()
    with pytest.raises(StoreMoved), program.transaction() as tx:
        program.enqueue("note", transaction=tx)
    program.close()
    with pytest.raises(StoreMoved, match=r"back\.db"):
        opened(url).store.stats()


def test_who_enqueues_while_a_database_is_moved_waits_and_is_told(small, url, opened, tmp_path):
    promoted(small, url)
    program = opened(url)
    program.enqueue("note", {"n": 3})
    outcome = []

    def enqueue():
        try:
            outcome.append(program.enqueue("note", {"n": 4}))
        except StoreMoved as error:
            outcome.append(error)

    late = threading.Thread(target=enqueue)

    def begin(step):
        if step.what == "copying" and not late.ident:
            late.start()
            late.join(0.3)
            assert late.is_alive()

    done = promoted(url, tmp_path / "back.db", progress=begin)
    late.join(patient(20))
    assert isinstance(outcome[0], StoreMoved)
    assert done.tables["jobs"].rows == 4


def test_who_enqueues_while_a_database_is_only_copied_does_not_wait(small, url, opened, tmp_path):
    promoted(small, url)
    program = opened(url)

    def enqueue(step):
        if step.what in {"copying", "verifying"}:
            program.enqueue("note", {"n": 4})

    assert promoted(url, tmp_path / "back.db", keep=True, progress=enqueue).tables["jobs"].rows == 3
    assert len(neutral(url, SETTINGS)["jobs"]) > 3


def test_a_copy_that_is_not_the_same_is_not_kept(small, url, opened, monkeypatch):
    write = Writing.write

    def forgetful(self, table, rows):
        write(self, table, rows[:-1] if table.name == "jobs" else rows)

    monkeypatch.setattr(Writing, "write", forgetful)
    with pytest.raises(StoreError, match=r"the copy is not the same in jobs: 3 rows, .* but 2 rows"):
        promoted(small, url)
    assert neutral(url, SETTINGS)["jobs"] == []
    opened(small).store.stats()


def test_a_mark_that_is_lost_on_the_way_is_noticed_before_the_copy_is_kept(small, url, opened, tmp_path):
    promoted(small, url)

    def lose(step):
        if (step.what, step.table) == ("verifying", "jobs"):
            with shared_set().client() as client:
                client[DATABASE]["locks"].update_many({}, {"$unset": {"copying": ""}})

    with pytest.raises(StoreUnavailable, match="lock was lost"):
        promoted(url, tmp_path / "back.db", progress=lose)
    assert not (tmp_path / "back.db").exists()
    opened(url).enqueue("note")


def test_a_store_that_comes_straight_back_is_opened_again(small, url, opened):
    promoted(small, url)
    promoted(url, small)
    done = promoted(small, url)
    assert (done.already, done.closed) == (True, True)
    rota = opened(url)
    rota.turn()
    assert rota.noted == [2, 1, 0]


def test_a_database_that_was_dropped_is_not_taken_for_one_that_is_copied(small, url, opened):
    promoted(small, url)
    program = opened(url)
    program.enqueue("note")
    with shared_set().client() as client:
        client.drop_database(DATABASE)
    with pytest.raises(StoreUnusable, match="has no store any more"):
        program.store.pause()


def test_the_command_says_what_it_did_and_reopens(small, url, tmp_path):
    cli = Cli(tmp_path)
    cli.env |= {"ROTA_LEASE_TTL": "1"}
    words = " ".join(cli.ok("promote", str(small), url).split())
    assert "has everything that" in words
    assert "held the same already" in cli.ok("promote", str(small), url)
    cli.ok("promote", url, str(tmp_path / "back.db"))
    assert "(store_moved)" in cli("stats", "--store", url).stderr
    assert "is open again" in cli.ok("reopen", "--store", url)
    cli.ok("stats", "--store", url)
    cli.close()


def test_a_password_in_a_url_of_mongodb_is_warned_of_with_a_remedy_that_works_there(tmp_path):
    cli = Cli(tmp_path)
    cli.env |= {"ROTA_BUSY_TIMEOUT": "0.1"}
    warning = cli("stats", "--store", "mongodb://ada:s3cret@127.0.0.1:1/shop").stderr
    assert "set $ROTA_STORE to the URL instead" in warning
    assert "pgpass" not in warning
    assert "s3cret" not in warning
    cli.close()
