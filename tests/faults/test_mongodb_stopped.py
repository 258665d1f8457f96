"""A MongoDB server that is stopped, and not gone: it acknowledges every packet and answers nothing. Nobody waits for it for ever."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from rota import Settings
from rota.errors import AnswerLost, StoreUnavailable
from rota.stores.mongodb import MongoStore
from rota.stores.mongodb.connection import ANSWER_S, beat_silence_s
from tests.faults.stage import Stage
from tests.stores.desk import ANNA, Desk
from tests.support.mongodb import make_set
from tests.support.pace import patient
from tests.support.waiting import eventually

pytestmark = [pytest.mark.paired, pytest.mark.timeout(120)]

QUICK = Settings(busy_timeout=1, lease_ttl=9)
"""A beat waits for `lease_guard` / 3, which is 2 s."""
SLACK_S = 1.5


@pytest.fixture(scope="module")
def servers():
    made = make_set()
    yield made
    made.throw_away()


@pytest.fixture
def desk(servers):
    store = MongoStore(servers.url("rota"), QUICK)
    store.migrate(now=0)
    made = Desk(store)
    store.register(made.worker, host="h", kind="worker", job_types=["t"], now=made.now)
    made.meet()
    yield made
    store.close()
    with servers.client() as client:
        client.drop_database("rota")


@pytest.fixture
def stop(servers, desk):
    """Stop the server when this is called, until the test is over or has it go on."""
    del desk
    yield lambda: servers.processes[0].send_signal(signal.SIGSTOP)
    go_on(servers)


def go_on(servers):
    """Let the server continue, and end what it still holds of those who gave up."""
    servers.processes[0].send_signal(signal.SIGCONT)
    servers.wait_until_writable()
    with closing(MongoStore(servers.url("rota"), Settings())) as store:
        store._write(lambda _: None)


def waited(call):
    begun = time.monotonic()
    try:
        call()
    except StoreUnavailable as error:
        return error, time.monotonic() - begun
    raise AssertionError("a server that is stopped has answered")


def test_every_call_to_a_stopped_server_returns_in_time_and_a_beat_sooner(desk, stop):
    store, row, turn = desk.store, desk.row(), desk.request(1)
    known = desk.add()
    calls = {
        "read": lambda: store.queue(limit=1),
        "look": store.changed,
        "enqueue": lambda: desk.put(row),
        "turn": lambda: store.turn(turn),
        "cancel": lambda: store.cancel(known, actor=ANNA, now=desk.now),
        "register": lambda: store.register(desk.id(), host="h", kind="worker", job_types=["t"], now=desk.now),
        "beat": lambda: store.beat(desk.worker, job_types=["t"]),
    }
    stop()
    with ThreadPoolExecutor(len(calls)) as pool:
        took = dict(zip(calls, pool.map(lambda call: waited(call)[1], calls.values()), strict=True))
    assert max(took.values()) < patient(QUICK.busy_timeout + ANSWER_S + SLACK_S), took
    assert took["beat"] < patient(beat_silence_s(QUICK) + SLACK_S), took


def test_a_server_that_stops_inside_a_transaction_loses_it_and_one_that_stops_before_the_commit_leaves_it_open(servers, desk, stop):
    def stops_inside(db):
        stop()
        db.update("meta", {"_id": "late_results"}, {"$inc": {"value": 1}})

    error, seconds = waited(lambda: desk.store._write(stops_inside))
    assert not isinstance(error, AnswerLost)
    assert seconds < patient(QUICK.busy_timeout + ANSWER_S + SLACK_S)
    go_on(servers)
    assert desk.late() == 0

    error, seconds = waited(lambda: desk.store._write(lambda _: stop()))
    assert isinstance(error, AnswerLost)
    assert seconds < patient(QUICK.busy_timeout + ANSWER_S + SLACK_S)


def test_beats_are_written_at_once_when_a_server_continues(servers, desk, stop):
    (before,) = [worker.beat for worker in desk.store.workers()]
    stop()
    waited(lambda: desk.store.beat(desk.worker, job_types=["t"]))
    servers.processes[0].send_signal(signal.SIGCONT)
    assert desk.store.beat(desk.worker, job_types=["t"])
    (after,) = [worker.beat for worker in desk.store.workers()]
    assert after > before


def test_a_worker_and_a_caller_whose_only_server_is_stopped_can_be_ended(servers, stop, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with closing(Stage(tmp_path, servers.url("staged"))) as stage:
        worker = stage.worker(4, busy_timeout=1, lease_ttl=9, shutdown_grace=1)
        caller = stage.start("patient", stage.accepted_file, 10, "work:2", busy_timeout=1)
        eventually(lambda: len(stage.entries) > 20, within=30, what=f"some work\n{stage.said()}")
        stop()
        time.sleep(0.5)
        worker.send(signal.SIGTERM)
        caller.send(signal.SIGTERM)
        assert worker.ends(within=40) in {0, 1}, stage.said()
        servers.processes[0].send_signal(signal.SIGCONT)
        assert caller.ends(within=40) == 0, stage.said()
