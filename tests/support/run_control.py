"""The executor's side of one attempt, for tests of runners."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rota.ports.executor import StopReason
from rota.ports.runner import Stream


class RunControl:
    """A `Control` with a thread of its own while something is watched. `grace_s` is between stop and force."""

    def __init__(self, timeout_s: float = 0.0, *, grace_s: float = 0.5) -> None:
        """Begin now; 0: no limit."""
        self.end = time.monotonic() + timeout_s if timeout_s else None
        self.grace_s = grace_s
        self.forced = threading.Event()
        self.written: list[tuple[Stream, bytes]] = []
        self._reason: StopReason | None = None
        self._bell = threading.Condition()

    def stop(self, reason: StopReason = StopReason.CANCEL) -> None:
        """Ask the attempt to stop."""
        with self._bell:
            self._reason = self._reason or reason
            self._bell.notify_all()

    def stop_after(self, seconds: float, reason: StopReason = StopReason.CANCEL) -> None:
        """Ask for it later."""
        timer = threading.Timer(seconds, self.stop, [reason])
        timer.daemon = True
        timer.start()

    def reason(self) -> StopReason | None:
        if self._reason is None and self.remaining_s() == 0:
            self.stop(StopReason.TIMEOUT)
        return self._reason

    def remaining_s(self) -> float | None:
        return None if self.end is None else max(0.0, self.end - time.monotonic())

    @contextmanager
    def watch(self, stop: Callable[[], None], force: Callable[[], None]) -> Iterator[None]:
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(stop, force, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            with self._bell:
                self._bell.notify_all()
            watcher.join()

    def _watch(self, stop: Callable[[], None], force: Callable[[], None], over: threading.Event) -> None:
        with self._bell:
            self._bell.wait_for(lambda: over.is_set() or self._reason is not None, timeout=self.remaining_s())
        if over.is_set():
            return
        self.reason()
        with suppress(Exception):
            stop()
        if not over.wait(self.grace_s):
            self.forced.set()
            force()

    def output(self, stream: Stream, data: bytes) -> None:
        self.written.append((stream, data))
