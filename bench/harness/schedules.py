"""What schedules cost: a look when none is due, very many due at once, due times worked out, a simulated week."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from peers.common import remove_sqlite

from harness.children import NotMeasured
from harness.figures import Figure, Unit
from harness.lab import Lab, System

TIMED = System("rota-schedules", "Rota with schedules", "rota_schedules.py", "rota", "sqlite")
REGISTERED, DUE, CRONS, SIMULATED, DAYS = 100_000, 10_000, 10_000, 1000, 7
CAP_S = 300.0
FILE = "schedules.db"
BULK, FIRED = "enqueue_many", "fire"


def schedules(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    """Measure each by itself: one that can't be measured does not keep the others back."""
    for figures in (_look, _fire, _crons, _due_times, _simulate):
        remove_sqlite(lab.stores / FILE)
        try:
            if reason := lab.why_not(TIMED):
                raise NotMeasured(reason)
            yield from figures(lab, systems)
        except NotMeasured as error:
            yield Figure(topic="schedules", work=figures.__name__.strip("_"), system="Rota", unit=Unit.MS, missing=str(error))
        finally:
            remove_sqlite(lab.stores / FILE)


def _look(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    count = lab.scaled(REGISTERED)
    found = lab.ask(TIMED, "look", count, cap_s=CAP_S, BENCH_ROTA_FILE=FILE)["answer"]
    lab.say(f"{count:,} schedules, none due: {found['ms']:.4f} ms a look")
    yield Figure(topic="tick, none due", work=f"{count:,} schedules", system="Rota", unit=Unit.MS, values=(found["ms"],))


def _fire(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    due, others = lab.scaled(DUE), lab.scaled(REGISTERED - DUE)
    found = lab.ask(TIMED, "fire", due, others, cap_s=CAP_S, BENCH_ROTA_FILE=FILE)["answer"]
    row = Figure(topic=f"{due:,} due at once", work=f"of {due + others:,} schedules", system=BULK, unit=Unit.MS)
    yield replace(row, values=tuple(found["enqueue"]), work=f"{due:,} jobs")
    yield replace(row, system=FIRED, values=tuple(found["fire"]), baseline=BULK)


def _crons(lab: Lab, systems: Sequence[System]) -> Iterator[Figure]:
    row = Figure(topic="a minute's tick", work=f"{CRONS:,} crons, {CRONS // 60} due", system="Rota", unit=Unit.MS)
    found = lab.ask(TIMED, "crons", CRONS, cap_s=CAP_S, BENCH_ROTA_FILE=FILE)["answer"]
    yield replace(row, values=(found["ms"],), notes=(f"{found['due']} fired",))
    huey = next((system for system in systems if system.name == "huey"), None)
    if huey is not None:
        lab.ask(huey, "reset")
        yield replace(row, system=huey.title, values=(lab.ask(huey, "crons", CRONS, cap_s=CAP_S)["answer"]["ms"],))


def _due_times(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    found = lab.ask(TIMED, "due_times", BENCH_ROTA_FILE=FILE)["answer"]
    work = f"a year of an every-minute cron: {found['count']:,}"
    yield Figure(topic="due times", work=work, system="Europe/Berlin", unit=Unit.PER_SECOND, values=(found["per_second"],))


def _simulate(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    count = lab.scaled(SIMULATED)
    found = lab.ask(TIMED, "simulate", count, DAYS, cap_s=CAP_S, BENCH_ROTA_FILE=FILE)["answer"]
    notes = (f"{found['fired']:,} due times fired and run",)
    row = Figure(topic="simulation", work=f"{DAYS} days of {count:,} schedules", system="Rota", unit=Unit.SECONDS)
    yield replace(row, values=(found["seconds"],), notes=notes)
