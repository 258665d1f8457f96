"""A file that is deleted, renamed or replaced while a store is open: nothing is acknowledged into what is gone."""

from __future__ import annotations

import os
import re
import threading
from contextlib import closing, suppress

import apsw
import pytest

from rota import Rota, Settings
from rota.errors import AnswerLost, StoreError, StoreFileLost, StoreUnavailable, StoreUnusable
from rota.stores.sqlite import SqliteStore
from rota.stores.sqlite.connection import Identity, Moved
from tests.stores.desk import Desk
from tests.support.prepared import prepare


@pytest.fixture
def path(tmp_path):
    return prepare(tmp_path / "rota.db")


@pytest.fixture
def rota(path):
    with closing(Rota(path, settings=Settings(busy_timeout=0.1))) as made:
        made.job(name="work")(lambda n=0: None)
        made.enqueue("work", {"n": 0})
        yield made


def delete(path):
    path.unlink()


def rename(path):
    path.rename(path.with_name("away.db"))


def replace_by_a_store(path):
    other = prepare(path.with_name("other.db"))
    other.replace(path)


def replace_by_garbage(path):
    other = path.with_name("garbage")
    other.write_bytes(b"garbage " * 4096)
    other.replace(path)


def lead_elsewhere(path):
    """Put a link to another store where the file was."""
    other = prepare(path.with_name("other.db"))
    path.rename(path.with_name("away.db"))
    path.symlink_to(other)


def remove_the_folder(path):
    path.parent.rename(path.parent.with_name(f"{path.parent.name}-away"))


