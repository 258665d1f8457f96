"""Whether the cost of a job on PostgreSQL stays the same: nothing else there, very many waiting, very many ended, both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.children import NotMeasured
from harness.draining import Reading, describe_load, drain_rate
from harness.figures import Figure, Unit
from harness.lab import ROTA_PG, Lab, System

LOAD_CAP_S = 1800.0
NONE = "an empty store"


@dataclass(frozen=True)
class Arm:
    """One store: how many ended jobs it has, and which jobs wait in it."""

    name: str
    title: str
    ended: int = 0
    waiting: int = 0
    kinds: tuple[str, ...] = ()

    @property
    def rota(self) -> System:
        """Return Rota on a database of this arm's own."""
        return replace(ROTA_PG, extra={"BENCH_ROTA_DATABASE": f"rota_depth_{self.name}"})


def depth(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Drain the same jobs over stores of different depth, in turns; each store is vacuumed once after it was filled."""
    arms = _arms(lab.scale.waiting_pg, lab.scale.ended_pg)
    readings: dict[str, list[Reading]] = {arm.name: [] for arm in arms}
    reasons = {arm.name: reason for arm in arms if (reason := _load(lab, arm))}
    for _ in range(lab.scale.runs):
        for arm in [arm for arm in arms if arm.name not in reasons]:
            try:
                readings[arm.name].append(_front_rate(lab, arm))
                lab.say(f"depth · {arm.title}: {readings[arm.name][-1].value:,.0f}/s")
            except NotMeasured as error:
                reasons[arm.name] = str(error)
                lab.say(f"depth · {arm.title} · not measured: {error}")
    row = Figure(topic="PostgreSQL: drain by depth", work=f"{lab.scale.front:,} no-op jobs", system="", unit=Unit.PER_SECOND)
    for arm in arms:
        found = readings[arm.name]
        notes = tuple(filter(None, [describe_load([reading.load for reading in found if reading.load])]))
        baseline = None if arm.title == NONE else NONE
        missing = None if found else reasons.get(arm.name, "no run")
        yield replace(
            row, system=arm.title, values=tuple(reading.value for reading in found), notes=notes, baseline=baseline, missing=missing
        )
    _remove(lab, arms)


def _arms(waiting: int, ended: int) -> list[Arm]:
    return [
        Arm("none", NONE),
        Arm("later", f"{waiting:,} due later", waiting=waiting, kinds=("later",)),
        Arm("low", f"{waiting:,} of lower priority", waiting=waiting, kinds=("low",)),
        Arm("foreign", f"{waiting:,} of a type it can't run", waiting=waiting, kinds=("foreign",)),
        Arm("ended", f"{ended:,} ended", ended=ended),
        Arm("both", f"{ended:,} ended, {waiting:,} waiting (all three)", ended, waiting, ("later", "low", "foreign")),
    ]


def _load(lab: Lab, arm: Arm) -> str | None:
    """Fill a store; return why it could not be done."""
    try:
        if reason := lab.why_not(arm.rota):
            raise NotMeasured(reason)
        lab.ask(arm.rota, "reset")
        if arm.ended:
            _end(lab, arm)
        for kind in arm.kinds:
            lab.ask(arm.rota, "backlog", arm.waiting // len(arm.kinds), kind, cap_s=LOAD_CAP_S)
        lab.ask(arm.rota, "settle", cap_s=LOAD_CAP_S)
    except NotMeasured as error:
        lab.say(f"depth · {arm.title} · not measured: {error}")
        return str(error)
    lab.say(f"depth · {arm.title}: filled")
    return None


def _end(lab: Lab, arm: Arm) -> None:
    """Have so many jobs enqueued and run: what has ended has been through everything that ended jobs go through."""
    lab.ask(arm.rota, "fill", arm.ended, cap_s=LOAD_CAP_S)
    over = lab.start(arm.rota, "over")
    with lab.working(arm.rota):
        lab.answer(over, cap_s=LOAD_CAP_S)


def _front_rate(lab: Lab, arm: Arm) -> Reading:
    after = lab.ask(arm.rota, "front", lab.scale.front)["answer"]
    reading = drain_rate(lab, arm.rota, lab.scale.front, watch=("watch_front", lab.scale.front, after))
    if reading.note:
        raise NotMeasured(reading.note)
    return reading


def _remove(lab: Lab, arms: Sequence[Arm]) -> None:
    for arm in arms:
        try:
            lab.ask(arm.rota, "remove")
        except NotMeasured:
            return  # there is no server; what it had went with its folder
