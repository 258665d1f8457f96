"""The warden of one command: starts it, ends it with everything it has started, and reports how it ended.

It is a process of its own for each run (`python -I -S warden.py SOCKET PARENT`), with one thread and the standard library only. As a
subreaper it becomes the parent of whatever the command leaves behind, so that the command is over when the warden has no child any more.
It ends everything at once when its worker is gone, and when the worker's lease has lapsed: a worker that is stopped can't.

The socket has a JSON document a line. From the worker: what to run, then `stop`, `kill` or `lease`; to the worker: one, how it ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

PROGRAM_FD, SECRETS_FD, STATUS_FD = 3, 4, 5
"""Descriptors of the command: its own program, its secrets, and where bubblewrap reports."""
SPARE_FD = 20
"""From here on descriptors are put while others are moved to their places."""
PAUSE_MS = 2
"""Between two rounds of killing, when several have not been enough."""
ROUNDS = 20
OOM_FIRST = "1000"

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
LIMITS = {
    "memory_bytes": resource.RLIMIT_AS,
    "file_bytes": resource.RLIMIT_FSIZE,
    "processes": resource.RLIMIT_NPROC,
    "open_files": resource.RLIMIT_NOFILE,
}
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTSTP)
"""Signals that are meant for the worker, which decides what follows for the command."""


class Warden:
    """One command and all that it has started."""

    def __init__(self, control: socket.socket, parent: int) -> None:
        """Prepare this process: nobody of the same user can look into it, and orphans below it become its children."""
        self._control, self._parent = control, parent
        self._unread = b""
        self._lease: float | None = None
        self._kill_at: float | None = None
        self._grace_s = 0.0
        self._isolated = False
        self._gone = self._ending = self._killed = self._lapsed = self._stopped = False
        self._command = self._inside = 0
        self._status: int | None = None
        self._cpu_s = 0.0
        self._reports = b""
        self._status_pipe = -1
        self._rounds = 0
        self._bell, ringer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, _ring)
        signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
        self._oom = _open_oom_score()
        prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
        prctl(PR_SET_DUMPABLE, 0)
        prctl(PR_SET_CHILD_SUBREAPER, 1)

    def run(self) -> None:
        """Start the command, and return when nothing of it is left."""
        order = self._next()
        while order is None and not self._gone:
            order = self._next()
        if order is None or os.getppid() != self._parent:
            return
        self._lease, self._grace_s, self._isolated = order["lease"], order["grace_s"], order["isolated"]
        self._start(order)
        while self._reap():
            self._act()
            self._wait()
        self._read_status()
        self._tell()

    # ---- starting -----------------------------------------------------------------------------------------

    def _start(self, order: dict[str, Any]) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reading, False)
        self._status_pipe = reading
        warden = os.getpid()
        # Where memory runs short the kernel is to take the command, and neither warden nor worker: what is forked has this score.
        before = self._score(OOM_FIRST)
        self._command = os.fork()
        if self._command == 0:
            become(order, writing, warden)
        self._score(before)
        for descriptor in (writing, *order["descriptors"].values()):
            os.close(descriptor)

    def _score(self, wanted: str) -> str:
        """Say how soon the kernel may take this process for its memory; return what it was."""
        if self._oom is None:
            return wanted
        before = read("/proc/self/oom_score_adj")
        with contextlib.suppress(OSError):
            os.write(self._oom, wanted.encode())
        return before

    # ---- while it runs ------------------------------------------------------------------------------------

    def _reap(self) -> bool:
        """Take the ends of children; return whether any is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._command:
                self._status, self._cpu_s = status, usage.ru_utime + usage.ru_stime

    def _act(self) -> None:
        now = time.monotonic()
        if self._gone or self._status is not None or os.getppid() != self._parent:
            self._ending = True
        if self._lease is not None and now >= self._lease and self._status is None:
            self._lapsed = self._ending = True
        if self._kill_at is not None and now >= self._kill_at and self._status is None:
            self._killed = self._ending = True
        if self._ending:
            self._rounds += 1
            kill_below(os.getpid())

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        if not self._gone:
            poll.register(self._control, select.POLLIN)
        if self._status_pipe >= 0:
            poll.register(self._status_pipe, select.POLLIN)
        for descriptor, _ in poll.poll(self._patience_ms()):
            if descriptor == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._bell, 4096)
            elif descriptor == self._status_pipe:
                self._read_status()
            else:
                self._obey()

    def _patience_ms(self) -> int | None:
        if self._ending:
            return 0 if self._rounds < ROUNDS else PAUSE_MS
        ends = [end for end in (self._lease, self._kill_at) if end is not None]
        return max(0, int((min(ends) - time.monotonic()) * 1000) + 1) if ends else None

    def _obey(self) -> None:
        while (wish := self._next(wait=False)) is not None:
            if "lease" in wish:
                self._lease = wish["lease"]
            if wish.get("stop") and self._kill_at is None:
                self._kill_at = time.monotonic() + self._grace_s
                self._stop()
            if wish.get("kill"):
                self._kill_at = 0.0

    def _stop(self) -> None:
        """Send TERM to the command and its group; never to bubblewrap, which would end all at once."""
        if self._status is not None:
            return
        target = self._target()
        if target is None:
            # Nothing of the command has begun.
            self._kill_at = 0.0
            return
        self._stopped = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(target) == target:
                os.killpg(target, signal.SIGTERM)
            else:
                os.kill(target, signal.SIGTERM)

    def _target(self) -> int | None:
        """Return the process to send TERM to; None: it is not the command yet."""
        self._read_status()
        if not self._isolated:
            # The pipe closes with the exec.
            return self._command if self._status_pipe < 0 else None
        inside = children_of(self._inside) if self._inside else []
        return inside[0] if inside else None

    def _read_status(self) -> None:
        """Read what the child said before it became the command, or what bubblewrap reports."""
        while self._status_pipe >= 0:
            try:
                data = os.read(self._status_pipe, 4096)
            except BlockingIOError:
                break
            if not data:
                os.close(self._status_pipe)
                self._status_pipe = -1
            self._reports += data
        for line in self._reports.splitlines():
            with contextlib.suppress(ValueError):
                self._inside = json.loads(line).get("child-pid", self._inside)

    # ---- the worker ---------------------------------------------------------------------------------------

    def _next(self, *, wait: bool = True) -> dict[str, Any] | None:
        """Return the next document of the worker's; None: it has sent none, or is gone."""
        while b"\n" not in self._unread:
            try:
                data = self._control.recv(65_536, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError:
                data = b""
            if not data:
                self._gone = True
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        document: dict[str, Any] = json.loads(line)
        return document

    def _tell(self) -> None:
        reports: dict[str, Any] = {}
        for line in self._reports.splitlines():
            with contextlib.suppress(ValueError):
                reports |= json.loads(line)
        document = {
            "status": self._status,
            "cpu_s": self._cpu_s,
            "stopped": self._stopped,
            "killed": self._killed,
            "lapsed": self._lapsed,
            "refused": reports.get("refused"),
            "stage": reports.get("stage"),
            "exit_code": reports.get("exit-code"),
        }
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(document).encode() + b"\n")


