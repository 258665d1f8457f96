"""CPU time and memory of processes, read from /proc: of a process with all its descendants."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def cpu_s(pid: int) -> float:
    """Return the CPU seconds used so far by a process and its descendants, those that have ended too."""
    # One that ends between the reading of its parent and its own stands in neither: time only grows, so the higher of two is right.
    return max(sum(_cpu_s(member) for member in _family(pid)) for _ in range(2))


def machine_cpu_s() -> float:
    """Return the CPU seconds that everything on this machine has used since it was started."""
    fields = (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(field) for field in fields[:7])
    return (user + nice + system + irq + softirq) / _TICKS


class Others:
    """How much of the machine processes have that this run did not start, from the making of this object on."""

    def __init__(self) -> None:
        """Begin to count."""
        self._at, self._used_s = time.monotonic(), self._others_s()

    def share(self) -> float:
        """Return their share of all cores since then."""
        passed = (time.monotonic() - self._at) * (os.cpu_count() or 1)
        return max(0.0, self._others_s() - self._used_s) / passed if passed else 0.0

    @staticmethod
    def _others_s() -> float:
        # This process is the parent of everything that the run has started, the server too.
        return machine_cpu_s() - cpu_s(os.getpid())


def fine_cpu_s(pid: int) -> float:
    """Return the CPU seconds of one process with all its threads: to the nanosecond, where the system keeps that."""
    tasks = list((_PROC / str(pid) / "task").glob("*/schedstat"))
    try:
        return sum(int(path.read_text().split()[0]) for path in tasks) / 1e9 if tasks else _own_cpu_s(pid)
    except OSError:
        return _own_cpu_s(pid)


def descendants(pid: int) -> set[int]:
    """Return the processes that a process has started, and those that they have."""
    return _family(pid) - {pid}


def title(pid: int) -> str:
    """Return what a process calls itself; a session of PostgreSQL names its client there."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def peak_mib(pid: int) -> float:
    """Return the highest resident memory of one process since it was started, in MiB."""
    return _memory_mib(pid, "VmHWM:")


def resident_mib(pid: int) -> float:
    """Return the resident memory of one process now, in MiB."""
    return _memory_mib(pid, "VmRSS:")


def _memory_mib(pid: int, field: str) -> float:
    try:
        after = (_PROC / str(pid) / "status").read_text().partition(field)[2]
    except OSError:
        return 0.0
    return int(after.split(maxsplit=1)[0]) / 1024 if after else 0.0


def family_peak_mib(pid: int) -> float:
    """Return the highest resident memory of a process and of each of its descendants, added up; what they share counts for each."""
    return sum(peak_mib(member) for member in _family(pid))


def _cpu_s(pid: int) -> float:
    # A child that was waited for stands in its parent's second pair: a server's sessions come and go.
    fields = _stat(pid)
    return sum(int(field) for field in fields[11:15]) / _TICKS if fields else 0.0


def _own_cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return sum(int(field) for field in fields[11:13]) / _TICKS if fields else 0.0


def _family(pid: int) -> set[int]:
    parents = {int(path.name): _stat(int(path.name)) for path in _PROC.iterdir() if path.name.isdigit()}
    family = {pid}
    grown = True
    while grown:
        more = {child for child, fields in parents.items() if fields and int(fields[1]) in family} - family
        family |= more
        grown = bool(more)
    return family


def _stat(pid: int) -> list[str]:
    # After the command name, which may hold blanks and brackets: state is field 0, the parent 1, user and system time 11
    # and 12, those of ended children 13 and 14.
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
