"""What durable checkpoints cost: how many a second one handler makes, and eight at a time.

    python bench/checkpoints.py                                    SQLite, in a temporary folder
    python bench/checkpoints.py --store postgresql://…/empty       the same on PostgreSQL: a database of its own, please
    python bench/checkpoints.py --seconds 10 --executor process

Each handler calls `ctx.checkpoint` again and again until its time is over. Handlers that wait at the same time share a commit.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from pathlib import Path

from rota import Context, Rota

STATE = {"page": 12_345, "cursor": "x" * 64}
HANDLERS = (1, 8)


def keep(ctx: Context, seconds: float) -> int:
    """Make checkpoints until the time is over; return how many."""
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        ctx.checkpoint(STATE)
        count += 1
    return count


async def keep_async(ctx: Context, seconds: float) -> int:
    """Make checkpoints on the event loop until the time is over; return how many."""
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        await ctx.checkpoint_async(STATE)
        count += 1
    return count


def measure(rota: Rota, handlers: int, seconds: float) -> float:
    """Return the checkpoints per second of so many handlers at a time."""
    with rota.running(concurrency=handlers):
        rota.wait(rota.enqueue("keep", {"seconds": 0.2}).id, timeout=60)  # whatever is started late has started
        jobs = [rota.enqueue("keep", {"seconds": seconds}) for _ in range(handlers)]
        counts = [rota.wait(job.id, timeout=60 + 10 * seconds).result for job in jobs]
    return sum(counts) / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", help="where to measure; a file in a temporary folder if not given")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--executor", choices=("thread", "async", "process"), default="thread")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, closing(Rota(given.store or Path(folder) / "rota.db")) as rota:
        rota.job(keep_async if given.executor == "async" else keep, name="keep", executor=given.executor)
        for handlers in HANDLERS:
            per_s = measure(rota, handlers, given.seconds)
            print(f"{given.executor:8} {handlers} at a time: {per_s:8,.0f} checkpoints/s, {1000 * handlers / per_s:6.2f} ms each")


if __name__ == "__main__":
    main()
