"""What every measured system shares: the payload, the count of handler starts, and its command line.

A peer is a class with the methods of `Peer`; its file ends in `main(ThatPeer())` and is run as a process of its own:

    python huey_sqlite.py enqueue 5000        prints {"seconds": 1.8, "cpu_s": 0.9, "peak_kib": 31000}

Handlers call `started(payload)` first thing. Starts are counted in a 24-byte memory-mapped file per process, so that
counting costs about a microsecond and the harness can read it from outside at any time. Standard library only.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

COUNTERS = Path(os.environ.get("BENCH_COUNTERS", "/dev/shm/rota-bench"))
STORES = Path(os.environ.get("BENCH_STORES", "/tmp/rota-bench"))

WORK, LATENCY, PROCESS, FILLER = "w", "l", "p", "f"
"""Kinds of job: counted; counted and its delay noted (thread, process); not counted at all."""

_LAYOUT = struct.Struct("<Qdd")
_POLL_S = 0.005

Payload = dict[str, Any]


def mongodb_url(database: str) -> str:
    """Return where a database of this run's replica set is."""
    return os.environ.get("BENCH_MONGODB", "").replace("/?", f"/{database}?")


def payload(number: int = 0, kind: str = WORK) -> Payload:
    """Return about 100 bytes of JSON; `sent` is CLOCK_MONOTONIC, which all processes of a machine share."""
    return {"number": number, "kind": kind, "sent": time.monotonic(), "pad": "x" * 40}


def payloads(count: int, kind: str = WORK) -> Iterator[Payload]:
    """Yield payloads one at a time, never all at once."""
    return (payload(number, kind) for number in range(count))


# ---- counting starts, in the handler's process ---------------------------------------------------------------


class _Tally:
    """The counter of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._count = 0
        self._first = 0.0
        self._file = self._map()

    def _map(self) -> mmap.mmap:
        path = COUNTERS / f"starts-{self.pid}"
        path.write_bytes(bytes(_LAYOUT.size))
        with path.open("r+b") as file:
            return mmap.mmap(file.fileno(), _LAYOUT.size)

    def add(self, now: float) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._first = now
            _LAYOUT.pack_into(self._file, 0, self._count, self._first, now)

    def note(self, kind: str, delay_s: float) -> None:
        with (COUNTERS / f"delays-{kind}-{self.pid}").open("a") as file:
            file.write(f"{delay_s * 1000:.4f}\n")


_tally: _Tally | None = None
_making = threading.Lock()


def started(job: Payload) -> None:
    """Count the start of a handler; called first thing in it."""
    global _tally  # noqa: PLW0603 # one counter per process, made again after a fork
    now = time.monotonic()
    if job["kind"] == FILLER:
        return
    if _tally is None or _tally.pid != os.getpid():
        with _making:  # the first handlers of a process start together: two counters would lose what one of them counted
            if _tally is None or _tally.pid != os.getpid():
                _tally = _Tally()
    _tally.add(now)
    if job["kind"] != WORK:
        _tally.note(job["kind"], now - job["sent"])


# ---- reading them, from outside ------------------------------------------------------------------------------


class Starts(NamedTuple):
    """How many handlers have started, and when (CLOCK_MONOTONIC) the first and the last of them."""

    jobs: int
    first: float
    last: float


def read_starts(folder: Path = COUNTERS) -> Starts:
    """Add up the counters of all processes."""
    found = [_LAYOUT.unpack(raw) for path in folder.glob("starts-*") if len(raw := path.read_bytes()) == _LAYOUT.size]
    counted = [row for row in found if row[0]]
    if not counted:
        return Starts(0, 0.0, 0.0)
    return Starts(sum(row[0] for row in counted), min(row[1] for row in counted), max(row[2] for row in counted))


def read_delays(folder: Path, kind: str) -> list[float]:
    """Return every noted delay of a kind, in milliseconds, ascending."""
    return sorted(float(line) for path in folder.glob(f"delays-{kind}-*") for line in path.read_text().split())


# ---- the command line ----------------------------------------------------------------------------------------


class Peer:
    """What a measured system must be able to do. Without `bulk` it is loaded one by one."""

    settings = ""
    """How it is set up here, for the reader of the table."""
    unopened: tuple[str, ...] = ("reset",)
    """Commands that want no `open` before them."""

    def version(self) -> str:
        """Return the system's own version."""
        raise NotImplementedError

    def reset(self) -> None:
        """Empty the store and make its schema."""
        raise NotImplementedError

    def open(self) -> None:
        """Get ready to enqueue; not timed."""

    def send(self, job: Payload) -> None:
        """Enqueue one job, durably as far as the system can."""
        raise NotImplementedError

    def enqueue(self, jobs: int) -> None:
        """Enqueue one by one."""
        for job in payloads(jobs):
            self.send(job)

    def left(self) -> int:
        """Return how many jobs the store holds that are not done."""
        raise NotImplementedError

    def work(self) -> None:
        """Be a worker process until SIGTERM."""
        raise NotImplementedError

    def pace(self, jobs: int, gap_s: float) -> None:
        """Enqueue jobs whose delay is noted, at uneven moments so that no poll interval can fall into step."""
        pace(self.send, jobs, gap_s)

    def watch(self, jobs: int) -> float:
        """Wait until that many handlers have started and the store holds none undone; return that moment."""
        return watch(self.left, jobs)


def pace(send: Callable[[Payload], object], jobs: int, gap_s: float, kind: str = LATENCY) -> None:
    """Call `send` with fresh payloads, `gap_s` apart on average."""
    for number, pause_s in enumerate(uneven(jobs, gap_s)):
        time.sleep(pause_s)
        send(payload(number, kind))


def uneven(count: int, gap_s: float) -> Iterator[float]:
    """Yield so many pauses, `gap_s` on average and the same in each run."""
    rng = random.Random(count)  # spreads moments, guards nothing
    return (gap_s * rng.uniform(0.5, 1.5) for _ in range(count))


def watch(left: Callable[[], int], jobs: int) -> float:
    """Wait until that many handlers have started, then until nothing is left; return the moment."""
    while read_starts().jobs < jobs:
        time.sleep(_POLL_S)
    while left() > 0:
        time.sleep(_POLL_S)
    return time.monotonic()


def peak_kib() -> int:
    """Return this process's highest resident memory so far. VmHWM, where there is one, starts at exec."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0])


def remove_sqlite(path: Path) -> None:
    """Remove a SQLite file and what stands beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def main(peer: Peer) -> None:
    """Run one command of a peer: the name of a method and its numbers or words."""
    command, *rest = sys.argv[1:]
    if command == "describe":
        print(json.dumps({"version": peer.version(), "settings": peer.settings, "bulk": hasattr(peer, "bulk")}))
        return
    arguments = [_value(text) for text in rest]
    if command not in peer.unopened:
        peer.open()
    before_kib = peak_kib()
    begun, cpu_begun = time.monotonic(), time.process_time()
    answer = getattr(peer, command)(*arguments)
    seconds, cpu_s = time.monotonic() - begun, time.process_time() - cpu_begun
    known = {"seconds": seconds, "cpu_s": cpu_s, "before_kib": before_kib, "peak_kib": peak_kib()}
    print(json.dumps(known | {"answer": answer}), flush=True)


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
