"""Transactions on MongoDB: who waits for whom, what a dead process leaves behind, and commits whose answers are lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from rota import Settings
from rota.errors import AnswerLost, StoreBusy, StoreError
from rota.stores.mongodb import MongoStore, transaction
from rota.stores.verbs.store import Hold
from tests.stores.desk import START, Desk, take_all
from tests.stores.makers import MongoMaker
from tests.support.lossy_line import LossyLine
from tests.support.pace import patient
from tests.support.proof import size

HOLDER = """
import sys, time
from rota import Settings
from rota.stores.mongodb import MongoStore
from rota.stores.verbs.store import Hold

store = MongoStore(sys.argv[1], Settings())

def work(db):
    db.update("meta", {"_id": "late_results"}, {"$inc": {"value": 1}})
    print("holds", flush=True)
    time.sleep(600)

store._write(work, hold=Hold[sys.argv[2]])
"""
STOPPED = """
import sys
from rota import Settings
from rota.stores.mongodb import MongoStore

store, tries = MongoStore(sys.argv[1], Settings()), []

def work(db):
    tries.append(db)
    db.update("meta", {"_id": "late_results"}, {"$inc": {"value": 1}})
    print("holds", flush=True)
    if len(tries) == 1:
        sys.stdin.readline()
        if sys.argv[2] == "statement":
            db.update("meta", {"_id": "recovered_at"}, {"$inc": {"value": 1}})

