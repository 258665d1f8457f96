"""One attempt as its executor holds it: the wish to stop, what is reported on the way, the log. `Context` is its face."""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable
from threading import Event, RLock
from typing import Any, Generic, TypeVar

from rota import errors
from rota.errors import InvalidParams, InvalidProgress, PayloadTooLarge, RotaError, TransactionMisuse
from rota.executors.text import clean, head
from rota.model.params import encode
from rota.model.settings import Settings
from rota.model.signals import Cancelled
from rota.model.values import Claimed, Instant, log_path, moment
from rota.ports.clock import Clock
from rota.ports.executor import Equipment, Question, Receipt, Reply, Report, Request
from rota.ports.files import make_folder, open_file
from rota.ports.transactions import is_inside

Received = TypeVar("Received")


class Wait(Generic[Received]):
    """One checkpoint or request on its way to the worker: what wakes the handler that waits for it, and what came back."""

    __slots__ = ("receipt", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        """Take what ends the wait; it may be called more than once, from any thread."""
        self.wake = wake
        self.receipt: Received | None = None

    def __call__(self, receipt: Received) -> None:
        """Take what came back."""
        self.receipt = receipt
        self.wake()


class Attempt:
    """The running side of one job. Thread-safe: handlers may report from threads of their own."""

    __slots__ = (
        "_clock",
        "_due",
        "_ended",
        "_equipment",
        "_lock",
        "_message",
        "_pct",
        "_report",
        "_settings",
        "_told_range",
        "_waits",
        "_withheld",
        "job",
        "log",
        "middleware",
        "stopping",
    )

    def __init__(self, job: Claimed, equipment: Equipment) -> None:
        """Prepare a handler's run; nothing is opened before it is needed."""
        settings = equipment.settings
        self.job = job
        self.log = RunLog(equipment.log_dir, job.run_id, clock=equipment.clock, settings=settings)
        self.stopping = False
        self.middleware = equipment.middleware
        self._equipment = equipment
        self._waits: tuple[Wait[Any], ...] = ()
        """Checkpoints and requests that somebody waits for. Replaced under the lock, never changed."""
        self._settings = settings
        self._report = equipment.sink.report
        self._clock = equipment.clock
        self._told_range = False
        self._lock = RLock()
        self._pct = -1
        self._message: str | None = None
        self._withheld = False
        self._due = 0.0
        self._ended = False

    @property
    def is_traced(self) -> bool:
        """Say whether runs are traced."""
        return self._settings.traces != "off"

    def stop(self) -> None:
        """Let the handler see that it was asked to stop; one that waits for a checkpoint waits no longer."""
        self.stopping = True
        self._wake()

    def progress(self, pct: float, message: str | None) -> None:
        """Report progress: 0 to 100, never back, not too often; the first and 100 get through at once."""
        number = as_percent(pct)
        wanted = int(min(100, max(0, number)))
        if not 0 <= number <= 100 and not self._told_range:
            self._told_range = True
            self.log.line("WARNING", f"progress {number:.15g} is outside 0..100: kept as {wanted}")
        text = None if message is None else head(clean(message), self._settings.error_max)
        with self._lock:
            first, before = self._pct < 0, (self._pct, self._message)
            self._pct = max(self._pct, wanted)
            self._message = self._message if text is None else text
            if self._ended or before == (self._pct, self._message):
                return
            if first or self._pct == 100 or self._clock.monotonic() >= self._due:
                self._send()
            else:
                self._withheld = True

    def flush(self, monotonic: float) -> float | None:
        """Send progress that was held back, if its time has come; return when it will."""
        with self._lock:
            if not self._withheld:
                return None
            if monotonic < self._due:
                return self._due
            self._send()
        return None

    def checkpoint(self, state: object) -> None:
        """Keep a state for the attempt after this one; return when it is on disk. Raise Cancelled if the handler was asked to stop."""
        done = Event()
        wait = self.send(state, done.set)
        done.wait()
        self.conclude(wait)

    def send(self, state: object, wake: Callable[[], object]) -> Wait[Receipt]:
        """Send a state to the worker; `wake` is called when it is on disk, or not worth waiting for any longer."""
        self._refuse_inside("a checkpoint is written", "ctx.checkpoint")
        text = encode(state, "checkpoint")
        size = len(text) if text.isascii() else len(text.encode())
        if size > self._settings.result_max:
            raise PayloadTooLarge(
                f"the checkpoint takes {size:,} bytes; the limit is {self._settings.result_max:,} (setting result_max). "
                "Keep the data elsewhere and its name here"
            )
        report = Report(self.job.number, checkpoint=text)
        return self._begin_wait(wake, "the checkpoint was not kept", lambda wait: self._equipment.sink.keep(report, wait))

    def _refuse_inside(self, what: str, call: str) -> None:
        if is_inside(self._equipment.store):
            raise TransactionMisuse(
                f"this thread is inside `with rota.transaction()`, and {what} by the worker, which would wait for the block"
                f" to end: call {call} before or after the block"
            )

    def _begin_wait(self, wake: Callable[[], object], lost: str, send: Callable[[Wait[Any]], object]) -> Wait[Any]:
        """Send something that the worker answers by the wait."""
        wait: Wait[Any] = Wait(wake)
        with self._lock:
            if self._ended:
                raise Cancelled(f"the run is over: {lost}")
            self._waits += (wait,)
        send(wait)
        if self.stopping:
            # It goes with the worker's next turn, which nobody waits for any more.
            wait.wake()
        return wait

    def _end_wait(self, wait: Wait[Any]) -> None:
        with self._lock:
            self._waits = tuple(each for each in self._waits if each is not wait)

    def ask(self, request: Request) -> str:
        """Ask the worker for something; return what it answers, as JSON text, or raise its error."""
        done = Event()
        wait = self.begin_ask(request, done.set)
        done.wait()
        return self.conclude_ask(wait)

    def begin_ask(self, request: Request, wake: Callable[[], object]) -> Wait[Reply]:
        """Send a request to the worker; `wake` is called when it is answered, or not worth waiting for any longer."""
        if request.question is Question.ENQUEUE:
            self._refuse_inside("a job is enqueued", "ctx.enqueue")
        if self.stopping:
            raise Cancelled("the job was asked to stop")
        return self._begin_wait(wake, "the worker was not asked", lambda wait: self._equipment.sink.ask(self.job, request, wait))

    def conclude_ask(self, wait: Wait[Reply]) -> str:
        """End the wait for a reply: return what came, or raise the error that came, or Cancelled if nothing did."""
        self._end_wait(wait)
        reply = wait.receipt
        if reply is None or reply.lost:
            raise Cancelled("the job was asked to stop")
        if reply.error is not None:
            raise error_of(reply)
        return reply.body

    def conclude(self, wait: Wait[Receipt]) -> None:
        """End a wait: return if the state is on disk, raise if it is not known to be."""
        self._end_wait(wait)
        if wait.receipt is Receipt.UNWRITABLE:
            raise InvalidParams("the store can't hold the text of the checkpoint")
        if wait.receipt is Receipt.REFUSED:
            self.stopping = True
            raise Cancelled("the run was ended by others: the checkpoint was not kept")
        if self.stopping or wait.receipt is None:
            raise Cancelled("the job was asked to stop")

    def artifact(self, path: str) -> None:
        """Report a file or address that the handler made."""
        report = Report(self.job.number, artifact=head(clean(path), self._settings.error_max))
        with self._lock:
            if not self._ended:
                self._report(report)

    def end(self) -> str | None:
        """Send what is still held back, refuse everything later, and return the log's path if there is one."""
        with self._lock:
            if self._withheld:
                self._send()
            self._ended = True
        if self._waits:
            self._wake()
        return self.log.close()

    def abandon(self) -> str | None:
        """Ask to stop and refuse everything later: the run was ended without its handler."""
        self.stopping = True
        return self.end()

    def _send(self) -> None:
        self._withheld = False
        self._due = self._clock.monotonic() + self._settings.progress_interval
        self._report(Report(self.job.number, progress=self._pct, message=self._message))

    def _wake(self) -> None:
        for wait in self._waits:
            wait.wake()


def error_of(reply: Reply) -> RotaError:
    """Return the error of a reply, as the class that it was raised as."""
    kind = getattr(errors, reply.error or "", RotaError)
    error: RotaError = kind.__new__(kind, reply.text)
    error.args = (reply.text,)
    for name, value in reply.members.items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error


def as_percent(given: Any) -> float:
    """Return progress as a number, or refuse what is none."""
    # A text that holds a number, or True, is nearly always a mistake: neither is guessed at.
    if not isinstance(given, bool | str | bytes | bytearray):
        try:
            number = float(given)
        except OverflowError:
            return math.inf if given > 0 else -math.inf
        except (TypeError, ValueError):
            number = math.nan
        if not math.isnan(number):
            return number
    raise InvalidProgress(f"progress {clean(reprlib.repr(given))} is not a number: give one from 0 to 100")


class RunLog:
    """Lines of one run, appended to `log_path(log_dir, run_id)`: a file made on its first line and cut at its bound. Thread-safe.

    Logging never fails a handler.
    """

    __slots__ = ("_clock", "_closed", "_fd", "_limit", "_lock", "_settings", "_size", "before", "path")

    def __init__(self, log_dir: str | None, run_id: str, *, clock: Clock, settings: Settings) -> None:
        """Keep nothing if there is no directory."""
        self.path = None if log_dir is None else log_path(log_dir, run_id)
        self.before: Callable[[], None] | None = None
        """Called before a line of the handler's own, to let printed output go first."""
        self._clock = clock
        self._limit = settings.log_max
        self._settings = settings
        self._lock = RLock()
        self._fd: int | None = None
        self._size = 0
        self._closed = self.path is None

    def is_closed(self) -> bool:
        """Say whether every later line is dropped: the log was cut at its bound, can't be written or is over."""
        return self._closed

    def line(self, level: str, text: str) -> None:
        """Write a line of the handler's own."""
        if self.before is not None:
            self.before()
        self.write(level, text)

    def write(self, level: str, text: str) -> None:
        """Write one line; a text of several is indented from its second on, so that entries can be told apart."""
        with self._lock:
            if self._closed:
                return
            stamp = timestamp(self._clock.now())
            data = f"{stamp} {level} {clean(text)}".replace("\n", "\n    ").encode() + b"\n"
            last = f"{stamp} WARNING the log was cut here: it is over {self._limit} bytes (setting log_max)\n".encode()
            if self._size + len(data) + len(last) > self._limit:
                data, self._closed = last, True
            if self._size + len(data) <= self._limit:
                self._append(data)

    def close(self) -> str | None:
        """Drop every later line; return the path if anything was written."""
        with self._lock:
            self._closed = True
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
        return self.path if self._size else None

    def _append(self, data: bytes) -> None:
        try:
            if self._fd is None:
                path = self.path or os.devnull
                make_folder(os.path.dirname(path), mode=self._settings.folder_mode)  # noqa: PTH120 - see `log_path`
                self._fd = open_file(path, os.O_WRONLY | os.O_APPEND, mode=self._settings.file_mode)
            os.write(self._fd, data)
        except OSError:
            self._closed = True
        else:
            self._size += len(data)


def timestamp(at: Instant) -> str:
    """Return an instant as a line begins: 2026-11-15T04:25:59.123456Z."""
    return f"{moment(at):%Y-%m-%dT%H:%M:%S.%fZ}"
