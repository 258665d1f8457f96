"""How a drain is measured: the rate, and meanwhile the CPU of workers and server, and the workers' memory."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from peers.common import read_starts

from harness import usage
from harness.children import Child, NotMeasured
from harness.figures import DISTURBED
from harness.lab import SERVERS, Lab, System

DRAIN_CAP_S = 45.0
BUSY = 0.85
"""Of a core: what uses so much of the one core it can use has no room left to speak of."""


@dataclass(frozen=True)
class Load:
    """What a drain took: cores of each worker, cores of the server (none: it has none), their CPU a job, the workers' peak memory."""

    worker: float
    server: float | None
    workers: int
    cpu_us: tuple[float, float]
    """Of workers and of the server, for each job."""
    peak_mib: float
    """Of the workers with their children, what these share counting for each."""
    alone_mib: float
    """Of the workers without them."""
    others: float = 0.0
    """The share of all cores that processes had which this run did not start."""
    server_name: str = ""


@dataclass(frozen=True)
class Reading:
    """One run's figure, and what is to be said about it."""

    value: float
    note: str = ""
    load: Load | None = None
    cpu: str = ""
    """For a call: CPU of caller and server."""
    others: float = 0.0
    """The share of all cores that processes had which this run did not start."""


def drain_rate(lab: Lab, system: System, jobs: int, *, watch: tuple[object, ...], workers: int = 1, **extra: str) -> Reading:
    """Let workers run what is loaded; the rate is over the time from the first handler's start until the store says none is left."""
    lab.clear()
    watcher = lab.start(system, str(watch[0]), *watch[1:], **extra)
    time.sleep(1.0)  # it has imported what it needs by then, and does not compete with the workers
    with lab.working(system, workers, **extra) as crew:
        meter = _Meter(lab, system, crew)
        try:
            meter.begin(watcher)
            end = lab.answer(watcher, cap_s=DRAIN_CAP_S)["answer"]
            load = meter.read()
        except NotMeasured:
            return _cut(lab, crew, meter.read())
    starts = read_starts(lab.counters)
    note = f"{starts.jobs:,} starts for {jobs:,} jobs" if starts.jobs < jobs else ""
    return Reading(jobs / (end - starts.first), note, load, others=load.others if load else 0.0)


def describe_load(loads: Sequence[Load]) -> str:
    """Say who was busy while it drained, on average, and which was the limit."""
    if not loads or any(load.server is None for load in loads):
        return ""
    worker, server, others = (fmean(part) for part in zip(*((load.worker, load.server or 0.0, load.others) for load in loads), strict=True))
    workers, server_name = loads[0].workers, loads[0].server_name
    each = "each worker" if workers > 1 else "worker"
    return f"{each} {worker:.2f}, {server_name} {server:.2f} cores: {_limit(worker, server, workers, others, server_name)}"


def _limit(worker: float, server: float, workers: int, others: float, server_name: str) -> str:
    cores = os.cpu_count() or 1
    if others > DISTURBED:
        return f"others had {others * cores:.2f}, no saying what the limit is"
    if worker * workers + server >= BUSY * cores:
        return "all cores busy"
    if worker >= BUSY:
        return "the worker is the limit"
    if server >= BUSY:
        return f"{server_name} is the limit"
    if worker + server >= BUSY:
        return "the two take turns, neither works while the other does"
    return "commits and round trips are the limit"


class _Meter:
    """CPU seconds of workers and server between the first handler's start and the end."""

    def __init__(self, lab: Lab, system: System, crew: Sequence[Child]) -> None:
        self._lab = lab
        self._crew = crew
        self._server = lab.servers.get(system.store)
        self._server_name = SERVERS[system.store].name if system.store in SERVERS else ""
        self._begun: tuple[float, float, float] | None = None
        self._others = usage.Others()
        self._started = 0

    def begin(self, watcher: Child) -> None:
        """Wait for the first start, and read the counters then."""
        end = time.monotonic() + DRAIN_CAP_S
        while not read_starts(self._lab.counters).jobs:
            if time.monotonic() > end or watcher.poll() is not None:
                raise NotMeasured("no handler started")
            time.sleep(0.005)
        self._begun, self._others = self._now(), usage.Others()
        self._started = read_starts(self._lab.counters).jobs

    def read(self) -> Load | None:
        """Return what was used since then."""
        if self._begun is None:
            return None
        passed, crew, server = (now - before for now, before in zip(self._now(), self._begun, strict=True))
        jobs = max(1, read_starts(self._lab.counters).jobs - self._started)
        return Load(
            worker=crew / passed / len(self._crew),
            server=server / passed if self._server else None,
            workers=len(self._crew),
            cpu_us=(1e6 * crew / jobs, 1e6 * server / jobs),
            peak_mib=sum(usage.family_peak_mib(child.pid) for child in self._crew),
            alone_mib=sum(usage.peak_mib(child.pid) for child in self._crew),
            others=self._others.share(),
            server_name=self._server_name,
        )

    def _now(self) -> tuple[float, float, float]:
        crew = sum(usage.cpu_s(child.pid) for child in self._crew)
        return time.monotonic(), crew, usage.cpu_s(self._server) if self._server else 0.0


def _cut(lab: Lab, crew: Sequence[Child], load: Load | None) -> Reading:
    """Make do with what ran until the cap: its rate, marked."""
    starts = read_starts(lab.counters)
    if starts.jobs < 2:
        ended = [child.returncode for child in crew if child.poll() is not None]
        raise NotMeasured(f"the worker ended with {ended[0]}" if ended else f"no progress in {DRAIN_CAP_S:.0f} s")
    return Reading(
        (starts.jobs - 1) / (starts.last - starts.first), f"cut after {starts.jobs:,} starts", load, others=load.others if load else 0.0
    )
