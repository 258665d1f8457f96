"""Hints that somebody has committed something to do (LISTEN/NOTIFY). A hint saves latency; polling carries correctness."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

import psycopg

from rota.errors import RotaError
from rota.model.settings import Settings
from rota.stores.postgres.address import Address
from rota.stores.postgres.connection import beat_silence_s, open_connection

LOOK_S = 0.5
"""How often the listening thread looks whether it is to end; hints themselves arrive at once."""
PAUSE_S = (0.1, 5.0)
"""Between two tries to connect: first, at most."""
ASK_S = 10.0
"""How often the server is asked whether it is still there: one that is stopped sends no hints, and does not hang up either."""
READ_BYTES = 4096


class Listener:
    """Implements `rota.ports.wakeup.Wakeup` with a connection of its own, on a thread, so that a server that is away holds nobody up."""

    # A turn's commit gives no hint: so each is somebody's word that there is something to do, and none is dropped.
    echoes = False

    def __init__(self, where: Address, settings: Settings) -> None:
        """Prepare; the first look at `fileno` begins to listen."""
        self._where = where
        self._settings = settings
        # Short: stopping a worker waits for this thread.
        self._silence_s = beat_silence_s(settings)
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._heard = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def fileno(self) -> int | None:
        """Return the descriptor while there is somebody to hear."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="rota-hints", daemon=True)
            self._thread.start()
        return self._read_fd if self._heard else None

    def drain(self) -> None:
        """Take what has arrived; all it says is that there may be something."""
        with suppress(BlockingIOError):
            while len(os.read(self._read_fd, READ_BYTES)) == READ_BYTES:
                pass

    def close(self) -> None:
        """End the thread and let go of the descriptors."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _listen(self) -> None:
        pause = PAUSE_S[0]
        while not self._ended.is_set():
            try:
                with open_connection(self._where, self._settings, silence_s=self._silence_s) as raw:
                    raw.execute(f"LISTEN {self._where.schema_quoted}".encode())
                    self._heard, pause = True, PAUSE_S[0]
                    # What was committed while nobody listened is looked for at once.
                    self._ring()
                    self._hear(raw)
            except (psycopg.Error, RotaError):
                self._ended.wait(pause)
                pause = min(pause * 2, PAUSE_S[1])
            finally:
                self._heard = False

    def _hear(self, raw: psycopg.Connection[object]) -> None:
        asked = time.monotonic()
        while not self._ended.is_set():
            for _ in raw.notifies(timeout=LOOK_S, stop_after=1):
                self._ring()
            if time.monotonic() - asked > ASK_S:
                raw.execute("SELECT 1")
                asked = time.monotonic()

    def _ring(self) -> None:
        # A full pipe rings already.
        with suppress(BlockingIOError):
            os.write(self._write_fd, b"!")
