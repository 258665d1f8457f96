"""The engine's ear: outcomes and reports come in from any thread, in order, and wake it."""

import os
import threading

import pytest

from rota.engine.inbox import Inbox, newest
from rota.ports.executor import Report
from rota.ports.turns import Turned
from tests.support.pace import patient


def awake(inbox):
    """Say whether a wait would return at once, and use the alarm up."""
    rung = inbox._rung
    inbox.wait(0)
    return rung


class Hints:
    """Hints that a test gives by hand."""

    def __init__(self, *, echoes=False):
        self.read, self.write = os.pipe()
        self.there = True
        self.echoes = echoes

    def fileno(self):
        return self.read if self.there else None

    def drain(self):
        os.read(self.read, 64)

    def close(self):
        os.close(self.read)
        os.close(self.write)


def test_a_hint_wakes_a_driver_that_listens_and_only_such_a_one():
    hints = Hints()
    inbox = Inbox(hints)
    assert inbox.hinted
    os.write(hints.write, b"!")
    inbox.listens = False
    assert not inbox.wait(0)
    inbox.listens = True
    assert inbox.wait(patient(10))
    assert not inbox.wait(0)
    hints.there = False
    assert not inbox.hinted
    inbox.close()


@pytest.mark.parametrize("echoes", [True, False])
def test_a_hint_that_came_during_a_commit_is_dropped_only_where_it_may_be_its_echo(echoes):
    hints = Hints(echoes=echoes)
    inbox = Inbox(hints)
    assert inbox.hinted
    os.write(hints.write, b"!")
    inbox.hush()
    assert inbox.wait(0) is not echoes
    inbox.close()


def test_a_ring_that_comes_from_another_thread_ends_the_wait():
    inbox = Inbox()
    inbox.wait(0)
    thread = threading.Timer(0.05, inbox.poke)
    thread.start()
    inbox.wait(patient(30))
    thread.join()
    assert inbox.poked
    inbox.close()


def test_an_inbox_that_is_closed_beside_a_ring_closes_its_descriptors_after_it(monkeypatch):
    inbox, write, closing = Inbox(), os.write, []

    def slow_write(descriptor, data):
        closing.append(threading.Thread(target=inbox.close))
        closing[0].start()
        closing[0].join(0.1)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", slow_write)
    inbox.wake()
    closing[0].join()
    inbox.wake()
    assert len(closing) == 1


def test_what_has_ended_is_taken_once_and_in_order():
    inbox = Inbox()
    for each in "abc":
        inbox.ended(each)
    assert inbox.take() == ["a", "b", "c"]
    assert inbox.take() == []


def test_an_end_wakes_the_engine_and_with_a_threshold_only_the_last_one_needed():
    inbox = Inbox()
    inbox.ended("a")
    assert awake(inbox)
    inbox.take()
    inbox.threshold = 3
    for each in "ab":
        inbox.ended(each)
        assert not awake(inbox)
    inbox.ended("c")
    assert awake(inbox)


def test_a_poke_wakes_and_is_remembered():
    inbox = Inbox()
    inbox.poked = False
    inbox.poke()
    assert inbox.poked
    assert awake(inbox)


def test_reports_are_handed_over_once_and_in_order():
    inbox, reports = Inbox(), [Report(1, progress=10), Report(2, artifact="a"), Report(1, checkpoint="1")]
    for report in reports:
        inbox.report(report)
    inbox.take_reports()
    assert inbox.reports == reports
    inbox.written(Turned())
    inbox.take_reports()
    assert inbox.reports == []


def test_every_artifact_is_worth_keeping_and_the_newest_progress_and_checkpoint_of_each_run():
    reports = [
        Report(1, progress=10),
        Report(2, progress=5),
        Report(1, artifact="a"),
        Report(1, progress=20),
        Report(1, checkpoint="1"),
        Report(1, artifact="b"),
        Report(1, progress=30, message="m"),
        Report(1, checkpoint="2"),
    ]
    assert newest(reports) == [reports[1], reports[2], reports[5], reports[6], reports[7]]
    assert newest(reports[:1]) == reports[:1]


def test_many_threads_lose_nothing():
    inbox, start = Inbox(), threading.Barrier(4)

    def tell(index):
        start.wait()
        for n in range(500):
            inbox.ended((index, n))

    threads = [threading.Thread(target=tell, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = inbox.take()
    assert len(taken) == 2000
    for index in range(4):
        assert [n for who, n in taken if who == index] == list(range(500))