# ---- the child, between fork and exec ---------------------------------------------------------------------


def become(order: dict[str, Any], status: int, warden: int) -> NoReturn:
    """Turn this process into the command, or report why it can't be."""
    stage = "signals"
    report = status
    try:
        signal.set_wakeup_fd(-1)
        for signal_number in signal.valid_signals():
            with contextlib.suppress(OSError, ValueError):
                signal.signal(signal_number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.setsid()
        os.umask(0o077)
        stage = "descriptors"
        report = arrange(order, status)
        stage = "limits"
        limit(order["limits"])
        stage = "user"
        if order["user"] is not None:
            switch(*order["user"])
        # Only now: the kernel forgets it when the user changes.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != warden:
            os._exit(1)
        stage = "directory"
        os.chdir("/" if order["isolated"] else order["directory"])
        stage = "program"
        if not order["isolated"]:
            # Bubblewrap sets it for what it starts.
            prctl(PR_SET_NO_NEW_PRIVS, 1)
        os.execve(order["program"], order["arguments"], order["environment"])  # noqa: S606 - there is no shell, which is the point
    except Exception as error:  # noqa: BLE001 - whatever it is, this process must not continue as a second warden
        number = (error.errno if isinstance(error, OSError) else None) or errno.EINVAL
        os.write(report, json.dumps({"refused": number, "stage": stage}).encode() + b"\n")
    finally:
        os._exit(126)


def arrange(order: dict[str, Any], status: int) -> int:
    """Put each descriptor at its place and close all others; return where to report to, which ends with the exec."""
    given = order["descriptors"]
    places = {0: os.open(os.devnull, os.O_RDONLY), 1: given["out"], 2: given["err"]}
    if "secrets" in given:
        places[SECRETS_FD] = given["secrets"]
    if order["program_fd"]:
        # A script is read by its interpreter through this descriptor; bubblewrap closes it.
        places[PROGRAM_FD] = given["program"]
    if order["isolated"]:
        places[STATUS_FD] = status
    spare = {place: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, SPARE_FD) for place, descriptor in places.items()}
    report = fcntl.fcntl(status, fcntl.F_DUPFD_CLOEXEC, SPARE_FD)
    for place, descriptor in spare.items():
        os.dup2(descriptor, place)
    for descriptor in range(3, SPARE_FD):
        if descriptor not in places:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    os.closerange(SPARE_FD, report)
    os.closerange(report + 1, os.sysconf("SC_OPEN_MAX"))
    return report


