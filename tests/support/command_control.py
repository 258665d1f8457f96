"""The executor's side of one attempt, for tests of runners: keeps output, and stops the attempt when it is told to or by a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread

from rota.ports.executor import StopReason
from rota.ports.runner import Stream


class CommandControl:
    """One attempt. `stop(reason)` may be called from any thread, before the run or while it lasts."""

    def __init__(self, *, timeout_s: float = 0.0, grace_s: float = 30.0) -> None:
        self.grace_s = grace_s
        self.out = bytearray()
        self.err = bytearray()
        self.pieces = 0
        self.forced = False
        self.first_output_at: float | None = None
        self._reason: StopReason | None = None
        self._timeout_s = timeout_s
        self._ends_at = time.monotonic() + timeout_s if timeout_s else None
        self._changed = Condition()

    def stop(self, reason: StopReason) -> None:
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()

    def reason(self) -> StopReason | None:
        with self._changed:
            if self._reason is None and self._ends_at is not None and time.monotonic() >= self._ends_at:
                self._reason = StopReason.TIMEOUT
            return self._reason

    def remaining_s(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())

    @contextmanager
    def watch(self, stop: Callable[[], None], force: Callable[[], None]) -> Iterator[None]:
        over: list[bool] = []
        if self._timeout_s:
            self._ends_at = time.monotonic() + self._timeout_s
        thread = Thread(target=self._watch, args=(stop, force, over))
        thread.start()
        try:
            yield
        finally:
            with self._changed:
                over.append(True)
                self._changed.notify_all()
            thread.join()

    def output(self, stream: Stream, data: bytes) -> None:
        self.first_output_at = self.first_output_at or time.monotonic()
        self.pieces += 1
        (self.out if stream is Stream.OUT else self.err).extend(data)
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, word: bytes, *, within: float) -> None:
        """Return when this was printed."""
        with self._changed:
            assert self._changed.wait_for(lambda: word in self.out, within), f"{word!r} was not printed: {self.out!r} {self.err!r}"

    def _watch(self, stop: Callable[[], None], force: Callable[[], None], over: list[bool]) -> None:
        with self._changed:
            while self.reason() is None and not over:
                self._changed.wait(self.remaining_s())
        if over:
            return
        stop()
        with self._changed:
            self._changed.wait_for(lambda: bool(over), self.grace_s)
        if not over:
            self.forced = True
            force()
