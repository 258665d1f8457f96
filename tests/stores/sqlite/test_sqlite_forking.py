"""Forks: what the threads of the parent wait for, the child must not wait for."""

import os
import subprocess
import sys
import threading
from contextlib import contextmanager

from rota.stores.sqlite import forking
from tests.support.pace import patient

FORKED_BESIDE_A_CALLER = """
import os, signal, sys, threading
from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore
from tests.stores.desk import Desk
from tests.support.waiting import eventually

store = SqliteStore(sys.argv[1], Settings())
store.migrate(now=0)
desk = Desk(store)
rows = [desk.row() for _ in range(3)]
inside, gate = threading.Event(), threading.Event()

def hold():
    with store.transaction():
        inside.set()
        gate.wait(50)

def line_up():
    eventually(lambda: len(store._writer._waiting) == 1, what="the thread that forks")
    caller.start()
    eventually(lambda: len(store._writer._waiting) == 2, what="a caller behind it")
    gate.set()

caller = threading.Thread(target=store.enqueue, args=([rows[0]],), kwargs={"now": desk.now})
threads = [threading.Thread(target=hold), threading.Thread(target=line_up)]
threads[0].start()
inside.wait()
threads[1].start()
child = os.fork()
if not child:
    signal.alarm(50)
    store.enqueue([rows[1]], now=desk.now)
    # A program that becomes a daemon forks twice.
    grandchild = os.fork()
    if not grandchild:
        store.enqueue([rows[2]], now=desk.now)
        os._exit(0)
    os.waitpid(grandchild, 0)
    os._exit(0)
_, status = os.waitpid(child, 0)
for thread in (*threads, caller):
    thread.join()
print(status, len(desk.order()))
"""


def test_a_child_does_not_wait_for_callers_that_stayed_with_its_parent(path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry), "PYTHONWARNINGS": "ignore"}
    program = subprocess.run(
        [sys.executable, "-c", FORKED_BESIDE_A_CALLER, str(path)],
        capture_output=True,
        text=True,
        timeout=patient(50),
        env=environment,
        check=False,
    )
    assert program.stdout.split() == ["0", "3"], program.stderr


class Slow:
    """Something to be held still that takes its time after it is let go."""

    def __init__(self):
        self.lock = threading.Lock()
        self.others_turn = threading.Event()
        self.let_go = []

    @contextmanager
    def still(self):
        with self.lock:
            holder = threading.get_ident()
            yield
        self.let_go.append(holder == threading.get_ident())
        self.others_turn.wait(patient(10))


def test_threads_that_fork_at_the_same_time_each_let_go_of_what_they_held():
    slow = Slow()
    forking.stores.add(slow)
    first_holds, second_may_end = threading.Event(), threading.Event()

    def first():
        forking._before()
        first_holds.set()
        forking._after()
        second_may_end.set()

    def second():
        first_holds.wait(patient(10))
        forking._before()
        slow.others_turn.set()
        second_may_end.wait(patient(10))
        forking._after()

    threads = [threading.Thread(target=each) for each in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patient(20))
        assert not thread.is_alive()
    assert slow.let_go == [True, True]
    assert not slow.lock.locked()
