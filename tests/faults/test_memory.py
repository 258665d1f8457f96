"""How much memory a worker takes over a long time: what it needs, and not more with every job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle, islice
from statistics import median

import psutil
import pytest

from rota import Rota
from tests.faults import raw
from tests.faults.stage import PROGRAMS, SOURCE, Stage
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.waiting import eventually

MIXTURE = {
    "returns": 600,
    "reports": 120,
    "fails_once": 60,
    "fails": 30,
    "awaits": 100,
    "late": 10,
    "awaits_late": 15,
    "apart": 60,
    "fails_apart": 4,
    "late_apart": 1,
}
"""How many of each kind there are among a thousand."""
WITHOUT_TEXT = {"late", "awaits_late", "late_apart"}
JOBS = size(2_000, prove=200_000)
BATCH = 100
SAMPLES = 40
SLACK_BYTES = 4 * 2**20
"""By how much the worker may grow in the second half, for reasons other than its jobs: caches that fill, pages that are not given back."""
LEAK_BYTES = 50
"""And by how much for each job. A leak of 200 bytes a job is over both at full size."""

SETTINGS = {
    "retention": 1,
    "retention_interval": 0.25,
    "retention_batch": 1000,
    "process_jobs_max": 200,
    "timeout_grace": 0.2,
    "log_level": "error",
}


def mixed() -> Iterator[tuple[str, dict[str, str]]]:
    """Every kind in turn, spread evenly, with other params each time."""
    kinds = sorted((index / count, kind) for kind, count in MIXTURE.items() for index in range(count))
    for number, (_, kind) in enumerate(cycle(kinds)):
        yield kind, {} if kind in WITHOUT_TEXT else {"text": f"text {number}"}


def live_jobs(stage: Stage) -> int:
    with raw.reading(stage.database) as look:
        return next(iter(look.execute("SELECT count(*) FROM jobs WHERE status IN ('PENDING', 'QUEUED', 'RUNNING')")))[0]


def all_jobs(stage: Stage) -> int:
    with raw.reading(stage.database) as look:
        return next(iter(look.execute("SELECT count(*) FROM jobs")))[0]


def sizes_of_a_worker(stage: Stage, count: int, *, leak_bytes: int = 0) -> list[int]:
    """Have one worker run this many jobs of every kind, and return its resident bytes after each fortieth of them."""
    environment = os.environ | {
        "FAULTS_DB": str(stage.database),
        "PYTHONPATH": f"{PROGRAMS}:{SOURCE}",
        "ROTA_TEST_LEAK_BYTES": str(leak_bytes),
        "ROTA_TEST_HARD_S": str(patient(120)),
        **{f"ROTA_{name.upper()}": str(value) for name, value in SETTINGS.items()},
    }
    with (stage.folder / "worker.out").open("wb") as out:
        command = [sys.executable, "-m", "rota", "worker", "--app", "mixed:rota", "--concurrency", "16"]
        worker = subprocess.Popen(command, env=environment, cwd=PROGRAMS, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    sizes: list[int] = []
    try:
        with closing(Rota(stage.database)) as rota:
            eventually(lambda: len(rota.templates.list()) == len(MIXTURE), within=20, what="the worker's templates")
            process, jobs, done = psutil.Process(worker.pid), mixed(), 0
            while done < count:
                rota.enqueue_many(islice(jobs, BATCH))
                done += BATCH
                eventually(lambda: live_jobs(stage) < BATCH, within=60, what="room for more jobs")
                if done * SAMPLES // count > len(sizes):
                    sizes.append(process.memory_info().rss)
            eventually(lambda: live_jobs(stage) == 0, within=60, what="the end of all jobs")
            eventually(lambda: all_jobs(stage) == 0, within=60, what="the removal of all jobs")
    finally:
        worker.terminate()
        worker.wait(patient(30))
    assert worker.returncode == 0, (stage.folder / "worker.out").read_text()[-2000:]
    return sizes


def growth(sizes: list[int]) -> int:
    """Return by how many bytes the worker grew in the second half, from the middle of its first samples to that of its last."""
    later = sizes[len(sizes) // 2 :]
    few = max(1, len(later) // 5)
    return round(median(later[-few:]) - median(later[:few]))


def bound(count: int) -> int:
    return SLACK_BYTES + LEAK_BYTES * count // 2


@pytest.mark.prove
@pytest.mark.paired
def test_the_memory_of_a_worker_levels_off_while_history_is_removed(stage: Stage):
    """Jobs that return, fail, are tried again, are over their timeout, log and report, on threads, on the loop and in processes."""
    sizes = sizes_of_a_worker(stage, JOBS)
    print([round(each / 2**20, 1) for each in sizes])
    assert growth(sizes) < bound(JOBS)


@pytest.mark.paired
def test_a_leak_would_be_seen(stage: Stage):
    """As much in all as 200 bytes a job at full size, which is what the bound is chosen for."""
    count = 2_000
    leak_bytes = 200 * 200_000 // count
    assert growth(sizes_of_a_worker(stage, count, leak_bytes=leak_bytes)) > bound(200_000)
