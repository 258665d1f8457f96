"""The worker's side of a warden: starts one for a run, talks to it, and learns how the run ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from rota.ports.runner import Stream

SCRIPT = str(Path(__file__).with_name("warden.py"))
PIECE = 64 * 1024


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended, as its warden reports it."""

    status: int | None
    """As `wait` has it: of the command, or of bubblewrap around it; None: it was never started."""
    cpu_s: float = 0.0
    stopped: bool = False
    """TERM was sent to it."""
    killed: bool = False
    """It did not end within the grace, or was to be killed."""
    lapsed: bool = False
    """The worker's lease was over."""
    refused: int | None = None
    """The error number of the step that failed before the command began."""
    stage: str | None = None
    """That step."""
    exit_code: int | None = None
    """By bubblewrap; None: it has started no command."""


class WardenProcess:
    """One warden, its socket and the output of its command. `stop`, `kill` and `renew` may be called from any thread."""

    def __init__(self, order: Mapping[str, Any], descriptors: Mapping[str, int]) -> None:
        """Start it in a session of its own; it and all below it end with the calling thread's process."""
        self._lock = Lock()
        self._lines = b""
        with contextlib.ExitStack() as undo:
            self._socket, theirs = socket.socketpair()
            undo.callback(self._socket.close)
            self._streams: dict[int, Stream] = {}
            writing: dict[str, int] = {}
            with contextlib.ExitStack() as ours:
                ours.callback(theirs.close)
                for name, stream in (("out", Stream.OUT), ("err", Stream.ERR)):
                    reading, writing[name] = os.pipe2(os.O_CLOEXEC)
                    undo.callback(os.close, reading)
                    ours.callback(os.close, writing[name])
                    os.set_blocking(reading, False)
                    self._streams[reading] = stream
                passed = {**descriptors, **writing}
                self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter and script
                    [sys.executable, "-I", "-S", "-X", "utf8", SCRIPT, str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    pass_fds=[theirs.fileno(), *passed.values()],
                    start_new_session=True,
                )
            self._pidfd = os.pidfd_open(self._popen.pid)
            undo.callback(os.close, self._pidfd)
            self._undo = undo.pop_all()
        with contextlib.suppress(OSError):  # it is gone, which is heard where it is read
            self._socket.sendall(_line({**order, "descriptors": passed}))

    # ---- from any thread ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Have TERM sent to the command, and everything killed after the grace."""
        self._send({"stop": True})

    def kill(self) -> None:
        """Have everything killed now."""
        self._send({"kill": True})

    def renew(self, until: float | None) -> None:
        """Say until when the command may run unless this is said again."""
        self._send({"lease": until})

    def _send(self, document: Mapping[str, Any]) -> None:
        # Gone: that is heard where it is read. Full: it is stopped, and no caller waits for it.
        with self._lock, contextlib.suppress(OSError):
            self._socket.send(_line(document), socket.MSG_DONTWAIT)

    # ---- the thread of the run ----------------------------------------------------------------------------

    def follow(self, take: Callable[[Stream, bytes], None]) -> End | None:
        """Pass output on until nothing of the command is left; return how it ended, or None if the warden died."""
        poll = select.poll()
        # By a descriptor of the process too: a copy of the worker that a handler has forked may hold the other end of the socket.
        reporting = (self._socket.fileno(), self._pidfd)
        for descriptor in (*reporting, *self._streams):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor in reporting:
                    if self._hear() or descriptor == self._pidfd:
                        self._drain(take)
                        return self._end()
                elif not self._pass_on(descriptor, take):
                    poll.unregister(descriptor)

    def close(self) -> int:
        """Let go of it; return its own exit code."""
        with self._lock:
            self._undo.close()
        return self._popen.wait()

    def _hear(self) -> bool:
        """Read what the warden says; return whether it has said all."""
        try:
            data = self._socket.recv(PIECE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._lines += data
        return not data or b"\n" in self._lines

    def _end(self) -> End | None:
        line, newline, _ = self._lines.partition(b"\n")
        return msgspec.json.decode(line, type=End) if newline else None

    def _pass_on(self, descriptor: int, take: Callable[[Stream, bytes], None]) -> bool:
        """Pass one piece on; return whether there may be more."""
        try:
            data = os.read(descriptor, PIECE)
        except BlockingIOError:
            return False
        if data:
            take(self._streams[descriptor], data)
        return bool(data)

    def _drain(self, take: Callable[[Stream, bytes], None]) -> None:
        """Read what is left in the pipes: nobody writes any more."""
        for descriptor in self._streams:
            while self._pass_on(descriptor, take):
                pass


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


@contextlib.contextmanager
def sealed(text: str) -> Iterator[int]:
    """Lend a descriptor from which a text can be read and which nobody can change; it has no name."""
    descriptor = os.memfd_create("rota-secrets", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(text.encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
        yield descriptor
    finally:
        os.close(descriptor)
