"""A machine with commands on it: files of an operator, a worker as root or as an ordinary user, with and without namespaces.

Survivors are counted by the run's id in their environment, and by their namespace: never by a name.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from uuid import uuid4

from rota.model.decide import Outcome
from rota.model.schedules import JobKind
from rota.model.settings import Settings
from rota.ports.executor import StopReason
from rota.ports.runner import Order
from rota.runners.external import ExternalRunner, load_config, warden_process
from tests.support.command_control import CommandControl
from tests.support.pace import patient
from tests.support.stranger import NOBODY
from tests.support.waiting import eventually

TOKEN = b"ROTA_JOB_RUN_UUID="
GRACE_S = 0.2


class Way(NamedTuple):
    """How a worker runs commands."""

    root: bool
    isolation: str

    def __str__(self) -> str:
        who = "root" if self.root else "user"
        return f"{who}-{'without-namespaces' if self.isolation == 'off' else 'in-namespaces'}"


WAYS = [Way(root, isolation) for root in ((True, False) if os.geteuid() == 0 else (False,)) for isolation in ("require", "off")]
"""Where the tests have no root there is no worker that has."""
OPPOSITE = [WAYS[0], WAYS[-1]]
"""For what does not depend on both the user and the namespaces."""
ISOLATED = [way for way in WAYS if way.isolation == "require"]
BARE = [way for way in WAYS if way.isolation == "off"]


class Ran(NamedTuple):
    """One run, looked at from outside."""

    outcome: Outcome
    out: str
    err: str
    seconds: float
    run_uuid: str
    isolated: bool
    forced: bool
    ended: float
    """In seconds since the machine was started."""


class Stage:
    """Files of an operator, and workers that use them."""

    def __init__(self, folder: Path, way: Way) -> None:
        self.folder, self.way = folder, way
        self.commands = folder / "commands"
        self.work = folder / "work"
        for made in (self.commands, self.work):
            made.mkdir()
            made.chmod(0o755)
        if not way.root and os.geteuid() == 0:
            for made in (self.folder, self.commands, self.work):
                os.chown(made, NOBODY, NOBODY)
        # The checkout of whoever runs the tests may be closed to others.
        self.script_path = folder / "warden.py"
        self.script_path.write_bytes(Path(warden_process.SCRIPT).read_bytes())
        self.script_path.chmod(0o644)

    def script(self, text: str, name: str = "command", shell: str = "/bin/sh") -> str:
        path = self.commands / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{shell}\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def config(self, text: str = "", **limits: float) -> str:
        """Write the operator's file; return its path. `text` comes first, so that it may have keys without a table."""
        path = self.folder / "external.toml"
        lines = [text] if "folders" in text or "programs" in text else [f'folders = ["{self.commands}"]', text]
        if "directory" not in text:
            lines.insert(0, f'directory = "{self.work}"')
        if "isolation" not in text:
            lines.insert(0, f'isolation = "{self.way.isolation}"')
        if self.way.root and "user" not in text:
            lines.insert(0, 'user = "nobody"')
        if "[limits]" not in text:
            values = {"grace_seconds": GRACE_S, "processes": 0} | limits
            lines += ["[limits]", *(f"{name} = {value}" for name, value in values.items())]
        path.unlink(missing_ok=True)
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o644)
        return str(path)

    def runner(
        self, text: str = "", store: str = "/nowhere/rota.db", settings: Settings | None = None, key: Path | None = None, **limits: float
    ) -> ExternalRunner:
        keys = [] if key is None else [str(key)]
        return ExternalRunner(load_config(self.config(text, **limits)), settings or Settings(), store, key_files=lambda: keys)

    def run(
        self,
        body: str,
        *,
        config: str = "",
        timeout_s: float = 0.0,
        stop: StopReason | None = None,
        secrets: dict[str, str] | None = None,
        settings: Settings | None = None,
        grace_s: float = 30.0,
        **limits: float,
    ) -> Ran:
        """Run one command as the worker of this stage. `stop`: as soon as it has printed something."""
        run_uuid = str(uuid4())

        def work() -> Ran:
            runner = self.runner(config, settings=settings, **limits)
            control = CommandControl(timeout_s=timeout_s, grace_s=grace_s)
            stopper = Thread(target=lambda: (control.wait_for(b"ready", within=patient(20)), control.stop(stop or StopReason.CANCEL)))
            if stop is not None:
                stopper.start()
            began = time.monotonic()
            outcome = runner.run(order(body, run_uuid, timeout_s=timeout_s, secrets=secrets), control)
            seconds, ended = time.monotonic() - began, time.clock_gettime(time.CLOCK_BOOTTIME)
            if stop is not None:
                stopper.join()
            isolated = runner.isolation.program is not None
            assert isolated == (self.way.isolation != "off"), runner.isolation
            out, err = control.out.decode("utf-8", "replace"), control.err.decode()
            return Ran(outcome, out, err, seconds, run_uuid, isolated, control.forced, ended)

        ran = self.do(work)
        print(f"{self.way}: {'namespaces' if ran.isolated else 'no namespaces'}, {ran.seconds:.2f} s, {ran.outcome}")
        return ran

    def do(self, work: Callable[[], Any]) -> Any:
        """Do this as the worker's user."""
        if self.way.root or os.geteuid() != 0:
            return work()
        with self.worker(work) as worker:
            return worker.result()

    @contextmanager
    def worker(self, work: Callable[[], Any]) -> Iterator[Worker]:
        """Do this in a process of its own, as the worker's user."""
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Later Pythons warn of threads; the child has what it needs in memory and waits for none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            python = str(self.script_path), reachable_python()
            child = os.fork()
        if child == 0:
            try:
                os.close(reading)
                if not self.way.root and os.geteuid() == 0:
                    warden_process.SCRIPT, sys.executable = python
                    os.setgroups([])
                    os.setresgid(NOBODY, NOBODY, NOBODY)
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                with os.fdopen(writing, "wb") as file:
                    file.write(pickle.dumps(_outcome(work)))
            finally:
                os._exit(0)
        os.close(writing)
        worker = Worker(child, reading)
        try:
            yield worker
        finally:
            worker.close()


