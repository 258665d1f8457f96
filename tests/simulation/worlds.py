"""Worlds to simulate: schedules of every kind, drawn by chance, with templates, limits, calendars, pauses and dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec

from rota import Rota
from rota.errors import DependencyCycle, InvalidSchedule, NotFound, StillNeeded
from rota.model.definitions import Organization, Template
from rota.model.figures import TypeStats
from rota.model.schedule_options import with_options
from rota.model.schedules import Calendar, Kind, Schedule, ScheduleState, Timing
from rota.model.values import SECOND, instant
from rota.simulation import Deed, Definitions, Fault, Order, Stage

DAY = 86_400 * SECOND
ZONES = ("UTC", "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
STARTS = (
    datetime(2026, 3, 1, 12, tzinfo=UTC),
    datetime(2026, 3, 27, 12, tzinfo=UTC),  # before Europe's clocks go forward
    datetime(2026, 10, 24, 6, tzinfo=UTC),  # before they go back
    datetime(2028, 2, 28, 12, tzinfo=UTC),
)


def world(seed: int, *, most: int = 5) -> Definitions:
    """Draw the definitions of a small store."""
    chance = Random(f"world {seed}")
    start = start_of(seed)
    templates = [_template(chance, number) for number in range(1, 4)]
    calendars = [
        ("default", Calendar(name="holidays", days=frozenset((start + timedelta(days=chance.randrange(5))).date() for _ in range(2))))
    ]
    schedules: list[Schedule] = []
    for number in range(chance.randrange(1, most + 1)):
        schedules.append(_schedule(chance, number, [each.name for each in schedules], start))
    figures = tuple(
        TypeStats(
            job_type=each.name, completed=100, failed=20, failure_rate=chance.choice([0.0, 0.2, 0.9]), average_s=average, p95_s=3 * average
        )
        for each in templates
        if (average := chance.choice([0.05, 5.0, 90.0, 2000.0, 0.0]))
    )
    return Definitions(
        organizations=[Organization(name="default", display_name="Default", max_running=chance.choice([None, None, 2]))],
        templates=templates,
        calendars=calendars,
        schedules=schedules,
        figures=figures,
    )


def start_of(seed: int) -> datetime:
    return STARTS[seed % len(STARTS)]


def order(seed: int, **given) -> Order:
    """Draw how a world is lived through: with every fault, often."""
    chance = Random(f"order {seed}")
    start = instant(start_of(seed))
    values = {
        "end": start + round(chance.choice([0.25, 0.5, 1.5]) * DAY),
        "workers": chance.choice([1, 1, 2, 3]),
        "concurrency": chance.choice([1, 4]),
        "faults": tuple(Fault),
        "faults_per_day": chance.choice([6.0, 12.0]),
        "failures": chance.random() < 0.5,
    }
    return Order(start=start, seed=seed, **(values | given))


def _template(chance: Random, number: int) -> Template:
    said: dict[str, object] = {"max_retries": chance.choice([0, 1, 5]), "timeout": chance.choice([300.0, 1000.0])}
    if chance.random() < 0.2:
        said["max_running"] = 1
    return Template(id=f"{number:032x}", name=f"job{number}", job_type=f"job{number}", defaults=said)


def _schedule(chance: Random, number: int, before: list[str], start: datetime) -> Schedule:
    while True:
        options = _options(chance, before, start)
        empty = Schedule(id=f"{number + 100:032x}", name=f"s{number}", organization="default", template="", timing=Timing(kind=Kind.CRON))
        try:
            made = with_options(empty, options, instant(start))
        except (InvalidSchedule, DependencyCycle):
            continue
        state = chance.choice([ScheduleState.ENABLED] * 8 + [ScheduleState.PAUSED, ScheduleState.DISABLED])
        return msgspec.structs.replace(made, state=state)


def _options(chance: Random, before: list[str], start: datetime) -> dict[str, object]:
    options: dict[str, object] = {"template": f"job{chance.randrange(1, 4)}"}
    options |= chance.choice([_cron, _cron, _every, _at])(chance, start)
    if "at" not in options:
        options["catch_up"] = chance.choice(["none", "last", "last", "all"])
        if chance.random() < 0.2:
            options["catch_up_lateness"] = chance.choice([600, 7200])
        if options["catch_up"] == "all" and chance.random() < 0.7:
            options["catch_up_count"] = chance.choice([1, 3, 20])
        if chance.random() < 0.2:
            options["ends"] = start + timedelta(hours=chance.randrange(2, 60))
    options["overlap"] = chance.choice(["skip", "skip", "queue", "allow"])
    if chance.random() < 0.2:
        options["jitter"] = chance.choice([30, 600])
    if chance.random() < 0.3:
        options["calendar"] = "holidays"
    if before and chance.random() < 0.3:
        options["depends_on"] = [chance.choice(before)]
    return options


def _cron(chance: Random, _start: datetime) -> dict[str, object]:
    minute = chance.choice(["*/5", "*/20", "0", "30", "7,37"])
    hour = chance.choice(["*", "*", "*/3", "1", "2", "3", "9-17"])
    return {"cron": f"{minute} {hour} * * {chance.choice(['*', '*', 'MON-FRI'])}", "timezone": chance.choice(ZONES)}


def _every(chance: Random, _start: datetime) -> dict[str, object]:
    return {"every": chance.choice([120, 600, 3600, 5400, 86_400])}


def _at(chance: Random, start: datetime) -> dict[str, object]:
    return {"at": start + timedelta(minutes=chance.randrange(1, 3000)), "on_completion": chance.choice(["PRESERVE", "DROP"])}


class Meddler:
    """Somebody who changes schedules while they run: edits, pauses, disables, enables, deletes, fires by hand."""

    def __init__(self, seed: int, made: Stage, names: Sequence[str]) -> None:
        self._chance = Random(f"meddler {seed}")
        self._made = made
        self._names = names
        self.rota = Rota(made.path, settings=made.settings, clock=made.clock, ids=made.ids)
        self.done: Counter[str] = Counter()

    def deeds(self, order: Order, count: int) -> list[Deed]:
        return [Deed(self._chance.randrange(order.start, order.end), self.act) for _ in range(count)]

    def act(self) -> None:
        if self._made.clock.error:
            return  # a definition that was changed in another year can't be held against the due times of this one
        name, verb = (
            self._chance.choice(self._names),
            self._chance.choice(["edit", "edit", "rule", "pause", "enable", "disable", "fire", "delete"]),
        )
        try:
            self._do(verb, name)
        except (NotFound, InvalidSchedule, StillNeeded, DependencyCycle):
            return
        self.done[verb] += 1

    def _was_ahead(self, name: str) -> bool:
        return bool(self.rota.schedules.occurrences(name, since=timedelta(0), limit=1))

    def _do(self, verb: str, name: str) -> None:
        rota, chance = self.rota, self._chance
        match verb:
            case "edit" if self._was_ahead(name):
                return  # what fired ahead of its time stays, and is no due time of another rule
            case "edit":
                times = chance.choice([_cron, _every])(chance, self._made.clock)
                rota.schedules.update(name, **times)
            case "rule":
                rota.schedules.update(name, overlap=chance.choice(["queue", "allow"]), catch_up=chance.choice(["none", "last", "all"]))
            case "pause":
                rota.schedules.pause(name)
            case "enable":
                rota.schedules.enable(name)
            case "disable":
                rota.schedules.disable(name)
            case "fire":
                rota.schedules.fire(name)
            case _:
                rota.schedules.delete(name)
