"""The measurements that Rota and its peers share: the same work, the peers taking turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from peers.common import LATENCY, read_delays, read_starts

from harness import usage
from harness.children import Child, NotMeasured
from harness.figures import Figure, Unit, number
from harness.lab import ROTA, Lab, System

DRAIN_CAP_S = 45.0
SETTLE_S = 3.0
GAP_S = 0.05
THREADS = 8


class Reading(NamedTuple):
    """One run's figure, and what is to be said about it."""

    value: float
    note: str = ""


def enqueue(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    """Enqueue one by one from one process; for Rota also from eight threads at once, and with a unique key each."""
    taking_part = [system for system in systems if system.enqueue]
    topic = "enqueue one by one"
    yield from _in_turns(lab, taking_part, topic, lambda system: f"{lab.scaled(system.enqueue):,} jobs", _enqueue_rate)
    if ROTA in systems:
        jobs = lab.scaled(ROTA.enqueue)
        yield _rota_variant(lab, topic, f"{jobs:,} jobs, {THREADS} threads", f"Rota, {THREADS} threads", _threads_rate)
        yield _rota_variant(lab, topic, f"{jobs:,} jobs, a unique_key each", "Rota, unique_key", _keyed_rate)


def bulk(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    """Enqueue many at once: Rota from a generator, the others in chunks of 1,000, plain SQLite in transactions of 100."""
    taking_part = [system for system in systems if system.bulk]
    yield from _in_turns(lab, taking_part, "enqueue in bulk", lambda system: f"{lab.scaled(system.bulk):,} jobs", _bulk_rate)


def drain(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    """Run no-op jobs with one and with two worker processes."""
    taking_part = [system for system in systems if system.drain]
    for workers in (1, 2):
        topic = f"drain, {workers} worker process{'es' if workers > 1 else ''}"
        measure = _drain_with(workers)
        yield from _in_turns(lab, taking_part, topic, lambda system: f"{lab.scaled(system.drain):,} no-op jobs", measure)


def idle(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    """An idle worker: its CPU, and the delay from enqueue in another process to the handler's start."""
    rows: list[Figure] = []
    for system in (system for system in systems if system.drain):
        rows += _idle_of(lab, system)
    if ROTA in systems:
        rows += _idle_inside(lab)
    for topic in dict.fromkeys(row.topic for row in rows):
        yield from (row for row in rows if row.topic == topic)


# ---- taking turns ----------------------------------------------------------------------------------------------

Measure = Callable[[Lab, System], Reading]


def _in_turns(lab: Lab, systems: Sequence[System], topic: str, work: Callable[[System], str], measure: Measure) -> list[Figure]:
    """Measure each system once, then each again: a slow minute of the machine hits all of them."""
    reasons = {system.name: reason for system in systems if (reason := lab.why_not(system))}
    readings: dict[str, list[Reading]] = {system.name: [] for system in systems}
    for run in range(lab.scale.runs):
        for system in systems:
            if system.name in reasons:
                continue
            try:
                reading = measure(lab, system)
            except NotMeasured as error:
                reasons[system.name] = str(error)
                lab.say(f"{topic} · {system.title} · not measured: {error}")
                continue
            readings[system.name].append(reading)
            rate = f"{number(reading.value, Unit.PER_SECOND)}/s {reading.note}"
            lab.say(f"{topic} · {system.title} · run {run + 1} of {lab.scale.runs}: {rate}")
    return [_figure(system.title, topic, work(system), readings[system.name], reasons.get(system.name)) for system in systems]


def _figure(title: str, topic: str, work: str, readings: Sequence[Reading], reason: str | None, baseline: str | None = None) -> Figure:
    notes = [reading.note for reading in readings if reading.note]
    if readings and reason:
        notes.append(f"only {len(readings)} of the runs: {reason}")
    values = tuple(reading.value for reading in readings)
    missing = reason if not readings else None
    return Figure(
        topic=topic, work=work, system=title, unit=Unit.PER_SECOND, values=values, notes=tuple(notes), missing=missing, baseline=baseline
    )


def _rota_variant(lab: Lab, topic: str, work: str, title: str, measure: Measure) -> Figure:
    readings: list[Reading] = []
    reason = lab.why_not(ROTA)
    try:
        while not reason and len(readings) < lab.scale.runs:
            readings.append(measure(lab, ROTA))
            lab.say(f"{topic} · {title}: {number(readings[-1].value, Unit.PER_SECOND)}/s")
    except NotMeasured as error:
        reason = str(error)
    return _figure(title, topic, work, readings, reason, baseline=ROTA.title)


# ---- rates -----------------------------------------------------------------------------------------------------


def _enqueue_rate(lab: Lab, system: System) -> Reading:
    lab.ask(system, "reset")
    jobs = lab.scaled(system.enqueue)
    return Reading(jobs / lab.ask(system, "enqueue", jobs)["seconds"])


def _threads_rate(lab: Lab, system: System) -> Reading:
    lab.ask(system, "reset")
    jobs = lab.scaled(system.enqueue)
    return Reading(jobs / lab.ask(system, "enqueue_threads", jobs, THREADS)["seconds"])


def _keyed_rate(lab: Lab, system: System) -> Reading:
    lab.ask(system, "reset")
    jobs = lab.scaled(system.enqueue)
    return Reading(jobs / lab.ask(system, "enqueue_keyed", jobs)["seconds"])


def _bulk_rate(lab: Lab, system: System) -> Reading:
    lab.ask(system, "reset")
    jobs = lab.scaled(system.bulk)
    return Reading(jobs / lab.ask(system, "bulk", jobs)["seconds"])


def _drain_with(workers: int) -> Measure:
    def measure(lab: Lab, system: System) -> Reading:
        jobs = lab.scaled(system.drain)
        lab.ask(system, "reset")
        lab.ask(system, "bulk" if system.bulk else "enqueue", jobs)
        return drain_rate(lab, system, jobs, watch=("watch", jobs), workers=workers)

    return measure


def drain_rate(lab: Lab, system: System, jobs: int, *, watch: tuple[object, ...], workers: int = 1, **extra: str) -> Reading:
    """Let workers run what is loaded; the rate is over the time from the first handler's start until the store says none is left."""
    lab.clear()
    watcher = lab.start(system, str(watch[0]), *watch[1:], **extra)
    time.sleep(1.0)  # it has imported what it needs by then, and does not compete with the workers
    with lab.working(system, workers, **extra) as crew:
        try:
            end = lab.answer(watcher, cap_s=DRAIN_CAP_S)["answer"]
        except NotMeasured:
            return _cut(lab, crew)
    starts = read_starts(lab.counters)
    note = f"{starts.jobs:,} starts for {jobs:,} jobs" if starts.jobs < jobs else ""
    return Reading(jobs / (end - starts.first), note)


def _cut(lab: Lab, crew: Sequence[Child]) -> Reading:
    """Make do with what ran until the cap: its rate, marked."""
    starts = read_starts(lab.counters)
    if starts.jobs < 2:
        ended = [child.returncode for child in crew if child.poll() is not None]
        raise NotMeasured(f"the worker ended with {ended[0]}" if ended else f"no progress in {DRAIN_CAP_S:.0f} s")
    return Reading((starts.jobs - 1) / (starts.last - starts.first), f"cut after {starts.jobs:,} starts")


# ---- idle ------------------------------------------------------------------------------------------------------

P50, P99, CPU = "idle latency, p50", "idle latency, p99", "idle worker's CPU"


def _idle_of(lab: Lab, system: System) -> list[Figure]:
    try:
        if reason := lab.why_not(system):
            raise NotMeasured(reason)
        lab.ask(system, "reset")
        lab.clear()
        with lab.working(system) as (worker,):
            time.sleep(SETTLE_S)
            cpu = _idle_cpu(lab, system, worker)
            lab.ask(system, "pace", lab.scale.paced, GAP_S)
            time.sleep(1.0)
        delays = read_delays(lab.counters, LATENCY)
        return [*_delay_figures(lab, system.title, "from another process", delays), cpu]
    except NotMeasured as error:
        lab.say(f"idle · {system.title} · not measured: {error}")
        row = Figure(topic=P50, work="", system=system.title, unit=Unit.MS, missing=str(error))
        return [row, replace(row, topic=P99), replace(row, topic=CPU, unit=Unit.CPU)]


def _idle_inside(lab: Lab) -> list[Figure]:
    title = "Rota, same process"
    try:
        if reason := lab.why_not(ROTA):
            raise NotMeasured(reason)
        lab.ask(ROTA, "reset")
        lab.clear()
        lab.ask(ROTA, "pace_inside", lab.scale.paced, GAP_S)
        return _delay_figures(lab, title, "worker in the enqueuing process", read_delays(lab.counters, LATENCY), baseline=ROTA.title)
    except NotMeasured as error:
        return [Figure(topic=topic, work="", system=title, unit=Unit.MS, missing=str(error)) for topic in (P50, P99)]


def _idle_cpu(lab: Lab, system: System, worker: Child) -> Figure:
    begun, server = usage.cpu_s(worker.pid), lab.server_pid if system.store == "postgres" else None
    server_begun = usage.cpu_s(server) if server else 0.0
    time.sleep(lab.scale.idle_s)
    share = 100 * (usage.cpu_s(worker.pid) - begun) / lab.scale.idle_s
    notes = (f"and {100 * (usage.cpu_s(server) - server_begun) / lab.scale.idle_s:.1f} % in PostgreSQL",) if server else ()
    lab.say(f"idle · {system.title}: {share:.1f} % of a core")
    work = f"{lab.scale.idle_s:.0f} s, nothing queued"
    return Figure(topic=CPU, work=work, system=system.title, unit=Unit.CPU, values=(share,), notes=notes)


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
