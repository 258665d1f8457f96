"""The measurements that Rota and its peers share: the same work, the peers taking turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from peers.common import LATENCY, read_delays

from harness import usage
from harness.children import Child, NotMeasured
from harness.draining import Reading, describe_load, drain_rate
from harness.figures import Figure, Unit, number
from harness.lab import MONGODB, POSTGRES, PREFIX, ROTA, ROTA_MONGO, ROTA_PG, SERVERS, Lab, System, by_store

SETTLE_S = 3.0
GAP_S = 0.05
THREADS = 8
ROTAS = (ROTA, ROTA_PG, ROTA_MONGO)


def enqueue(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    """Enqueue one by one from one process; for Rota also from eight threads at once, and with a unique key each."""
    for store, members in by_store([system for system in systems if system.enqueue]):
        topic = f"{PREFIX[store]}enqueue one by one"
        series = _in_turns(lab, members, topic, _enqueue_rate)
        yield from (_figure(one, topic, f"{lab.scaled(one.system.enqueue):,} jobs") for one in series)
        for rota in [system for system in members if system in ROTAS]:
            jobs = lab.scaled(rota.enqueue)
            yield _rota_variant(lab, rota, topic, f"{jobs:,} jobs, {THREADS} threads", f"Rota, {THREADS} threads", _threads_rate)
            yield _rota_variant(lab, rota, topic, f"{jobs:,} jobs, a unique_key each", "Rota, unique_key", _keyed_rate)


def bulk(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    """Enqueue many at once: Rota from a generator, the others in chunks of 1,000, plain SQLite in transactions of 100."""
    for store, members in by_store([system for system in systems if system.bulk]):
        topic = f"{PREFIX[store]}enqueue in bulk"
        series = _in_turns(lab, members, topic, _bulk_rate)
        yield from (_figure(one, topic, f"{lab.scaled(one.system.bulk):,} jobs") for one in series)


def drain(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    """Run no-op jobs with one and with two worker processes; where there is a server, say who was busy."""
    for store, members in by_store([system for system in systems if system.drain]):
        costs: list[Figure] = []
        for workers in (1, 2):
            topic = f"{PREFIX[store]}drain, {workers} worker process{'es' if workers > 1 else ''}"
            series = _in_turns(lab, members, topic, _drain_with(workers))
            yield from (_figure(one, topic, f"{lab.scaled(one.system.drain):,} no-op jobs") for one in series)
            if workers == 1:
                costs = [*(_cpu_figure(lab, one, store) for one in series), *(_memory_figure(lab, one, store) for one in series)]
        yield from costs


def idle(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    """An idle worker: its CPU, and the delay from enqueue in another process to the handler's start."""
    for store, members in by_store([system for system in systems if system.drain]):
        rows = [row for system in members for row in _idle_of(lab, system)]
        for rota in [system for system in members if system in ROTAS]:
            rows += _idle_inside(lab, rota)
        for topic in dict.fromkeys(row.topic for row in rows):
            yield from (replace(row, topic=f"{PREFIX[store]}{topic}") for row in rows if row.topic == topic)


# ---- taking turns ----------------------------------------------------------------------------------------------

Measure = Callable[[Lab, System], Reading]


@dataclass
class Series:
    """What the runs of one system gave, and why some gave nothing."""

    system: System
    readings: list[Reading] = field(default_factory=list)
    reason: str | None = None


def _in_turns(lab: Lab, systems: Sequence[System], topic: str, measure: Measure) -> list[Series]:
    """Measure each system once, then each again: a slow minute of the machine hits all of them."""
    series = [Series(system, reason=lab.why_not(system)) for system in systems]
    for run in range(lab.scale.runs):
        for one in series:
            if one.reason:
                continue
            title = one.system.title
            try:
                reading = measure(lab, one.system)
            except NotMeasured as error:
                one.reason = str(error)
                lab.say(f"{topic} · {title} · not measured: {error}")
                continue
            one.readings.append(reading)
            about = f"{reading.note} {reading.cpu} {describe_load([reading.load] if reading.load else [])}".strip()
            lab.say(f"{topic} · {title} · run {run + 1} of {lab.scale.runs}: {number(reading.value, Unit.PER_SECOND)}/s {about}")
    return series


def _figure(series: Series, topic: str, work: str, title: str | None = None, baseline: str | None = None) -> Figure:
    readings, reason = series.readings, series.reason
    notes = [reading.note for reading in readings if reading.note]
    notes += filter(None, [describe_load([reading.load for reading in readings if reading.load]), readings[-1].cpu if readings else ""])
    if readings and reason:
        notes.append(f"only {len(readings)} of the runs: {reason}")
    values = tuple(reading.value for reading in readings)
    row = Figure(topic=topic, work=work, system=title or series.system.title, unit=Unit.PER_SECOND, baseline=baseline)
    return replace(row, values=values, notes=tuple(notes), missing=None if readings else reason, others=_others(readings))


