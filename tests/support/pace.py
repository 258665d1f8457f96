"""How slow this machine is now, compared with two quiet cores: every bound on waiting is multiplied by it.

A bound on waiting says "this will never happen". When that can be said depends on the machine and on what else runs on it, so no bound is
a number of seconds alone: `patient(20)` is 20 seconds on a quiet machine, and more on a slow or a busy one. A test about speed counts
steps, never seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.support.proof import proving

PACE_MAX = 20.0
PROVE_TIMES = 60
"""How much longer anything may take at full size: see `proof`."""

_REFERENCE_S = {"start": 0.060, "sync": 0.020, "loop": 0.040}
"""Starting Python, an fsync, a loop: what an ordinary machine is faster than."""
_KNOWN = "ROTA_TEST_PACE"
"""Where the first process of a run leaves what it measured, for those that it starts."""


def patient(seconds: float) -> float:
    """Return how long to wait now for what takes less than this many seconds on a quiet machine; at full size, much longer."""
    return seconds * pace() * (PROVE_TIMES if proving() else 1)


def pace() -> float:
    """Return how many times longer things take now than on a quiet machine: 1.0 or more."""
    return min(PACE_MAX, machine() * _load())


def machine() -> float:
    """Return how many times slower than an ordinary machine this one is by itself: 1.0 or more. It is measured once in a run."""
    if _KNOWN not in os.environ:
        os.environ[_KNOWN] = f"{_measure():.2f}"
    return float(os.environ[_KNOWN])


def _load() -> float:
    """Return how many want to run for each core, over the last minute or at this moment."""
    wanting = os.getloadavg()[0]
    with suppress(OSError):
        wanting = max(wanting, float(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]))
    return max(1.0, wanting / (os.cpu_count() or 1))


def _measure() -> float:
    steps = {"start": _start, "sync": _sync, "loop": lambda: sum(number * number for number in range(400_000))}
    return max(1.0, *(min(_seconds(step) for _ in range(3)) / _REFERENCE_S[name] for name, step in steps.items()))


def _seconds(step: Callable[[], object]) -> float:
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def _start() -> None:
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)


def _sync() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())