class Worker:
    """A process that runs commands."""

    def __init__(self, pid: int, reading: int) -> None:
        self.pid, self._reading = pid, reading
        self._reaped = False

    def result(self) -> Any:
        with os.fdopen(self._reading, "rb", closefd=False) as file:
            data = file.read()
        kind, value = pickle.loads(data)
        if kind == "raised":
            raise AssertionError(value)
        return value

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def close(self) -> None:
        if not self._reaped:
            self._reaped = True
            os.kill(self.pid, signal.SIGCONT)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._reading)


def _outcome(work: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "returned", work()
    except BaseException:
        return "raised", traceback.format_exc()


def order(body: str, run_uuid: str = "run", *, timeout_s: float = 0.0, secrets: dict[str, str] | None = None) -> Order:
    return Order(
        kind=JobKind.EXTERNAL,
        body=body,
        job_uuid="0190-job",
        run_uuid=run_uuid,
        job_name="nightly",
        attempt=2,
        owner="ada",
        organization="acme",
        timeout_s=timeout_s,
        secrets=secrets or {},
    )


@cache
def reachable_python() -> str:
    """Return a Python that every user may start: the tests' own may be in a closed folder."""
    for path in (sys.executable, os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        if os.geteuid() != 0:
            return path
        command = [path, "-I", "-S", "-c", "import ctypes, json, sys; sys.exit(sys.version_info < (3, 9))"]
        try:
            done = subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], env={}, cwd="/", capture_output=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return path
    raise AssertionError("an ordinary user can start no Python here: install one for all users (on Debian: apt install python3)")


# ---- who is left --------------------------------------------------------------------------------------------


def processes(run_uuid: str) -> list[int]:
    """Return the processes that have a run's id in their environment."""
    token = TOKEN + run_uuid.encode()
    return [pid for pid in _pids() if token in _environment(pid)]


def namespace_is_empty(ran: Ran) -> bool:
    """Say whether the namespace of a run, which the first line of its output names, has no process: also none that hides its environment.

    The kernel gives the name to another namespace as soon as the run is over. What was started later is not of this run; what another
    test has started in the same instant has another run in its environment, or is over soon, which a survivor is not.
    """
    name = ran.out.split("\n")[0]
    assert name.startswith("pid:["), ran

    def left() -> list[int]:
        found = [pid for pid in _pids() if _namespace(pid) == name and _started(pid) < ran.ended]
        return [pid for pid in found if TOKEN not in (own := _environment(pid)) or ran.run_uuid.encode() in own]

    return eventually(lambda: not left(), within=5, what="the namespace of the run is empty")


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def is_gone(pid: int) -> bool:
    """Say whether a process has ended; who is to reap it may take a while."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for_processes(run_uuid: str, count: int = 1) -> list[int]:
    return eventually(lambda: len(found := processes(run_uuid)) >= count and found, within=20, what=f"{count} processes of the run")


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _started(pid: int) -> float:
    """Return when a process was started, in seconds since the machine was, one step of the kernel's clock late at most."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return math.inf
    return (ticks + 1) / os.sysconf("SC_CLK_TCK")


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""
