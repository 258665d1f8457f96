"""Huey on SQLite, as it comes: WAL, and SQLite's own default of an fsync at every commit (synchronous=FULL)."""

from __future__ import annotations

import time
from datetime import datetime

import huey
from common import STORES, Payload, Peer, main, remove_sqlite, started

FILE = STORES / "huey.db"
queue = huey.SqliteHuey(filename=str(FILE))


@queue.task(retries=3)
def noop(job: Payload) -> None:
    """Do nothing but be counted."""
    started(job)


def _idle() -> None:
    """Do nothing."""


class Huey(Peer):
    """One consumer thread per process: more of them were slower, the file has one writer."""

    settings = (
        "1 consumer thread per process, polling every 0.1 s and, while idle, ever more rarely up to 10 s;"
        " WAL, synchronous=FULL; a job is deleted when taken (at most once); no bulk enqueue"
    )

    def version(self) -> str:
        """Return Huey's version."""
        return huey.__version__

    def reset(self) -> None:
        """Start with an empty file."""
        queue.storage.close()
        remove_sqlite(FILE)
        huey.SqliteHuey(filename=str(FILE))

    def send(self, job: Payload) -> None:
        """Enqueue one task."""
        noop(job)

    def left(self) -> int:
        """Return the tasks not yet taken."""
        return queue.pending_count()

    def crons(self, count: int) -> dict[str, float]:
        """Register so many crons, a sixtieth of them due each minute, and return how long one minute's tick takes."""
        for number in range(count):
            queue.periodic_task(huey.crontab(minute=str(number % 60)), name=f"cron{number}")(_idle)
        begun = time.perf_counter()
        due = queue.read_periodic(datetime(2026, 1, 5, 9, 0))  # noqa: DTZ001 - Huey compares local times
        for task in due:
            queue.enqueue(task)
        return {"ms": 1000 * (time.perf_counter() - begun), "due": len(due)}

    def work(self) -> None:
        """Consume until SIGTERM."""
        queue.create_consumer(workers=1, worker_type="thread").run()


if __name__ == "__main__":
    main(Huey())
