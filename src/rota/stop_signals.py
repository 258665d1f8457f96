"""SIGINT and SIGTERM, as a process that runs until it is stopped waits for them."""

from __future__ import annotations

import signal
import threading
from collections import deque
from contextlib import suppress
from types import FrameType
from typing import Any, Self


class StopSignals:
    """Listens for SIGINT and SIGTERM inside a `with` block, and then restores the handlers from before.

    A handler may interrupt the very wait that it ends. An Event would deadlock there. A SimpleQueue allows it, but CPython's waits for
    ever if the process is paused for longer than the timeout at the beginning of `get`.
    """

    def __init__(self) -> None:
        """Start with no signals."""
        self._arrived: deque[int] = deque()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Listen."""
        self._before = {number: signal.signal(number, self.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the handlers from before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Note a signal and end the wait."""
        self._arrived.append(number)
        with suppress(RuntimeError):  # nobody has waited since the signal before
            self._bell.release()

    def wait(self, seconds: float) -> bool:
        """Wait this long for a signal, and return whether there is one. Each signal is returned once."""
        self._bell.acquire(blocking=False)  # it may have rung for a signal that was returned without a wait
        if not self._arrived:
            self._bell.acquire(timeout=max(seconds, 0))
        if not self._arrived:
            return False
        self._arrived.popleft()
        return True