store._write(work)
print("tries", len(tries), flush=True)
"""
ORPHANS = size(1, prove=20)
LOST = size(7, prove=100)
FREE_S = 2.0


@pytest.fixture
def maker(tmp_path):
    made = MongoMaker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(maker):
    return maker.open()


@pytest.fixture
def holder(maker, store):
    """Start a process that is inside a transaction when this returns."""
    started: list[subprocess.Popen[str]] = []

    def start(word: str, program: str = HOLDER) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, maker.servers.url(maker.database), word]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.prove
@pytest.mark.serial
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("hold", ["WHEEL", "ALL"])
def test_what_a_dead_or_stopped_process_holds_is_free_after_two_seconds(store, holder, how, hold):
    desk = Desk(store)
    for _ in range(ORPHANS):
        desk.add()
        process = holder(hold)
        process.send_signal(how)
        begun = time.monotonic()
        (job,) = desk.claim()
        assert time.monotonic() - begun < patient(FREE_S)
        desk.done(job)
        assert desk.late() == 0


@pytest.mark.parametrize("before", ["statement", "commit"])
def test_a_process_that_was_stopped_inside_a_transaction_begins_again_and_writes_once(store, holder, before):
    process = holder(before, STOPPED)
    process.send_signal(signal.SIGSTOP)
    desk = Desk(store)
    desk.add()
    assert desk.late() == 0
    process.send_signal(signal.SIGCONT)
    said, _ = process.communicate("\n", timeout=patient(20))
    assert said == "holds\ntries 2\n"
    assert process.returncode == 0
    assert desk.late() == 1


@pytest.mark.parametrize("hold", [Hold.DOOR, Hold.WHEEL, Hold.ALL])
def test_nobody_holds_a_document_without_a_note_by_which_it_can_be_ended(store, monkeypatch, hold):
    locks = store._connections.client[store.address.database]["locks"]
    queue_up, queued = transaction.Transactions._queue_up, []

    def passed_by(self, session, *args, **options):
        queue_up(self, session, *args, **options)
        queued.append(transaction.lsid(session).hex)
        if len(queued) == 1:
            # Another one that had waited as well was faster: it took the documents, and is over already.
            locks.update_many({}, {"$unset": {"sessions": ""}})

    monkeypatch.setattr(transaction.Transactions, "_queue_up", passed_by)
    names = store._run(lambda db: noted_in(locks, queued[-1]), hold)
    assert len(queued) == 2
    assert names


def noted_in(locks, session):
    return [lock["_id"] for lock in locks.find({f"sessions.{session}": {"$exists": True}})]


def test_a_transaction_that_is_at_work_is_waited_for(store):
    begun, ended = threading.Event(), []

    def work(db):
        for _ in range(12):
            db.has("meta", {"_id": "late_results"})
            begun.set()
            time.sleep(transaction.IDLE_S / 4)
        ended.append(time.monotonic())

    with ThreadPoolExecutor() as pool:
        slow = pool.submit(store._write, work, hold=Hold.WHEEL)
        begun.wait()
        Desk(store).turn()
        waited = time.monotonic()
        slow.result()
    assert ended[0] < waited
    assert len(ended) == 1


def test_who_waits_longer_than_the_setting_is_told_so(maker, store):
    impatient = MongoStore(store.address.secret, Settings(busy_timeout=0.3))
    maker.hand.lend_client(impatient)
    holds, over = threading.Event(), threading.Event()

    def work(db):
        while not over.wait(transaction.IDLE_S / 4):
            db.has("meta", {"_id": "late_results"})
            holds.set()

    with ThreadPoolExecutor() as pool:
        slow = pool.submit(store._write, work)
        holds.wait()
        with pytest.raises(StoreBusy, match="busy_timeout"):
            Desk(impatient).turn()
        over.set()
        slow.result()


def test_who_does_not_want_to_wait_need_not_where_nobody_is_in_the_way(maker, store):
    hasty = MongoStore(store.address.secret, Settings(busy_timeout=0))
    maker.hand.lend_client(hasty)
    desk = Desk(hasty)
    desk.add()
    desk.done(*desk.claim(1))
    with store._connections.client.start_session() as session, session.start_transaction():
        hasty._connections.client[store.address.database]["locks"].update_many({}, {"$inc": {"turns": 1}}, session=session)
        with pytest.raises(StoreBusy, match="busy_timeout"):
            desk.turn()


def test_who_does_not_want_to_wait_for_others_waits_for_the_members_of_the_set():
    assert transaction.majority(0).document == {"w": "majority", "wtimeout": 5000}
    assert transaction.majority(30).document == {"w": "majority", "wtimeout": 30_000}


def test_enqueues_run_beside_each_other_and_beside_a_turn(store):
    desk = Desk(store)
    holds, over = threading.Event(), threading.Event()

    def work(db):
        holds.set()
        while not over.wait(transaction.IDLE_S / 4):
            db.has("meta", {"_id": "late_results"})

    desk.meet()
    with ThreadPoolExecutor() as pool:
        turn = pool.submit(store._write, work, hold=Hold.WHEEL)
        holds.wait()
        for _ in range(3):
            desk.add()
        over.set()
        turn.result()
    assert len(desk.claim(5)) == 3


def test_work_that_needs_every_door_has_its_turn_although_there_is_no_moment_without_enqueues(store):
    begun, over = threading.Semaphore(0), threading.Event()

    def enter(db):
        db.has("meta", {"_id": "late_results"})
        begun.release()
        time.sleep(0.01)

    def produce():
        done = 0
        while not over.is_set():
            store._run(enter, Hold.DOOR)
            done += 1
        return done

    with ThreadPoolExecutor(12) as pool:
        producers = [pool.submit(produce) for _ in range(12)]
        for _ in producers:
            begun.acquire()
        try:
            before = time.monotonic()
            for _ in range(3):
                store._run(lambda db: db.has("meta", {"_id": "late_results"}), Hold.ALL)
            took_s = time.monotonic() - before
        finally:
            over.set()
    assert took_s < patient(FREE_S)
    assert all(producer.result() for producer in producers)


def test_an_enqueue_does_not_wait_for_a_closed_door_that_nobody_opens(maker, store):
    maker.hand.database["locks"].update_many({}, {"$set": {"closed_until": datetime.now(UTC) + timedelta(days=1)}})
    desk = Desk(store)
    before = time.monotonic()
    desk.meet()
    desk.add()
    assert time.monotonic() - before < patient(FREE_S)


def test_a_turn_that_meets_another_before_it_has_offered_anything_is_begun_again(store):
    desk = Desk(store)
    desk.meet()
    desk.add(delay=1)
    desk.advance(2)
    client = store._connections.client
    with ThreadPoolExecutor() as pool, client.start_session() as session:
        session.start_transaction()
        # As an enqueue into an empty queue does.
        client[store.address.database]["queue_clock"].delete_many({}, session=session)
        turn = pool.submit(desk.claim)
        time.sleep(0.2)
        assert not turn.done()
        session.commit_transaction()
        assert len(turn.result()) == 1


def test_a_turn_is_not_begun_again_when_a_worker_has_chosen(store):
    desk = Desk(store)
    desk.add()
    asked = []

    def choose(candidates, reservation, usage):
        asked.append(candidates)
        client.admin.command("killAllSessions", [])
        return take_all(candidates, reservation, usage)

    client = store._connections.client
    with pytest.raises(StoreBusy):
        desk.turn(1, choose=choose)
    assert len(asked) == 1
    assert len(desk.claim()) == 1


def test_an_error_of_the_work_is_the_callers_and_undoes_all(store):
    def work(db):
        db.update("meta", {"_id": "late_results"}, {"$set": {"value": 7}})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store._write(work)
    assert Desk(store).late() == 0


def test_a_transaction_that_the_server_ended_says_that_it_may_have_been_too_long(maker, store):
    def work(db):
        db.update("meta", {"_id": "late_results"}, {"$inc": {"value": 1}})
        with maker.servers.client() as client:
            client.admin.command("killSessions", [{"id": db.session.session_id["id"]}])
        db.update("meta", {"_id": "late_results"}, {"$inc": {"value": 1}})

    impatient = MongoStore(maker.servers.url(maker.database), Settings(busy_timeout=0.2))
    try:
        with pytest.raises(StoreBusy, match=r"ended this transaction: .* longer than transactionLifetimeLimitSeconds .* less in one call"):
            impatient._write(work)
    finally:
        impatient.close()
    assert Desk(store).late() == 0


def test_a_store_that_was_closed_says_so(store):
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        Desk(store).turn()


# ---- lost answers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def line(maker):
    made = LossyLine(maker.servers.ports[0])
    yield made
    made.close()


@pytest.fixture
def far(maker, store, line):
    """Return a desk at the other end of the line."""
    far = MongoStore(f"mongodb://127.0.0.1:{line.port}/{maker.database}?directConnection=true", Settings(busy_timeout=patient(20)))
    yield Desk(far)
    far.close()


@pytest.mark.prove
def test_what_was_committed_without_an_answer_is_done_once(store, line, far):
    near = Desk(store)
    lost = 0
    for number in range(LOST):
        line.lose(number % 7)
        job_id = far.add()
        line.lose(number % 5)
        (job,) = far.claim()
        line.lose(number % 3)
        far.done(job)
        lost += line.lost
        assert near.status(job_id) == "COMPLETED"
    line.lose(0)
    assert lost > 0
    assert near.late() == 0
    assert near.store.stats(now=START).by_status["COMPLETED"] == LOST


def test_where_no_answer_comes_at_all_the_caller_is_told_that_nobody_knows(maker, store, line):
    far = MongoStore(f"mongodb://127.0.0.1:{line.port}/{maker.database}?directConnection=true", Settings(busy_timeout=1.0))
    desk = Desk(far)
    desk.add()
    line.lose(1000)
    with pytest.raises(AnswerLost, match="may or may not be stored"):
        desk.claim()
    line.lose(0)
    far.close()
    assert [each.number for each in Desk(store).store.holding(desk.worker)] == [1]
