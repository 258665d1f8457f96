"""A second hand: writes plain completions on a thread of its own while the wheel goes on claiming.

Only where the store does its work elsewhere: a server ends one batch while it claims the next, and this process prepares a third.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rota.ports.store import Store
from rota.ports.turns import Turn, Turned

log = logging.getLogger("rota.worker")

LEAST = 64
"""Fewer completions than this are written by the turn that claims: another transaction would cost more than it saves."""
CLOSE_S = 5.0
"""How long a worker that ends waits for what is still being written."""


class Scribe:
    """Makes one turn at a time that ends jobs and claims none. All methods belong to the worker's thread."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        """Start nothing yet; `wake` is called when something has been written, or could not be."""
        self._store = store
        self._wake = wake
        self._turn: Turn | None = None
        self._turned: Turned | Exception | None = None
        self._call = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def busy(self) -> bool:
        """Say whether something was given to write whose outcome was not taken yet."""
        return self._turn is not None

    def write(self, turn: Turn) -> None:
        """Begin to write. Not to be called while busy."""
        self._turn = turn
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rota-scribe", daemon=True)
            self._thread.start()
        self._call.set()

    def take(self) -> Turned | Exception | None:
        """Return what came of it, once; None: nothing was given, or it is not finished."""
        turned = self._turned
        if turned is not None:
            self._turned = self._turn = None
        return turned

    def close(self) -> None:
        """Wait for what is being written, for a while, and end."""
        self._closed = True
        self._call.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while True:
            self._call.wait()
            self._call.clear()
            turn = self._turn
            if turn is not None and self._turned is None:
                try:
                    self._turned = self._store.turn(turn)
                except Exception as error:  # noqa: BLE001 - the worker writes them again, and meets the same error if it lasts
                    log.debug("completions could not be written beside the wheel: %s", error)
                    self._turned = error
                self._wake()
            if self._closed:
                return