def _others(readings: Sequence[Reading]) -> float | None:
    return fmean(reading.others for reading in readings) if readings else None


def _cpu_figure(lab: Lab, series: Series, store: str) -> Figure:
    loads = [reading.load for reading in series.readings if reading.load]
    row = Figure(topic=f"{PREFIX[store]}CPU of a job", work=_drained(lab, series), system=series.system.title, unit=Unit.US)
    if store in SERVERS and loads:
        worker, server = (fmean(load.cpu_us[part] for load in loads) for part in (0, 1))
        row = replace(row, notes=(f"worker {worker:.0f}, {SERVERS[store].name} {server:.0f}",))
    values = tuple(sum(load.cpu_us) for load in loads)
    return replace(row, values=values, missing=None if loads else series.reason or "no run", others=_others(series.readings))


def _drained(lab: Lab, series: Series) -> str:
    return f"draining {lab.scaled(series.system.drain):,} no-op jobs"


def _memory_figure(lab: Lab, series: Series, store: str) -> Figure:
    loads = [reading.load for reading in series.readings if reading.load]
    row = Figure(
        topic=f"{PREFIX[store]}peak memory of one worker", work=_drained(lab, series), system=series.system.title, unit=Unit.MIB, others=0.0
    )
    if any(load.alone_mib < load.peak_mib for load in loads):
        row = replace(row, notes=(f"with its children; without them {fmean(load.alone_mib for load in loads):.0f}",))
    return replace(row, values=tuple(load.peak_mib for load in loads), missing=None if loads else series.reason or "no run")


def _rota_variant(lab: Lab, rota: System, topic: str, work: str, title: str, measure: Measure) -> Figure:
    series = Series(rota, reason=lab.why_not(rota))
    try:
        while not series.reason and len(series.readings) < lab.scale.runs:
            series.readings.append(measure(lab, rota))
            lab.say(f"{topic} · {title}: {number(series.readings[-1].value, Unit.PER_SECOND)}/s")
    except NotMeasured as error:
        series.reason = str(error)
    return _figure(series, topic, work, title, baseline=rota.title)


# ---- rates -----------------------------------------------------------------------------------------------------


def _enqueue_rate(lab: Lab, system: System) -> Reading:
    return _call_rate(lab, system, "enqueue", system.enqueue)


def _threads_rate(lab: Lab, system: System) -> Reading:
    return _call_rate(lab, system, "enqueue_threads", system.enqueue, THREADS)


def _keyed_rate(lab: Lab, system: System) -> Reading:
    return _call_rate(lab, system, "enqueue_keyed", system.enqueue)


def _bulk_rate(lab: Lab, system: System) -> Reading:
    return _call_rate(lab, system, "bulk", system.bulk)


def _call_rate(lab: Lab, system: System, command: str, count: int, *words: object) -> Reading:
    lab.ask(system, "reset")
    jobs = lab.scaled(count)
    server = lab.servers.get(system.store)
    before, others = usage.cpu_s(server) if server else 0.0, usage.Others()
    answer = lab.ask(system, command, jobs, *words)
    seconds, own, its = answer["seconds"], answer["cpu_s"], usage.cpu_s(server) - before if server else 0.0
    note = f"CPU of a job: caller {1e6 * own / jobs:.0f}, {SERVERS[system.store].name} {1e6 * its / jobs:.0f} µs" if server else ""
    return Reading(jobs / seconds, cpu=note, others=others.share())


def _drain_with(workers: int) -> Measure:
    def measure(lab: Lab, system: System) -> Reading:
        jobs = lab.scaled(system.drain)
        lab.ask(system, "reset")
        lab.ask(system, "bulk" if system.bulk else "enqueue", jobs)
        return drain_rate(lab, system, jobs, watch=("watch", jobs), workers=workers)

    return measure


# ---- idle ------------------------------------------------------------------------------------------------------

P50, P99, CPU = "idle latency, p50", "idle latency, p99", "idle worker's CPU"


def _idle_of(lab: Lab, system: System) -> list[Figure]:
    try:
        if reason := lab.why_not(system):
            raise NotMeasured(reason)
        lab.ask(system, "reset")
        lab.clear()
        before = usage.descendants(lab.servers[POSTGRES]) if POSTGRES in lab.servers else set()
        with lab.working(system) as (worker,):
            time.sleep(SETTLE_S)
            if system.store in SERVERS:
                # What the drains and the new database left to be done is done now, and not inside somebody's window.
                lab.checkpoint(system.store)
                time.sleep(lab.scale.rest_s)
            cpu = _idle_cpu(lab, system, worker, before)
            lab.ask(system, "pace", lab.scale.paced, GAP_S)
            time.sleep(1.0)
        delays = read_delays(lab.counters, LATENCY)
        return [*_delay_figures(lab, system.title, "from another process", delays), cpu]
    except NotMeasured as error:
        lab.say(f"idle · {system.title} · not measured: {error}")
        row = Figure(topic=P50, work="", system=system.title, unit=Unit.MS, missing=str(error))
        return [row, replace(row, topic=P99), replace(row, topic=CPU, unit=Unit.CPU)]


