"""A signal's handler that raises inside the writer: nothing stays locked, nobody waits for ever, nothing half done is committed."""

import sys
import threading
from itertools import count

import pytest

from rota.errors import StoreUnavailable
from tests.support.pace import patient
from tests.support.waiting import eventually


class Struck(KeyboardInterrupt):
    """What the handler raises."""


class Striker:
    """Raises once, where Python looks for signals (a function begins, a call of C returns), at the n-th such place in one module."""

    def __init__(self, at, module="writer"):
        self.left = at
        self.file = f"stores/sqlite/{module}.py"

    def __call__(self, frame, event, arg):
        # What is raised while a generator is thrown away would be swallowed.
        code = frame.f_code
        if event in {"call", "c_return"} and code.co_filename.endswith(self.file) and code.co_name != "<genexpr>":
            self.left -= 1
            if not self.left:
                raise Struck

    def struck_in(self, work):
        """Do this work and return whether the signal struck it, with what it gave back if not."""
        sys.setprofile(self)
        try:
            return False, work()
        except Struck:
            return True, None
        finally:
            sys.setprofile(None)


def in_transaction(store, desk, row):
    with store.transaction() as tx:
        return store.enqueue([row], now=desk.now, transaction=tx)[0]


WAYS = {
    "at once": lambda store, desk, row: desk.put_at_once(row),
    "run": lambda store, desk, row: desk.put(row)[0],
    "transaction": in_transaction,
}


def is_free(writer):
    return (writer._leader, writer._owner, writer._waiting, writer._batch, writer._db.raw.in_transaction) == (None, None, [], [], False)


@pytest.mark.parametrize("way", WAYS)
def test_a_signal_that_strikes_a_caller_anywhere_leaves_the_writer_free(desk, store, raw, way):
    desk.add()  # the shortest way is for those who come behind others
    for at in count(1):
        struck, added = Striker(at).struck_in(lambda: WAYS[way](store, desk, desk.row()))
        assert is_free(store._writer), f"struck at {at}"
        accepted = desk.put_at_once(desk.row())
        # Of somebody else's connection: it is committed.
        assert list(raw.execute("SELECT 1 FROM jobs WHERE job_id = unhex(?)", (accepted.job_id,)))
        if not struck:
            assert desk.job(added.job_id).status == "QUEUED"
            assert at > 5
            return


def test_a_signal_that_strikes_a_reader_anywhere_leaves_no_connection_lent(desk, store):
    job_id = desk.add()
    for at in count(1):
        struck, _ = Striker(at, "connection").struck_in(lambda: desk.job(job_id))
        # A fork waits for those that are lent.
        assert not store._readers._lent, f"struck at {at}"
        if not struck:
            assert at > 10
            return


class Line:
    """A leader who is struck, and two who wait behind it; their outcomes by name."""

    def __init__(self, desk, store):
        self.desk, self.store = desk, store
        self.outcomes = {}
        self.rows = {name: desk.row() for name in ("leader", "second", "third")}

    def put(self, name, wrap=lambda work: work()):
        try:
            self.outcomes[name] = wrap(lambda: self.desk.put(self.rows[name]))
        except BaseException as error:
            self.outcomes[name] = error

    def go(self, wrap):
        """Let all three line up behind a transaction, which then ends."""
        callers = [threading.Thread(target=self.put, args=("leader", wrap))]
        callers += [threading.Thread(target=self.put, args=(name,)) for name in ("second", "third")]
        with self.store.transaction():
            for caller in callers:
                caller.start()
                eventually(lambda caller=caller: self.is_in_line(caller) or not caller.is_alive(), what="another caller in line")
        for caller in callers:
            caller.join(patient(10))
            assert not caller.is_alive(), "a caller waits for one who has gone"

    def is_in_line(self, caller):
        return any(piece.thread == caller.ident for piece in self.store._writer._waiting)

    def check(self, raw):
        """Who was told that it is accepted finds it there."""
        for name in ("second", "third"):
            outcome = self.outcomes[name]
            assert isinstance(outcome, list | StoreUnavailable), outcome
            there = list(raw.execute("SELECT 1 FROM jobs WHERE job_id = unhex(?)", (self.rows[name].job_id,)))
            assert there or isinstance(outcome, StoreUnavailable)


def test_a_signal_that_strikes_a_leader_anywhere_leaves_nobody_waiting(desk, store, raw):
    for at in count(1):
        line = Line(desk, store)
        line.go(lambda work, at=at: Striker(at).struck_in(work))
        line.check(raw)
        assert is_free(store._writer), f"struck at {at}"
        if not line.outcomes["leader"][0]:
            assert at > 20
            return


def test_an_interrupt_in_the_middle_of_anothers_piece_is_heard_by_the_thread_it_was_meant_for(desk, store, raw, monkeypatch):
    line = Line(desk, store)
    monkeypatch.setattr("rota.stores.verbs.intake.enqueue", interrupted_at(line.rows["second"]))
    line.go(lambda work: work())
    line.check(raw)
    assert isinstance(line.outcomes["leader"], Struck)
    assert all(isinstance(line.outcomes[name], StoreUnavailable) for name in ("second", "third"))
    assert desk.order() == []


def interrupted_at(row):
    from rota.stores.verbs.intake import enqueue

    def struck(db, rows, *args, **options):
        if row in rows:
            raise Struck
        return enqueue(db, rows, *args, **options)

    return struck
