"""What is measured of Rota alone: a deep backlog, a restart, memory, handler processes, start-up."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from peers.common import LATENCY, PROCESS, read_delays, read_starts, remove_sqlite

from harness import usage
from harness.children import NotMeasured
from harness.compare import GAP_S, percentile
from harness.draining import drain_rate
from harness.figures import Figure, Unit
from harness.lab import ROTA, Lab, System

LOAD_CAP_S = 180.0
DRAIN_MILLION_CAP_S = 240.0
BEST_OF = 5
SQL_JOBS, SQL_CAP_S = 100_000, 300.0
TYPES, TYPED_JOBS = (10, 100, 1_000, 5_000), 2_000
NONE = "none waiting"
ARMS = {"none": NONE, "later": "due later", "low": "lower priority", "foreign": "a type it can't run"}


def backlog(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Drain a few jobs with very many others waiting, and with none: the two in turns, over the same stores."""
    waiting, front = lab.scale.waiting, lab.scale.front
    topic = f"drain with {waiting:,} others waiting"
    readings: dict[str, list[float]] = {title: [] for title in ARMS.values()}
    reasons: dict[str, str] = {}
    for kind in ARMS:
        _load_backlog(lab, kind, waiting, reasons)
    for _ in range(lab.scale.runs):
        for kind, title in ARMS.items():
            if title in reasons:
                continue
            try:
                readings[title].append(_front_rate(lab, kind, front))
                lab.say(f"{topic} · {title}: {readings[title][-1]:,.0f}/s")
            except NotMeasured as error:
                reasons[title] = str(error)
    for title, found in readings.items():
        values = tuple(found)
        reason = None if values else reasons.get(title, "no run")
        baseline = None if title == NONE else NONE
        row = Figure(topic=topic, work=f"{front:,} no-op jobs", system=title, unit=Unit.PER_SECOND)
        yield replace(row, values=values, missing=reason, baseline=baseline)
    for kind in ARMS:
        remove_sqlite(lab.stores / _file(kind))


