"""Signals arrive at any instruction, also inside the wait that they end."""

from __future__ import annotations

import random
import signal
import threading
import time

import pytest

from rota.stop_signals import StopSignals
from rota.surfaces.cli.serving import Stopper


class Driver:
    """Stands in for the engine: it goes on until it is hurried."""

    holding = 1

    def __init__(self) -> None:
        self.hurried = threading.Event()

    @property
    def running(self) -> bool:
        return not self.hurried.is_set()

    def stop(self) -> None:
        self.hurried.wait()

    def hurry(self) -> None:
        self.hurried.set()


STRIKES_S = 1.0
"""Strikes for so long: two thousand on an idle machine, some hundreds on a busy one."""


@pytest.mark.timeout(20, method="thread")
def test_a_signal_that_strikes_inside_the_wait_is_heard():
    # A timer of the system strikes at any instruction; the timeout of the test is kept by a thread, to leave SIGALRM free.
    rng = random.Random(7)
    before = signal.getsignal(signal.SIGALRM)
    try:
        until = time.monotonic() + STRIKES_S
        while time.monotonic() < until:
            with Stopper(Driver, 30.0) as stopper:
                signal.signal(signal.SIGALRM, stopper.signals.on_signal)
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 2e-4))
                while not stopper.notice:
                    stopper.wait(0.0001)
                stopper.driver.hurry()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_wait_ends_in_time_also_where_its_time_is_over_before_it_begins():
    # As if the process was paused there, for longer than it was to wait.
    for _ in range(2000):
        assert not StopSignals().wait(1e-6)
    assert not StopSignals().wait(-1)


def test_each_signal_is_returned_once():
    with StopSignals() as signals:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert [signals.wait(0.01) for _ in range(3)] == [True, True, False]


def test_the_first_signal_lets_jobs_finish_and_the_second_interrupts_them():
    with Stopper(Driver, 30.0) as stopper:
        assert stopper.notice == ""
        signal.raise_signal(signal.SIGTERM)
        stopper.wait(0.01)
        assert stopper.notice == "stopping: the running job may finish (up to 30 s); Ctrl-C again interrupts"
        assert not stopper.done
        signal.raise_signal(signal.SIGINT)
        stopper.wait(0.01)
        stopper.wait(0.01)
        assert stopper.done
        assert stopper.notice == "stopped"