LOSSES = pytest.mark.parametrize(
    ("lose", "what"),
    [
        (delete, "it was deleted or renamed"),
        (rename, "it was deleted or renamed"),
        (replace_by_a_store, "another file is at its path now"),
        (replace_by_garbage, "another file is at its path now"),
        (lead_elsewhere, "another file is at its path now"),
        (remove_the_folder, "it was deleted or renamed"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)


def enqueue_alone(rota):
    rota.enqueue("work", {"n": 1})


def enqueue_with_a_key(rota):
    rota.enqueue("work", {"n": 1}, unique_key="k")


def enqueue_many(rota):
    rota.enqueue_many([("work", {"n": 1})] * 3)


def pause(rota):
    rota.store.pause()


def transaction(rota):
    with rota.transaction() as tx:
        rota.enqueue("work", {"n": 1}, transaction=tx)


def transaction_of_ones_own(rota):
    with rota.transaction() as tx:
        tx.execute("CREATE TABLE mine (a)")


def read(rota):
    rota.store.stats()


def read_with_another_connection(rota):
    store = rota._session.open().store
    with store._readers.take():
        rota.store.stats()


CALLS = pytest.mark.parametrize(
    "call",
    [enqueue_alone, enqueue_with_a_key, enqueue_many, pause, transaction, transaction_of_ones_own, read],
    ids=lambda call: call.__name__,
)


def contents(path):
    """Return every file of a folder with its bytes, but for what SQLite keeps in shared memory."""
    return {each.name: each.read_bytes() for each in sorted(path.iterdir()) if each.is_file() and not each.name.endswith("-shm")}


@LOSSES
@CALLS
def test_every_call_says_that_the_file_is_lost_and_writes_nowhere(rota, path, lose, what, call):
    lose(path)
    folder = path.parent if path.parent.exists() else path.parent.with_name(f"{path.parent.name}-away")
    before = contents(folder)
    with pytest.raises(StoreFileLost, match=rf"{re.escape(str(path))}.*{what}.*put the file back.*restart") as refused:
        call(rota)
    assert isinstance(refused.value, StoreUnavailable)
    # Pages of a transaction that is undone may reach the log, but no commit does: what counts is the main file and what can be read.
    after = contents(folder)
    assert {name: data for name, data in after.items() if not name.endswith("-wal")} == {
        name: data for name, data in before.items() if not name.endswith("-wal")
    }
    assert set(after) == set(before), "a reader made a file of its own"
    if folder != path.parent:
        folder.rename(path.parent)


@pytest.mark.parametrize("lose", [rename, lead_elsewhere])
def test_when_the_same_file_is_back_everything_goes_on_and_nothing_refused_is_in_it(rota, path, lose):
    lose(path)
    for call in (enqueue_alone, enqueue_with_a_key, enqueue_many, pause, transaction, read):
        with pytest.raises(StoreFileLost):
            call(rota)
    path.with_name("away.db").replace(path)
    assert [job.params["n"] for job in rota.queues.jobs()] == [0]
    for call in (enqueue_alone, enqueue_with_a_key, transaction):
        call(rota)
    assert [job.params["n"] for job in rota.queues.jobs()] == [0, 1, 1, 1]


def test_a_connection_that_is_opened_later_does_not_read_the_other_file(rota, path):
    store = rota._session.open().store
    # One connection is lent to somebody else: the next reader needs another one.
    with store._readers.take():
        replace_by_a_store(path)
        with pytest.raises(StoreFileLost):
            rota.store.stats()
        with pytest.raises(StoreFileLost):
            store.changed()
    assert not path.with_name("rota.db-journal").exists()


def test_a_connection_that_is_opened_again_after_a_fork_does_not_write_to_the_other_file(rota, path):
    replace_by_a_store(path)
    before = contents(path.parent)
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for call in (enqueue_alone, enqueue_with_a_key, transaction, read):
        with pytest.raises(StoreFileLost):
            call(rota)
    assert contents(path.parent) == before


def test_that_the_file_is_lost_explains_whatever_error_the_driver_met_in_it(rota, path):
    store = rota._session.open().store

    def undo_twice(db):
        db.raw.execute("ROLLBACK")
        db.raw.execute("ROLLBACK")

    def undo_in_a_transaction():
        with rota.transaction():
            undo_twice(store._writer._db)

    def lose_while_reading():
        with store._reading() as db:
            delete(path)
            db.raw.execute("SELECT * FROM nothing")

    with pytest.raises(StoreFileLost):
        lose_while_reading()
    with pytest.raises(StoreFileLost):
        store._write(undo_twice)
    with pytest.raises(StoreFileLost):
        undo_in_a_transaction()


def test_callers_that_share_a_commit_are_all_told(rota, path):
    rename(path)
    told = []

    def call(number):
        try:
            rota.enqueue("work", {"n": number}, unique_key=str(number))
        except StoreFileLost:
            told.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == list(range(20))
    path.with_name("away.db").rename(path)
    assert rota.jobs.get(rota.enqueue("work")).status == "QUEUED"
    assert len(rota.queues.jobs()) == 2


# ---- in the moment of the commit -------------------------------------------------------------------------------------


@pytest.fixture
def lost_during(rota, path, monkeypatch):
    """Let the file be renamed between the look before a commit and the one after it."""
    original = Moved.__call__

    def moved(self):
        if path.exists():
            rename(path)
        return original(self)

    rota._session.open()
    monkeypatch.setattr(Moved, "__call__", moved)


@pytest.mark.parametrize("call", [enqueue_alone, enqueue_with_a_key, pause, transaction], ids=lambda call: call.__name__)
def test_a_file_that_is_lost_in_the_moment_of_the_commit_is_no_success(rota, path, lost_during, call):
    with pytest.raises(AnswerLost, match=r"only in the file that was moved away.*put the file back.*repeat"):
        call(rota)


def test_a_file_that_is_exchanged_while_it_is_opened_is_refused(path, tmp_path):
    other = prepare(tmp_path / "other.db")
    identity = Identity(path)

    def exchanged():
        path.rename(tmp_path / "away.db")
        other.rename(path)
        return apsw.Connection(str(path))

    with pytest.raises(StoreFileLost):
        identity.opened(exchanged)


def test_a_file_that_is_exchanged_for_the_time_of_the_opening_only_is_noticed_by_what_sqlite_opened(path, tmp_path):
    other = prepare(tmp_path / "other.db")
    identity = Identity(path)

    def exchanged():
        path.rename(tmp_path / "away.db")
        other.rename(path)
        connection = apsw.Connection(str(path))
        path.rename(other)
        (tmp_path / "away.db").rename(path)
        return connection

    with pytest.raises(StoreFileLost):
        identity.opened(exchanged)


# ---- what is not a loss ----------------------------------------------------------------------------------------------


def test_a_second_name_of_the_same_file_is_no_loss(rota, path):
    os.link(path, path.with_name("second.db"))
    rota.enqueue("work")
    path.unlink()
    path.with_name("second.db").rename(path)
    rota.enqueue("work")
    assert len(rota.queues.jobs()) == 3


@pytest.mark.parametrize("kind", ["garbage", "nothing", "another store"])
def test_a_file_whose_content_was_overwritten_in_place_gives_errors_of_ours_only(path, kind):
    """The inode is the same, so this can't be told from a damaged disk; what callers meet must be ours all the same."""
    store = SqliteStore(path, Settings(busy_timeout=0.1))
    store.migrate(now=0)
    desk = Desk(store)
    for _ in range(50):
        desk.put(desk.row())
    other = prepare(path.with_name("other.db"))
    for ending in ("-wal", "-shm"):
        path.with_name(f"rota.db{ending}").unlink()
    with path.open("r+b") as file:
        file.truncate()
        file.write({"garbage": b"garbage " * 4096, "nothing": b"", "another store": other.read_bytes()}[kind])
    met = []
    for call in [lambda: store.stats(now=0), lambda: desk.put(desk.row()), lambda: store.queue(limit=5), store.workers] * 3:
        try:
            call()
        except Exception as error:
            met.append(error)
    assert [error for error in met if not isinstance(error, StoreUnusable | StoreUnavailable)] == []
    with suppress(StoreError):
        store.close()
