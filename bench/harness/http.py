"""The front door: jobs made over HTTP, one by one and in bulk, beside an empty endpoint of Starlette that is asked for the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psutil
from peers.common import remove_sqlite

from harness.children import NotMeasured
from harness.figures import Figure, Unit
from harness.lab import PREFIX, ROTA, ROTA_PG, SQLITE, Lab, System

CONNECTIONS = 32
SECONDS = 5.0
BULK = 200_000
EMPTY, ONE, CPU, MANY = "empty endpoint", "Rota, one by one", "Rota, CPU of one", "Rota, a line each"
FILE = "http.db"


@dataclass(frozen=True)
class Answered:
    """What a server did: requests a second, and its CPU for one."""

    rate: float
    cpu_us: float


def http(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    """Ask the two servers in turns, with the same body over as many connections; then for very many with one request."""
    for system in [each for each in (ROTA, ROTA_PG) if each in systems]:
        yield from _of_store(lab, system)


def _of_store(lab: Lab, system: System) -> Iterator[Figure]:
    topic = f"{PREFIX[system.store]}POST /jobs"
    found: dict[str, list[float]] = {EMPTY: [], ONE: [], MANY: []}
    costs: dict[str, list[float]] = {EMPTY: [], ONE: []}
    reason = lab.why_not(system)
    try:
        if reason:
            raise NotMeasured(reason)
        for _ in range(lab.scale.runs):
            _once(lab, system, found, costs)
            lab.say(f"{topic}: empty {found[EMPTY][-1]:,.0f}/s, Rota {found[ONE][-1]:,.0f}/s, in bulk {found[MANY][-1]:,.0f}/s")
    except NotMeasured as error:
        reason = str(error)
    row = Figure(topic=topic, work=f"{CONNECTIONS} connections", system=EMPTY, unit=Unit.PER_SECOND, missing=reason)
    yield replace(row, values=tuple(found[EMPTY]))
    yield replace(row, system=ONE, values=tuple(found[ONE]), baseline=EMPTY)
    cpu = replace(row, topic=f"{topic}, CPU", unit=Unit.US)
    yield replace(cpu, values=tuple(costs[EMPTY]))
    yield replace(cpu, system=CPU, values=tuple(costs[ONE]), baseline=EMPTY)
    jobs = lab.scaled(BULK)
    yield replace(row, topic=f"{PREFIX[system.store]}POST /jobs/bulk", work=f"{jobs:,} lines", system=MANY, values=tuple(found[MANY]))


def _once(lab: Lab, system: System, found: dict[str, list[float]], costs: dict[str, list[float]]) -> None:
    with _serving(lab, "empty") as server:
        answered = _load(lab, server)
    found[EMPTY].append(answered.rate)
    costs[EMPTY].append(answered.cpu_us)
    remove_sqlite(lab.stores / FILE)
    with _serving(lab, "sqlite" if system.store == SQLITE else "postgres", str(lab.stores / FILE)) as server:
        answered = _load(lab, server)
        found[ONE].append(answered.rate)
        costs[ONE].append(answered.cpu_us)
        found[MANY].append(_ask(lab, server, "bulk", lab.scaled(BULK))["rate"])
    remove_sqlite(lab.stores / FILE)


@contextmanager
def _serving(lab: Lab, *words: str) -> Iterator[dict[str, object]]:
    """Have a server inside the block; yield its port, its token and its process."""
    command = [sys.executable, str(lab.bench / "peers" / "http_server.py"), *words]
    child = lab.children.start(command, lab.environment | {"PYTHONPATH": _path(lab)}, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise NotMeasured("the server did not start: see children.log")
        yield json.loads(line)
    finally:
        lab.children.stop(child)


def _load(lab: Lab, server: dict[str, object]) -> Answered:
    _ask(lab, server, "single", CONNECTIONS, 3.0)  # it is starting still
    before = _cpu_s(server)
    rate = _ask(lab, server, "single", CONNECTIONS, SECONDS)["rate"]
    return Answered(rate, (_cpu_s(server) - before) / (rate * SECONDS) * 1e6)


def _cpu_s(server: dict[str, object]) -> float:
    used = psutil.Process(int(str(server["pid"]))).cpu_times()
    return float(used.user + used.system)


def _ask(lab: Lab, server: dict[str, object], command: str, *words: object) -> dict[str, float]:
    # The token begins with a dash, so that none at all is a word too.
    said = [command, str(server["port"]), f"-{server['token']}", *map(str, words)]
    answer: dict[str, float] = json.loads(lab.children.call([sys.executable, str(lab.bench / "peers" / "http_load.py"), *said], cap_s=120))
    return answer


def _path(lab: Lab) -> str:
    return f"{lab.bench}:{lab.bench.parent / 'src'}"
