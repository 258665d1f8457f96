"""A program that forks the programs of tests from a process that has imported Rota already.

Importing takes a third of a second of processor time, which is most of what a small program of a test costs. `launch` is its client.
Argument: the descriptor of the socket through which it is told what to start. It opens no store and starts no thread, so what it forks
is as good as new.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import socket
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from types import ModuleType

REQUEST_MAX = 1 << 20
WARM = ("rota.app", "rota.local_workers", "rota.executors", "rota.executors.thread", "rota.waits")
"""What every program of these tests imports sooner or later."""


def main(control: socket.socket) -> dict[str, object] | None:
    """Start what is asked for; return, in a program that was started, what it is to run, and at last nothing."""
    reports: dict[int, tuple[int, socket.socket]] = {}
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    warm(WARM)
    while True:
        for ready, _ in waiting.poll():
            if ready != control.fileno():
                waiting.unregister(ready)
                pid, report = reports.pop(ready)
                ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with report, suppress(OSError):  # nobody may want to know
                    report.send(str(ended).encode())
                os.close(ready)
                continue
            text, given, _, _ = socket.recv_fds(control, REQUEST_MAX, 3)
            if not text:
                return None
            out, errors, back = given
            request = json.loads(text)
            warm(request["imports"])
            pid = os.fork()
            if not pid:
                become(out, errors)
                return request
            os.close(out)
            os.close(errors)
            report = socket.socket(fileno=back)
            watched = os.pidfd_open(pid)
            with suppress(OSError):
                socket.send_fds(report, [str(pid).encode()], [watched])
            reports[watched] = (pid, report)
            waiting.register(watched, select.POLLIN)


def warm(names: list[str] | tuple[str, ...]) -> None:
    """Import what is to come, and keep it from the garbage collectors of all who will have it."""
    if new := [name for name in names if name not in sys.modules]:
        for name in new:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()


def become(out: int, errors: int) -> None:
    """Have the descriptors of a program that was just started, and no other."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(errors, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def run(program: str, args: list[str], environment: dict[str, str], folder: str, *, before: str, strict: bool) -> None:
    """Run a program as Python does: as `__main__`, its folder first in the path."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    if spawning := sys.modules.get("multiprocessing.process"):
        # What it takes for the folder that the program was started in.
        spawning.ORIGINAL_DIR = folder
    if strict:
        sys.warnoptions.append("error")
        warnings.simplefilter("error")
    exec(before, {})
    sys.argv = [program, *args]
    sys.path[0] = str(Path(program).parent)
    module = ModuleType("__main__")
    module.__file__ = program
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    exec(compile(Path(program).read_bytes(), program, "exec"), module.__dict__)


if __name__ == "__main__":
    # From a file descriptor that the fork closes, and no object that would close it again.
    _control = socket.socket(fileno=int(sys.argv[1]))
    _told = main(_control)
    _control.detach()
    if _told is not None:
        _told.pop("imports")
        run(**_told)
