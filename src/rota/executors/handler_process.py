"""Starts handler processes, says to each what it needs first, and speaks to it: the worker's end of the wire."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from multiprocessing import process as multiprocessing_process
from multiprocessing import spawn as multiprocessing_spawn
from pathlib import Path

import msgspec

from rota.executors.locate import MAIN, Address, locate_app
from rota.executors.wire import FromChild, Init, Program, ToChild, frame, from_child
from rota.model.handler import Handler, Place
from rota.ports.executor import Equipment

GONE_MS = 200
"""How long a process that has closed its socket may take to be gone."""

_BOOT = "import sys; sys.path.insert(0, {root!r}); from rota.executors.child import main; main({fd}, {parent}, {lock_fd})"


class Process:
    """One handler process: its socket, what could not be sent yet, and where it stands in life."""

    def __init__(self, popen: subprocess.Popen[bytes], sock: socket.socket) -> None:
        """Take a process that was just started."""
        sock.settimeout(0)
        self.popen = popen
        self.sock = sock
        self.pidfd = _pidfd(popen.pid)
        self.ready = False
        self.running: int | None = None
        self.seeking: Address | None = None
        """The handler that it is trying to import."""
        self.seek_by: float | None = None
        """When to kill it if it has not imported that handler."""
        self.jobs = 0
        self.exit_by: float | None = None
        """When to kill it, once it was told to go."""
        self.unsent = bytearray()
        self._frames = from_child()

    def send(self, message: ToChild) -> None:
        """Send a message, as much of it as the socket takes now."""
        self.unsent += frame(message)
        self.push()

    def push(self) -> None:
        """Send more of what is waiting to be sent."""
        try:
            while self.unsent:
                del self.unsent[: self.sock.send(self.unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.unsent.clear()  # it is gone; its end is heard where it is read

    def receive(self) -> tuple[list[FromChild], bool]:
        """Return what it has said, and whether it may say more."""
        messages: list[FromChild] = []
        while True:
            try:
                data = self.sock.recv(262_144)
            except BlockingIOError:
                return messages, True
            except OSError:
                return messages, False
            if not data:
                return messages, False
            try:
                messages += self._frames.feed(data)
            except msgspec.MsgspecError:  # the handler wrote into our socket
                return messages, False

    def kill(self) -> None:
        """Kill it and everything it started."""
        # Not reaped yet, so the number is still its own.
        if self.popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.popen.pid, signal.SIGKILL)

    def is_zombie(self) -> bool:
        """Say whether it has ended and is not reaped: its number, and its group's, are still its own."""
        if not hasattr(os, "waitid"):
            return self.popen.poll() is not None
        try:
            return os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def reap(self) -> int:
        """Let it end by itself if it is ending, kill what is left of its group, and return its code: negative for a signal."""
        for _ in range(GONE_MS):
            if self.is_zombie():
                break
            time.sleep(0.001)
        self.kill()
        code = self.popen.wait()
        if self.pidfd is not None:
            os.close(self.pidfd)
        self.sock.close()
        return code


def spawn(lock_fd: int | None) -> Process:
    """Start a process in a session of its own. It dies with the calling thread's process, and holds its lock till then."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            popen = subprocess.Popen(  # noqa: S603 - our own interpreter
                _command(theirs.fileno(), lock_fd),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()] if lock_fd is None else [theirs.fileno(), lock_fd],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
    return Process(popen, ours)


def describe_exit(code: int) -> str:
    """Return an exit code in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def _command(fd: int, lock_fd: int | None) -> list[str]:
    root = str(Path(__file__).parents[2])
    boot = _BOOT.format(root=root, fd=fd, parent=os.getpid(), lock_fd=lock_fd)
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001 - as multiprocessing does: -X, -W and -O carry over
    return [os.fsdecode(multiprocessing_spawn.get_executable() or sys.executable), *flags, "-P", "-c", boot]


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def introduction(equipment: Equipment, more: AbstractSet[str] = frozenset()) -> Init:
    """Return what a new process is told first; `more`: modules to import beside those of handlers that were declared for processes."""
    app = None if equipment.app is None else locate_app(equipment.app)
    if app is not None:
        # A process has the middleware of the modules that it imports: those of the functions themselves too.
        functions = (*equipment.middleware, *equipment.app.on.process_start.functions) if equipment.app is not None else ()
        more |= {app.module, *(str(getattr(function, "__module__", None) or MAIN) for function in functions)}
    modules = sorted({getattr(handler.function, "__module__", None) or MAIN for handler in process_handlers(equipment)} | more)
    # Absolute: a handler may change the directory.
    log_dir = None if equipment.log_dir is None else str(Path(equipment.log_dir).absolute())
    program = _program(with_main=MAIN in modules)
    return Init(equipment.settings, log_dir, program, [module for module in modules if module != MAIN], equipment.store, app)


def _program(*, with_main: bool) -> Program:
    """Look at this program.

    Not by way of `multiprocessing.spawn.get_preparation_data`: that settles how the program itself starts processes from then on, and fails
    in a directory that was removed.
    """
    # What '' stands for in a path: the directory that the program was started in.
    home = multiprocessing_process.ORIGINAL_DIR or ""  # type: ignore[attr-defined] # not in its stub
    entries: list[object] = list(sys.path)  # a Path among them is passed over, as importing does
    path = [os.fsencode(entry or home) for entry in entries if isinstance(entry, str)]
    argv = [os.fsencode(str(word)) for word in sys.argv]
    main = sys.modules[MAIN] if with_main else None
    file = getattr(main, "__file__", None)
    return Program(
        path,
        argv,
        main_name=getattr(getattr(main, "__spec__", None), "name", None),
        main_path=None if file is None else os.fsencode(os.path.normpath(os.path.join(home, file))),  # noqa: PTH118 - as it is, '..' and links too
    )


def process_handlers(equipment: Equipment) -> Iterable[Handler]:
    """Return the handlers that were declared for processes."""
    return (handler for handler in tuple(equipment.handlers.values()) if handler.executor == Place.PROCESS)
