"""Closing a store while other threads use it."""

import threading

import pytest

from rota.errors import StoreError
from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore
from tests.stores.desk import Desk
from tests.support.pace import patient
from tests.support.waiting import eventually


class Beside:
    """A thread that stops in the middle of its work on the store, and then goes on."""

    def __init__(self, work):
        self.inside, self.gate = threading.Event(), threading.Event()
        self.outcome = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self.inside.wait(patient(10))

    def pause(self, *_):
        self.inside.set()
        self.gate.wait(patient(10))

    def _run(self):
        try:
            self.outcome = self._work(self.pause)
        except BaseException as error:
            self.outcome = error

    def ends(self):
        self.gate.set()
        self._thread.join(patient(10))
        assert not self._thread.is_alive()
        return self.outcome


def test_closing_lets_what_is_being_written_end_and_refuses_what_comes_after(desk, store, raw):
    row, late = desk.row(), desk.row()

    def writes(pause):
        def work(db):
            pause()
            return [each.job_id for each in enqueue(db, [row], desk.now)]

        return store._write(work)

    from rota.stores.verbs.intake import enqueue

    beside = Beside(writes)
    behind = Beside(lambda pause: (pause(), desk.put(late)))
    behind.gate.set()
    eventually(lambda: store._writer._waiting, what="a caller in line")
    closing = threading.Thread(target=store.close)
    closing.start()
    eventually(lambda: store._writer._ended, what="the end")
    assert beside.ends() == [row.job_id]
    closing.join(patient(10))
    assert isinstance(behind.ends(), StoreError)
    assert [job for (job,) in raw.execute("SELECT lower(hex(job_id)) FROM jobs")] == [row.job_id]
    assert not store._writer._connected


def test_a_closed_store_opens_no_transaction(store):
    store.close()
    with pytest.raises(StoreError, match="is closed"), store.transaction():
        pass
    assert not store._writer._connected


def test_a_transaction_that_stays_open_does_not_keep_a_store_from_closing(path, raw, store):
    other = SqliteStore(path, Settings(busy_timeout=0.05))
    desk = Desk(other)

    def stays(pause):
        with other.transaction() as tx:
            other.enqueue([desk.row()], now=desk.now, transaction=tx)
            pause()

    beside = Beside(stays)
    other.close()
    assert isinstance(beside.ends(), StoreError)
    assert list(raw.execute("SELECT count(*) FROM jobs")) == [(0,)]
