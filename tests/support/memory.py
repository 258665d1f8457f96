"""A folder in memory for servers of tests: a database of theirs is a thousand files, which cost a disk more than the tests themselves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

FOLDER = Path("/dev/shm")
FREE_LEAST = 8 * 1024**3
"""Several times what the servers of four processes need."""


def in_memory() -> Path | None:
    """Return the folder, or None, which means the usual one: where it is missing or small, as in a container."""
    if os.access(FOLDER, os.W_OK) and shutil.disk_usage(FOLDER).free > FREE_LEAST:
        return FOLDER
    return None
