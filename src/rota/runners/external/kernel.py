"""Asks the kernel to keep other processes out of this one."""

from __future__ import annotations

import ctypes
import os

PR_SET_DUMPABLE = 4


def guard_process() -> None:
    """Keep other processes of the same user from reading this one's memory and environment. Root still can, and no core file is written.

    For a worker that holds secrets. It lasts until the process executes another program; children that it forks have it too.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_DUMPABLE): {os.strerror(number)}")
