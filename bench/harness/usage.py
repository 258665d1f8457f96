"""CPU time and memory of processes, read from /proc: of a process with all its descendants."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def cpu_s(pid: int) -> float:
    """Return the CPU seconds used so far by a process and its living descendants."""
    return sum(_own_cpu_s(member) for member in _family(pid))


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


def _own_cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


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
    # After the command name, which may hold blanks and brackets: state is field 0, the parent 1, user and system time 11 and 12.
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
