"""Hints that somebody has committed something to do, from servers. A hint saves latency; polling carries correctness."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

PAUSE_S = (0.1, 5.0)
"""Between two tries to connect: first, at most."""
READ_BYTES = 4096


class Bell:
    """What a listening thread rings, and by which it sees that it is to end."""

    def __init__(self) -> None:
        """Open the pipe that wakes a worker."""
        self.read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.is_heard = False
        """Somebody listens: hints arrive."""
        self.ended = threading.Event()

    def hear(self) -> None:
        """Say that hints arrive from now on. What was committed while nobody listened is looked for at once."""
        self.is_heard = True
        self.ring()

    def ring(self) -> None:
        """Wake the worker."""
        # A full pipe rings already.
        with suppress(BlockingIOError):
            os.write(self._write_fd, b"!")

    def drain(self) -> None:
        """Take what has arrived; all it says is that there may be something."""
        with suppress(BlockingIOError):
            while len(os.read(self.read_fd, READ_BYTES)) == READ_BYTES:
                pass

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.read_fd)
        os.close(self._write_fd)


class Listener:
    """Implements `rota.ports.wakeup.Wakeup` with a connection of its own, on a thread, so that a server that is away holds nobody up."""

    # A turn's commit gives no hint: so each is somebody's word that there is something to do, and none is dropped.
    echoes = False

    def __init__(self, listen: Callable[[Bell], None], lost: tuple[type[Exception], ...]) -> None:
        """Take what connects and listens until it is to end, and what it raises when the server is lost.

        The first look at `fileno` begins to listen.
        """
        self._listen = listen
        self._lost = lost
        self._bell = Bell()
        self._thread: threading.Thread | None = None

    def fileno(self) -> int | None:
        """Return the descriptor while there is somebody to hear."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_listening, name="rota-hints", daemon=True)
            self._thread.start()
        return self._bell.read_fd if self._bell.is_heard else None

    def drain(self) -> None:
        """Take what has arrived."""
        self._bell.drain()

    def close(self) -> None:
        """End the thread and close the descriptors."""
        self._bell.ended.set()
        if self._thread is not None:
            self._thread.join()
        self._bell.close()

    def _keep_listening(self) -> None:
        pause = PAUSE_S[0]
        while not self._bell.ended.is_set():
            try:
                self._listen(self._bell)
            except self._lost:
                if self._bell.is_heard:
                    pause = PAUSE_S[0]
                self._bell.ended.wait(pause)
                pause = min(pause * 2, PAUSE_S[1])
            finally:
                self._bell.is_heard = False
