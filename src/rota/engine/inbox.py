"""The worker's inbox and alarm clock: outcomes, reports and requests come in from any thread, and the driver sleeps here."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeAlias

from rota import errors
from rota.errors import RotaError
from rota.model.settings import Settings
from rota.model.values import SECOND, Claimed, Instant
from rota.ports.clock import Clock
from rota.ports.executor import Answer, Ended, Receipt, Replied, Reply, Report, Request
from rota.ports.turns import Turned
from rota.ports.wakeup import Wakeup

log = logging.getLogger("rota.worker")

Serve: TypeAlias = Callable[[Claimed, Request, Callable[[], None]], str]
"""Does what the handler of a job asks for and returns the answer as JSON text, or raises an error that the handler gets.

The last one raises Closed as soon as nobody waits for answers any more: it is called before each try.
"""
LOST = Reply(lost=True)
TROUBLE_S = (0.05, 1.0)
"""Shortest and longest pause after the store failed."""
HINT_S = 0.2
"""How long after a hint its commit is looked for."""


class Inbox:
    """Implements `rota.ports.executor.Sink`. Appends are atomic; nothing here is locked per job."""

    def __init__(self, wakeup: Wakeup | None = None, requests: Requests | None = None) -> None:
        """Start empty. The driver also wakes on hints of `wakeup`."""
        self.requests = requests or Requests()
        self._ended: deque[Ended] = deque()
        self._reports: deque[Report] = deque()
        self._checkpoints: deque[tuple[Report, Answer]] = deque()
        self.reports: list[Report] = []
        """Those that were taken and that no turn has written yet. It belongs to the worker's thread."""
        self._unanswered: list[tuple[int, Answer]] = []
        """Checkpoints among these, by the number of their job: their handlers wait."""
        self._closed = False
        self._wakeup = wakeup
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._own, self._all = select.poll(), select.poll()
        for poll in (self._own, self._all):
            poll.register(self._read_fd, select.POLLIN)
        self._hinted: int | None = None
        self._rung = False
        self._ringing = threading.Lock()
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
            self.wake()

    def report(self, report: Report) -> None:
        """Take what a running handler wants kept."""
        self._reports.append(report)
        self.wake()

    def keep(self, report: Report, answer: Answer) -> None:
        """Take a checkpoint; the worker answers after the commit."""
        self._checkpoints.append((report, answer))
        self.wake()
        if self._closed:
            self._refuse()

    def ask(self, job: Claimed, request: Request, replied: Replied) -> None:
        """Take a request of a handler: a thread of its own answers it, so that turns continue."""
        self.requests.take(job, request, replied)

    def poke(self) -> None:
        """Wake the driver: there may be something to claim. A hint; polling carries correctness."""
        self.poked = True
        self.wake()

    def wake(self) -> None:
        """Wake the driver: something that it waits for is over."""
        if self._rung:
            return
        # Only the first that wakes it comes here. What is closed meanwhile may be another file's descriptor by the time of the write.
        with self._ringing:
            if not self._rung:
                self._rung = True
                os.write(self._write_fd, b"!")

    @property
    def hinted(self) -> bool:
        """Say whether other processes' commits wake the driver, so that it may poll less often."""
        if self._wakeup is None:
            return False
        fd = self._wakeup.fileno()
        if fd != self._hinted:
            if self._hinted is not None:
                self._all.unregister(self._hinted)
            if fd is not None:
                self._all.register(fd, select.POLLIN)
            self._hinted = fd
        return fd is not None

    def wait(self, seconds: float) -> bool:
        """Sleep until something arrives, at most so long. Return whether it was a hint that others have committed."""
        arrived = (self._all if self.listens else self._own).poll(seconds * 1000)
        hinted = False
        for fd, _ in arrived:
            if fd == self._hinted and self._wakeup is not None:
                hinted = True
                self._wakeup.drain()
            else:
                os.read(fd, 64)
        # After the read: what comes from here on rings again, what came before is seen by the turn that follows.
        self._rung = False
        return hinted

    def hush(self) -> None:
        """Drop the hints of our own commit, where it gives any. Another's that goes with them is found by polling."""
        if self._hinted is not None and self._wakeup is not None and self._wakeup.echoes:
            self._wakeup.drain()

    def close(self) -> None:
        """Let go of the alarm and of the hints, and refuse checkpoints that are not written."""
        # First: a handler that ends late must not ring at what is closed, or is another's by now.
        with self._ringing:
            self._rung = self._closed = True
        self._refuse()
        for _, answer in self._unanswered:
            answer(Receipt.REFUSED)
        self.requests.close()
        if self._wakeup is not None:
            self._wakeup.close()
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _refuse(self) -> None:
        """Refuse checkpoints that nobody took. From any thread: the one that pops a checkpoint answers it."""
        with suppress(IndexError):
            while True:
                self._checkpoints.popleft()[1](Receipt.REFUSED)

    # ---- the worker's side ------------------------------------------------------------------------------------------

    def take(self) -> list[Ended]:
        """Return what has ended since the last time."""
        ended = self._ended
        # Only this thread takes: as many as there are now can be taken, and more may arrive.
        return [ended.popleft() for _ in range(len(ended))]

    def take_reports(self) -> None:
        """Take what was reported since the last time to what no turn has written yet."""
        came = [self._reports.popleft() for _ in range(len(self._reports))]
        while self._checkpoints:
            report, answer = self._checkpoints.popleft()
            came.append(report)
            self._unanswered.append((report.number, answer))
        if came:
            self.reports = newest(self.reports + came)

    def written(self, turned: Turned) -> None:
        """Forget the reports that a turn has written, and let the handlers continue whose checkpoints are committed."""
        self.reports, unanswered, self._unanswered = [], self._unanswered, []
        for number, answer in unanswered:
            answer(turned.unkept.get(number, Receipt.WRITTEN))