def million(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Enqueue very many from a generator, restart on them, and drain them: memory and readiness."""
    count, file = lab.scale.waiting, "million.db"
    try:
        _refuse_if_missing(lab)
        loaded = lab.ask(ROTA, "bulk", count, cap_s=LOAD_CAP_S, BENCH_ROTA_FILE=file)
        lab.say(f"{count:,} enqueued in {loaded['seconds']:.1f} s, at most {loaded['peak_kib'] / 1024:.0f} MiB")
        yield from _ready(lab, count, file)
        yield _memory_figure(f"enqueue {count:,}", loaded["peak_kib"] / 1024, f"{loaded['before_kib'] / 1024:.0f} MiB before the first")
        yield _drain_memory(lab, file)
    except NotMeasured as error:
        yield Figure(topic="peak memory", work=f"{count:,} jobs", system="Rota", unit=Unit.MIB, missing=str(error))
    finally:
        remove_sqlite(lab.stores / file)


def process(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Compare the start of a process-run job with that of a thread-run one; the pool is warm, one job at a time."""
    work = f"{lab.scale.paced} of each in turn, same process"
    thread = Figure(topic="enqueue to handler start, p50", work=work, system="thread job", unit=Unit.MS)
    child = replace(thread, system="process job", baseline="thread job")
    try:
        _refuse_if_missing(lab)
        lab.ask(ROTA, "reset")
        lab.clear()
        lab.ask(ROTA, "pace_process", lab.scale.paced, GAP_S)
        delays = {kind: read_delays(lab.counters, kind) for kind in (LATENCY, PROCESS)}
        if not all(delays.values()):
            raise NotMeasured("no handler started")
        p50, p99 = ({kind: percentile(found, percent) for kind, found in delays.items()} for percent in (50, 99))
        extra = f"{p50[PROCESS] - p50[LATENCY]:.2f} ms more than a thread"
        lab.say(f"process job: p50 {p50[PROCESS]:.2f} ms, {extra}")
        yield replace(thread, values=(p50[LATENCY],), notes=(f"p99 {p99[LATENCY]:.2f} ms",))
        yield replace(child, values=(p50[PROCESS],), notes=(f"p99 {p99[PROCESS]:.2f} ms", extra))
    except NotMeasured as error:
        yield replace(child, missing=str(error))


def types(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Take the CPU of a drain over few and over very many job types, in turns."""
    found: dict[int, list[float]] = {count: [] for count in TYPES}
    row = Figure(topic="CPU of a drain", work=f"{TYPED_JOBS:,} no-op jobs", system="", unit=Unit.MS)
    reason: str | None = None
    try:
        _refuse_if_missing(lab)
        for _ in range(lab.scale.runs):
            for count, values in found.items():
                lab.ask(ROTA, "reset")
                lab.clear()
                values.append(1000 * lab.ask(ROTA, "types", TYPED_JOBS, count)["answer"])
                lab.say(f"types · {count:,}: {values[-1]:.0f} ms of CPU")
    except NotMeasured as error:
        reason = str(error)
        lab.say(f"types · not measured: {reason}")
    first = f"{TYPES[0]} job types"
    for count, values in found.items():
        system = f"{count:,} job types"
        yield replace(row, system=system, values=tuple(values), missing=None if values else reason, baseline=first)


def sql(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Take the CPU of a job that is SQL beside that of a no-op in Python, in one process."""
    jobs = lab.scaled(SQL_JOBS)
    row = Figure(topic="CPU of a job that is SQL", work=f"{jobs:,} jobs of each", system="Python no-op", unit=Unit.US)
    other = replace(row, system="one SELECT on a SQLite file", baseline="Python no-op")
    try:
        _refuse_if_missing(lab)
        lab.ask(ROTA, "reset")
        lab.clear()
        spent = lab.ask(ROTA, "sql", jobs, cap_s=SQL_CAP_S, ROTA_SQL_PATHS=str(lab.stores))["answer"]
        yield replace(row, values=(1e6 * spent["python"] / jobs,))
        yield replace(other, values=(1e6 * spent["sql"] / jobs,))
    except NotMeasured as error:
        yield replace(other, missing=str(error))


def start(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Time `import rota` and `rota --help` in a fresh interpreter."""
    python, bare = sys.executable, "python -c pass"
    commands = {
        bare: [python, "-c", "pass"],
        "import rota": [python, "-c", "import rota"],
        "rota --help": [python, "-m", "rota", "--help"],
    }
    for title, command in commands.items():
        row = Figure(topic="start-up", work=f"best of {BEST_OF}", system=title, unit=Unit.MS, baseline=bare if title != bare else None)
        try:
            yield replace(row, values=(1000 * min(_seconds(lab, command) for _ in range(BEST_OF)),))
        except NotMeasured as error:
            yield replace(row, missing=str(error))


# ---- backlog ---------------------------------------------------------------------------------------------------


def _file(kind: str) -> str:
    return f"backlog-{kind}.db"


def _load_backlog(lab: Lab, kind: str, waiting: int, reasons: dict[str, str]) -> None:
    if kind == "none":
        return
    try:
        _refuse_if_missing(lab)
        loaded = lab.ask(ROTA, "backlog", waiting, kind, cap_s=LOAD_CAP_S, BENCH_ROTA_FILE=_file(kind))
        lab.say(f"{waiting:,} waiting jobs, {ARMS[kind]}: loaded in {loaded['seconds']:.1f} s")
    except NotMeasured as error:
        reasons[ARMS[kind]] = str(error)
        lab.say(f"backlog · {ARMS[kind]} · not measured: {error}")


def _front_rate(lab: Lab, kind: str, front: int) -> float:
    _refuse_if_missing(lab)
    file = _file(kind)
    after = lab.ask(ROTA, "front", front, BENCH_ROTA_FILE=file)["answer"]
    reading = drain_rate(lab, ROTA, front, watch=("watch_front", front, after), BENCH_ROTA_FILE=file)
    if reading.note:
        raise NotMeasured(reading.note)
    return reading.value


# ---- a million ---------------------------------------------------------------------------------------------------


def _ready(lab: Lab, count: int, file: str) -> Iterator[Figure]:
    whole: list[float] = []
    opened: list[float] = []
    for _ in range(lab.scale.runs):
        lab.clear()
        begun = time.monotonic()
        answer = lab.ask(ROTA, "ready", BENCH_ROTA_FILE=file)["answer"]
        whole.append(answer["first"] - begun)
        opened.append(answer["first"] - answer["opened"])
        lab.say(f"ready {whole[-1]:.2f} s after the process was started, {opened[-1]:.2f} s after the store was opened")
    row = Figure(topic=f"restart with {count:,} queued", work="until the first handler starts", system="", unit=Unit.SECONDS)
    yield replace(row, system="from the process's start", values=tuple(whole))
    yield replace(row, system="from opening the store", values=tuple(opened))


def _drain_memory(lab: Lab, file: str) -> Figure:
    left = lab.ask(ROTA, "left", BENCH_ROTA_FILE=file)["answer"]
    lab.clear()
    watcher = lab.start(ROTA, "watch", left, BENCH_ROTA_FILE=file)
    with lab.working(ROTA, BENCH_ROTA_FILE=file) as (worker,):
        try:
            end, cut = lab.answer(watcher, cap_s=DRAIN_MILLION_CAP_S)["answer"], ""
        except NotMeasured as error:
            end, cut = time.monotonic(), f"; {error}"
        peak = usage.peak_mib(worker.pid)
    starts = read_starts(lab.counters)
    if not starts.jobs:
        raise NotMeasured("no handler started")
    note = f"at {starts.jobs / (end - starts.first):,.0f} jobs/s{cut}"
    lab.say(f"{starts.jobs:,} drained {note}, at most {peak:.0f} MiB")
    return _memory_figure(f"drain {starts.jobs:,}", peak, note)


def _memory_figure(work: str, mib: float, note: str) -> Figure:
    return Figure(topic="peak memory", work=work, system="Rota", unit=Unit.MIB, values=(mib,), notes=(note,))


def _seconds(lab: Lab, command: Sequence[str]) -> float:
    begun = time.monotonic()
    lab.children.collect(lab.children.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE), cap_s=30)
    return time.monotonic() - begun


def _refuse_if_missing(lab: Lab) -> None:
    if reason := lab.why_not(ROTA):
        raise NotMeasured(reason)
