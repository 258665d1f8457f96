"""A step that is repeated on a thread of its own: nothing that the process is busy with, or waits for, delays it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rota.errors import StoreBusy, StoreUnavailable

log = logging.getLogger("rota.worker")

AGAIN_S = (0.05, 1.0)
"""Shortest and longest pause after a step that the store did not answer: a quarter of the usual one, within these."""
REST_S = 1.0
"""How long a step that is under way is waited for at the end."""


class Ticker:
    """Calls `step` again and again until it is stopped."""

    def __init__(self, step: Callable[[], object], *, every_s: float, name: str) -> None:
        """Take what to call and how often; nothing is called before `start`, nor at once."""
        self._step = step
        self._every_s = every_s
        self._name = name
        self._bell = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """Say whether it was started."""
        return self._thread is not None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._live, name=f"rota-{self._name}", daemon=True)
        self._thread.start()

    def soon(self) -> None:
        """Do not wait for the next time."""
        self._bell.set()

    def stop(self) -> None:
        """End. A step that the store does not answer is not waited for."""
        self._ended.set()
        self._bell.set()
        if self._thread is not None:
            self._thread.join(REST_S)

    def _live(self) -> None:
        pause = self._every_s
        while True:
            self._bell.wait(pause)
            self._bell.clear()
            if self._ended.is_set():
                return
            pause = self._every_s
            try:
                self._step()
            except (StoreBusy, StoreUnavailable):
                pause = min(max(AGAIN_S[0], pause / 4), AGAIN_S[1])
            except Exception:
                # One that was under way when the store was closed is no news.
                if not self._ended.is_set():
                    log.exception("%s failed; retrying", self._name)
