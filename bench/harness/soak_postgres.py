"""The long run on PostgreSQL: millions of jobs with retention on, and the sizes of tables and indexes as time goes by."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from peers.common import read_starts

from harness import usage
from harness.children import Child, NotMeasured
from harness.lab import ROTA_PG, Lab

LINES = 20
CAP_S = 4 * 3600.0
WAITING_MAX = 10_000
KEPT_MAX = 100_000
FORGETFUL = replace(
    ROTA_PG,
    extra={"ROTA_RETENTION": "5", "ROTA_RETENTION_INTERVAL": "0.05", "ROTA_RETENTION_BATCH": "500", "BENCH_ROTA_DATABASE": "rota_soak"},
)
MIB = 1024 * 1024


def soak(lab: Lab, jobs: int) -> None:
    """Enqueue, run and forget: a line of rate, sizes and dead rows every twentieth of the way, and each table at the end."""
    if reason := lab.why_not(FORGETFUL):
        raise NotMeasured(reason)
    lab.ask(FORGETFUL, "reset")
    lab.clear()
    print(
        "| jobs run | after s | jobs/s since | rows of job_facts | tables MiB | indexes MiB | dead rows | vacuums | worker MiB |\n"
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    begun = time.monotonic()
    source = lab.start(FORGETFUL, "stream", jobs, WAITING_MAX, KEPT_MAX)
    with lab.working(FORGETFUL) as (worker,):
        middle = _follow(lab, jobs, worker, source, begun)
        lab.answer(source, cap_s=60)
    _compare(middle, _sizes(lab))


def _follow(lab: Lab, jobs: int, worker: Child, source: Child, begun: float) -> list[dict[str, Any]]:
    """Print a line each twentieth of the way; return the sizes of half-way."""
    middle: list[dict[str, Any]] = []
    before, since = 0, begun
    for line in range(1, LINES + 1):
        _wait_for(lab, jobs * line // LINES, worker, source)
        done, now = read_starts(lab.counters).jobs, time.monotonic()
        sizes = _sizes(lab)
        _print(done, now - begun, (done - before) / (now - since), sizes, usage.resident_mib(worker.pid))
        before, since = done, now
        if line == LINES // 2:
            middle = sizes
    return middle


def _wait_for(lab: Lab, target: int, worker: Child, source: Child) -> None:
    end = time.monotonic() + CAP_S
    while read_starts(lab.counters).jobs < target:
        if worker.poll() is not None:
            raise NotMeasured(f"the worker ended with {worker.returncode}")
        if source.poll():
            raise NotMeasured(f"the source of jobs ended with {source.returncode}")
        if time.monotonic() > end:
            raise NotMeasured(f"not over after {CAP_S:.0f} s")
        time.sleep(0.1)


def _sizes(lab: Lab) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = lab.ask(FORGETFUL, "sizes")["answer"]
    return answer


def _print(done: int, seconds: float, rate: float, sizes: list[dict[str, Any]], mib: float) -> None:
    facts = next(row["live"] for row in sizes if row["table"] == "job_facts")
    tables, indexes, dead, vacuums = (sum(row[key] for row in sizes) for key in ("heap", "indexes", "dead", "vacuums"))
    cells = (done, seconds, rate, facts, tables / MIB, indexes / MIB, dead, vacuums, mib)
    print("| " + " | ".join(f"{cell:,.0f}" for cell in cells) + " |", flush=True)


def _compare(middle: list[dict[str, Any]], end: list[dict[str, Any]]) -> None:
    """Print the large tables, half-way and at the end."""
    print(
        "\n| table | rows | MiB half-way | MiB at the end | its indexes half-way | at the end | dead rows |\n|---|--:|--:|--:|--:|--:|--:|"
    )
    earlier = {row["table"]: row for row in middle}
    for row in sorted(end, key=lambda row: -row["heap"] - row["indexes"]):
        if row["heap"] + row["indexes"] >= MIB:
            old = earlier.get(row["table"], row)
            cells = (old["heap"] / MIB, row["heap"] / MIB, old["indexes"] / MIB, row["indexes"] / MIB)
            shown = " | ".join(f"{cell:,.1f}" for cell in cells)
            print(f"| {row['table']} | {row['live']:,} | {shown} | {row['dead']:,} |", flush=True)
