"""Several machines on one: each with its own lock files and its own clock, one of them behind a line that can be cut."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.faults import invariants
from tests.faults.stage import PROGRAMS, SOURCE, Program
from tests.support.launch import Launched, launch, store_of
from tests.support.pace import pace, patient
from tests.support.waiting import eventually

TIMES = min(3.0, pace())
SMALL = {"lease_ttl": 3 * TIMES, "lease_guard": 1.5 * TIMES, "beat": 0.3 * TIMES, "recovery_interval": 0.1, "max_crashes": 1000}
"""Everything that takes half a minute, in three seconds; in nine on a busy machine, where a beat may come late."""
WATCHFUL = "?tcp_user_timeout=1000&keepalives_idle=1&keepalives_interval=1&keepalives_count=1&connect_timeout=2"


class Line(NamedTuple):
    """What a handler wrote."""

    what: str
    name: str
    attempt: int
    host: str
    at: float
    pid: int


class Worker(Program):
    """A worker's process, which may have been started through others: signals go to the worker itself."""

    inner = 0

    @property
    def pid(self) -> int:
        return self.inner or self.popen.pid

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.popen.wait(patient(10))


class Network:
    """A network of two: this machine, and a namespace at the other end of a pair of virtual wires."""

    def __init__(self) -> None:
        # Debian keeps it where only root looks.
        found = shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert found, "a machine can't be cut off here: `ip` is missing (on Debian: apt install iproute2)"
        # Addresses that are nobody's, four for each test process that may run here at once.
        first = os.getpid() % 64 * 4
        self.here, self.there = f"192.0.2.{first + 1}", f"192.0.2.{first + 2}"
        self.name = f"rota-{os.getpid()}"
        self._near, self._far = f"rn{os.getpid()}", f"rf{os.getpid()}"
        as_root("ip", "netns", "add", self.name)
        as_root("ip", "link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self.name)
        as_root("ip", "address", "add", f"{self.here}/30", "dev", self._near)
        as_root("ip", "link", "set", self._near, "up")
        self._inside("address", "add", f"{self.there}/30", "dev", self._far)
        self._inside("link", "set", "lo", "up")
        self.mend()

    def cut(self) -> None:
        """Let nothing through any more, without a word to either side."""
        self._inside("link", "set", self._far, "down")

    def mend(self) -> None:
        self._inside("link", "set", self._far, "up")

    def remove(self) -> None:
        as_root("ip", "netns", "delete", self.name)
        # The pair goes with the namespace, but not at once.
        subprocess.run((*_root(), "ip", "link", "delete", self._near), check=False, capture_output=True)

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a program is started with to be at the other end, as ourselves."""
        enter = (*_root(), "ip", "netns", "exec", self.name)
        if os.geteuid() == 0:
            return enter
        own = (f"--reuid={os.geteuid()}", f"--regid={os.getegid()}", "--clear-groups")
        return (*enter, "setpriv", *own, "env", f"PYTHONPATH={SOURCE}")

    def _inside(self, *arguments: str) -> None:
        as_root("ip", "-netns", self.name, *arguments)


def as_root(*command: str) -> None:
    try:
        done = subprocess.run((*_root(), *command), check=False, capture_output=True, text=True)
        code, said = done.returncode, done.stderr.strip()
    except FileNotFoundError as error:
        code, said = 127, str(error)
    assert not code, (
        f"a machine can't be cut off here: `{' '.join(command)}` ended with {code} ({said}). "
        "It needs root, or sudo without a password, and a kernel with network namespaces and veth"
    )


def _root() -> tuple[str, ...]:
    return () if os.geteuid() == 0 else ("sudo", "-n", "-E")


class Hosts:
    """The machines of one test: programs, what their handlers wrote, and how they are ended."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.written = folder / "written"
        self.gate = folder / "gate"
        self._programs: list[Worker] = []

    def worker(self, host: str, *, prefix: Sequence[str] = (), clock_s: float = 0, concurrency: int = 8, **settings: object) -> Worker:
        """Start a worker on a machine of this name and wait until it is registered."""
        out, locks = self.folder / f"{host}.out", self.folder / f"{host}.run"
        locks.mkdir(exist_ok=True)
        environment = os.environ | {
            "FAULTS_DB": self.url,
            "FAULTS_EXECUTED": str(self.written),
            "FAULTS_HOST": host,
            "FAULTS_CLOCK_S": str(clock_s),
            "PYTHONPATH": str(SOURCE),
            "PYTHONUNBUFFERED": "1",
            # Lock files are a machine's own: the others see nothing of this one but its beat.
            "XDG_RUNTIME_DIR": str(locks),
            **{f"ROTA_{name.upper()}": str(value) for name, value in (SMALL | settings).items()},
        }
        with out.open("wb") as sink:
            popen: subprocess.Popen[bytes] | Launched
            path, words = PROGRAMS / "hosts.py", [str(concurrency)]
            if prefix:
                command = [*prefix, sys.executable, str(path), *words]
                popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=environment)
            else:
                popen = launch(path, *words, sink=sink, environment=environment, imports=(store_of(self.url),))
        started = Worker(popen, out)
        self._programs.append(started)
        started.worker_id = started.says("registered")
        started.inner = int(started.says("pid"))
        return started

    @property
    def lines(self) -> list[Line]:
        split = [line.split(" ") for line in invariants.lines(self.written)]
        return [Line(what, name, int(attempt), host, float(at), int(pid)) for what, name, attempt, host, at, pid in split]

    def of(self, name: str, attempt: int, what: str | None = None) -> list[Line]:
        return [line for line in self.lines if (line.name, line.attempt) == (name, attempt) and what in {None, line.what}]

    def begun(self, name: str, attempt: int = 1, *, within: float = 20) -> Line:
        """Wait until a handler has begun this attempt."""
        return eventually(lambda: self.of(name, attempt, "begin"), within=within, what=f"{name}, attempt {attempt}\n{self.said()}")[0]

    def last(self, name: str, attempt: int = 1) -> float:
        """Return when a handler last showed that it ran."""
        return max(line.at for line in self.of(name, attempt))

    def said(self) -> str:
        return "\n".join(f"--- {program.popen.args} {program.popen.poll()}\n{program.text[-2000:]}" for program in self._programs)

    def close(self) -> None:
        self.gate.touch()
        for program in self._programs:
            if program.alive:
                descendants = program.children()
                program.send(signal.SIGCONT)
                program.kill()
                for each in descendants:
                    if each.is_running():
                        each.kill()
