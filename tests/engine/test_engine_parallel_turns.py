"""Completions that a second thread writes while the first one claims: all of them, each once, and none is forgotten."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing

import pytest

from rota import Rota, Settings
from rota.engine.in_flight import MANY, InFlight, ParallelTurns, TurnThread
from rota.errors import StoreError
from rota.model.decide import Completed
from rota.ports.executor import Ended
from tests.stores.desk import Desk
from tests.stores.makers import MongoMaker, PostgresMaker
from tests.support.pace import patient
from tests.support.waiting import eventually

SOME = 3 * MANY


@pytest.fixture(params=[PostgresMaker, MongoMaker], ids=lambda maker: maker.name)
def maker(request, tmp_path):
    with closing(request.param(tmp_path)) as made:
        yield made


@pytest.fixture
def served(maker, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with closing(Rota(maker.url)) as rota:
        yield rota


def a_turn_of(desk, jobs):
    turn = desk.request(0)
    turn.done = [(job.number, desk.now) for job in jobs]
    return turn


def test_what_is_written_beside_the_wheel_is_taken_once(maker):
    desk, woken = Desk(maker.open()), threading.Event()
    desk.several(SOME)
    claimed = desk.claim(SOME)
    hand = TurnThread(desk.store, woken.set, name="hand")
    assert hand.take() is None
    hand.make(a_turn_of(desk, claimed))
    assert woken.wait(patient(10))
    assert hand.take()[1].late == []
    assert hand.take() is None
    hand.close()
    assert Counter(desk.status(job.job_id) for job in claimed) == {"COMPLETED": SOME}


def test_what_could_not_be_written_comes_back_and_may_be_written_again(maker):
    desk, woken = Desk(maker.open()), threading.Event()
    desk.several(SOME)
    claimed = desk.claim(SOME)
    away = maker.open()
    away.close()
    hand = TurnThread(away, woken.set, name="hand")
    hand.make(a_turn_of(desk, claimed))
    assert woken.wait(patient(10))
    assert isinstance(hand.take()[1], StoreError)
    assert hand.take() is None
    hand.close()
    desk.done(*claimed)
    assert Counter(desk.status(job.job_id) for job in claimed) == {"COMPLETED": SOME}


def test_closing_waits_for_what_is_being_written(maker):
    desk = Desk(maker.open())
    desk.several(SOME)
    claimed = desk.claim(SOME)
    hand = TurnThread(desk.store, lambda: None, name="hand")
    hand.make(a_turn_of(desk, claimed))
    hand.close()
    assert hand.take()[1].late == []


def test_a_worker_that_has_let_go_of_its_hands_writes_what_is_left_itself(maker):
    desk = Desk(maker.open())
    desk.several(SOME)
    hold = InFlight(1, Settings())
    hands = ParallelTurns(desk.store, hold, lambda: None)
    for job in desk.claim(SOME):
        hold.add([job])
        hold.end([Ended(job, Completed(), desk.now, 0.001)])
    assert hands.may_end
    hands.close()
    assert not hands.may_end
    assert not hands.claim(desk.request(SOME))
    assert (hands.ending, hands.claiming, len(hold.plain)) == (False, False, SOME)


def test_what_could_not_be_written_beside_the_wheel_is_left_to_the_worker_itself(maker):
    desk, woken = Desk(maker.open()), threading.Event()
    desk.several(2 * SOME)
    hold, away = InFlight(1, Settings()), maker.open()
    away.close()
    hands = ParallelTurns(away, hold, woken.set)
    first, later = desk.claim(SOME), desk.claim(SOME)
    for job in first:
        hold.add([job])
        hold.end([Ended(job, Completed(), desk.now, 0.001)])
    hands.end(desk.request(0))
    assert woken.wait(patient(10))
    assert (hands.ended(), hands.ending, len(hold.plain)) == (None, False, SOME)
    assert not hands.may_end
    hold.written(a_turn_of(desk, first))
    for job in later:
        hold.add([job])
        hold.end([Ended(job, Completed(), desk.now, 0.001)])
    assert hands.may_end
    hands.close()


def test_a_busy_worker_has_its_completions_written_beside_the_wheel(served):
    ran: Counter[int] = Counter()
    served.job(name="count")(lambda number: ran.update([number]))
    total = 40 * MANY
    served.enqueue_many(("count", {"number": number}) for number in range(total))
    with served.running():
        eventually(lambda: any(thread.name == "rota-ends" for thread in threading.enumerate()), what="a parallel turn")
        eventually(lambda: served.store.stats().by_status["COMPLETED"] == total, within=30, what="every job done")
    assert ran == Counter(range(total))
    assert served.store.stats().by_status["RUNNING"] == 0


def test_completions_that_another_hand_writes_are_logged_too(served, caplog):
    served.job(name="act")(lambda: None)
    total = 10 * MANY
    with caplog.at_level("DEBUG", logger="rota.jobs"):
        ids = served.enqueue_many([("act", {})] * total)
        with served.running():
            eventually(lambda: any(thread.name == "rota-ends" for thread in threading.enumerate()), what="a parallel turn")
            eventually(lambda: served.store.stats().by_status["COMPLETED"] == total, within=30, what="every job done")
    assert sorted(record.job for record in caplog.records if record.name == "rota.jobs") == sorted(ids)


def test_sessions_that_are_ended_by_an_administrator_cost_no_completion(maker, served):
    ran: Counter[int] = Counter()
    served.job(name="count")(lambda number: ran.update([number]))
    total = 60 * MANY
    served.enqueue_many(("count", {"number": number}) for number in range(total))
    with served.running():
        for _ in range(5):
            before = len(ran)
            eventually(lambda before=before: len(ran) > before or len(ran) == total, what="more of them")
            end_sessions(maker)
        eventually(lambda: completed(maker) == total, within=30, what="every job done")
    assert ran == Counter(range(total))


def end_sessions(maker):
    if isinstance(maker, MongoMaker):
        maker.hand.client.admin.command("killAllSessions", [])
    else:
        # Those that are kept for other tests would be ended with the others.
        while maker._spare():
            maker._spare().pop().close()
        maker._raw.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rota' AND pid <> pg_backend_pid()"
        )


def completed(maker):
    """Return how many jobs are. Asked of the server itself: a read of ours may be on a session that was ended."""
    if isinstance(maker, MongoMaker):
        return maker.hand.database["job_ends"].count_documents({"status": "COMPLETED"})
    return maker._sql("SELECT count(*) FROM jobs WHERE status = 'COMPLETED'")[0][0]
