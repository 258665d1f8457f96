"""Where the time of a drain on PostgreSQL goes: each statement's share in the server, round trips a turn, CPU a job, what is written."""

from __future__ import annotations

from typing import Any

from harness.children import NotMeasured
from harness.draining import drain_rate
from harness.lab import ROTA_PG, Lab

SETTINGS = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "all", "track_io_timing": "on"}
"""What the server has beside its usual settings: it costs a few percent, so no figure is taken in such a run."""
JOBS = 100_000
TURN = "pg_advisory_xact_lock("
LINES = 30


def profile(lab: Lab, jobs: int) -> None:
    """Drain so many jobs once, and print what the server noted meanwhile."""
    if reason := lab.why_not(ROTA_PG):
        raise NotMeasured(reason)
    lab.ask(ROTA_PG, "reset")
    loaded = lab.ask(ROTA_PG, "bulk", jobs)
    lab.say(f"{jobs:,} enqueued, {jobs / loaded['seconds']:,.0f}/s")
    lab.ask(ROTA_PG, "note")
    reading = drain_rate(lab, ROTA_PG, jobs, watch=("watch", jobs))
    noted = lab.ask(ROTA_PG, "noted")["answer"]
    _print_totals(jobs, reading.value, noted)
    if reading.load is not None:
        print("CPU a job: worker {:.1f} µs, PostgreSQL {:.1f} µs".format(*reading.load.cpu_us))
    _print_statements(jobs, noted["statements"])


def _print_totals(jobs: int, rate: float, noted: dict[str, Any]) -> None:
    rows = noted["statements"]
    turns = sum(row["calls"] for row in rows if row["toplevel"] and TURN in row["text"])
    calls = sum(row["calls"] for row in rows if row["toplevel"])
    inside = sum(row["ms"] for row in rows if row["toplevel"])
    print(f"{rate:,.0f} jobs/s; {turns:,} turns of {jobs / max(turns, 1):.0f} jobs, {calls / max(turns, 1):.1f} statements a turn")
    print(f"inside statements {1000 * inside / jobs:.1f} µs a job; written to the log {noted['wal_bytes'] / jobs:,.0f} bytes a job\n")


def _print_statements(jobs: int, rows: list[dict[str, Any]]) -> None:
    print("| µs a job | calls | ms a call | rows a call | log bytes a job | statement (↳ inside a trigger) |\n|--:|--:|--:|--:|--:|---|")
    for row in sorted(rows, key=lambda row: -row["ms"])[:LINES]:
        cells = (1000 * row["ms"] / jobs, row["calls"], row["ms"] / row["calls"], row["rows"] / row["calls"], row["wal"] / jobs)
        text = ("" if row["toplevel"] else "↳ ") + " ".join(row["text"].split())[:110].replace("|", "¦")
        print("| {:.2f} | {:,} | {:.3f} | {:.1f} | {:.0f} |".format(*cells), text, "|", flush=True)