def limit(limits: dict[str, int]) -> None:
    """Bound what each process of the command may use; 0: no bound beside the worker's own."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, kind in LIMITS.items():
        if limits[name]:
            set_limit(kind, limits[name], limits[name])
    if limits["cpu_seconds"]:
        set_limit(resource.RLIMIT_CPU, limits["cpu_seconds"], limits["cpu_seconds"] + 1)


def set_limit(kind: int, soft: int, hard: int) -> None:
    """Set one limit, no higher than this process may."""
    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def switch(uid: int, gid: int) -> None:
    """Become another user, without a way back."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid) or os.getgroups():
        raise PermissionError(errno.EPERM, "the user did not change")
    try:
        os.setuid(0)
    except PermissionError:
        return
    raise PermissionError(errno.EPERM, "the change of the user can be undone")


# ---- ending -----------------------------------------------------------------------------------------------


def kill_below(pid: int) -> None:
    """Kill all that this process has started, as far as it can be seen now: again until there is nothing."""
    below = children_of(pid)
    for child in below:
        # Not reaped yet, so the number is still its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)
    while below:
        parent = below.pop()
        for child in children_of(parent):
            below.append(child)
            kill_child(child, parent)


def kill_child(pid: int, parent: int) -> None:
    """Kill a process if it still is this one's child: others reap it, and its number may belong to a stranger by now."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if parent_of(pid) == parent:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return
    finally:
        os.close(descriptor)


def children_of(pid: int) -> list[int]:
    """Return the children of a process: zombies too."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    except (FileNotFoundError, ProcessLookupError):
        return found
    if not found and not CHILDREN_LISTED:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(int(name)) == pid]
    return found


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None: it is gone."""
    try:
        text = read(f"/proc/{pid}/stat")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])


CHILDREN_LISTED = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Not every kernel lists the children of a process."""


# ---- the kernel -------------------------------------------------------------------------------------------


def read(path: str) -> str:
    """Return what the kernel says in one of its files."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def prctl(option: int, value: int) -> None:
    """Ask the kernel for something about this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    none = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), none, none, none) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _open_oom_score() -> int | None:
    """Open it while this process may be looked into: afterwards its own files are root's."""
    try:
        return os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _ring(_number: int, _frame: object) -> None:
    """Do nothing: the signal's number has been written to the bell."""


def main() -> None:
    """Watch over one command."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    Warden(control, int(sys.argv[2])).run()


if __name__ == "__main__":
    main()
