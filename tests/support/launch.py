"""Programs of tests that begin with Rota imported: real processes, forked from one that has done nothing else."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from tests.support.pace import patient

PAD = Path(__file__).with_name("launch_pad.py")
SOURCE = Path(__file__).parents[2] / "src"


class Launched:
    """A program that was launched, with what tests ask of a `subprocess.Popen`."""

    def __init__(self, args: list[str], report: socket.socket) -> None:
        self.args = args
        self.returncode: int | None = None
        self._report = report
        # The launch pad reaps: by its number alone, who is signalled might be somebody else by then.
        pid, (self._handle,), _, _ = socket.recv_fds(report, 64, 1)
        self.pid = int(pid)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            told = select.poll()
            told.register(self._report, select.POLLIN)
            if not told.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            with self._report:
                self.returncode = int(self._report.recv(64))
            os.close(self._handle)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def launch(
    program: Path,
    *args: str,
    sink: IO[bytes],
    errors: IO[bytes] | None = None,
    environment: Mapping[str, str],
    folder: Path | None = None,
    imports: Sequence[str] = (),
    before: str = "",
    strict: bool = False,
) -> Launched:
    """Start a program of Python with its output in a file.

    `imports`: modules that are imported before it begins, for all that follow too. `before`: what it executes first, as a
    `sitecustomize` would. `strict`: warnings are errors.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = {"program": str(program), "args": args, "environment": dict(environment), "folder": str(folder or Path.cwd())}
    text = json.dumps(request | {"imports": imports, "before": before, "strict": strict}).encode()
    with theirs:
        socket.send_fds(_pad(os.getpid()), [text], [sink.fileno(), (errors or sink).fileno(), theirs.fileno()])
    return Launched([sys.executable, str(program), *args], ours)


def store_of(place: Path | str) -> str:
    """Return the module of Rota that has the store at a path or URL."""
    kind = {"mongodb": "mongodb", "postgresql": "postgres"}.get(str(place).partition("://")[0], "sqlite")
    return f"rota.stores.{kind}.store"


def run(
    program: Path,
    *args: str,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    imports: Sequence[str] = (),
    before: str = "",
    strict: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as `subprocess.run` does."""
    with TemporaryFile() as sink, TemporaryFile() as errors:
        started = launch(
            program,
            *args,
            sink=sink,
            errors=errors,
            environment=os.environ if environment is None else environment,
            folder=folder,
            imports=imports,
            before=before,
            strict=strict,
        )
        try:
            code = started.wait(timeout)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
            raise
        for file in (sink, errors):
            file.seek(0)
        return subprocess.CompletedProcess(started.args, code, sink.read().decode(), errors.read().decode())


@cache
def _pad(_pid: int) -> socket.socket:
    """Start a launch pad for this process, which ends when this one does."""
    # Of this kind one message is one request, and one answer.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
    with theirs:
        pad = subprocess.Popen([sys.executable, PAD, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment)

    def close() -> None:
        ours.close()
        pad.wait(patient(10))

    atexit.register(close)
    return ours
