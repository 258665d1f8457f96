"""CPU time and memory of processes, read from /proc: of a process with all its descendants."""

from __future__ import annotations

import os
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
