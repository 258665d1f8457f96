"""A wall clock that is wrong, for a process that a test starts: libfaketime, which Debian ships. Monotonic time is left alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SLEEP = """
import select
import time

time.sleep = lambda seconds: select.select((), (), (), seconds)
"""
"""libfaketime counts the wall clock's offset into absolute monotonic deadlines, even where it leaves monotonic time alone: the kernel then
refuses Python's time.sleep. Other waits take as long as they should."""


class WrongClock:
    """The clock of processes that were started with its `environment`: ahead by what it was set to last."""

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "clock"
        self._site = folder / "site"
        self._site.mkdir()
        (self._site / "sitecustomize.py").write_text(SLEEP)
        self.set("+0")

    def set(self, offset: str) -> None:
        """Step the clock, such as `+365d`, while the processes run."""
        # Replaced and not rewritten: a process that reads it at this moment must not find it empty.
        fresh = self._offset.with_suffix(".new")
        fresh.write_text(f"{offset}\n")
        fresh.replace(self._offset)

    @property
    def environment(self) -> dict[str, str]:
        """What a process is started with to have this clock."""
        return os.environ | {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": str(self._site),
        }


def library() -> Path:
    """Return where libfaketime is on this machine: each architecture of Debian has a folder of its own."""
    places = [Path("/usr/lib"), Path("/usr/lib64")]
    found = [path for place in places for pattern in ("*/faketime", "faketime") for path in place.glob(f"{pattern}/libfaketime.so.1")]
    if not found:
        pytest.fail("libfaketime is missing: run `make .venv/.servers` (on Debian: apt install faketime)")
    # On a machine with libraries of several architectures, the one whose folder names this one.
    machine = subprocess.run(["uname", "-m"], check=True, capture_output=True, text=True).stdout.strip()
    return next((path for path in found if machine in str(path)), found[0])
