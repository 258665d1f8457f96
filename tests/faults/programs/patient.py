"""Enqueues until SIGTERM, whatever befalls the server: where it is away the call is made again.

Arguments: file of the accepted, pause between two enqueues in ms, and the jobs as name or name:ms, taken in turn. An id is written
to the file only after enqueue returned. Prints how many calls were refused.
"""

import os
import signal
import sys
import time
from itertools import count, cycle, islice

import limits  # noqa: F401 - ends this program after a while, whatever happens
from jobs import rota

from rota import NewJob
from rota.errors import StoreBusy, StoreUnavailable
from rota.ports.clock import UuidV7

PAUSE_S = 0.02
ids = UuidV7()
asked: list[int] = []
refused: list[str] = []


def patiently(call):
    """Call until the store is there. What was refused is not in it, or is there under its id."""
    while True:
        try:
            return call()
        except (StoreBusy, StoreUnavailable) as error:
            refused.append(f"{type(error).__name__} {error}")
            time.sleep(PAUSE_S)


def an_id():
    return ids.take(1, time.time_ns() // 1000)[0]


def accepted(turn, kinds):
    """By turns one under an id of its own, one under an id of ours, and a handful."""
    if turn % 3 == 0:
        name, params = next(kinds)
        job_id = an_id()
        return [patiently(lambda: rota.enqueue(name, params, job_id=job_id)).id]
    if turn % 3 == 1:
        name, params = next(kinds)
        return [patiently(lambda: rota.enqueue(name, params)).id]
    some = [NewJob(name=name, params=params, job_id=an_id()) for name, params in islice(kinds, 5)]
    return patiently(lambda: rota.enqueue_many(some)).ids


def main() -> None:
    path, pause_ms = sys.argv[1], float(sys.argv[2])
    kinds = cycle((name, {"ms": float(ms)} if ms else {}) for name, _, ms in (word.partition(":") for word in sys.argv[3:]))
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for turn in count():
        if asked:
            break
        os.write(fd, "".join(f"{each}\n" for each in accepted(turn, kinds)).encode())
        time.sleep(pause_ms / 1000)
    print("refused", len(refused), *sorted({line.partition(" ")[0] for line in refused}), flush=True)
    print("\n".join(sorted(set(refused))), flush=True)


if __name__ == "__main__":
    main()
