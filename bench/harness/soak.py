"""The long run: millions of jobs through one worker, with its memory printed as time goes by."""

from __future__ import annotations

import time
from collections.abc import Callable

from peers.common import read_starts, remove_sqlite

from harness import usage
from harness.children import Child, NotMeasured
from harness.lab import ROTA, Lab

JOBS = 5_000_000
EVERY_S = 10.0
CAP_S = 3600.0
_FILE = "soak.db"


def soak(lab: Lab, jobs: int) -> None:
    """Enqueue from a generator, then drain with one worker; a line of rate and memory every ten seconds."""
    if reason := lab.why_not(ROTA):
        raise NotMeasured(reason)
    print(
        "| phase | after s | jobs | jobs/s since the line before | resident MiB (the last line: peak) |\n|---|--:|--:|--:|--:|", flush=True
    )
    try:
        loader = lab.start(ROTA, "bulk", jobs, BENCH_ROTA_FILE=_FILE)
        _print_until(lambda: loader.poll() is not None, loader, "enqueue", lambda: 0)
        loaded = lab.answer(loader, cap_s=1)
        _line("enqueue, all", loaded["seconds"], jobs, jobs / loaded["seconds"], loaded["peak_kib"] / 1024)
        lab.clear()
        watcher = lab.start(ROTA, "watch", jobs, BENCH_ROTA_FILE=_FILE)
        with lab.working(ROTA, BENCH_ROTA_FILE=_FILE) as (worker,):
            _print_until(lambda: watcher.poll() is not None, worker, "drain", lambda: read_starts(lab.counters).jobs)
            end = lab.answer(watcher, cap_s=1)["answer"]
            seconds = end - read_starts(lab.counters).first
            _line("drain, all", seconds, jobs, jobs / seconds, usage.peak_mib(worker.pid))
    finally:
        remove_sqlite(lab.stores / _FILE)


def _print_until(over: Callable[[], bool], process: Child, phase: str, done: Callable[[], int]) -> None:
    begun, before = time.monotonic(), done()
    due = begun + EVERY_S
    while not over():
        if time.monotonic() - begun > CAP_S:
            raise NotMeasured(f"{phase} was not over after {CAP_S:.0f} s")
        if process.poll() is not None and phase == "drain":
            raise NotMeasured(f"the worker ended with {process.returncode}")
        time.sleep(0.1)
        if time.monotonic() >= due:
            count = done()
            _line(phase, due - begun, count, (count - before) / EVERY_S, usage.resident_mib(process.pid))
            before, due = count, due + EVERY_S


def _line(phase: str, seconds: float, jobs: int, rate: float, mib: float) -> None:
    print(f"| {phase} | {seconds:.0f} | {jobs:,} | {rate:,.0f} | {mib:.0f} |", flush=True)