class DirectSink:
    """The sink of handlers that the worker's own thread runs: it can't answer them later, so a checkpoint is written at once."""

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
    last = {(report.number, report.checkpoint is not None): report for report in reports if report.artifact is None}
    return [report for report in reports if report.artifact is not None or last[report.number, report.checkpoint is not None] is report]


class Closed(Exception):  # noqa: N818 - a signal, not an error of anybody
    """The worker is gone: nobody waits for the answer."""


class Requests:
    """Takes requests of handlers from any thread; a thread of its own answers them in the order in which they come."""

    def __init__(self, serve: Serve | None = None) -> None:
        """Start nothing yet; without `serve` every request is refused."""
        self._serve = serve
        self._waiting: SimpleQueue[tuple[Claimed, Request, Replied] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def take(self, job: Claimed, request: Request, replied: Replied) -> None:
        """Have a request answered."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._waiting.put((job, request, replied))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="rota-requests", daemon=True)
                    self._thread.start()
        if closed:
            replied(LOST)

    def answer(self, job: Claimed, request: Request) -> Reply:
        """Answer a request in the thread of the caller."""
        if self._serve is None:
            return Reply(error="RotaError", text="this worker answers no requests of handlers")
        try:
            return Reply(self._serve(job, request, self._check))
        except Closed:
            return LOST
        except RotaError as error:
            # As a handler in any process can raise it again: by the nearest class that all of them know.
            name = next(kind.__name__ for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
            return Reply(error=name, text=str(error), members={member: getattr(error, member) for member in error.members})
        except Exception as error:
            log.exception("could not answer a request of job %d; its handler gets the error", job.number)
            return Reply(error="RotaError", text=f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Answer nothing more: handlers that still wait are told that they should stop."""
        with self._lock:
            self._closed = True
            self._waiting.put(None)

    def _check(self) -> None:
        if self._closed:
            raise Closed

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            job, request, replied = item
            replied(LOST if self._closed else self.answer(job, request))


class Pace:
    """Says how long a worker sleeps between two turns: less after a hint and while work waits, longer while the store is in trouble."""

    def __init__(self, inbox: Inbox, clock: Clock, settings: Settings) -> None:
        """Begin without trouble."""
        self._inbox = inbox
        self._clock = clock
        self._settings = settings
        self.trouble_s = 0.0
        """The last pause after the store failed; 0: it works."""
        self._hint_at = -HINT_S

    def failed(self, error: Exception) -> float:
        """Return how long to wait because the store failed."""
        shortest, longest = TROUBLE_S
        if not self.trouble_s:
            log.warning("the store is unavailable; outcomes are kept and no jobs are claimed until it is back: %s", error)
        self.trouble_s = min(longest, max(shortest, self.trouble_s * 2))
        return self.trouble_s

    def recovered(self) -> None:
        """Note that the store works again."""
        self.trouble_s = 0.0
        # A warning, so that it is seen wherever the first line was.
        log.warning("the store is available again; the worker continues")

    def delay_s(self, held: int, *, ahead: bool, deadline: float | None, due: Iterable[Instant | None]) -> float:
        """Return how long to sleep at most: until a handler's deadline (monotonic), or something is due.

        `ahead` says that more jobs are `held` than there are slots: then several outcomes are waited for.
        """
        inbox, settings, monotonic = self._inbox, self._settings, self._clock.monotonic()
        inbox.listens = not ahead
        inbox.threshold = max(1, held // 2) if ahead else 1
        if ahead:
            delay = settings.linger
        elif not inbox.hinted:
            delay = settings.poll
        else:
            # Just after a hint, look again soon: the log is written before the commit is.
            since_hint = monotonic - self._hint_at
            delay = min(settings.poll, max(0.001, since_hint / 2)) if since_hint < HINT_S else settings.poll_hinted
        if deadline is not None:
            delay = min(delay, max(0.0, deadline - monotonic))
        for at in due:
            if at is not None:
                delay = min(delay, max(0.0, (at - self._clock.now()) / SECOND))
        return delay

    def wait(self, seconds: float) -> None:
        """Sleep until something arrives, at most so long."""
        if self._inbox.wait(seconds):
            self._hint_at = self._clock.monotonic()