def _idle_inside(lab: Lab, rota: System) -> list[Figure]:
    title = "Rota, same process"
    try:
        if reason := lab.why_not(rota):
            raise NotMeasured(reason)
        lab.ask(rota, "reset")
        lab.clear()
        lab.ask(rota, "pace_inside", lab.scale.paced, GAP_S)
        return _delay_figures(lab, title, "worker in the enqueuing process", read_delays(lab.counters, LATENCY), baseline=rota.title)
    except NotMeasured as error:
        return [Figure(topic=topic, work="", system=title, unit=Unit.MS, missing=str(error)) for topic in (P50, P99)]


def _idle_cpu(lab: Lab, system: System, worker: Child, before: set[int]) -> Figure:
    """Take the CPU of a worker, and that of its own sessions: checkpoints and vacuums of what ran before belong to nobody here."""
    meter = _IdleMeter(lab, system, worker, before)
    others = usage.Others()
    end = time.monotonic() + lab.scale.idle_s
    while time.monotonic() < end:
        time.sleep(min(1.0, lab.scale.idle_s))
        meter.read()
    share, sessions = (100 * seconds / lab.scale.idle_s for seconds in meter.used())
    notes = (f"and {sessions:.2f} % in {SERVERS[system.store].idle}",) if system.store in SERVERS else ()
    lab.say(f"idle · {system.title}: {share:.2f} % of a core {' '.join(notes)}")
    work = f"{lab.scale.idle_s:.0f} s, nothing queued"
    return Figure(topic=CPU, work=work, system=system.title, unit=Unit.CPU, values=(share,), notes=notes, others=others.share())


class _IdleMeter:
    """CPU of a worker with its children, and of what serves it: the sessions that were opened since it was started, or the primary."""

    def __init__(self, lab: Lab, system: System, worker: Child, before: set[int]) -> None:
        self._lab, self._system = lab, system
        self._worker, self._before = worker, before
        self._own: set[int] = set()
        self._last: dict[int, float] = {}
        self.read()
        self._begun = dict(self._last)

    def read(self) -> None:
        """Note how far everybody is: a session may be over before the end."""
        self._own |= {self._worker.pid, *usage.descendants(self._worker.pid)}
        pids = self._own | _serving(self._lab, self._system, self._before)
        self._last |= {pid: max(self._last.get(pid, 0.0), usage.fine_cpu_s(pid)) for pid in pids}

    def used(self) -> tuple[float, float]:
        """Return the CPU seconds of the worker with its children, and of what serves it."""
        spent = {pid: seconds - self._begun.get(pid, 0.0) for pid, seconds in self._last.items()}
        own = sum(seconds for pid, seconds in spent.items() if pid in self._own)
        return own, sum(spent.values()) - own


def _serving(lab: Lab, system: System, before: set[int]) -> set[int]:
    """Return the processes that serve a worker: its own sessions of PostgreSQL, or the primary of MongoDB, one process for all clients."""
    server = lab.servers.get(system.store)
    return {server} if server is not None and system.store == MONGODB else sessions_since(server, before)


def sessions_since(server: int | None, before: set[int]) -> set[int]:
    """Return the server's processes that serve a client and were not there before."""
    if server is None:
        return set()
    return {pid for pid in usage.descendants(server) - before if _CLIENT in usage.title(pid)}


_CLIENT = " 127.0.0.1("
"""In the title of a process of PostgreSQL: whom it serves."""


def _delay_figures(lab: Lab, title: str, how: str, delays: Sequence[float], baseline: str | None = None) -> list[Figure]:
    if not delays:
        raise NotMeasured("no handler started")
    lost = lab.scale.paced - len(delays)
    notes = (f"{lost} of {lab.scale.paced} not started",) if lost > 0 else ()
    p50, p99 = percentile(delays, 50), percentile(delays, 99)
    lab.say(f"idle latency · {title}: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    work = f"{lab.scale.paced} jobs about {GAP_S * 1000:.0f} ms apart, {how}"
    row = Figure(topic=P50, work=work, system=title, unit=Unit.MS, values=(p50,), notes=notes, baseline=baseline)
    return [row, replace(row, topic=P99, values=(p99,))]


def percentile(ascending: Sequence[float], percent: int) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)]
