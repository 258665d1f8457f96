"""The engine's ear and its alarm clock: outcomes and reports come in from any thread, the driver sleeps here."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from rota.engine.requests import Requests
from rota.model.values import Claimed
from rota.ports.executor import Answer, Ended, Receipt, Replied, Report, Request
from rota.ports.wakeup import NoWakeup, Wakeup

T = TypeVar("T")


class Inbox:
    """Implements `rota.ports.executor.Sink`. Appends are atomic; nothing here is locked per job."""

    def __init__(self, wakeup: Wakeup | None = None, requests: Requests | None = None) -> None:
        """Start empty. The driver also wakes on hints of `wakeup`."""
        self.requests = requests or Requests()
        self._ended: deque[Ended] = deque()
        self._reports: deque[Report] = deque()
        self._checkpoints: deque[tuple[Report, Answer]] = deque()
        self._closed = False
        self._wakeup = wakeup or NoWakeup()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._own, self._all = select.poll(), select.poll()
        for poll in (self._own, self._all):
            poll.register(self._read_fd, select.POLLIN)
        self._hinted: int | None = None
        self._rung = False
        self.threshold = 1
        """How many outcomes are worth waking for: more than one only while claimed work keeps the executors busy."""
        self.poked = True
        """Somebody in this process enqueued or asked for something."""
        self.listens = True
        """Whether hints wake the driver: not while it lingers for more outcomes."""

    def ended(self, ended: Ended) -> None:
        """Take the end of an attempt."""
        self._ended.append(ended)
        if len(self._ended) >= self.threshold and not self._rung:
            self._ring()

    def report(self, report: Report) -> None:
        """Take what a running handler wants kept."""
        self._reports.append(report)
        self._ring()

    def keep(self, report: Report, answer: Answer) -> None:
        """Take a checkpoint; the worker answers after the commit."""
        self._checkpoints.append((report, answer))
        self._ring()
        if self._closed:
            self._refuse()

    def ask(self, job: Claimed, request: Request, replied: Replied) -> None:
        """Take a request of a handler: a thread of its own answers it, so that the wheel goes on."""
        self.requests.take(job, request, replied)

    def poke(self) -> None:
        """Wake the driver: there may be something to claim. A hint; polling carries correctness."""
        self.poked = True
        self._ring()

    def wake(self) -> None:
        """Wake the driver: something that it waits for is over."""
        self._ring()

    @property
    def hinted(self) -> bool:
        """Say whether other processes' commits wake the driver, so that it may poll less often."""
        self._watch()
        return self._hinted is not None

    def wait(self, seconds: float) -> bool:
        """Sleep until something arrives, at most so long. Return whether it was a hint that others have committed."""
        arrived = (self._all if self.listens else self._own).poll(seconds * 1000)
        hinted = False
        for fd, _ in arrived:
            if fd == self._hinted:
                hinted = True
                self._wakeup.drain()
            else:
                os.read(fd, 64)
        # After the read: what comes from here on rings again, what came before is seen by the turn that follows.
        self._rung = False
        return hinted

    def hush(self) -> None:
        """Drop the hints of our own commit, where it gives any. Another's that goes with them is found by polling."""
        if self._hinted is not None and self._wakeup.echoes:
            self._wakeup.drain()

    def close(self) -> None:
        """Let go of the alarm and of the hints."""
        # First: a handler that ends late must not ring at what is closed, or is another's by now.
        self._rung = self._closed = True
        self._refuse()
        self.requests.close()
        self._wakeup.close()
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _refuse(self) -> None:
        for _, answer in self.take_checkpoints():
            answer(Receipt.REFUSED)

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            os.write(self._write_fd, b"!")

    def _watch(self) -> None:
        fd = self._wakeup.fileno()
        if fd != self._hinted:
            if self._hinted is not None:
                self._all.unregister(self._hinted)
            if fd is not None:
                self._all.register(fd, select.POLLIN)
            self._hinted = fd

    def take(self) -> list[Ended]:
        """Return what has ended since the last time."""
        return _drain(self._ended)

    def take_reports(self) -> list[Report]:
        """Return what was reported since the last time."""
        return _drain(self._reports)

    def take_checkpoints(self) -> list[tuple[Report, Answer]]:
        """Return the checkpoints handed in since the last time, each with what to answer."""
        return _drain(self._checkpoints)


class DirectSink:
    """The ear for handlers that the worker's own thread runs: it can't answer them later, so a checkpoint is written at once."""

    def __init__(self, inbox: Inbox, write: Callable[[Report], Receipt]) -> None:
        """Pass everything else on."""
        self.ended, self.report = inbox.ended, inbox.report
        self._write = write
        self._requests = inbox.requests

    def keep(self, report: Report, answer: Answer) -> None:
        """Write a checkpoint in the thread of the caller."""
        answer(self._write(report))

    def ask(self, job: Claimed, request: Request, replied: Replied) -> None:
        """Answer a request in the thread of the caller."""
        replied(self._requests.answer(job, request))


def newest(reports: list[Report]) -> list[Report]:
    """Return what of these is worth keeping: every artifact, and the last progress and the last checkpoint of each run."""
    if len(reports) < 2:
        return reports
    last = {_kind(report): report for report in reports if report.artifact is None}
    return [report for report in reports if report.artifact is not None or last[_kind(report)] is report]


def _kind(report: Report) -> tuple[int, bool]:
    return report.number, report.checkpoint is not None


def _drain(queue: deque[T]) -> list[T]:
    out: list[T] = []
    while True:
        try:
            out.append(queue.popleft())
        except IndexError:
            return out
