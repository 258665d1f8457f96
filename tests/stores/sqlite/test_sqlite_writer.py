"""The one writer of a process: callers that meet share a commit and nothing else."""

import os
import signal
import subprocess
import sys
import threading

import apsw
import pytest

from rota.errors import IllegalMove, StoreBusy, StoreError, TransactionMisuse
from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore
from tests.stores.desk import Desk
from tests.support.pace import patient


def together(count, work):
    """Run `work(index)` on so many threads at once; return what each gave back or raised."""
    out, start = [None] * count, threading.Barrier(count)

    def one(index):
        start.wait()
        try:
            out[index] = work(index)
        except BaseException as error:
            out[index] = error

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patient(30))
    assert not any(thread.is_alive() for thread in threads)
    return out


def held_writer(store):
    """Hold the writer in a transaction on another thread; return its gate and its thread."""
    inside, gate = threading.Event(), threading.Event()

    def hold():
        with store.transaction():
            inside.set()
            gate.wait(patient(30))

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(patient(10))
    return gate, thread


def waiting(store, count):
    """Wait until so many callers stand in the writer's line."""
    from tests.support.waiting import eventually

    eventually(lambda: len(store._writer._waiting) >= count, what=f"{count} callers in line")


def test_callers_that_wait_are_written_in_one_commit(desk, store, monkeypatch):
    gate, thread = held_writer(store)
    commits, commit = [], store._writer._commit
    monkeypatch.setattr(store._writer, "_commit", lambda: commits.append(commit()))
    rows = [desk.row() for _ in range(8)]
    out = []
    callers = [threading.Thread(target=lambda row=row: out.append(desk.put(row)[0].job_id)) for row in rows]
    for caller in callers:
        caller.start()
    waiting(store, 8)
    gate.set()
    thread.join(patient(10))
    for caller in callers:
        caller.join(patient(10))
    assert sorted(out) == sorted(row.job_id for row in rows)
    assert len(desk.order()) == 8
    # one for the transaction that was held, one for the eight who waited
    assert len(commits) == 2


def test_one_callers_violation_does_not_undo_anothers(desk, store):
    gate, thread = held_writer(store)
    good = [desk.row() for _ in range(5)]
    bad = [desk.row(priority=101) for _ in range(3)]
    outcomes = {}

    def put(row):
        try:
            outcomes[row.job_id] = desk.put(row)[0].job_id
        except BaseException as error:
            outcomes[row.job_id] = error

    mixed = [good[0], bad[0], good[1], bad[1], good[2], good[3], bad[2], good[4]]
    callers = [threading.Thread(target=put, args=(row,)) for row in mixed]
    for index, caller in enumerate(callers):
        caller.start()
        waiting(store, index + 1)
    gate.set()
    for caller in (thread, *callers):
        caller.join(patient(10))
    assert all(outcomes[row.job_id] == row.job_id for row in good)
    assert all(isinstance(outcomes[row.job_id], IllegalMove) for row in bad)
    assert desk.order() == [row.job_id for row in good]
    assert desk.positions() == [100, 200, 300, 400, 500]


def test_a_violation_says_what_the_driver_said_as_its_cause(desk, store):
    with pytest.raises(IllegalMove) as refusal:
        desk.put(desk.row(priority=101))
    assert isinstance(refusal.value.__cause__, apsw.ConstraintError)


def test_a_thousand_enqueues_of_one_key_make_one_job(desk, store):
    rows = [[desk.row(unique_key="k") for _ in range(125)] for _ in range(8)]
    out = together(8, lambda index: [desk.store.enqueue([row], now=desk.now)[0] for row in rows[index]])
    answers = [each for some in out for each in some]
    assert len({each.job_id for each in answers}) == 1
    assert sum(not each.existing for each in answers) == 1
    assert len(desk.order()) == 1


def test_many_threads_lose_nothing_and_keep_their_own_order(desk, store):
    rows = [[desk.row() for _ in range(40)] for _ in range(6)]
    together(6, lambda index: [desk.store.enqueue([row], now=desk.now) for row in rows[index]])
    order = desk.order()
    assert len(order) == 240
    assert desk.positions() == [100 * (index + 1) for index in range(240)]
    for own in rows:
        ids = [row.job_id for row in own]
        assert [job_id for job_id in order if job_id in set(ids)] == ids


def test_a_transaction_shares_its_commit_with_nobody(desk, store):
    gate, thread = held_writer(store)
    row, lost = desk.row(), desk.row()
    outcomes = {}

    def fails():
        try:
            with store.transaction() as tx:
                store.enqueue([lost], now=desk.now, transaction=tx)
                raise ZeroDivisionError
        except ZeroDivisionError as error:
            outcomes["tx"] = error

    def puts():
        outcomes["put"] = desk.put(row)[0].job_id

    callers = [threading.Thread(target=fails), threading.Thread(target=puts)]
    for index, caller in enumerate(callers):
        caller.start()
        waiting(store, index + 1)
    gate.set()
    for caller in (thread, *callers):
        caller.join(patient(10))
    assert isinstance(outcomes["tx"], ZeroDivisionError)
    assert desk.order() == [row.job_id] == [outcomes["put"]]


@pytest.mark.parametrize("first", ["transaction", "enqueue"])
def test_transactions_and_enqueues_in_one_line_all_get_their_turn(desk, store, first):
    gate, thread = held_writer(store)
    rows = [desk.row() for _ in range(9)]

    def tx(row):
        with store.transaction() as handle:
            store.enqueue([row], now=desk.now, transaction=handle)

    kinds = [tx, desk.put, desk.put] if first == "transaction" else [desk.put, tx, tx]
    callers = [threading.Thread(target=kinds[index % 3], args=(row,)) for index, row in enumerate(rows)]
    for index, caller in enumerate(callers):
        caller.start()
        waiting(store, index + 1)
    gate.set()
    for caller in (thread, *callers):
        caller.join(patient(20))
        assert not caller.is_alive()
    assert sorted(desk.order()) == sorted(row.job_id for row in rows)
    desk.put(desk.row())


