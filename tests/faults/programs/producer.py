"""Enqueues until SIGTERM, or COUNT jobs; writes an id to the file of the accepted only after enqueue returned.

Arguments: file of the accepted, count, pause between two enqueues in ms, and the jobs as name or name:ms, taken in turn.
"""

import os
import signal
import sys
import time
from itertools import cycle, islice

import limits  # noqa: F401 - ends this program after a while, whatever happens
from jobs import rota

asked: list[int] = []


def note(fd: int, ids: list[str]) -> None:
    os.write(fd, "".join(f"{each}\n" for each in ids).encode())
    os.fsync(fd)


def main() -> None:
    path, count, pause_ms = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    kinds = cycle((name, {"ms": float(ms)} if ms else {}) for name, _, ms in (word.partition(":") for word in sys.argv[4:]))
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    made = 0
    while made < count and not asked:
        # By turns one alone and a handful together: both ways in.
        size = min(count - made, 1 if made % 3 else 25)
        some = list(islice(kinds, size))
        note(fd, list(rota.enqueue_many(some).ids) if size > 1 else [rota.enqueue(*some[0]).id])
        made += size
        time.sleep(pause_ms / 1000)
    print("made", made, flush=True)


if __name__ == "__main__":
    main()
