"""The engine's ear and its alarm clock: outcomes and reports come in from any thread, the driver sleeps here."""

from __future__ import annotations

import threading
from collections import deque
from typing import TypeVar

from rota.ports.executor import Ended, Report

T = TypeVar("T")


class Inbox:
    """Implements `rota.ports.executor.Sink`. Appends are atomic; nothing here is locked per job."""

    def __init__(self) -> None:
        """Start empty and awake."""
        self._ended: deque[Ended] = deque()
        self._reports: deque[Report] = deque()
        self._alarm = threading.Event()
        self.threshold = 1
        """How many outcomes are worth waking for: more than one only while claimed work keeps the executors busy."""
        self.poked = True
        """Somebody in this process enqueued or asked for something."""

    def ended(self, ended: Ended) -> None:
        """Take the end of an attempt."""
        self._ended.append(ended)
        if len(self._ended) >= self.threshold and not self._alarm.is_set():
            self._alarm.set()

    def report(self, report: Report) -> None:
        """Take what a running handler wants kept."""
        self._reports.append(report)
        if not self._alarm.is_set():
            self._alarm.set()

    def poke(self) -> None:
        """Wake the driver: there may be something to claim. A hint; polling carries correctness."""
        self.poked = True
        self._alarm.set()

    def wait(self, seconds: float) -> None:
        """Sleep until something arrives, at most so long."""
        self._alarm.wait(seconds)
        self._alarm.clear()

    def take(self) -> list[Ended]:
        """Return what has ended since the last time."""
        return _drain(self._ended)

    def take_reports(self) -> list[Report]:
        """Return what was reported since the last time, the newest progress of each run only."""
        reports = _drain(self._reports)
        if len(reports) < 2:
            return reports
        newest = {report.number: report for report in reports if report.artifact is None and report.checkpoint is None}
        return [report for report in reports if report.artifact or report.checkpoint or newest.get(report.number) is report]


def _drain(queue: deque[T]) -> list[T]:
    out: list[T] = []
    while True:
        try:
            out.append(queue.popleft())
        except IndexError:
            return out
