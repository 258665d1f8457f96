"""What is measured of Rota alone with several organizations: limits and fairness, a quiet one's wait, a blocked head."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from peers.common import LATENCY, read_delays, remove_sqlite

from harness.children import NotMeasured
from harness.draining import DRAIN_CAP_S, drain_rate
from harness.figures import Figure, Unit, number
from harness.lab import ROTA, Lab, System

LOAD_CAP_S = 180.0
ORGANIZATIONS = 1000
SHARED, BUSY, BLOCKED = 200_000, 100_000, 100_000
FILE = "tenants.db"
ONE, MANY, LIMITED = "one organization", f"{ORGANIZATIONS:,} organizations", f"{ORGANIZATIONS:,}, all limited"
FIFO, FAIR = "order of arrival", "fair share"
OPEN, BLOCKED_HEAD = "none blocked", "blocked head"


def limits(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Drain what a thousand organizations have waiting, with limits on each and on the template; and the same without."""
    jobs = lab.scaled(SHARED)
    arms = {ONE: (0, 0), MANY: (ORGANIZATIONS, 0), LIMITED: (ORGANIZATIONS, 1)}

    def rate(arm: str) -> float:
        loaded = lab.stores / f"tenants-{list(arms).index(arm)}.db"
        if not loaded.exists():
            lab.ask(ROTA, "tenants", jobs, *arms[arm], cap_s=LOAD_CAP_S, BENCH_ROTA_FILE=loaded.name)
        shutil.copy(loaded, lab.stores / FILE)
        return _drained(lab, jobs, "watch", jobs)

    row = Figure(topic="drain, fair and limited", work=f"{jobs:,} no-op jobs", system="", unit=Unit.PER_SECOND)
    yield from _arms(lab, row, {ONE: None, MANY: ONE, LIMITED: MANY}, rate)
    for index in range(len(arms)):
        remove_sqlite(lab.stores / f"tenants-{index}.db")


def quiet(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Enqueue a single job while another organization's hundred thousand are being drained: how long it waits to start."""
    jobs = lab.scaled(BUSY)

    def wait_ms(arm: str) -> float:
        remove_sqlite(lab.stores / FILE)
        lab.ask(ROTA, "busy", jobs, cap_s=LOAD_CAP_S, BENCH_ROTA_FILE=FILE)
        lab.clear()
        late = lab.start(ROTA, "late", "busy" if arm == FIFO else "quiet", jobs // 20, BENCH_ROTA_FILE=FILE)
        with lab.working(ROTA, BENCH_ROTA_FILE=FILE):
            lab.answer(late, cap_s=DRAIN_CAP_S)
        return read_delays(lab.counters, LATENCY)[0]

    row = Figure(topic="wait of a single job", work=f"behind {jobs:,} of another organization", system="", unit=Unit.MS)
    yield from _arms(lab, row, {FIFO: None, FAIR: FIFO}, wait_ms)


def blocked(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Run a few jobs behind the hundred thousand of an organization that is suspended: the first start, and all of them."""
    front, waiting = lab.scale.front, lab.scaled(BLOCKED)

    def load(arm: str) -> int:
        remove_sqlite(lab.stores / FILE)
        if arm == BLOCKED_HEAD:
            lab.ask(ROTA, "block", waiting, cap_s=LOAD_CAP_S, BENCH_ROTA_FILE=FILE)
        return int(lab.ask(ROTA, "front", front, BENCH_ROTA_FILE=FILE)["answer"])

    def first_ms(arm: str) -> float:
        load(arm)
        lab.clear()
        moments = lab.ask(ROTA, "ready", BENCH_ROTA_FILE=FILE)["answer"]
        return 1000 * float(moments["first"] - moments["opened"])

    def rate(arm: str) -> float:
        return _drained(lab, front, "watch_front", front, load(arm))

    work, arms = f"{front:,} no-op jobs", {OPEN: None, BLOCKED_HEAD: OPEN}
    row = Figure(topic=f"first start behind {waiting:,} blocked", work=work, system="", unit=Unit.MS)
    yield from _arms(lab, row, arms, first_ms)
    row = Figure(topic=f"drain behind {waiting:,} blocked", work=f"{work}, from the first start", system="", unit=Unit.PER_SECOND)
    yield from _arms(lab, row, arms, rate)


def _arms(lab: Lab, row: Figure, arms: Mapping[str, str | None], measure: Callable[[str], float]) -> Iterator[Figure]:
    """Measure the arms, each with what it is compared to, in turns: a slow minute of the machine hits all of them."""
    readings: dict[str, list[float]] = {arm: [] for arm in arms}
    reason = lab.why_not(ROTA)
    try:
        for _ in range(0 if reason else lab.scale.runs):
            for arm in arms:
                readings[arm].append(measure(arm))
                lab.say(f"{row.topic} · {arm}: {number(readings[arm][-1], row.unit)}{row.unit}")
    except NotMeasured as error:
        reason = str(error)
        lab.say(f"{row.topic} · not measured: {error}")
    finally:
        remove_sqlite(lab.stores / FILE)
    for arm, values in readings.items():
        missing = None if values else reason or "no run"
        yield replace(row, system=arm, values=tuple(values), missing=missing, baseline=arms[arm])


def _drained(lab: Lab, jobs: int, *watch: object) -> float:
    reading = drain_rate(lab, ROTA, jobs, watch=watch, BENCH_ROTA_FILE=FILE)
    remove_sqlite(lab.stores / FILE)
    if reading.note:
        raise NotMeasured(reading.note)
    return reading.value