def test_transactions_and_enqueues_under_load_all_end(desk, store):
    rows = [[desk.row() for _ in range(20)] for _ in range(6)]

    def work(index):
        for row in rows[index]:
            if index % 2:
                with store.transaction() as tx:
                    store.enqueue([row], now=desk.now, transaction=tx)
            else:
                store.enqueue([row], now=desk.now)

    assert together(6, work) == [None] * 6
    assert len(desk.order()) == 120


def test_another_thread_is_not_held_to_be_inside_the_transaction(desk, store):
    row = desk.row()
    with store.transaction():
        caller = threading.Thread(target=desk.put, args=(row,))
        caller.start()
        waiting(store, 1)
    caller.join(patient(10))
    assert desk.order() == [row.job_id]


def test_reads_inside_a_transaction_see_the_state_before_it_and_wait_for_nobody(desk, store):
    with store.transaction() as tx:
        store.enqueue([desk.row()], now=desk.now, transaction=tx)
        assert desk.order() == []
        assert store.stats(now=desk.now).by_status["QUEUED"] == 0


def test_every_verb_inside_a_transaction_is_an_error_not_a_deadlock(desk, store):
    job_id = desk.add()
    with store.transaction():
        for verb in (
            lambda: desk.turn(1),
            lambda: store.cancel(job_id, actor=None, now=0),
            lambda: store.beat(desk.worker, job_types=[]),
            lambda: store.pause("all", "", actor=None, now=0),
        ):
            with pytest.raises(TransactionMisuse):
                verb()
    desk.claim_one()


def test_sql_of_the_callers_own_fails_as_ours_with_the_drivers_as_the_cause(desk, store):
    with pytest.raises(StoreError) as refusal, store.transaction() as tx:
        tx.execute("SELECT * FROM nowhere")
    assert isinstance(refusal.value.__cause__, apsw.SQLError)
    desk.put(desk.row())


def test_executemany_runs_once_for_each_set_of_bindings(desk, store):
    with store.transaction() as tx:
        tx.execute("CREATE TABLE mine (n)")
        tx.executemany("INSERT INTO mine VALUES (?)", [(1,), (2,)])
        assert list(tx.execute("SELECT n FROM mine ORDER BY n")) == [(1,), (2,)]
    with pytest.raises(TransactionMisuse):
        tx.execute("SELECT 1")


def test_an_error_nobody_expected_in_one_callers_work_reaches_that_caller(desk, store):
    def chooser(candidates, reservation, usage):
        raise KeyError("mine")

    desk.add()
    with pytest.raises(KeyError, match="mine"):
        desk.claim(1, choose=chooser)
    assert len(desk.claim(1)) == 1


# ---- another process has the lock --------------------------------------------------------------------------------------


def test_a_lock_held_for_too_long_is_store_busy_and_nothing_is_written(path):
    store = SqliteStore(path, Settings(busy_timeout=0.05))
    store.migrate(now=0)
    desk = Desk(store)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match=r"write lock.*0\.05 s \(setting busy_timeout\)"):
        desk.put(desk.row())
    other.execute("COMMIT")
    other.close()
    assert desk.order() == []
    desk.put(desk.row())
    store.close()


def test_store_busy_keeps_the_drivers_error_as_its_cause(path):
    store = SqliteStore(path, Settings(busy_timeout=0.0))
    store.migrate(now=0)
    desk = Desk(store)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreBusy) as refusal:
            desk.put(desk.row())
    finally:
        other.execute("COMMIT")
        other.close()
        store.close()
    assert isinstance(refusal.value.__cause__, apsw.BusyError)


def test_a_lock_that_is_let_go_in_time_only_delays(path, store, desk):
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    caller = threading.Thread(target=desk.put, args=(desk.row(),))
    caller.start()
    other.execute("COMMIT")
    caller.join(patient(10))
    other.close()
    assert len(desk.order()) == 1


def test_readers_wait_for_no_writer(path, store, desk):
    job_id = desk.add()
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    assert desk.job(job_id).status == "QUEUED"
    other.execute("COMMIT")
    other.close()


# ---- interrupted callers -----------------------------------------------------------------------------------------------

INTERRUPTED = """
import signal, sys, threading
from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore
from tests.stores.desk import Desk

store = SqliteStore(sys.argv[1], Settings())
store.migrate(now=0)
desk = Desk(store)
inside, gate = threading.Event(), threading.Event()

def hold():
    with store.transaction():
        inside.set()
        gate.wait(50)

holder = threading.Thread(target=hold, daemon=True)
holder.start()
inside.wait()

class Enough(Exception):
    pass

def ring(*_):
    raise Enough

signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    desk.put(desk.row())
except Enough:
    print("interrupted")
gate.set()
holder.join()
done = []
after = threading.Thread(target=lambda: done.append(desk.put(desk.row())), daemon=True)
after.start()
after.join(50)
print("goes on" if done else "stuck", flush=True)
"""


def test_a_caller_interrupted_while_it_waits_does_not_stop_the_others(path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    child = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(path)], capture_output=True, text=True, timeout=patient(50), env=environment, check=False
    )
    assert child.stdout.split("\n")[:2] == ["interrupted", "goes on"], child.stderr
    assert signal.SIGALRM
